"""Long tables: recognised, coded, converted, made visits by a stated window, every row accounted for."""

import json
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import OptionError, VisitsError
from safeimpute.machine.options import make_table_format
from safeimpute.model.filling import marks_in
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.files.opened import open_table, results_with_imputed
from safeimpute.visits.limits import HIGH, LOW
from safeimpute.visits.tables import fill_in, read_visits
from safeimpute.visits.visits import prepare_visits

EXPORT = """MRN,Sex,Collected,Test,Result,Unit
0001,F,2024-03-01 08:00,HbA1c,7.2,%
0001,F,2024-03-01 08:00,4548-4,7.4,%
0001,F,2024-03-01 07:00,Haemoglobin A1c,9.9,%
0001,F,2024-03-01 09:00,Glucose,8.0,mmol/L
0001,F,2024-03-01 09:00,Glucose,8.0,mmol/L
0001,F,2024-05-02 09:00,Glucose,<40,mg/dL
1,M,2024-03-01 08:00,HBA1C,55,mmol/mol
1,M,2024-03-01 08:00,Glucose,hemolyzed,mg/dL
1,M,2024-03-02 08:00,Glucose,100,furlongs
1,M,2024-03-02 08:00,Glucose,100,
1,M,2024-03-02 08:00,Glucose,99999,mg/dL
1,M,2024-03-02 08:00,Creatinine,1.1,mg/dL
1,M,2024-03-03 08:00,Ferritin,80,ug/L
0001,F,2024-03-01 09:00,ferritin,81,ug/L
0001,F,2024-03-01 10:00,99999-9,3,x
,F,2024-03-01 10:00,Glucose,3,mg/dL
1,M,,Glucose,120,mg/dL
1,M,2024-03-03 08:00,Glucose,cloudy,mg/dL
"""


def written(folder: Path, text: str = EXPORT, name: str = "labs.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


COLUMNS = {"Collected": "time"}


def test_every_result_has_a_fate(tmp_path: Path) -> None:
    notes: list[str] = []
    table = read_visits(written(tmp_path), COLUMNS, notes=notes)
    assert table["subject_id"].to_list() == ["0001", "0001", "1", "1", "1"]
    first = table.row(0, named=True)
    assert first["hba1c"] == pytest.approx(7.3)  # two at the last moment: their mean; the earlier one gives way
    assert first["glucose"] == pytest.approx(8.0 * 18.016)
    assert first["ferritin"] == 81
    assert table["glucose" + HIGH].to_list() == [None, 40, None, None, None]
    assert table["hba1c"][2] == pytest.approx(55 * 0.0915 + 2.15)
    assert table["Sex"].to_list() == ["F", "F", "M", "M", "M"]
    said = "\n".join(notes)
    for reason in (
        "1  no patient",
        "1  no time",
        "1  a code nobody knows",
        "1  specimen unusable",
        "1  text that is no result",
        "1  known only by a limit",
        "1  no unit",
        "1  unknown unit",
        "1  outside what is possible",
        "1  the same result twice",
        "1  an earlier result of the same visit and lab",
        "1  several at one moment, of which the mean counts",
        "3  converted",
        "results of one day make one",
    ):
        assert reason in said
    assert "cloudy" not in said


def test_the_order_of_rows_and_the_kind_of_file_do_not_matter(tmp_path: Path) -> None:
    whole = pl.read_csv(written(tmp_path), infer_schema=False)
    shuffled = whole.sample(fraction=1, shuffle=True, seed=1)
    shuffled.write_parquet(tmp_path / "labs.parquet")
    one, other = (read_visits(tmp_path / name, COLUMNS) for name in ("labs.csv", "labs.parquet"))
    assert one.equals(other.select(one.columns))


@pytest.mark.parametrize(("window", "visits"), [("day", 5), ("1h", 7), ("Encounter", 3)])
def test_the_window_is_the_users(window: str, visits: int, tmp_path: Path) -> None:
    table = pl.read_csv(written(tmp_path), infer_schema=False)
    table = table.with_columns(Encounter=pl.col("MRN") + pl.col("Collected").str.slice(0, 7))
    table.write_csv(tmp_path / "labs.csv")
    assert len(read_visits(tmp_path / "labs.csv", COLUMNS, window=window)) == visits


def test_a_window_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="neither day"):
        read_visits(written(tmp_path), COLUMNS, window="fortnight")


def test_names_of_ones_own(tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("name,lab,unit\nZucker,glucose,mmol/L\n99999-9,mystery,\n", encoding="utf-8")
    text = (
        "ID;Datum;Untersuchung;Ergebnis\n01;2024-03-01;Zucker;8,0\n02;2024-03-01;Zucker;<2,2\n02;2024-03-02;99999-9;4\n"
    )
    table = read_visits(
        written(tmp_path, text), separator=";", decimal=",", lab_names=names, subject="ID", time="Datum"
    )
    assert table["ID"].to_list() == ["01", "02", "02"]
    assert table["glucose"][0] == pytest.approx(8 * 18.016)
    assert table["glucose" + HIGH][1] == pytest.approx(2.2 * 18.016)
    assert table["mystery"].to_list() == [None, None, 4]


def test_without_units_a_lab_in_another_unit_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"{n},2024-03-01,HbA1c,{40 + n}\n" for n in range(1, 20))
    with pytest.raises(VisitsError, match="most results of hba1c lie outside"):
        read_visits(written(tmp_path, "patient,time,test,result\n" + rows))


def test_words_that_tell_of_a_result_and_operators_are_limits(tmp_path: Path) -> None:
    text = "person_id,measurement_date,measurement_concept_id,value_as_number,operator_concept_id,unit_source_value\n"
    text += "1,2024-01-01,3004501,90,,mg/dL\n1,2024-01-02,3004501,40,4171756,mg/dL\n2,2024-01-02,3004501,95,0,mg/dL\n"
    table = read_visits(written(tmp_path, text))
    assert table["glucose"].to_list() == [90, None, 95]
    assert table["glucose" + HIGH].to_list() == [None, 40, None]
    text = "patient,time,test,result,unit\n1,1,glucose,see comment,mg/dL\n1,2,glucose,90,mg/dL\n2,1,glucose,95,mg/dL\n"
    table = read_visits(written(tmp_path, text))
    assert table["glucose" + LOW].to_list() == [-np.inf, None, None]


def test_when_a_result_became_known_is_kept(tmp_path: Path) -> None:
    text = "patient,charttime,storetime,test,result,unit\n1,2024-01-01 08:00,2024-01-03 09:30,glucose,90,mg/dL\n"
    text += "1,2024-01-01 08:00,,hba1c,7,%\n2,2024-01-02 08:00,2024-01-02 09:00,glucose,91,mg/dL\n"
    table = read_visits(written(tmp_path, text))
    assert table["glucose__known"].to_list() == [datetime(2024, 1, 3, 9, 30), datetime(2024, 1, 2, 9)]
    assert table.get_column("hba1c__known", default=None) is None


def test_imputed_values_are_no_results(tmp_path: Path) -> None:
    head = "person_id,measurement_date,measurement_concept_id,value_as_number,measurement_type_concept_id,"
    text = head + "measurement_source_value,unit_source_value\n1,2024-01-01,3004501,90,32817,a,mg/dL\n"
    text += "1,2024-01-02,3004501,91,32882,b,mg/dL\n1,2024-01-03,3004501,92,32817,SAFEIMPUTE//LAB//glucose,mg/dL\n"
    notes: list[str] = []
    assert read_visits(written(tmp_path, text), notes=notes)["glucose"].to_list() == [90]
    assert "2  imputed, not measured" in "\n".join(notes)
    own = "subject_id,time,lab,unit,value,risk,cutoff,released\n" + "1,2024-01-01,glucose,mg/dL,90,0.1,0.2,true\n" * 3
    with pytest.raises(VisitsError, match="holds imputed values"):
        read_visits(written(tmp_path, own))


def test_wide_tables_are_no_long_ones(tmp_path: Path) -> None:
    text = "subject_id,time,code,hba1c\n1,1,a,7\n1,2,b,8\n"
    assert read_visits(written(tmp_path, text)).columns == ["subject_id", "time", "code", "hba1c"]


@pytest.mark.full
def test_a_million_results(tmp_path: Path) -> None:
    """Well under a minute; the seconds the machine works on it, however busy it is with other things."""
    rows, random = 1_000_000, np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "MRN": pl.Series(random.integers(0, 50_000, rows)).cast(pl.String).str.zfill(8),
            "time": pl.Series(random.integers(19_000, 20_000, rows).astype("int32")).cast(pl.Date).cast(pl.String),
            "test": pl.Series(["HbA1c", "Glucose", "Creatinine", "Sodium", "Ferritin"]).gather(
                random.integers(0, 5, rows)
            ),
            "result": random.uniform(5, 15, rows).round(1).astype(str),
        }
    )
    unit = {"HbA1c": "%", "Glucose": "mmol/L", "Creatinine": "mg/dL", "Sodium": "mmol/L", "Ferritin": "ug/L"}
    table.with_columns(unit=pl.col("test").replace_strict(unit)).write_parquet(tmp_path / "labs.parquet")
    start = time.process_time()
    visits = read_visits(tmp_path / "labs.parquet")
    assert time.process_time() - start < 15
    assert visits["subject_id"].n_unique() == 50_000


def test_the_command_writes_visits_and_their_record(tmp_path: Path) -> None:
    out = tmp_path / "visits.parquet"
    asked = ["cohort", "long", str(written(tmp_path)), "-o", str(out), "--columns", "Collected=time"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert "18 results made 5 visits" in said.output
    record = json.loads((tmp_path / "visits.cohort.json").read_text())
    assert record["counts"]["unknown unit"] == 1
    assert record["dropped"]["specimen unusable"] == 1
    assert len(pl.read_parquet(out)) == 5
    again = CliRunner().invoke(app, asked)
    assert again.exit_code != 0


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "target"),
    [
        ("mimic3_demo/LABEVENTS.csv.gz", "magnesium"),
        ("mimic4_demo/hosp/labevents.csv.gz", "magnesium"),
        ("omop_synthea27nj/measurement.csv.gz", "glucose"),
        pytest.param("physionet2012/set-a_long.csv.gz", "albumin", marks=pytest.mark.full),
    ],
)
def test_open_long_tables_come_to_a_first_report_at_once(file: str, target: str, clinical_data: Path) -> None:
    table = read_visits(clinical_data / file)
    visits = prepare_visits(table, ColumnChoice(target))
    assert visits.patients >= 20
    assert len(visits.labs) >= 20


def test_what_was_filled_in_comes_back_called_and_in_the_unit_as_the_file_has_it(tmp_path: Path) -> None:
    rows = [(f"{n:03}", f"{hour:02}:30", lab, value, unit) for n in range(4) for hour, lab, value, unit in (
        (7, "Glukose", "5,5", "mmol/L"), (7, "Krea", "0,9", "mg/dL"), (31, "Krea", "1,0", "mg/dL"),
        (31, "Glukose", "" if n else "<4,0", "mmol/L"),
    )]  # fmt: skip
    table = pl.DataFrame(rows, schema=["Patient", "Time", "Test", "Wert", "Einheit"], orient="row")
    table.write_csv(tmp_path / "labs.csv", separator=";")
    (tmp_path / "names.csv").write_text("name,lab\nGlukose,glucose\nKrea,creatinine\n")
    read_as = make_table_format(separator=";", decimal=",", lab_names=str(tmp_path / "names.csv"))
    columns = {"Patient": "subject_id"}
    visits = open_table(tmp_path / "labs.csv", columns, read_as, time="Time").frame
    missing = visits["glucose"].is_null() & visits["glucose__high"].is_null()
    assert missing.sum() == 3
    filled = fill_in(visits, "glucose", np.where(missing, 111.7, np.nan), np.array(missing) & (np.arange(8) < 5))
    marks = {"glucose": marks_in(filled, "glucose")}
    back = results_with_imputed(
        tmp_path / "labs.csv", columns, read_as, filled, marks, time="Time", subject="subject_id"
    )
    assert back is not None
    assert back.columns == [*table.columns, "Wert__measured", "Wert__promised"]
    assert back["Wert__measured"].to_list() == [True] * 16 + [False] * 3
    added = back[16:].drop("Wert__measured")
    assert added.rows() == [(f"{n:03}", "31:30", "Glukose", "6,2", "mmol/L", n == 1) for n in (1, 2, 3)]
    visits.write_csv(tmp_path / "wide.csv")
    wide = results_with_imputed(
        tmp_path / "wide.csv", {}, make_table_format(), filled, marks, time="Time", subject="subject_id"
    )
    assert wide is None
