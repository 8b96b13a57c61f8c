"""`run` against hidden truth: cohorts in which measuring follows what the table shows, scored where nobody measured.

    python bench/measuring_shift.py [--cohorts 20] [--patients 600]     writes docs/measuring_shift.md

For each cohort the default preset is fitted as `safeimpute run` would, released once with the weights of the claim
`unmeasured` and once as if measured and unmeasured visits were alike, and compared with the truth of the simulation.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safeimpute.selection.pipeline import Scored, release, score_split, split_for
from safeimpute.systems.presets import Plan

from safeimpute.errors import GuaranteeRefused
from safeimpute.evaluation.metrics import false_discovery_proportion, power
from safeimpute.records.simulate import simulate
from safeimpute.records.visits import ColumnChoice, prepare_visits
from safeimpute.selection.claims import Claim
from safeimpute.selection.release import OUT_OF_SCOPE
from safeimpute.tolerance import Tolerance

LEVELS = (0.1, 0.2, 0.35)
TOLERANCE = 0.7  # HbA1c points
SHIFTS = ("none", "covariate")


def one_cohort(shift: str, seed: int, patients: int) -> dict[str, Any]:
    cohort = simulate("mimic4", np.random.default_rng(seed), patients=patients, shift=shift)  # type: ignore[arg-type]
    visits = prepare_visits(cohort.visits, ColumnChoice("hba1c"))
    asked = visits.subject.to_frame("subject_id").with_columns(visits.time.alias("time"))
    truth = asked.join(cohort.truth, on=["subject_id", "time"], how="left", maintain_order="left")[
        "hba1c"
    ].to_numpy()
    claim, tolerance = Claim(unmeasured=True), Tolerance(TOLERANCE)
    split = split_for(claim, visits.arrays, seed)
    scored = score_split(visits.arrays, split, claim, Plan("best", tolerance, seed))
    plain = replace(
        scored, claim=Claim(), outside={k: v for k, v in scored.outside.items() if k != OUT_OF_SCOPE}
    )
    return {
        "shift": shift,
        "seed": seed,
        "weighted": {str(level): outcome(scored, tolerance, level, truth) for level in LEVELS},
        "unweighted": {str(level): outcome(plain, tolerance, level, truth) for level in LEVELS},
    }


def outcome(scored: Scored, tolerance: Tolerance, level: float, truth: np.ndarray) -> dict[str, Any]:
    candidates = scored.candidates()
    try:
        decision = release(scored, tolerance, level, candidates, truth)
    except GuaranteeRefused:
        return {"fdp": 0.0, "power": 0.0, "refused": True}
    bad = tolerance.risky(scored.scores.value[candidates], truth[candidates])
    return {
        "fdp": false_discovery_proportion(bad, decision.released),
        "power": power(bad, decision.released),
        "refused": False,
        "effective": decision.effective_sample_size,
    }


def write_page(rows: list[dict[str, Any]], patients: int, folder: Path) -> None:
    lines = [
        "# Unmeasured visits: the release against hidden truth",
        "",
        f"`python bench/measuring_shift.py --cohorts {len(rows) // len(SHIFTS)} --patients {patients}`: simulated",
        f"cohorts of the MIMIC-IV shape, preset `best`, tolerance {TOLERANCE} HbA1c points. FDP and power are over the",
        "visits where nobody measured, whose truth the simulation knows; mean over cohorts ± one standard error.",
        "Shift `covariate`: measuring depends on glucose, gap, visit number and age (`safeimpute simulate --shift`).",
        "",
        "| shift | level | FDP, weighted | power | refused | FDP, unweighted | power |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for shift in SHIFTS:
        for level in map(str, LEVELS):
            cells = [shift, level]
            for rule in ("weighted", "unweighted"):
                found = [row[rule][level] for row in rows if row["shift"] == shift]
                for what in ("fdp", "power"):
                    values = np.array([each[what] for each in found])
                    cells.append(f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}")
                if rule == "weighted":
                    cells.append(str(sum(each["refused"] for each in found)))
            lines.append(f"| {' | '.join(cells)} |")
    (folder / "measuring_shift.md").write_text("\n".join(lines) + "\n")
    (folder / "measuring_shift.json").write_text(json.dumps(rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cohorts", type=int, default=20)
    parser.add_argument("--patients", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    tasks = [(shift, 100 + seed) for shift in SHIFTS for seed in range(given.cohorts)]
    with ProcessPoolExecutor(given.jobs) as pool:
        futures = [pool.submit(one_cohort, shift, seed, given.patients) for shift, seed in tasks]
        rows = [future.result() for future in futures]
    write_page(rows, given.patients, given.out)
    print((given.out / "measuring_shift.md").read_text())


if __name__ == "__main__":
    main()
