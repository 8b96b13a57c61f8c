"""An outcome model on Mayo PBC: transplant-free survival to two years, by how missing cholesterol is handled.

    SAFEIMPUTE_DATA=... python -m safeimpute_lab draws prediction [--into docs/downstream.md]

Landmarks are the visits: at each, the chance of death or transplant within two years from what was known by then.
Visits censored before two years are left out. Cholesterol is imputed from the past alone, by models that never saw the
patient; the outcome model is learnt and judged across patients, over several divisions into folds.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from safeimpute import SafeImputer
from safeimpute.evaluation.completions import LAST, judge, plain_values, predict_across
from safeimpute.evaluation.metrics import auc
from safeimpute.model.filling import draw_values
from safeimpute.visits.examples import load_pbc
from safeimpute_lab.evidence.datasets import data_folder
from safeimpute_lab.studies.into_page import put_into

HORIZON = 730.5  # days
DIVISIONS = 10
DRAWS = 20
RESAMPLED = 400
WITHOUT, COMPLETE = "without cholesterol", "complete cases (measured visits only)"
CARRIED, AVERAGE = "last value carried", "overall mean and a flag"
FILLED, RELEASED, DRAWN = (
    "best filled everywhere",
    "released; withheld: mean and a flag",
    "draws, predictions averaged",
)
LOGGED = ("bilirubin", "protime")
PLAIN = ("albumin", "age")


def outcomes(table: pl.DataFrame) -> Any:
    """Death or transplant within two years of each visit; NaN where follow-up ended before, without either."""
    raw = pl.read_csv(data_folder() / "mayo_pbc" / "pbcseq_visits.csv.gz", infer_schema_length=None)
    ends = raw.group_by("id").agg(pl.col("futime").first(), pl.col("status").first())
    joined = table.join(ends, left_on="subject_id", right_on="id", how="left", maintain_order="left")
    left = (joined["futime"] - joined["time"]).to_numpy()
    event = joined["status"].to_numpy() > 0
    return np.where(event & (left <= HORIZON), 1.0, np.where(left >= HORIZON, 0.0, np.nan))


def designs(table: pl.DataFrame, imputer: SafeImputer, released: Any) -> dict[str, list[Any]]:
    """Per way the predictors at every visit: one design, or one per draw; None of the visits is left out."""
    lab = imputer.labs_["cholesterol"]
    visits, calibrated = lab.visits.arrays, lab.calibrated
    order = visit_order(table, imputer)
    others = [np.log(table[name].to_numpy()) for name in LOGGED] + [table[name].to_numpy() for name in PLAIN]
    base = np.column_stack(others)[order]
    base = np.where(np.isnan(base), np.nanmean(base, axis=0), base)
    target, rows = visits.target_values, calibrated.candidates
    plain = plain_values(visits, past_only=True)
    absent = np.isnan(target)
    carried, mean = np.where(absent, plain[LAST], target), np.where(absent, np.nanmean(target), target)
    filled = np.where(absent, calibrated.estimates.value, target)
    passed = absent.copy()
    passed[rows[released]] = False
    drawn = np.repeat(target[:, None], DRAWS, axis=1)
    drawn[rows] = draw_values(imputer.labs_["cholesterol"], DRAWS)

    def with_(*columns: Any) -> Any:
        return np.column_stack([base, *columns])

    return {
        WITHOUT: [base],
        COMPLETE: [with_(np.log(target))],
        AVERAGE: [with_(np.log(mean), absent)],
        CARRIED: [with_(np.log(carried))],
        FILLED: [with_(np.log(filled))],
        RELEASED: [with_(np.log(np.where(passed, mean, filled)), passed)],
        DRAWN: [with_(np.log(each)) for each in drawn.T],
    }


def visit_order(table: pl.DataFrame, imputer: SafeImputer) -> Any:
    """Row of the table of every visit in canonical order."""
    order = np.empty(len(imputer.labs_["cholesterol"].visits), dtype=np.int64)
    order[imputer.labs_["cholesterol"].visits.row_visit] = np.arange(len(table))
    return order


def main() -> None:
    """Fit, predict, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--divisions", type=int, default=DIVISIONS)
    parser.add_argument("--into", type=Path, help="page to put the table into: docs/downstream.md")
    told = parser.parse_args()
    table = load_pbc()
    imputer = SafeImputer(target="cholesterol", tolerance="20%", fdr=0.2, unit="mg/dL", past_only=True).fit(table)
    released = imputer.impute(table)["released"].to_numpy()
    ways = designs(table, imputer, released)
    outcome, patient = outcomes(table)[visit_order(table, imputer)], imputer.labs_["cholesterol"].visits.arrays.patient
    known = np.isfinite(outcome)
    found: dict[str, Any] = {}
    chances = {}
    for name, several in ways.items():
        rows = known & np.isfinite(several[0]).all(axis=1)
        per_division = []
        for division in range(told.divisions):
            each = [
                predict_across(
                    d[rows], outcome[rows] > 0.5, patient[rows], np.ones(rows.sum()), np.random.default_rng(division)
                )
                for d in several
            ]
            per_division.append(np.mean(each, axis=0))
        chances[name] = rows, np.mean(per_division, axis=0)
        told_of = judge(chances[name][1], outcome[rows] > 0.5, patient[rows], np.random.default_rng(1))
        assert told_of is not None
        found[name] = {"visits": int(rows.sum()), "events": int(outcome[rows].sum()), **vars(told_of)}
        found[name]["against"] = None if name == COMPLETE else difference(chances, name, outcome, patient)
    missing = float(np.mean(np.isnan(imputer.labs_["cholesterol"].visits.arrays.target_values[known])))
    text = as_table(found, int(known.sum()), missing)
    print(text)
    if told.into:
        put_into(told.into, "prediction", text)
    if told.out:
        told.out.parent.mkdir(parents=True, exist_ok=True)
        told.out.write_text(json.dumps(found, indent=1))


def difference(chances: dict[str, Any], name: str, outcome: Any, patient: Any) -> tuple[float, float]:
    """AUC against the model without cholesterol on the same visits, with a paired standard error over patients."""
    rows, own = chances[name]
    _, base = chances[WITHOUT]
    event, who = outcome[rows] > 0.5, patient[rows]
    parts = [np.flatnonzero(who == each) for each in np.unique(who)]
    rng, again = np.random.default_rng(2), []
    for _ in range(RESAMPLED):
        there = np.concatenate([parts[k] for k in rng.integers(len(parts), size=len(parts))])
        again.append((auc(own[there], event[there]) or 0.5) - (auc(base[there], event[there]) or 0.5))
    return float((auc(own, event) or 0.5) - (auc(base, event) or 0.5)), float(np.std(again, ddof=1))


def as_table(found: dict[str, Any], visits: int, missing: float) -> str:
    """One row per way."""
    lines = [f"{visits} visits with a known outcome, cholesterol missing at {missing:.0%} of them", ""]
    lines += [
        "| way | visits | AUC | against without cholesterol | calibration slope | Brier score |",
        "|---" * 6 + "|",
    ]
    for name, told in found.items():
        pairs = [f"{told[key][0]:.3f} ± {told[key][1]:.3f}" for key in ("auc", "slope", "brier")]
        against = "–" if told["against"] is None else f"{told['against'][0]:+.4f} ± {told['against'][1]:.4f}"
        lines.append(f"| {name} | {told['visits']} | {pairs[0]} | {against} | {pairs[1]} | {pairs[2]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
