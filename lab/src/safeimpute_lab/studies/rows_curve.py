"""Whether more rows per member help: error, ranking and power against the measured visits one fold's model learns from.

    python -m safeimpute_lab rows run [--rows 50000,200000,500000,1000000,2000000] [--labs 4] [--out out/rows.jsonl]
    python -m safeimpute_lab rows table [--out out/rows.jsonl] [--into docs/evidence.md]

Simulated patients of the MIMIC-IV shape (level, drift, volatility, nonlinear margins). One fold's model is learnt
from so many measured visits, none left to a bound, and judged at the measured visits of 20,000 patients it never
saw (the same for all), each imputed from the patient's other values. *Power* is the share of acceptable values in
the largest release by risk whose unacceptable share is at most the level. Every line is kept, so a stopped run goes
on.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

JUDGED_PATIENTS = 20_000
MEASURED_PER_PATIENT = 4.95 * 0.65  # of the shape: visits, and the share of them with a target
TOLERANCE = 0.5
LEVELS = (0.05, 0.1, 0.2)
FOLDS = 4  # that the other patients fall into, as within a fit of five


def lift_bounds(rows: int) -> None:
    """Members of a bag learn from all rows they are given."""
    from safeimpute.learning.best import blend, fold_model

    for module, name in (
        (blend, "DIRECT"),
        (blend, "BEYOND_COURSE"),
        (fold_model, "PROBABILITY"),
        (fold_model, "SIZE"),
    ):
        setattr(module, name, replace(getattr(module, name), most_visits=rows))


def one(rows: int, labs: int, seed: int) -> dict[str, Any]:
    """A fold's model from so many measured visits, judged."""
    from safeimpute.evaluation.metrics import auc
    from safeimpute.learning.best.fold_model import Lesson, fit_fold_model
    from safeimpute.learning.roles import fold_of
    from safeimpute.settings import BestSettings
    from safeimpute.tolerance import Tolerance
    from safeimpute.visits.arrays import VisitArrays
    from safeimpute.visits.columns import ColumnChoice
    from safeimpute.visits.examples import simulate
    from safeimpute.visits.visits import prepare_visits
    from safeimpute_lab.studies.floor import power

    def cohort(patients: int, seed: int) -> VisitArrays:
        made = simulate("mimic4", np.random.default_rng(seed), patients=patients, labs=labs)
        return prepare_visits(made.visits, ColumnChoice(target="hba1c")).arrays

    learning, there = cohort(round(rows / MEASURED_PER_PATIENT), seed), cohort(JUDGED_PATIENTS, seed + 1_000)
    lift_bounds(rows)
    lesson = Lesson(BestSettings(learn_visits=10_000_000), Tolerance(TOLERANCE), past_only=False, calendar=True)
    start = time.process_time()
    fold = fold_of(learning.patient_key, seed, FOLDS)
    model = fit_fold_model(learning, fold, lesson, np.random.default_rng(seed))
    seconds = time.process_time() - start
    measured = ~np.isnan(there.target_values)
    found = model.estimate(there, wanted=measured)
    error = np.abs(found.value - there.target_values[measured])
    risky = error >= TOLERANCE - 1e-9
    return {
        "rows": int(np.sum(~np.isnan(learning.target_values))),
        "judged": len(error),
        "mae": float(error.mean()),
        "se": float(error.std() / np.sqrt(len(error))),
        "auc": auc(found.risk, risky),
        "power": {str(level): power(found.risk, risky, level) for level in LEVELS},
        "rounds": int(np.mean([each.num_trees() for each in model.trees.trees.members])),
        "seconds": seconds,
    }


def table(lines: list[dict[str, Any]]) -> str:
    """One row per size; errors as ratios to the smallest."""
    head = "| measured visits learnt from | MAE | against the first row | AUC of the risk | "
    head += " | ".join(f"power at {level:g}" for level in LEVELS) + " | trees | processor s |\n"
    text = head + "|---" * (7 + len(LEVELS) - 1) + "|\n"
    for each in sorted(lines, key=lambda line: line["rows"]):
        ratio = each["mae"] / min(lines, key=lambda line: line["rows"])["mae"]
        powers = " | ".join(f"{each['power'][str(level)]:.3f}" for level in LEVELS)
        text += f"| {each['rows']:,} | {each['mae']:.4f} | {ratio:.4f} | {each['auc']:.4f} | {powers} "
        text += f"| {each['rounds']} | {each['seconds']:,.0f} |\n"
    return text


def main() -> None:
    """Run the sizes that are not there yet, or write them as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--rows", default="50000,200000,500000,1000000,2000000")
    parser.add_argument("--labs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/rows.jsonl"))
    parser.add_argument("--into", type=Path)
    told = parser.parse_args()
    lines = [json.loads(line) for line in told.out.read_text().splitlines()] if told.out.exists() else []
    if told.what == "run":
        told.out.parent.mkdir(parents=True, exist_ok=True)
        for rows in map(int, told.rows.split(",")):
            if rows not in [line["asked"] for line in lines]:
                line = {"asked": rows} | one(rows, told.labs, told.seed)
                with told.out.open("a") as log:
                    log.write(json.dumps(line) + "\n")
                print(line, flush=True)
    elif told.into is None:
        print(table(lines))
    else:
        from safeimpute_lab.studies.into_page import put_into

        put_into(told.into, "rows", table(lines))


if __name__ == "__main__":
    main()
