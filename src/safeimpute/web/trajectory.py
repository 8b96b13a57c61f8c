"""One patient's course: what was measured, what was imputed, what carried it, and what reviewers said."""

import math
from typing import Any

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.report.run_folder import LAB_PREFIX
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute.web.decisions import Decision
from safeimpute.web.lab_facts import lab_facts
from safeimpute.web.patients import NEAR_DAYS
from safeimpute.web.review_state import MARKS, ReviewState
from safeimpute.web.run_data import RunData, lab_names

OWN = "own visit"  # as SafeImputer.explain calls it
IMPUTED = (
    "imputation",
    "value",
    "lower",
    "upper",
    "risk",
    "cutoff",
    "p_value",
    "released",
    "reason",
    "nearest",
)


def read_patient(run: RunData, state: ReviewState, patient: int) -> dict[str, Any]:
    """Everything the page draws of a patient; days count from the first visit."""
    visits = pl.scan_parquet(run.visits_file).filter(pl.col("patient") == patient).collect()
    if visits.is_empty():
        raise OptionError("there is no such patient in this run.")
    day = visits["day"] - visits["day"].min()
    imputed = run.imputations.filter(pl.col("patient") == patient)
    days = dict(zip(visits["imputation"], day, strict=True))
    return {
        "patient": patient,
        "subject": imputed["subject"][0],
        "days": day.to_list(),
        "times": visits["time"].cast(pl.String).to_list(),
        "labs": _measured_labs(run, visits),
        "set_aside": visits["set_aside"].to_list() if "set_aside" in visits.columns else [None] * len(visits),
        "imputations": _imputations(run, state, imputed, days),
        "explained": run.why_file.is_file(),
    }


def _measured_labs(run: RunData, visits: pl.DataFrame) -> list[dict[str, Any]]:
    """The target first, then the labs this patient has, those measured most often before the others."""
    target = run.summary["target"]
    columns = {name: visits[f"{LAB_PREFIX}{name}"] for name in lab_names(visits)}
    shown = [name for name, column in columns.items() if name == target or column.null_count() < len(column)]
    shown.sort(key=lambda name: (name != target, columns[name].null_count(), name))
    units = {name: run.unit_of(name) for name in shown}
    return [
        {
            "name": name,
            "unit": units[name],
            "values": columns[name].to_list(),
            **lab_facts(name, units[name]),
        }
        for name in shown
    ]


def _imputations(
    run: RunData, state: ReviewState, imputed: pl.DataFrame, days: dict[int, float]
) -> list[dict[str, Any]]:
    marks, why = state.marks(), _why(run, imputed)
    tolerance = parse_tolerance(run.summary["tolerance"])
    return [
        {
            **{name: row[name] for name in IMPUTED},
            "near": row["nearest"] is not None and row["nearest"] <= NEAR_DAYS,
            "acceptable": _acceptable(tolerance, row["value"]),
            "time": row["time_text"],
            "day": days[row["imputation"]],
            "review": MARKS[marks[row["imputation"]]],
            "history": [_told(decision) for decision in state.standing(row["imputation"])],
            "why": why.get(row["time_text"]),
        }
        for row in imputed.iter_rows(named=True)
    ]


def _acceptable(tolerance: Tolerance, value: float | None) -> list[float] | None:
    """The true values at which the imputed one would be within the tolerance."""
    if value is None:
        return None
    band = tolerance.acceptable_truth(value)
    return list(band) if all(map(math.isfinite, band)) else None


def _told(decision: Decision) -> dict[str, str]:
    return {
        "at": decision.at,
        "reviewer": decision.reviewer,
        "kind": decision.kind,
        "comment": decision.comment,
    }


def _why(run: RunData, imputed: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """By the imputed visit's time: the patient's own visits and other patients' visits that carried the value."""
    if not run.why_file.is_file():
        return {}
    subject = imputed["subject_id"][0]
    rows = pl.scan_parquet(run.why_file).filter(pl.col("subject_id") == subject).collect()
    by_visit = rows.with_columns(pl.col("time").cast(pl.String)).partition_by("time", as_dict=True)
    return {str(time): _carried_by(part) for (time,), part in by_visit.items()}


def _carried_by(rows: pl.DataFrame) -> dict[str, Any]:
    heaviest = rows.sort("weight", descending=True)
    own = heaviest.filter(pl.col("carried_by") == OWN)
    others = heaviest.filter(pl.col("carried_by") != OWN)
    return {
        "own": own.select("gap_days", "value", "weight").to_dicts(),
        "others": others.select("value", "weight", "value_distance", "trend_distance").to_dicts(),
        "own_weight": float(own["weight"].sum()),
        "others_weight": float(others["weight"].sum()),
    }
