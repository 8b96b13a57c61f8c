"""Invented imputation tables and their origin, for the tests of exports."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from safeimpute.sources.writers.exported import Exported, Origin, Promise, export_table
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.imputations import imputation_table

PROMISE = "Of the values released, the expected share that is off by 0.5 % or more is at most 10 %."
START = datetime(2150, 2, 27, 8, 15)


def imputations(
    rows: int = 12, lab: str = "hba1c", unit: str | None = "%", subject: Any = None, time: Any = None, seed: int = 0
) -> pl.DataFrame:
    """Every third row withheld, every fourth without bounds; by default whole-number identifiers and timestamps."""
    chance = np.random.default_rng(seed)
    number = np.arange(rows)
    released = number % 3 != 2
    return imputation_table(
        subject if subject is not None else pl.Series(1 + number % 8),
        time if time is not None else pl.Series([START + timedelta(days=int(day), seconds=7) for day in number]),
        lab,
        unit,
        chance.normal(7, 1, rows),
        np.where(number % 4 == 3, np.nan, 0.9),
        chance.uniform(0, 0.3, rows),
        np.full(rows, 0.2),
        np.full(rows, np.nan),
        released,
        np.where(released, "", "risk above cut-off"),
    )


def origin(*labs: str, promise: str = PROMISE) -> Origin:
    told = Promise(promise, "" if promise else "second look at the same visits")
    return Origin(
        version="9.9.9",
        table="ab" * 32,
        model="cd" * 32,
        written=datetime(2026, 1, 2, tzinfo=UTC).isoformat(timespec="seconds"),
        coverage=0.9,
        promises=dict.fromkeys(labs or ("hba1c",), told),
    )


def exported(table: pl.DataFrame | None = None, promise: str = PROMISE, **options: Any) -> Exported:
    table = imputations() if table is None else table
    told = origin(*table["lab"].unique().to_list(), promise=promise)
    return export_table(table, told, load_catalogue(), **options)


def review(rows: int, **marks: str) -> pl.DataFrame:
    """`review(12, r0="accepted", r1="rejected")`, all by one reviewer."""
    said = [marks.get(f"r{row}", "") for row in range(rows)]
    return pl.DataFrame(
        {
            "review": said,
            "reviewed_by": ['Dr. "Quote"' if each else "" for each in said],
            "reviewed_at": ["2026-01-01T10:00:00.000+00:00" if each else "" for each in said],
            "comments": ["looks right" if each == "accepted" else "" for each in said],
        }
    )
