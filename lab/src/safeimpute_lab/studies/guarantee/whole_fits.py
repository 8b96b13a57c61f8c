"""Whole fits of odd cohorts, kept as what a release is decided from, so that any rule can be judged on the same fits.

    python -m safeimpute_lab guarantee fits --out out/fits --draws 0 90 --jobs 2    four seconds of one core a fit
    python -m safeimpute_lab guarantee fits --out out/binary --kinds none covariate --tolerance 'class 0<1' --light
    python -m safeimpute_lab guarantee fits --out out/fits --judge [--promise confident]    a rule on all of them

One file per kind: per fit the visits of the fitted patients and of as many new ones.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.selection.cutoff import Rule, find_cutoff
from safeimpute.selection.ledger import Entries, Ledger, risk_grid
from safeimpute.settings import PromiseName
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY, Cohort, draw_cohort
from safeimpute_lab.studies.guarantee.odd_cohorts import KINDS, SIZES, TOLERANCE, draw_odd_cohort
from safeimpute_lab.studies.guarantee.rules import summarise

ALPHAS = (0.05, 0.1, 0.2, 0.35)
NEW_KEYS = 1_000_000
Fit = dict[str, np.ndarray]
FitOne = Callable[[str, int], Fit]
PLAIN = {"none": BY_KEY["none"], "covariate": BY_KEY["covariate"]}


def draw_kind(key: str, rng: np.random.Generator, patients: int, first_key: int, tolerance: Tolerance) -> Cohort:
    """A cohort of a kind; where classes are decided on, its target is made of the nearest class."""
    found = (
        draw_cohort(PLAIN[key], rng, patients, first_key)
        if key in PLAIN
        else draw_odd_cohort(key, rng, patients, first_key)
    )
    return Cohort(
        found.visits.with_target(tolerance.settled(found.visits.target_values)), tolerance.settled(found.truth)
    )


def fit_one(key: str, draw: int, tolerance: str = str(TOLERANCE), *, light: bool = False) -> Fit:
    """One cohort through the imputer, the risk and the odds; nothing is released yet."""
    from safeimpute.model.fit import fit_question
    from safeimpute.selection.questions import draw_roles, question_of
    from safeimpute.settings import BestSettings, make_settings
    from safeimpute_lab.studies.guarantee.cells import _meet_new_patients

    patients = SIZES[draw % len(SIZES)]
    seed, allowed = [[*KINDS, *PLAIN].index(key), draw], parse_tolerance(tolerance)
    cohort = draw_kind(key, np.random.default_rng([*seed, 0]), patients, 0, allowed)
    new = draw_kind(key, np.random.default_rng([*seed, 1]), patients, NEW_KEYS, allowed)
    best = BestSettings(effort="light").resolved(several=False) if light else None
    settings = make_settings(target="target", tolerance=tolerance, fdr=0.2, best=best, random_state=draw)
    question = question_of(cohort.visits, settings, draw_roles(cohort.visits, draw))
    fitted, calibrated = fit_question(cohort.visits, question, settings)
    data = calibrated.selection_data(allowed)
    estimates, outside = _meet_new_patients(calibrated, fitted, new, settings)
    beyond = np.any(list(outside.values()), axis=0)
    asked = new.unmeasured & ~beyond & np.isfinite(estimates.risk)
    return {
        "patient": data.patient.astype(np.int32),
        "risk": data.risk.astype(np.float32),
        "weight": data.weight.astype(np.float32),
        "inside": data.inside,
        "measured": data.judged,
        "candidate": data.candidate,
        "risky": allowed.loss(calibrated.estimates.value, cohort.truth),
        "fold": question.fold.astype(np.int8),
        "new_patient": new.visits.patient[asked].astype(np.int32),
        "new_risk": estimates.risk[asked].astype(np.float32),
        "new_risky": allowed.loss(estimates.value, new.truth)[asked],
    }


def save_fits(path: Path, fits: dict[int, Fit]) -> None:
    """All fits of a kind in one file."""
    arrays = {f"{draw}/{name}": array for draw, fit in fits.items() for name, array in fit.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def load_fits(path: Path) -> list[Fit]:
    """The fits of one file, in order."""
    found: dict[int, Fit] = {}
    with np.load(path) as stored:
        for name in stored.files:
            draw, field = name.split("/")
            found.setdefault(int(draw), {})[field] = stored[name]
    return [found[draw] for draw in sorted(found)]


def judge(folder: Path, promise: PromiseName) -> Iterator[dict[str, Any]]:
    """What a rule releases of every kind at every level, of the fitted patients and of new ones."""
    for path in sorted(folder.glob("*.npz")):
        fits = load_fits(path)
        for alpha in ALPHAS:
            counts = np.array([_counts(fit, Rule("unmeasured", alpha, promise)) for fit in fits], dtype=np.float64)
            for who, start in (("same", 0), ("new", 3)):
                risky, released, good = counts[:, start : start + 3].T
                found = vars(summarise(risky, released, good, alpha))
                yield {"kind": path.name.split(".")[0], "who": who, "alpha": alpha} | found


def _counts(fit: Fit, rule: Rule) -> tuple[float, ...]:
    """Risky ones released, released, and good candidates: of the fitted patients, then of new ones."""
    judged, asked = fit["measured"] & fit["inside"], fit["candidate"] & fit["inside"]
    risk, weight = fit["risk"].astype(np.float64), fit["weight"].astype(np.float64)
    entries = Entries(fit["patient"][judged].astype(np.int64), risk[judged], weight[judged], fit["risky"][judged])
    ledger = Ledger(entries, risk_grid(risk[judged | asked]), risk[asked])
    cutoff = find_cutoff(ledger, rule).risk
    limit = -np.inf if cutoff is None else cutoff
    found: tuple[float, ...] = ()
    for risks, risky in ((risk[asked], fit["risky"][asked]), (fit["new_risk"], fit["new_risky"])):
        released = risks <= limit
        found += (float(np.sum(risky[released])), int(released.sum()), float(np.sum(1.0 - risky)))
    return found


def main() -> None:
    """Fit draw by draw over all kinds until the time is up; every kind is saved with the draws it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, nargs=2, default=[0, 40], help="first and one beyond the last")
    parser.add_argument("--kinds", nargs="+", choices=sorted([*KINDS, *PLAIN]), default=list(KINDS))
    parser.add_argument("--tolerance", default=str(TOLERANCE), help="limits, classes or costs, too")
    parser.add_argument("--light", action="store_true", help="light fits")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no fit after so long")
    parser.add_argument("--judge", action="store_true", help="fit nothing: judge the fits that are there")
    parser.add_argument("--promise", choices=("average", "confident"), default="average")
    told = parser.parse_args()
    if told.judge:
        for row in judge(told.out, told.promise):
            print(
                " ".join(f"{name}={each:.3f}" if isinstance(each, float) else str(each) for name, each in row.items())
            )
        return
    told.out.mkdir(parents=True, exist_ok=True)
    fit = partial(fit_one, tolerance=told.tolerance, light=told.light)
    fits = _run(fit, told.kinds, range(*told.draws), told.jobs, time.monotonic() + 60 * told.minutes)
    for key, of_kind in fits.items():
        save_fits(told.out / f"{key.replace(' ', '_')}.{told.draws[0]}.npz", of_kind)


def _timed(fit: FitOne, key: str, draw: int, until: float) -> Fit | None:
    return fit(key, draw) if time.monotonic() < until else None


def _run(one: FitOne, kinds: list[str], draws: range, jobs: int, until: float) -> dict[str, dict[int, Fit]]:
    found: dict[str, dict[int, Fit]] = {key: {} for key in kinds}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        queued: dict[Any, tuple[str, int]] = {
            pool.submit(_timed, one, key, draw, until): (key, draw) for draw in draws for key in kinds
        }
        for future in as_completed(queued):
            key, draw = queued[future]
            if future.exception() is not None:
                print(f"{key} #{draw}: {future.exception()!r}", flush=True)
            elif (fit := future.result()) is not None:
                found[key][draw] = fit
    print({key: len(of_kind) for key, of_kind in found.items()}, flush=True)
    return found


if __name__ == "__main__":
    main()
