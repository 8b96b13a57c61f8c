"""Excel workbooks: one sheet read as it is stored; what unpacks to too much, computes or links is refused."""

import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from safeimpute.errors import MissingExtra, VisitsError
from safeimpute.machine.resources import require_room_to_read
from safeimpute.visits.checks import LARGEST_FLOAT_ID, Account
from safeimpute.visits.columns import names_an_identifier
from safeimpute.visits.files.delimited import require_names

LARGEST_PART, LARGEST_BOOK = 2 * 2**30, 3 * 2**30  # bytes unpacked
LARGEST_RATIO, SMALL = 200, 16 * 2**20  # unpacked to packed, of parts that are not small; sheets reach 20 to 40
BYTES_PER_CELL = 40
MOST_ROWS = 2**20  # of a sheet, with its header
FORMULA = re.compile(rb"<(?:\w+:)?f[\s>/]")
SHEETS = re.compile(r"xl/worksheets/[^/]+\.xml")
OVERLAP = 64
ERRORS = ("#N/A", "#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NAME?", "#NULL!")


def read_excel(path: Path, identifiers: Collection[str], sheet: str | None, account: Account) -> pl.DataFrame:
    """The rows of a sheet, the first row its header; identifiers and mixed columns are text.

    Excel keeps whole numbers as numbers: an identifier shown as 00012 by a cell format is 12 in the file.
    """
    try:
        import python_calamine
    except ModuleNotFoundError:
        raise MissingExtra("Reading Excel files", "excel") from None
    require_sound_book(path)
    try:
        book = python_calamine.CalamineWorkbook.from_path(path)
        found = _sheet(book, sheet, path.name, account)
        require_room_to_read(path.name, found.total_height * found.total_width * BYTES_PER_CELL)
        return _table(found.iter_rows(), identifiers, path.name)
    except (python_calamine.CalamineError, OverflowError, ValueError) as error:
        raise _unreadable(path.name, error) from None


def _unreadable(name: str, error: Exception) -> VisitsError:
    return VisitsError(
        f"{name!r} cannot be read as an Excel workbook ({type(error).__name__}). Save it anew as .xlsx, without "
        "a password, or save the sheet as csv."
    )


def require_sound_book(path: Path) -> None:
    """Refuse a workbook that unpacks to too much, computes its cells or takes them from elsewhere."""
    try:
        with zipfile.ZipFile(path) as packed:
            parts = packed.infolist()
            _require_size(parts, path.name)
            names = [part.filename for part in parts]
            if len(set(map(str.lower, names))) < len(names):
                raise VisitsError(f"{path.name!r} holds two parts of one name: it was not written by a spreadsheet.")
            _refuse_foreign(names, path.name)
            for part in parts:
                if SHEETS.fullmatch(part.filename):
                    _require_plain(packed, part, path.name)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        raise _unreadable(path.name, error) from None


def _require_size(parts: list[zipfile.ZipInfo], name: str) -> None:
    steep = [p for p in parts if p.file_size > SMALL and p.file_size > LARGEST_RATIO * max(p.compress_size, 1)]
    if steep or any(p.file_size > LARGEST_PART for p in parts) or sum(p.file_size for p in parts) > LARGEST_BOOK:
        unpacked = sum(part.file_size for part in parts) / 2**30
        raise VisitsError(
            f"{name!r} would unpack to {unpacked:.1f} GiB, which no table of visits needs: it was not read. Save the "
            "sheet as csv or parquet."
        )


def _refuse_foreign(names: list[str], name: str) -> None:
    lower = [each.lower() for each in names]
    for part, what in (
        ("xl/externallinks/", "takes cells from other files (external links)"),
        ("xl/vbaproject", "holds macros"),
        ("xl/connections.xml", "is connected to a data source"),
        ("xl/embeddings/", "holds embedded objects"),
    ):
        if any(each.startswith(part) for each in lower):
            raise VisitsError(f"{name!r} {what}. Copy the sheet's values into a new workbook, or save it as csv.")


def _require_plain(packed: zipfile.ZipFile, part: zipfile.ZipInfo, name: str) -> None:
    """No formula in a sheet: what it shows may be out of date, and only a spreadsheet knows."""
    tail, unpacked = b"", 0
    with packed.open(part) as file:
        while chunk := file.read(2**20):
            unpacked += len(chunk)
            if b"\x00" in chunk or b"<!DOCTYPE" in chunk or b"<!ENTITY" in chunk or unpacked > part.file_size:
                raise VisitsError(f"{name!r} holds a sheet no spreadsheet writes: it was not read. Save it as csv.")
            if FORMULA.search(tail + chunk):
                raise VisitsError(
                    f"{name!r} holds formulas. A formula's last value may be out of date: copy the sheet and paste it "
                    "as values, or save it as csv."
                )
            tail = chunk[-OVERLAP:]


def _sheet(book: Any, wanted: str | None, name: str, account: Account) -> Any:
    names = list(book.sheet_names)
    if wanted is not None:
        if wanted not in names:
            raise VisitsError(f"{name!r} has no sheet {wanted!r} (--sheet). It has {len(names)}; check the spelling.")
        return book.get_sheet_by_name(wanted)
    filled = [each for each in names if book.get_sheet_by_name(each).total_height > 0]
    if not filled:
        raise VisitsError(f"{name!r} is empty. Its first row names the columns.")
    if len(names) > 1:
        account.say(f"sheet {names.index(filled[0]) + 1} of {len(names)} of {name!r} was read (--sheet names another)")
    return book.get_sheet_by_name(filled[0])


def _table(rows: Iterator[list[Any]], identifiers: Collection[str], file: str) -> pl.DataFrame:
    """The sheet's columns, each of one type."""
    header = next((row for row in rows if any(cell != "" for cell in row)), [])
    while header and header[-1] == "":
        header = header[:-1]
    names = [_as_text(cell) for cell in header]
    require_names(names, file, "")
    columns: list[list[Any]] = [[] for _ in names]
    for row in rows:
        if any(cell != "" for cell in row[len(names) :]):
            raise VisitsError(f"{file!r} has a row with more cells than its header has ({len(names)}). Correct it.")
        if any(cell != "" for cell in row):
            for column, cell in zip(columns, row, strict=False):
                column.append(None if cell == "" else cell)
            for column in columns[len(row) :]:
                column.append(None)
    return pl.DataFrame(
        [
            _column(name, cells, text=name in identifiers or names_an_identifier(name))
            for name, cells in zip(names, columns, strict=True)
        ]
    )


def _column(name: str, cells: list[Any], *, text: bool) -> pl.Series:
    """Numbers, dates or truth values where all cells are that, else text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if text:
        lossy = sum(isinstance(cell, float) and abs(cell) >= LARGEST_FLOAT_ID for cell in cells)
        if lossy:
            raise VisitsError(
                f"column {name!r} holds numbers of 1e15 or more in {lossy:,} cells: Excel keeps 15 digits, and two "
                "patients may share one. Format the column as text before the identifiers are entered."
            )
    elif not kinds or kinds == {float} or kinds == {int} or kinds == {float, int}:
        values = pl.Series(name, cells, dtype=pl.Float64)
        whole = kinds and (values.drop_nulls() == values.drop_nulls().floor()).all() and (values.abs() < 2**53).all()
        return values.cast(pl.Int64) if whole else values
    elif kinds == {bool}:
        return pl.Series(name, cells, dtype=pl.Boolean)
    elif kinds == {date}:
        return pl.Series(name, cells, dtype=pl.Date)
    elif kinds <= {date, datetime}:
        moments = [datetime(c.year, c.month, c.day) if type(c) is date else c for c in cells]
        return pl.Series(name, moments, dtype=pl.Datetime("us"))
    return pl.Series(name, [None if cell is None else _as_text(cell) for cell in cells], dtype=pl.String)


def _as_text(cell: Any) -> str:
    """A cell as a csv would have it."""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ")
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return repr(cell.total_seconds() / 86_400)
    return str(cell)


def write_excel(table: pl.DataFrame, path: Path) -> None:
    """One sheet of values: no text of it is a formula or a link."""
    try:
        import xlsxwriter
    except ModuleNotFoundError:
        raise MissingExtra("Writing Excel files", "excel") from None
    plain = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    if len(table) >= MOST_ROWS:
        raise VisitsError(f"{len(table):,} rows are more than a sheet holds. Write .parquet or .csv.")
    with xlsxwriter.Workbook(str(path), plain | {"constant_memory": True, "in_memory": False}) as book:
        sheet, moment = book.add_worksheet(), book.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        sheet.write_row(0, 0, table.columns)
        for number, row in enumerate(_writable(table).iter_rows(), 1):
            for place, cell in enumerate(row):
                if isinstance(cell, datetime):
                    sheet.write_datetime(number, place, cell, moment)
                elif isinstance(cell, date):
                    sheet.write_datetime(number, place, datetime(cell.year, cell.month, cell.day), day)
                elif cell is not None:
                    sheet.write(number, place, cell)


def _writable(table: pl.DataFrame) -> pl.DataFrame:
    """Moments without a zone, whole numbers that Excel holds, text otherwise."""
    columns = []
    for name, kind in table.schema.items():
        if isinstance(kind, pl.Datetime) and kind.time_zone:
            columns.append(pl.col(name).dt.convert_time_zone("UTC").dt.replace_time_zone(None))
        elif kind.is_integer() and _too_long(table[name]):
            columns.append(pl.col(name).cast(pl.String))
        elif kind.is_float():
            columns.append(pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name))
    return table.with_columns(columns)


def _too_long(column: pl.Series) -> bool:
    """Whether whole numbers have more digits than Excel keeps."""
    return bool((column.cast(pl.Float64).abs() >= LARGEST_FLOAT_ID).any())
