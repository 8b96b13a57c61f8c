"""Patients as the page shows them: the list, those in need of a look first, and one patient's course."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from safeimpute.errors import OptionError
from safeimpute.report.run_folder import LAB_PREFIX
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute.visits.catalogue import DecisionLimits, lab_title, load_catalogue, normal_unit
from safeimpute.visits.imputations import BAND, CHANCE_OF_BAND
from safeimpute.web.decisions import ACCEPTED, MARKS, REJECTED, UNDECIDED, ReviewState
from safeimpute.web.run_data import RunData, lab_names

PAGE_SIZE = 50
NEAR_DAYS = 400  # a measured value about a year away still tells whether an imputed one is plausible
LAST_PAGE = 10_000_000
Bound = Annotated[float | None, Field(allow_inf_nan=False)]
MARK_NUMBERS = {"undecided": UNDECIDED, "accepted": ACCEPTED, "rejected": REJECTED}
OWN = "own visit"  # as SafeImputer.explain calls it
IMPUTED = (
    *("imputation", "value", "lower", "upper", "risk", "cutoff", "p_value"),
    *("released", "reason", "nearest", "need"),
)


class Filters(BaseModel):
    """Which page of which patients: those with an imputation that matches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    release: Literal["all", "released", "withheld"] = "all"
    review: Literal["all", "undecided", "accepted", "rejected"] = "all"
    risk_from: Bound = None
    risk_to: Bound = None
    value_from: Bound = None
    value_to: Bound = None
    search: Annotated[str, Field(max_length=200)] = ""
    page: Annotated[int, Field(ge=0, le=LAST_PAGE)] = 0


def list_patients(run: RunData, marks: pl.Series, filters: Filters) -> dict[str, object]:
    """One page of patients, the ones most in need of a look first."""
    matches = pl.all_horizontal(_conditions(filters)).alias("matches")
    marked = run.imputations.lazy().with_columns(marks, _need(run)).with_columns(matches)
    patients = _by_need(marked).collect()
    rows = patients.slice(filters.page * PAGE_SIZE, PAGE_SIZE)
    return {
        "unit": run.summary["unit"],
        "risk_is_probability": run.summary["risk_is_probability"],
        "patients": len(patients),
        "imputations": int(patients["matching"].sum()),
        "page": filters.page,
        "pages": max(1, -(-len(patients) // PAGE_SIZE)),
        "rows": rows.join(_leading(marked, rows), on="patient", how="left", maintain_order="left").to_dicts(),
    }


def _conditions(filters: Filters) -> list[pl.Expr]:
    conditions = [pl.lit(True)]
    if filters.release != "all":
        conditions.append(pl.col("released") == (filters.release == "released"))
    if filters.review != "all":
        conditions.append(pl.col("review") == MARK_NUMBERS[filters.review])
    for name, low, high in (
        ("risk", filters.risk_from, filters.risk_to),
        ("value", filters.value_from, filters.value_to),
    ):
        if low is not None:
            conditions.append(pl.col(name) >= low)
        if high is not None:
            conditions.append(pl.col(name) <= high)
    if filters.search:
        wanted = filters.search.lower()
        conditions.append(pl.col("subject").str.to_lowercase().str.contains(wanted, literal=True))
    return conditions


NEEDS = pl.col("released") & (pl.col("review") == UNDECIDED)
NEAR = (pl.col("nearest") <= NEAR_DAYS).fill_null(value=False)


def _need(run: RunData) -> pl.Expr:
    """The riskier the sooner; but a value that only safer ones make up for comes after those within the level."""
    above = pl.col("risk") > (run.summary["fdr"] if run.summary["risk_is_probability"] else math.inf)
    return (pl.col("risk") - above.cast(pl.Float64)).alias("need")


def _by_need(imputations: pl.LazyFrame) -> pl.LazyFrame:
    """A released value nobody has decided about needs a look.

    Values near a measured one of the same patient come first: beside it an imputed one can be judged.
    """
    wanted = NEEDS & pl.col("matches")
    near = pl.col("need").filter(wanted & NEAR).max()
    return (
        imputations.group_by("patient")
        .agg(
            pl.col("subject").first(),
            pl.len().alias("imputations"),
            pl.col("released").sum(),
            (pl.col("review") != UNDECIDED).sum().alias("decided"),
            NEEDS.sum().alias("open"),
            pl.col("matches").sum().alias("matching"),
            near.is_not_null().alias("comparable"),
            pl.coalesce(near, pl.col("need").filter(wanted).max()).alias("need"),
        )
        .filter(pl.col("matching") > 0)
        .sort(["comparable", "need", "patient"], descending=[True, True, False], nulls_last=True)
    )


def _leading(imputations: pl.LazyFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The open value of each listed patient that is looked at first, and its risk."""
    return (
        imputations.filter(pl.col("patient").is_in(rows["patient"].implode()) & NEEDS)
        .select("patient", "need", NEAR.alias("near"), open_value="value", open_risk="risk")
        .sort("near", "need", descending=True)
        .group_by("patient", maintain_order=True)
        .agg(pl.col("open_value", "open_risk").first())
        .collect()
    )


class Limit(TypedDict):
    """A value at which a clinician decides."""

    value: float
    name: str  # what begins there; empty where the source does not say


class Usual(TypedDict):
    """Between which values most healthy adults lie."""

    low: float
    high: float
    source: str
    verified: bool


class LabFacts(TypedDict):
    """What is drawn and said beside a lab's values."""

    title: str
    limits: list[Limit]
    limits_source: str
    usual: Usual | None


class MeasuredLab(LabFacts):
    """A lab's values at every visit of a patient."""

    name: str
    unit: str | None
    values: list[float | None]


def lab_facts(name: str, unit: str | None) -> LabFacts:
    """The facts of a lab in `unit`; without a known unit no limit is drawn, since it would be in another one."""
    known = load_catalogue().labs.get(name)
    rule = known.conversions.get(normal_unit(unit)) if known and unit else None
    if known is None or rule is None:
        return {"title": lab_title(name), "limits": [], "limits_source": "", "usual": None}

    def here(value: float) -> float:
        return float(f"{(value - rule.plus) / rule.times:.4g}")

    limits, usual = known.decision_limits, known.reference
    named = zip(limits.values, _names(limits), strict=True) if limits else ()
    return {
        "title": lab_title(name),
        "limits": [{"value": here(value), "name": words} for value, words in named],
        "limits_source": limits.source.partition(":")[0] if limits else "",
        "usual": {
            "low": here(usual.low),
            "high": here(usual.high),
            "source": usual.source,
            "verified": "reference" in known.verified,
        }
        if usual
        else None,
    }


def _names(limits: DecisionLimits) -> list[str]:
    """What begins at each limit, as the source lists it after its colon."""
    names = [each.strip() for each in limits.source.partition(":")[2].split(",")]
    return names if len(names) == len(limits.values) else [""] * len(limits.values)


def read_patient(run: RunData, state: ReviewState, patient: int) -> dict[str, object]:
    """Everything the page draws of a patient; days count from the first visit."""
    visits = pl.scan_parquet(run.visits_file).filter(pl.col("patient") == patient).collect()
    if visits.is_empty():
        raise OptionError("there is no such patient in this run.")
    day = visits["day"] - visits["day"].min()
    imputed = run.imputations.filter(pl.col("patient") == patient).with_columns(_need(run))
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


def _measured_labs(run: RunData, visits: pl.DataFrame) -> list[MeasuredLab]:
    """The target first, then the labs this patient has, those measured most often before the others."""
    target = run.summary["target"]
    columns = {name: visits[f"{LAB_PREFIX}{name}"] for name in lab_names(visits)}
    shown = [name for name, column in columns.items() if name == target or column.null_count() < len(column)]
    shown.sort(key=lambda name: (name != target, columns[name].null_count(), name))
    units = {name: run.unit_of(name) for name in shown}
    return [
        {"name": name, "unit": units[name], "values": columns[name].to_list(), **lab_facts(name, units[name])}
        for name in shown
    ]


def _imputations(
    run: RunData, state: ReviewState, imputed: pl.DataFrame, days: dict[int, float]
) -> list[dict[str, object]]:
    marks, why = state.marks(), _why(run, imputed)
    tolerance = parse_tolerance(run.summary["tolerance"])
    return [
        {
            **{name: row[name] for name in IMPUTED},
            "near": row["nearest"] is not None and row["nearest"] <= NEAR_DAYS,
            "acceptable": _acceptable(tolerance, row["value"]),
            **_bands(tolerance, row),
            "time": row["time_text"],
            "day": days[row["imputation"]],
            "review": MARKS[marks[row["imputation"]]],
            "history": [
                {"at": each.at, "reviewer": each.reviewer, "kind": each.kind, "comment": each.comment}
                for each in state.in_force(row["imputation"])
            ],
            "why": why.get(row["time_text"]),
        }
        for row in imputed.iter_rows(named=True)
    ]


def _bands(tolerance: Tolerance, row: Mapping[str, Any]) -> dict[str, object]:
    """Where limits count: the value's band, and how likely each is."""
    if not tolerance.limits:
        return {}
    chances = (row[CHANCE_OF_BAND.format(place + 1)] for place in range(len(tolerance.bands)))
    words = zip(tolerance.bands, chances, strict=True)
    return {BAND: row[BAND], "bands": [{"band": band, "chance": chance} for band, chance in words]}


def _acceptable(tolerance: Tolerance, value: float | None) -> list[float] | None:
    """The true values at which the imputed one would be within the tolerance."""
    if value is None or tolerance.levels:
        return None
    band = tolerance.acceptable_truth(value)
    return list(band) if all(map(math.isfinite, band)) else None


def _why(run: RunData, imputed: pl.DataFrame) -> dict[str, dict[str, object]]:
    """By the imputed visit's time: the patient's own visits and other patients' visits that carried the value."""
    if not run.why_file.is_file():
        return {}
    subject = imputed["subject_id"][0]
    rows = pl.scan_parquet(run.why_file).filter(pl.col("subject_id") == subject).collect()
    by_visit = rows.with_columns(pl.col("time").cast(pl.String)).partition_by("time", as_dict=True)
    return {str(time): _carried_by(part) for (time,), part in by_visit.items()}


def _carried_by(rows: pl.DataFrame) -> dict[str, object]:
    heaviest = rows.sort("weight", descending=True)
    own = heaviest.filter(pl.col("carried_by") == OWN)
    others = heaviest.filter(pl.col("carried_by") != OWN)
    return {
        "own": own.select("gap_days", "value", "weight").to_dicts(),
        "others": others.select("value", "weight", "value_distance", "trend_distance").to_dicts(),
        "own_weight": float(own["weight"].sum()),
        "others_weight": float(others["weight"].sum()),
    }
