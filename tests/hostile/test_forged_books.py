"""Workbooks made to harm, and damaged ones: refused in one sentence, in little memory, with nothing run or fetched."""

import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeimpute.errors import SafeImputeError, VisitsError
from safeimpute.visits.files.excel import write_excel
from safeimpute.visits.tables import read_visits

SHEET = "xl/worksheets/sheet1.xml"
pytestmark = pytest.mark.surface("tables")


def book(folder: Path) -> Path:
    path = folder / "visits.xlsx"
    rows = [(f"{n:03}", n * 30, 5 + n / 10) for n in range(20)]
    write_excel(pl.DataFrame(rows, schema=["subject_id", "time", "hba1c"], orient="row"), path)
    return path


def changed(path: Path, change: Callable[[str, bytes], bytes | None], **more: bytes) -> Path:
    """The workbook with its parts changed (None: left out) and others added."""
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            if (new := change(name, content)) is not None:
                packed.writestr(name, new)
        for name, content in more.items():
            packed.writestr(name, content)
    return path


def in_sheet(old: bytes, new: bytes) -> Callable[[str, bytes], bytes]:
    return lambda name, content: content.replace(old, new, 1) if name == SHEET else content


def read_or_refused(path: Path) -> str:
    """What a refusal says; empty where the table was read."""
    try:
        read_visits(path)
    except SafeImputeError as error:
        return str(error)
    return ""


def untouched(name: str, content: bytes) -> bytes:
    return content


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = book(tmp_path)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as packed,
        packed.open("xl/worksheets/sheet2.xml", "w") as part,
    ):
        for _ in range(256):
            part.write(b" " * 2**20)
    with pytest.raises(VisitsError, match="would unpack to"):
        read_visits(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


def test_a_part_that_lies_about_its_size(tmp_path: Path) -> None:
    path = book(tmp_path)
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as packed:
        size = packed.getinfo(SHEET).file_size
    path.write_bytes(raw.replace(size.to_bytes(4, "little"), (17).to_bytes(4, "little")))
    with pytest.raises(VisitsError):
        read_visits(path)


@pytest.mark.parametrize("written", [b"<f>1+1</f><v>", b'<f t="shared">A1</f><v>', b"<x:f>A1</x:f><v>", b"<f/><v>"])
def test_formulas_are_refused(written: bytes, tmp_path: Path) -> None:
    path = changed(book(tmp_path), in_sheet(b"<v>", written))
    with pytest.raises(VisitsError, match="holds formulas"):
        read_visits(path)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("xl/externalLinks/externalLink1.xml", "external links"),
        ("xl/vbaProject.bin", "macros"),
        ("xl/connections.xml", "data source"),
        ("xl/embeddings/oleObject1.bin", "embedded objects"),
        ("XL/EXTERNALLINKS/a.xml", "external links"),
    ],
)
def test_what_comes_from_elsewhere_is_refused(part: str, words: str, tmp_path: Path) -> None:
    path = changed(book(tmp_path), untouched, **{part: b"<a/>"})
    with pytest.raises(VisitsError, match=words):
        read_visits(path)


@pytest.mark.parametrize(
    "start",
    [b'<!DOCTYPE a [<!ENTITY b "c">]><worksheet', b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><worksheet'],
)
def test_entities_are_refused(start: bytes, tmp_path: Path) -> None:
    path = changed(book(tmp_path), in_sheet(b"<worksheet", start))
    with pytest.raises(VisitsError, match="no spreadsheet writes"):
        read_visits(path)


def test_a_sheet_in_two_byte_letters_cannot_hide_a_formula(tmp_path: Path) -> None:
    path = changed(book(tmp_path), lambda name, each: each.decode().encode("utf-16") if name == SHEET else each)
    with pytest.raises(VisitsError):
        read_visits(path)


@pytest.mark.parametrize("part", [SHEET, "xl/workbook.xml", "[Content_Types].xml", "xl/sharedStrings.xml"])
def test_a_missing_part(part: str, tmp_path: Path) -> None:
    path = changed(book(tmp_path), lambda name, each: None if name == part else each)
    said = read_or_refused(path)
    assert "001" not in said


def test_no_workbook_at_all(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04", b"subject_id,time\n1,2\n", b"\xd0\xcf\x11\xe0" + bytes(600)):
        (tmp_path / "v.xlsx").write_bytes(content)
        with pytest.raises(VisitsError, match="cannot be read as an Excel workbook"):
            read_visits(tmp_path / "v.xlsx")


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 5000), new=st.integers(0, 255), cut=st.integers(0, 400))
def test_damaged_books_are_read_or_refused(
    place: int, new: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = book(tmp_path_factory.mktemp("book"))
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] = new
    path.write_bytes(bytes(raw[: len(raw) - cut]))
    said = read_or_refused(path)
    assert "\n" not in said


def test_no_cell_written_is_a_formula(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "@SUM(A1)", "http://example.org", "{=1}", "'=1"]
    write_excel(
        pl.DataFrame({"subject_id": texts, "time": range(6), "hba1c": [1.0, None, float("nan"), 2, 3, 4]}),
        tmp_path / "v.xlsx",
    )
    assert read_visits(tmp_path / "v.xlsx")["subject_id"].to_list() == texts


CELL = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.floats(),
    st.integers(-(10**20), 10**20),
    st.sampled_from(["<5", "NA", "7,1", "2024-01-01", "12:30", "%", "hba1c", "4548-4"]),
)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(CELL, CELL, CELL, CELL, CELL), min_size=1, max_size=12), redcap=st.booleans())
def test_long_and_redcap_tables_of_anything_are_read_or_refused(
    rows: list[tuple[object, ...]], redcap: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = (
        ["record_id", "redcap_event_name", "redcap_repeat_instance", "visit_date", "hba1c"]
        if redcap
        else ["patient", "time", "test", "result", "unit"]
    )
    path = tmp_path_factory.mktemp("long") / "v.csv"
    text = [["" if cell is None else str(cell) for cell in row] for row in rows]
    pl.DataFrame(text, schema=dict.fromkeys(names, pl.String), orient="row").write_csv(path)
    said = read_or_refused(path)
    assert "\n" not in said
