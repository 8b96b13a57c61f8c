"""Several labs whose values, errors and measuring hang together: does each keep its level, and all of them one?

    python -m safeimpute_lab labs rules --repetitions 2000 --jobs 2 --out out/study/labs_rules.json
    python -m safeimpute_lab labs cohorts --cohorts 40 --jobs 16 --minutes 8 --out out/study/labs_cohorts.json
    python -m safeimpute_lab labs table --from out/study/labs_rules.json out/study/labs_cohorts.json

`rules`: drawn worlds with known odds of measuring, the release rules alone. `cohorts`: simulated visits as arrays, fits
and weights real, light as in a run of several labs. Both count what is released of the unmeasured cells, whose truth
is known: in each lab when the level holds over labs, over all labs together under either promise.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.model.fit import fit_question
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.questions import question_for
from safeimpute.selection.release import Decision, SelectionData, decide
from safeimpute.selection.several import decide_together
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays, mix
from safeimpute_lab.studies.guarantee.rules import summarise

ALPHAS = (0.1, 0.2)
ALL = "all labs"


@dataclass(frozen=True)
class Kind:
    """How the labs of a world hang together."""

    shared: float  # spread of a patient's own difficulty, the same in every lab
    shock: float  # spread of a visit's, likewise
    panel: bool  # labs of a visit are measured together or not at all, as far as their chances allow
    hardness: tuple[float, ...]  # per lab: log odds of a risky error
    measured: tuple[float, ...]  # per lab: log odds of being measured


KINDS = {
    "independent": Kind(0.0, 0.0, False, (-1.2, -1.2, -1.2), (0.5, 0.5, 0.5)),
    "shared errors": Kind(1.2, 0.8, False, (-1.4, -1.2, -1.0), (0.5, 0.0, -0.5)),
    "panel": Kind(1.2, 0.8, True, (-1.4, -1.2, -1.0), (0.5, 0.0, -0.5)),
    "easy and hard": Kind(1.0, 0.5, True, (-3.0, 0.2, -1.0), (0.0, 0.0, 0.0)),
    "rare lab": Kind(1.0, 0.5, True, (-1.2, -1.2, -1.0), (0.5, 0.5, -2.5)),
    "one patient, many visits": Kind(1.6, 0.3, True, (-1.2, -1.2, -1.2), (0.5, 0.5, 0.5)),
}


@dataclass(frozen=True)
class Lab:
    """One lab of a world: what a release is decided from, and the truth at unmeasured visits."""

    data: SelectionData
    risky: BoolArray


def draw_labs(kind: Kind, rng: np.random.Generator, patients: int, heavy: bool = False) -> dict[str, Lab]:
    """Visits of some patients; a lab's errors and measuring follow what is seen, and what is not seen is shared."""
    counts = 1 + rng.poisson(3, patients) if not heavy else 1 + rng.geometric(0.12, patients)
    patient = np.repeat(np.arange(patients), counts)
    hidden = kind.shared * rng.normal(size=patients)[patient] + kind.shock * rng.normal(size=len(patient))
    seen, common = rng.normal(size=len(patient)), rng.random(len(patient))
    found = {}
    for number, (hardness, odds) in enumerate(zip(kind.hardness, kind.measured, strict=True)):
        own = 0.7 * seen + 0.7 * rng.normal(size=len(patient))
        risky = rng.random(len(patient)) < _sigmoid(hardness + 1.3 * own + hidden)
        chance = _sigmoid(odds - 0.8 * own)
        measured = (common if kind.panel else rng.random(len(patient))) < chance
        data = SelectionData(
            risk=_sigmoid(hardness + 1.3 * own),
            tie=rng.random(len(patient)),
            patient=patient,
            weight=(1 - chance) / chance,
            outside={},
            judged=measured,
            risky=risky & measured,
            candidate=~measured,
        )
        found[f"lab {number + 1}"] = Lab(data, risky)
    return found


def _sigmoid(x: FloatArray | float) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)), dtype=np.float64)


Counts = dict[tuple[str, float, str], tuple[int, int, int]]  # promise, level, lab -> risky, released, good


def judged(labs: dict[str, Lab], rule: Rule) -> Counts:
    """What either promise releases, lab by lab and over all labs."""
    data_by_lab = {name: lab.data for name, lab in labs.items()}
    each = {name: decide(data, rule) for name, data in data_by_lab.items()}
    together = decide_together(data_by_lab, rule)
    found: Counts = {}
    for promise, decisions in (("labs", each), ("cells", together)):
        rows = {name: _counted(lab, decisions[name]) for name, lab in labs.items()}
        whole = tuple(int(sum(column)) for column in zip(*rows.values(), strict=True))
        for name, row in {**rows, ALL: (whole[0], whole[1], whole[2])}.items():
            found[promise, rule.alpha, name] = row
    return found


def _counted(lab: Lab, decision: Decision) -> tuple[int, int, int]:
    risky = lab.risky[lab.data.candidate]
    return int(np.sum(risky & decision.released)), int(decision.released.sum()), int(np.sum(~risky))


def one_draw(seed: int, key: str, patients: int, promise: str = "average") -> Counts:
    """One world, released at every level."""
    kind, rng = KINDS[key], np.random.default_rng([11, seed])
    labs = draw_labs(kind, rng, patients, heavy=key.startswith("one patient"))
    return {
        name: row
        for alpha in ALPHAS
        for name, row in judged(labs, Rule("unmeasured", alpha, promise)).items()  # type: ignore[arg-type]
    }


def summaries(draws: list[Counts]) -> list[dict[str, Any]]:
    """One row per promise, level and lab."""
    rows = []
    for promise, alpha, lab in draws[0]:
        risky, released, good = np.array([each[promise, alpha, lab] for each in draws], dtype=np.float64).T
        told = vars(summarise(risky, released, good, alpha))
        # over labs each lab is promised the level, over cells all of them together
        promised = (lab == ALL) == (promise == "cells")
        holds = told["mean_fdp"] <= alpha + 3 * told["mean_fdp_se"]
        rows.append({"over": promise, "alpha": alpha, "lab": lab, "promised": promised, "holds": holds, **told})
    return rows


def draw_cohort(rng: np.random.Generator, patients: int, labs: int) -> tuple[VisitArrays, FloatArray]:
    """Visits with correlated labs whose noise grows with a seen severity and with the patient, alike in every lab."""
    counts = 2 + rng.poisson(5, patients)
    patient = np.repeat(np.arange(patients), counts)
    visits = len(patient)
    first = np.r_[0, np.cumsum(counts)[:-1]]
    moments = np.cumsum(rng.exponential(40.0, visits))
    day = moments - moments[first][patient]
    severity = 0.7 * rng.normal(size=patients)[patient] + 0.7 * rng.normal(size=visits)
    factor = rng.normal(size=(patients, 2))[patient] + 0.4 * rng.normal(size=(visits, 2))
    steady = 0.8 * rng.normal(size=(patients, labs))[patient]
    noise = np.exp(0.4 * severity + 0.4 * rng.normal(size=patients)[patient])
    shock = 0.5 * rng.normal(size=visits)  # one draw that went wrong moves every lab of the visit
    values = factor @ rng.normal(0.0, 0.7, (2, labs)) + steady
    values += 0.5 * noise[:, None] * (rng.normal(size=(visits, labs)) + shock[:, None])
    common = rng.random(visits)
    chance = _sigmoid(np.linspace(0.8, -0.4, labs) - 0.9 * severity[:, None])
    measured = (0.5 * common[:, None] + 0.5 * rng.random((visits, labs))) < _even(chance)
    key = mix(patient.astype(np.uint64) + np.uint64(1))
    arrays = VisitArrays(
        patient=patient,
        time=day,
        labs=np.where(measured, 10.0 + values, np.nan),
        lab_names=tuple(f"lab{k}" for k in range(labs)),
        target=0,
        attributes=severity[:, None],
        attribute_names=("severity",),
        patient_key=key,
        visit_key=mix(key ^ mix(day.view(np.uint64))),
    )
    return arrays, 10.0 + values


def _even(chance: FloatArray) -> FloatArray:
    """Where the mean of two uniform numbers must lie below for the chance to be kept."""
    return np.where(chance < 0.5, np.sqrt(chance / 2), 1.0 - np.sqrt((1.0 - chance) / 2))


def one_cohort(seed: int, patients: int, labs: int, tolerance: float) -> Counts:
    """One cohort: every lab fitted and weighed as a run of several labs does, released under both promises."""
    arrays, truth = draw_cohort(np.random.default_rng([13, seed]), patients, labs)
    settings = make_settings(
        target="lab0", tolerance=tolerance, fdr=0.2, random_state=seed, best={"effort": "light", "folds": 4}
    )
    found = {}
    for number, name in enumerate(arrays.lab_names):
        own: Settings = replace(settings, target=name)
        visits = replace(arrays, target=number)
        _, calibrated = fit_question(visits, question_for(visits, own), own)
        data = calibrated.selection_data(own.allowed_error)
        risky = own.allowed_error.risky(calibrated.estimates.value, truth[:, number])
        found[name] = Lab(data, risky)
    return {name: row for alpha in ALPHAS for name, row in judged(found, Rule("unmeasured", alpha)).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rules", "cohorts", "table"])
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--cohorts", type=int, default=40)
    parser.add_argument("--patients", type=int, default=300)
    parser.add_argument("--labs", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=1.2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", dest="found", type=Path, nargs="+", default=[])
    told = parser.parse_args()
    if told.what == "table":
        print(table([row for path in told.found for row in json.loads(path.read_text())]))
        return
    rows = _rules(told) if told.what == "rules" else _cohorts(told)
    for row in rows:
        print(json.dumps(row))
    if told.out:
        told.out.parent.mkdir(parents=True, exist_ok=True)
        told.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def table(rows: list[dict[str, Any]]) -> str:
    """What is promised, by world and level: the lab nearest to its level, or all labs together."""
    lines = [
        "| world | draws | promised for | level | mean FDP | pooled share | power | nothing released |",
        "|---|---|---|---|---|---|---|---|",
    ]
    worlds = dict.fromkeys(row.get("world", "whole fits") for row in rows)
    for world, over, alpha in product(worlds, ("labs", "cells"), ALPHAS):
        own = [
            row
            for row in rows
            if (row.get("world", "whole fits"), row["over"], row["alpha"]) == (world, over, alpha) and row["promised"]
        ]
        worst = max(own, key=lambda row: row["mean_fdp"] - alpha)
        pooled = max(own, key=lambda row: row["pooled"])
        who = f"each lab (worst: {worst['lab']})" if over == "labs" else "all cells together"
        lines.append(
            f"| {world} | {worst.get('draws') or worst['cohorts']:,} | {who} | {alpha:g} | {worst['mean_fdp']:.3f} ± "
            f"{worst['mean_fdp_se']:.3f} | {pooled['pooled']:.3f} ± {pooled['pooled_se']:.3f} | "
            f"{min(row['power'] for row in own):.2f} to {max(row['power'] for row in own):.2f} | "
            f"{100 * max(row['empty'] for row in own):.0f} % |"
        )
    kept = [row for row in rows if row["promised"]]
    above = [row for row in kept if row["pooled"] > row["alpha"] + 3 * row["pooled_se"]]
    lines += [
        "",
        f"Mean FDP at most the level + 3 standard errors in {sum(row['holds'] for row in kept)} of {len(kept)} "
        f"promised rows; the pooled share lies above that in {len(above)}, at a power of at most "
        f"{max((row['power'] for row in above), default=0.0):.2f}.",
    ]
    return "\n".join(lines) + "\n"


def _rules(told: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    with ProcessPoolExecutor(told.jobs) as pool:
        for key in KINDS:
            work = partial(one_draw, key=key, patients=told.patients)
            draws = list(pool.map(work, range(told.repetitions), chunksize=20))
            rows += [{"world": key, "draws": len(draws), **row} for row in summaries(draws)]
    return rows


def _cohorts(told: argparse.Namespace) -> list[dict[str, Any]]:
    """As many cohorts as the time allows."""
    end, draws = time.monotonic() + 60 * told.minutes, []
    with ProcessPoolExecutor(told.jobs) as pool:
        work = partial(one_cohort, patients=told.patients, labs=told.labs, tolerance=told.tolerance)
        waiting = [pool.submit(work, seed) for seed in range(told.cohorts)]
        for done in as_completed(waiting):
            draws.append(done.result())
            if time.monotonic() > end:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    return [{"cohorts": len(draws), "patients": told.patients, **row} for row in summaries(draws)]


if __name__ == "__main__":
    main()
