"""The list of patients: filtered, sorted by what needs a look, one page at a time."""

from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from safeimpute.web.review_state import ACCEPTED, REJECTED, UNDECIDED
from safeimpute.web.run_data import RunData

PAGE_SIZE = 50
NEAR_DAYS = 400  # a measured value about a year away still tells whether an imputed one is plausible
LAST_PAGE = 10_000_000
Bound = Annotated[float | None, Field(allow_inf_nan=False)]
MARK_NUMBERS = {"undecided": UNDECIDED, "accepted": ACCEPTED, "rejected": REJECTED}


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


def list_patients(run: RunData, marks: pl.Series, filters: Filters) -> dict[str, Any]:
    """One page of patients, the ones most in need of a look first."""
    matches = pl.all_horizontal(_conditions(filters)).alias("matches")
    marked = run.imputations.lazy().with_columns(marks).with_columns(matches)
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


def _by_need(imputations: pl.LazyFrame) -> pl.LazyFrame:
    """A released value nobody has decided about needs a look, and the riskier the sooner.

    Values near a measured one of the same patient come first: beside it an imputed one can be judged.
    """
    wanted = NEEDS & pl.col("matches")
    near = pl.col("risk").filter(wanted & NEAR).max()
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
            pl.coalesce(near, pl.col("risk").filter(wanted).max()).alias("need"),
        )
        .filter(pl.col("matching") > 0)
        .sort(["comparable", "need", "patient"], descending=[True, True, False], nulls_last=True)
    )


def _leading(imputations: pl.LazyFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The open value of each listed patient that is looked at first, and its risk."""
    return (
        imputations.filter(pl.col("patient").is_in(rows["patient"].implode()) & NEEDS)
        .select("patient", NEAR.alias("near"), open_value="value", open_risk="risk")
        .sort("near", "open_risk", descending=True)
        .group_by("patient", maintain_order=True)
        .agg(pl.col("open_value", "open_risk").first())
        .collect()
    )
