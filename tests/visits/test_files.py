"""Excel, REDCap exports and folders of files, each to visits; what a reader did is said."""

from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import VisitsError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.files.excel import write_excel
from safeimpute.visits.tables import read_visits
from safeimpute.visits.visits import prepare_visits


def visits() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "subject_id": ["00001", "00001", "1", "1", "Ä 2", "Ä 2"],
            "time": [datetime(2024, 3, day, 8) for day in range(1, 7)],
            "hba1c": [7.1, None, 6.4, 8.0, 5.9, 6.1],
            "glucose": ["151", "<40", "139", "see comment", "99", None],
            "sex": ["F", "F", "M", "M", "F", "F"],
        }
    )


def test_an_excel_sheet_reads_as_the_table_it_was_written_from(tmp_path: Path) -> None:
    path = tmp_path / "visits.xlsx"
    write_excel(visits(), path)
    choice = ColumnChoice("hba1c")
    assert prepare_visits(read_visits(path), choice).fingerprint == prepare_visits(visits(), choice).fingerprint


def test_identifiers_that_are_numbers_in_excel_are_read_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "visits.xlsx"
    write_excel(visits().with_columns(subject_id=pl.Series([1, 1, 2, 2, 30, 30])), path)
    assert read_visits(path)["subject_id"].to_list() == ["1", "1", "2", "2", "30", "30"]
    write_excel(visits().with_columns(subject_id=pl.Series([2**60 + n for n in range(6)])), path)
    assert read_visits(path)["subject_id"].n_unique() == 6  # as text, since Excel would round them
    write_excel(visits().with_columns(subject_id=pl.Series([1e16 + 2 * n for n in range(6)])), path)
    with pytest.raises(VisitsError, match="Excel keeps 15 digits"):
        read_visits(path)


def test_which_sheet_is_read_is_said(tmp_path: Path) -> None:
    import xlsxwriter

    with xlsxwriter.Workbook(str(tmp_path / "v.xlsx")) as book:
        book.add_worksheet("Empty")
        for name, value in (("First", 1), ("Second", 2)):
            sheet = book.add_worksheet(name)
            sheet.write_row(0, 0, ["subject_id", "time", "hba1c"])
            sheet.write_row(1, 0, ["a", 1, value])
    notes: list[str] = []
    assert read_visits(tmp_path / "v.xlsx", notes=notes)["hba1c"].to_list() == [1]
    assert "sheet 2 of 3" in notes[0]
    assert read_visits(tmp_path / "v.xlsx", sheet="Second")["hba1c"].to_list() == [2]
    with pytest.raises(VisitsError, match="has no sheet"):
        read_visits(tmp_path / "v.xlsx", sheet="Third")


REDCAP_COLUMNS = (
    "record_id,redcap_event_name,redcap_repeat_instrument,redcap_repeat_instance,sex,dob,baseline_complete,"
    "visit_date,hba1c,lab_date,glucose,labs_complete"
)
REDCAP = f"""{REDCAP_COLUMNS}
007,baseline_arm_1,,,F,1960-01-01,2,,,,,
007,visit_1_arm_1,,,,,,2024-01-10,7.1,,,
007,visit_2_arm_1,,,,,,2024-04-10,,,,
007,visit_1_arm_1,labs,1,,,,,,2024-01-10,151,2
007,visit_1_arm_1,labs,2,,,,,,2024-02-11,<40,2
7,baseline_arm_1,,,M,1970-01-01,2,,,,,
7,visit_1_arm_1,,,,,,2024-01-12,6.1,,,
7,visit_1_arm_1,labs,1,,,,,,2024-03-12,139,2
"""


def test_a_redcap_export_becomes_visits(tmp_path: Path) -> None:
    path, notes = tmp_path / "redcap.csv", list[str]()
    path.write_text(REDCAP, encoding="utf-8")
    table = read_visits(path, notes=notes)
    assert "redcap_event_name" not in table.columns
    assert "labs_complete" not in table.columns
    assert table["sex"].to_list() == ["F"] * 4 + ["M"] * 2
    found = prepare_visits(table, ColumnChoice("hba1c"))
    assert (found.patients, len(found)) == (2, 5)  # an event and an instance of one day are one visit
    said = "\n".join(notes)
    assert "8 rows of 2 records" in said
    assert "carried to all of its visits: sex, dob" in said
    assert "dates of visits are those of visit_date, lab_date" in said
    assert "2  rows of a record without a date" in said


def test_a_result_measured_once_is_not_carried_to_other_visits(tmp_path: Path) -> None:
    text = "record_id,redcap_event_name,visit_date,sex,hba1c,ferritin,bmi_0\n"
    text += "1,base,,,6.6,,31\n1,v1,2024-01-01,F,7.0,80,\n1,v2,2024-02-01,,,,\n"
    text += "2,base,,,,,22\n2,v1,2024-01-05,M,,90,\n2,v2,2024-02-05,,6.1,,\n2,v3,2024-03-05,,,,\n"
    (tmp_path / "v.csv").write_text(text, encoding="utf-8")
    table = read_visits(tmp_path / "v.csv")
    assert table["hba1c"].to_list() == [7.0, None, None, 6.1, None]
    assert table["ferritin"].to_list() == [80, None, 90, None, None]
    assert table["sex"].to_list() == ["F", "F", "M", "M", "M"]
    assert table["bmi_0"].to_list() == [31, 31, 22, 22, 22]


def test_a_redcap_export_whose_rows_have_two_dates_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "redcap.csv"
    path.write_text(REDCAP.replace("2024-01-10,7.1,,", "2024-01-10,7.1,2024-01-09,"), encoding="utf-8")
    with pytest.raises(VisitsError, match="Name the visit's: --time"):
        read_visits(path)
    assert len(read_visits(path, time="visit_date")) == 3


def test_a_folder_is_its_files_one_below_another(tmp_path: Path) -> None:
    parts, notes = tmp_path / "parts", list[str]()
    parts.mkdir()
    visits()[:2].write_csv(parts / "a.csv")
    visits()[2:4].cast({"subject_id": pl.Int64}).select(reversed(visits().columns)).write_csv(parts / "b.csv")
    write_excel(visits()[4:], parts / "c.xlsx")
    whole = read_visits(parts, notes=notes)
    assert whole["subject_id"].to_list() == visits()["subject_id"].to_list()
    assert "3 files of folder 'parts', one below another: 6 rows" in notes
    visits().drop("sex").write_csv(parts / "d.csv")
    with pytest.raises(VisitsError, match="different columns: 'sex'"):
        read_visits(parts)
    (tmp_path / "empty").mkdir()
    with pytest.raises(VisitsError, match="holds no readable file"):
        read_visits(tmp_path / "empty")


@pytest.mark.parametrize("kind", ["xlsx", "folder"])
def test_check_takes_them_as_any_table(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "visits.xlsx" if kind == "xlsx" else tmp_path / "visits"
    if kind == "xlsx":
        write_excel(visits(), source)
    else:
        source.mkdir()
        visits()[:3].write_parquet(source / "1.parquet")
        visits()[3:].write_parquet(source / "2.parquet")
    said = CliRunner().invoke(app, ["check", str(source)])
    assert said.exit_code == 0, said.output
    assert "6 visits of 3 patients in 6 rows" in said.output


def test_columns_called_like_patterns_are_refused(tmp_path: Path) -> None:
    """They would stand for all columns: a crash before, or other cells in their place."""
    for name in ("*", "^.*$"):
        (tmp_path / "v.csv").write_text(f"subject_id,time,hba1c,{name}\na,1,7,x\n", encoding="utf-8")
        with pytest.raises(VisitsError, match="Rename it"):
            read_visits(tmp_path / "v.csv")
        with pytest.raises(VisitsError, match="Rename it"):
            prepare_visits(visits().with_columns(pl.lit(1).alias(name)), ColumnChoice("hba1c"))


def test_check_of_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("subject_id,time,hba1c\n", encoding="utf-8")
    said = CliRunner().invoke(app, ["check", str(tmp_path / "v.csv")])
    assert isinstance(said.exception, VisitsError)
    assert "no rows" in str(said.exception)
