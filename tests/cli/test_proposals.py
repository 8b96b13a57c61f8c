"""`check` says everything it found in a file in one pass, with a command line that mends it and no cell of it."""

import json
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import VisitsError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.tables import read_visits
from safeimpute.visits.visits import prepare_visits

GERMAN = """Patient;Datum;HbA1c (%);chol_mmol;Kreatinin;Status;Visit_No;Fallnummer;leer;Name;Geschlecht;fu_time
0001;31.03.2024;7,2;5,1;0,9;1;1;F1;;Zorro;F;99
0001;02.07.2024;n/a;4,9;<0,5;1;2;F2;;Zorro;F;99
1;11.04.2024;6,1;hemolyzed;1,1;0;1;F3;;Quixote;M;88
1;12.05.2024;6,3;5,5;verdünnt;0;2;F4;;Quixote;M;88
"""

LONG = [(n, test, each) for n in range(80) for test, each in (("HbA1c", 7), ("Glucose", 105))[: 1 + n % 2]]


def check(*asked: str) -> str:
    said = CliRunner().invoke(app, ["check", *asked])
    assert not isinstance(said.exception, AssertionError | TypeError | KeyError), said.exception
    return said.output


def test_one_report_of_everything(tmp_path: Path) -> None:
    path = tmp_path / "besuche.csv"
    path.write_text(GERMAN, encoding="utf-8")
    said = check(str(path))
    for words in (
        "columns are separated by ;",
        "numbers with a decimal comma; --decimal ,",
        "Patient: the column of patients",
        "Datum: the column of visit times",
        "dates written DD.MM.YYYY",
        "--columns 'HbA1c (%)=hba1c'",
        "--columns 'chol_mmol=cholesterol' --unit-of cholesterol=mmol/L",
        "differ from another in nothing but case, blanks or leading zeros: 1",
        "Status: status or outcome",
        "Visit_No: a visit counter",
        "Fallnummer: a number of an encounter",
        "Name: a name or an address",
        "fu_time: follow-up time",
        "leer: empty in every row",
        "words in place of a result: 1 not measured",
        "1 specimen unusable",
        "neither number nor a known word in 1 rows",
    ):
        assert words in said, words
    for secret in ("Zorro", "Quixote", "verdünnt", "31.03.2024", "F1", "7,2", "0001"):
        assert secret not in said


def german(folder: Path) -> Path:
    """Two hundred visits as an export writes them."""
    random, rows = np.random.default_rng(0), 400
    hba1c = random.normal(7, 1, rows).round(1)
    table = pl.DataFrame(
        {
            "Patient": [f"{number // 4:05}" for number in range(rows)],
            "Datum": [f"{day % 28 + 1:02}.{day % 12 + 1:02}.20{10 + day % 4 * 3}" for day in range(rows)],
            "HbA1c (%)": ["" if n % 3 == 0 else f"{v}".replace(".", ",") for n, v in enumerate(hba1c)],
            "Glukose [mmol/l]": [f"{v:.1f}".replace(".", ",") for v in random.normal(8, 2, rows)],
            "Status": random.integers(0, 2, rows).astype(str),
        }
    )
    table.write_csv(folder / "besuche.csv", separator=";")
    return folder / "besuche.csv"


def test_the_command_line_it_gives_reads_the_file(tmp_path: Path) -> None:
    path = german(tmp_path)
    check(str(path), "--json", str(tmp_path / "check.json"), "--target", "hba1c", "--tolerance", "1")
    found = json.loads((tmp_path / "check.json").read_text())
    typed = shlex.split(found["command"])
    assert typed[:3] == ["safeimpute", "run", str(path)]
    again = CliRunner().invoke(app, ["check", *typed[2:]])
    assert "Found in the file" not in again.output
    assert "100 patients" in again.output
    assert "glucose" in again.output
    assert found["labs"]["hba1c"]["unit"] == "%"


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        (["01/02/2024", "03/04/2024"], "only you know"),
        (["31/03/2024", "03/04/2024"], "--date-format 'DD/MM/YYYY'"),
        (["03/31/2024", "04/03/2024"], "--date-format 'MM/DD/YYYY'"),
        (["03/31/2024", "31/03/2024"], "some begin with the day"),
        (["2024-03-31", "31.03.2024"], "dates in several forms"),
        (["31.03.2024 08:15", "01.04.2024 09:00"], "--date-format 'DD.MM.YYYY HH:MM'"),
    ],
)
def test_dates_are_proposed_only_where_they_say_it(dates: list[str], words: str, tmp_path: Path) -> None:
    rows = "".join(f"p{place},{date},7.{place}\n" for place, date in enumerate(dates))
    (tmp_path / "v.csv").write_text("subject_id,time,hba1c\n" + rows, encoding="utf-8")
    assert words in check(str(tmp_path / "v.csv"))


@pytest.mark.parametrize("called", ["Collected", "Specimen Taken", "Gemessen am"])
def test_times_are_known_by_their_shape_too(called: str, tmp_path: Path) -> None:
    """A long export whose only dates stand under any name; a birth is no visit."""
    rows = [f"{n // 8:05},195{n % 9}-01-01,2024-0{n % 8 + 1}-11 08:15,{test},{each + n % 5}" for n, test, each in LONG]
    text = "\n".join([f"MRN,DOB,{called},Test,Result", *rows])
    (tmp_path / "labs.csv").write_text(text, encoding="utf-8")
    asked = ("--target", "hba1c", "--tolerance", "1", "--json", str(tmp_path / "check.json"))
    said = check(str(tmp_path / "labs.csv"), *asked)
    assert "made 80 visits" in said, said
    found = json.loads((tmp_path / "check.json").read_text())
    assert (f"{called}=time" in found["command"]) == (called != "Collected")
    again = CliRunner().invoke(app, ["check", *shlex.split(found["command"])[2:]])
    assert "10 patients" in again.output, again.output


def test_a_refusal_lists_every_fault(tmp_path: Path) -> None:
    rows = 60
    table = pl.DataFrame(
        {
            "subject_id": [None if n == 5 else f"p{n // 3}" for n in range(rows)],
            "time": [f"{n:02}/02/24" for n in range(rows)],
            "hba1c": ["cloudy" if n == 3 else f"{5 + n / 20}" for n in range(rows)],
            "glucose": ["murky" if n % 9 == 3 else f"{90 + n}" for n in range(rows)],
        }
    )
    with pytest.raises(VisitsError) as refused:
        prepare_visits(table, ColumnChoice("hba1c"))
    said = str(refused.value)
    assert said.startswith("4 faults. (1) ")
    for name in ("'subject_id'", "'time'", "'hba1c'", "'glucose'"):
        assert name in said
    assert "cloudy" not in said
    with pytest.raises(VisitsError, match=r"4 faults.*'time'.*'ward'.*'hba1c'"):
        prepare_visits(table.drop("time"), ColumnChoice("hba1c", exclude=("ward",)))


def test_check_says_what_it_found_even_where_the_table_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("Nobody;Datum;x\na;31.03.2024;1\n", encoding="utf-8")
    said = check(str(tmp_path / "v.csv"))
    assert "no column that looks like patients" in said
    assert "columns are separated by ;" in said


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("mayo_pbc/pbcseq_visits.csv.gz", ("futime: follow-up", "status: status", "visit_no: a visit counter")),
        ("mayo_nafld/nafld_visits.parquet", ("visit_no: a visit counter", "the column of patients")),
    ],
)
def test_open_tables_come_to_a_first_report_with_one_command(
    file: str, words: tuple[str, ...], clinical_data: Path, tmp_path: Path
) -> None:
    source = clinical_data / file
    if file.endswith(".parquet"):
        source = tmp_path / "part.parquet"
        pl.read_parquet(clinical_data / file).head(20_000).write_parquet(source)
    said = CliRunner().invoke(app, ["check", str(source)])
    assert said.exit_code == 0, said.output
    for each in words:
        assert each in said.output
    assert read_visits(source) is not None
