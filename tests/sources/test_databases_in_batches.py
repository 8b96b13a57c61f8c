"""A table in DuckDB or PostgreSQL, scored or calibrated on in batches of whole patients, equals a file read whole."""

from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.postgres import server
from helpers.scored_cohorts import KEYS, cohort_of, new_visits, returning, saved_model
from safeimpute.cli import app
from safeimpute.errors import OptionError, SafeImputeError, SourceError, VisitsError
from safeimpute.model.manifest import verified_manifest
from safeimpute.model.whole_table import calibrate_files
from safeimpute.sources.readers import patients

__all__ = ["server"]  # a fixture

duckdb = pytest.importorskip("duckdb", reason="databases are read with the extra [ehr]")


def visits() -> pl.DataFrame:
    """In no order, so that the database has to sort."""
    everyone = pl.concat([new_visits(), returning(cohort_of(250), range(1, 61))])
    return everyone.sample(fraction=1.0, shuffle=True, seed=4).with_columns(note=pl.lit("x"))


def in_duckdb(folder: Path, table: pl.DataFrame) -> str:
    path = folder / "hospital.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table.to_arrow())
        connection.execute("CREATE OR REPLACE TABLE visits AS SELECT * FROM given")
    return f"{path}#visits"


def run(*told: object) -> str:
    done = CliRunner().invoke(app, [str(each) for each in told])
    if isinstance(done.exception, SafeImputeError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def require_alike(model: Path, place: str, folder: Path, *more: str) -> None:
    """Rows and account of the database's table are those of the file's."""
    visits().write_parquet(folder / "visits.parquet")
    there = run("score", model, place, "-o", folder / "there" / "scored.parquet", *more)
    here = run("score", model, folder / "visits.parquet", "-o", folder / "here" / "scored.parquet")
    tables = [pl.read_parquet(folder / name / "scored.parquet").sort(KEYS) for name in ("there", "here")]
    assert 0 < tables[1]["released"].sum() < len(tables[1])
    assert tables[0].equals(tables[1])
    assert tables[0].write_csv() == tables[1].write_csv()
    said = [text.partition("visits of")[2].partition("Table:")[0] for text in (there, here)]
    assert said[0] == said[1] != ""


@pytest.mark.parametrize("rows", [pytest.param(300, marks=pytest.mark.full), 50_000])
def test_scored_from_duckdb_as_from_a_file(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patients, "ROWS_AT_ONCE", rows)
    monkeypatch.setattr("safeimpute.cli.score_process._answer", _in_this_process)
    require_alike(saved_model(tmp_path), in_duckdb(tmp_path, visits()), tmp_path)


def _in_this_process(told: str, *_: object) -> object:
    """So that the size of batches set here is heard."""
    from dataclasses import asdict

    from safeimpute.cli.score_process import ScoreJob, _score

    return {"accounts": [asdict(each) for each in _score(ScoreJob.from_json(told), lambda *_: None)]}


@pytest.mark.full
def test_calibrated_from_duckdb_as_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patients, "ROWS_AT_ONCE", 500)
    model, whole = saved_model(tmp_path), cohort_of(250)
    whole.write_parquet(tmp_path / "whole.parquet")
    place = in_duckdb(tmp_path, whole.sample(fraction=1.0, shuffle=True, seed=2))
    run("recalibrate", model, "--visits", place, "-o", tmp_path / "there")
    calibrate_files(model, tmp_path / "whole.parquet", tmp_path / "here")
    there, here = (verified_manifest(tmp_path / name) for name in ("there", "here"))
    assert (there["files"], there["scoring"]) == (here["files"], here["scoring"])


@pytest.mark.full
def test_released_values_are_known_again(tmp_path: Path) -> None:
    model, table = saved_model(tmp_path), visits()
    run("score", model, in_duckdb(tmp_path, table), "-o", tmp_path / "scored.parquet")
    done = pl.read_parquet(tmp_path / "scored.parquet").filter("released").select(*KEYS, "value")
    filled = table.join(done, on=KEYS, how="left").with_columns(hba1c=pl.coalesce("hba1c", "value")).drop("value")
    place = in_duckdb(tmp_path, filled)
    with pytest.raises(VisitsError, match=f"holds {len(done):,} values that an earlier run released"):
        run("score", model, place, "-o", tmp_path / "again.parquet")
    with pytest.raises(VisitsError, match="that an earlier run released"):
        run("recalibrate", model, "--visits", place, "-o", tmp_path / "anew")
    assert not (tmp_path / "again.parquet").exists()
    assert not (tmp_path / "anew").exists()


@pytest.mark.full
def test_what_is_refused_of_a_whole_table(tmp_path: Path) -> None:
    model = saved_model(tmp_path)
    cases: list[tuple[pl.DataFrame, str]] = [
        (visits().with_columns(pl.col("glucose") / 18), "should be in"),
        (visits().drop("glucose"), "'glucose'"),
        (visits().head(0), "no rows"),
        (visits().with_columns(subject_id=pl.lit(None, pl.Int64)), "subject_id"),
    ]
    for table, why in cases:
        with pytest.raises(VisitsError, match=why):
            run("score", model, in_duckdb(tmp_path, table), "-o", tmp_path / "out.parquet")
        assert not (tmp_path / "out.parquet").exists()
    place = in_duckdb(tmp_path, visits())
    with pytest.raises(SourceError, match="table vists is not in"):
        run("score", model, place.replace("#visits", "#vists"), "-o", tmp_path / "out.parquet")
    with pytest.raises(OptionError, match="into a parquet file"):
        run("score", model, place, "-o", tmp_path / "out.csv")
    with pytest.raises(SourceError, match="which table of") as failure:
        run("score", model, "postgresql://me:secret@127.0.0.1:1/x", "-o", tmp_path / "out.parquet")
    assert "secret" not in str(failure.value)


@pytest.mark.full
def test_scored_and_calibrated_from_postgresql(server: str, tmp_path: Path) -> None:
    import psycopg

    table, model = visits(), saved_model(tmp_path)
    kinds = {pl.Int64: "bigint", pl.Float64: "double precision", pl.String: "text"}
    columns = ", ".join(f'"{name}" {kinds[type(kind)]}' for name, kind in table.schema.items())
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE visits ({columns.replace('glucose', 'GLU')})")
        with connection.cursor().copy("COPY visits FROM STDIN WITH (FORMAT csv)") as stream:
            stream.write(table.write_csv(include_header=False))
    require_alike(model, f"{server}#visits", tmp_path, "--columns", "GLU=glucose")
    told = ("--visits", f"{server}#visits", "--columns", "GLU=glucose", "-o", tmp_path / "there" / "model")
    run("recalibrate", model, *told)
    calibrate_files(model, tmp_path / "visits.parquet", tmp_path / "here" / "model")
    there, here = (verified_manifest(tmp_path / name / "model") for name in ("there", "here"))
    assert (there["files"], there["scoring"]) == (here["files"], here["scoring"])
