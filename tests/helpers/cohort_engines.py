"""One cohort by two engines: what the tests of PostgreSQL and Spark compare with DuckDB's."""

from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import define_cohort
from safeimpute.sources.cohort.summary import CohortRecord
from safeimpute.visits.catalogue import load_catalogue

COMPARED = ("accounts", "contacts", "remarks", "clocks", "columns", "summary", "definition", "notes")


def built(kind: str, location: str, out: Path, **options: Any) -> tuple[pl.DataFrame, CohortRecord]:
    catalogue = load_catalogue()
    definition = define_cohort(catalogue, target="hba1c", **options)
    record = build_cohort(kind, location, definition, out, catalogue=catalogue, force=True)
    return pl.read_parquet(out), record


def require_equal(kind: str, folder: Path, location: str, out: Path, engine: str, **options: Any) -> None:
    """The folder read by DuckDB and the same data at another engine give one table and one account."""
    table, record = built(kind, str(folder), out, **options)
    other, other_record = built(kind, location, out, **options)
    assert len(table) > 10
    assert_frame_equal(table, other, check_exact=True)
    for part in COMPARED:
        assert dict(record)[part] == dict(other_record)[part], part
    assert other_record["versions"]["engine"].startswith(engine)
