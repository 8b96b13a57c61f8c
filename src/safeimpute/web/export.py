"""The accepted values as a file, with what the promise does and does not cover in every row."""

import io
from typing import Any, Literal

import polars as pl

from safeimpute.records.writers.guarded_csv import write_csv
from safeimpute.web.review_state import ACCEPTED, ReviewState
from safeimpute.web.run_data import RunData

Format = Literal["csv", "parquet"]
COLUMNS = (
    "subject_id",
    "time",
    "lab",
    "unit",
    "value",
    "lower",
    "upper",
    "risk",
    "cutoff",
    "p_value",
    "released",
)
COVERS_ALL = "The promise covers all released values together, not this accepted subset."
NO_GUARANTEE = "Second look at the same visits: no guarantee."


def export_note(run: RunData) -> str:
    """The sentence that goes with every exported value."""
    return COVERS_ALL if run.guaranteed else NO_GUARANTEE


def accepted_values(run: RunData, state: ReviewState) -> pl.DataFrame:
    """One row per accepted imputation: the value, who accepted it when, and every comment on it."""
    marks = state.marks()
    accepted = run.imputations.filter(marks == ACCEPTED)
    said = pl.DataFrame(
        [_said(state, number) for number in accepted["imputation"]],
        schema={"accepted_by": pl.String, "accepted_at": pl.String, "comments": pl.String},
    )
    return accepted.select(COLUMNS).hstack(said).with_columns(pl.lit(export_note(run)).alias("note"))


def _said(state: ReviewState, imputation: int) -> dict[str, Any]:
    standing = state.standing(imputation)
    last = [row for row in standing if row.kind == "accept"][-1]
    comments = [f"{row.reviewer}: {row.comment}" for row in standing if row.comment]
    return {"accepted_by": last.reviewer, "accepted_at": last.at, "comments": "; ".join(comments)}


def export_bytes(table: pl.DataFrame, kind: Format) -> bytes:
    buffer = io.BytesIO()
    if kind == "csv":
        write_csv(table, buffer)
    else:
        table.write_parquet(buffer)
    return buffer.getvalue()
