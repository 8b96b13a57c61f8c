"""Headers and cells of anything: what a file looks like is said or refused, and never ends in a fault of ours."""

from contextlib import suppress

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from safeimpute.errors import SafeImputeError
from safeimpute.machine.options import TableFormat
from safeimpute.visits.files.proposal import propose
from safeimpute.visits.tables import read_visits

pytestmark = pytest.mark.surface("tables")
KNOWN = [
    "subject_id", "time", "MRN", "Datum", "HbA1c (%)", "chol_mmol", "status", "visit_no", "test", "result", "unit",
    "redcap_event_name", "redcap_repeat_instrument", "visit_date", "hba1c", "hba1c__low", "glucose__known", "storetime",
    "^.*$", "*", "a,b", "Name", "", " ", "lab", "value", "x" * 300, "patient", "row", "rows", "lab__high", "known",
]  # fmt: skip
NAME = st.one_of(st.sampled_from(KNOWN), st.text(max_size=8))
CELL = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["<5", "NA", "7,1", "31.03.2024", "2024-01-01", "12:30", "see comment", "4548-4", "1e308", "007", "inf"]
    ),
    st.integers(-(10**20), 10**20).map(str),
)


@settings(max_examples=150, deadline=None)
@given(
    names=st.lists(NAME, min_size=1, max_size=7),
    rows=st.lists(st.lists(CELL, min_size=7, max_size=7), max_size=8),
    mark=st.sampled_from(",;\t"),
)
@example(
    names=["patient", "time", "test", "result", "^.*$"], rows=[["a", "1", "hba1c", "7", "x", "", ""]] * 3, mark=","
)
@example(
    names=["record_id", "redcap_event_name", "visit_date", "^.*$"],
    rows=[["a", "b", "2024-01-01", "x", "", "", ""]] * 3,
    mark=",",
)
def test_a_file_of_anything(
    names: list[str], rows: list[list[str]], mark: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("odd") / "v.csv"
    table = pl.DataFrame(
        [[*row[: len(names)]] for row in rows], schema=[f"c{n}" for n in range(len(names))], orient="row"
    )
    head = pl.DataFrame([names], schema=table.columns, orient="row").cast(pl.String)
    pl.concat([head, table.cast(pl.String)]).write_csv(path, separator=mark, include_header=False)
    found = propose(path, {}, TableFormat(), subject="subject_id", time="time")
    assert all(isinstance(each.what, str) for each in found.findings)
    with suppress(SafeImputeError):
        read_visits(path, found.columns, separator=found.read_as.separator, decimal=found.read_as.decimal)
