"""Results beyond a limit ("<5"): measured, so never a candidate, never an exact value; what they exclude is used."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import safeimpute as si
from helpers.nights import CUT, fitted, months
from helpers.scored_cohorts import cohort_of, fit_visits, new_visits
from safeimpute.cli import app
from safeimpute.errors import VisitsError
from safeimpute.model.frozen import score_visits
from safeimpute.model.whole_table import table_sums
from safeimpute.monitoring.monitor import entries_of_visits, visits_to_enter
from safeimpute.selection.questions import question_for
from safeimpute.settings import make_settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.limits import HIGH, LOW, with_limits
from safeimpute.visits.new_visits import read_new_visits
from safeimpute.visits.tables import read_visits
from safeimpute.visits.visits import prepare_visits

CHOICE, TOLERANCE = ColumnChoice("hba1c"), Tolerance(0.6)
WRITTEN = ["<5", "> 14.0", "≤5", ">= 13", "< 5.0 mg/dL", "＞14", " <5 ", "<5%", "&lt;5", "Less than 5", "=<5", "<.5"]
SETTINGS = {"target": "hba1c", "tolerance": 0.6, "fdr": 0.2}


def censored(visits: pl.DataFrame, below: float = 5.6) -> pl.DataFrame:
    """Values below a limit written as hospitals write them; the rest as text."""
    text = pl.col("hba1c").cast(pl.String)
    return visits.with_columns(hba1c=pl.when(pl.col("hba1c") < below).then(pl.lit(f"<{below}")).otherwise(text))


def emptied(visits: pl.DataFrame, below: float = 5.6) -> pl.DataFrame:
    return visits.with_columns(hba1c=pl.when(pl.col("hba1c") >= below).then(pl.col("hba1c")))


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    return cohort_of(250)


@pytest.mark.parametrize("written", WRITTEN)
def test_every_way_to_write_a_limit(written: str) -> None:
    found = with_limits(pl.DataFrame({"hba1c": [written, "7.1", None, "hemolyzed"]}), ["hba1c"])
    assert found["hba1c"].to_list() == [None, "7.1", None, None]
    limits = [name for name in ("hba1c" + LOW, "hba1c" + HIGH) if name in found.columns]
    assert found.select(pl.any_horizontal(pl.col(limits).is_not_null())).to_series().sum() == 1


@pytest.mark.parametrize("written", ["unheard of", "<", "5-10", "<a", "5<"])
def test_other_words_are_refused(written: str, visits: pl.DataFrame) -> None:
    text = visits.with_columns(pl.col("hba1c").cast(pl.String).fill_null(written))
    with pytest.raises(VisitsError, match="holds text"):
        prepare_visits(text, CHOICE)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("hemolyzed", "specimen unusable"),
        ("SPECIMEN HAEMOLYSED", "specimen unusable"),
        ("QNS", "specimen unusable"),
        ("not done", "not measured"),
        ("NA", "not measured"),
        ("-", "not measured"),
        ("pending", "no result yet"),
        ("#N/A", "error"),
    ],
)
def test_words_without_a_result_are_counted_by_kind_and_count_as_empty(
    written: str, kind: str, visits: pl.DataFrame
) -> None:
    text = visits.with_columns(pl.col("hba1c").cast(pl.String).fill_null(written))
    found, plain = prepare_visits(text, CHOICE), prepare_visits(visits, CHOICE)
    assert found.words == {"hba1c": {kind: visits["hba1c"].null_count()}}
    assert found.censored == {}
    assert np.array_equal(found.arrays.target_values, plain.arrays.target_values, equal_nan=True)


@pytest.mark.parametrize("written", ["see comment", "POSITIVE", "below detection", "Below limit of detection", "n.d."])
def test_words_that_tell_of_a_result_are_no_candidates(written: str, visits: pl.DataFrame) -> None:
    text = visits.with_columns(pl.col("hba1c").cast(pl.String).fill_null(written))
    found = prepare_visits(text, CHOICE)
    assert found.censored == {"hba1c": visits["hba1c"].null_count()}
    assert not question_for(found.arrays, make_settings(**SETTINGS)).candidate.any()


def test_below_detection_takes_the_limit_the_column_has() -> None:
    found = with_limits(
        pl.DataFrame({"hba1c": ["<4", "<5", "below detection", "see comment", "7", "7.5 H"]}), ["hba1c"]
    )
    assert found["hba1c" + HIGH].to_list() == [4, 5, 5, None, None, None]
    assert found["hba1c" + LOW].to_list() == [None, None, None, -np.inf, None, None]
    assert found["hba1c"].to_list() == [None, None, None, None, "7", "7.5"]


def test_a_lab_of_which_most_results_are_limits_is_a_lab(visits: pl.DataFrame) -> None:
    level = (pl.int_range(pl.len()) * 7 % 13 / 100).round(2).cast(pl.String)
    text = pl.when(pl.int_range(pl.len()) % 10 == 0).then(level).otherwise(pl.lit("<0.01"))
    found = prepare_visits(visits.with_columns(troponin=text), CHOICE)
    assert "troponin" in found.labs
    assert "troponin" in found.censored


@pytest.mark.parametrize("kind", ["csv", "csv with commas", "parquet", "polars", "pandas", "pyarrow", "limits"])
def test_every_table_keeps_them_apart(kind: str, visits: pl.DataFrame, tmp_path: Path) -> None:
    """Neither candidates nor judges, whatever the table came as; the same visits as ever are asked about."""
    table = censored(visits)
    given: object = table
    if kind == "csv":
        table.write_csv(tmp_path / "visits.csv")
        given = read_visits(tmp_path / "visits.csv")
    elif kind == "csv with commas":
        table.with_columns(pl.col("hba1c").str.replace(".", ",", literal=True)).write_csv(
            tmp_path / "visits.csv", separator=";"
        )
        given = read_visits(tmp_path / "visits.csv", decimal=",", separator=";")
    elif kind == "parquet":
        table.write_parquet(tmp_path / "visits.parquet")
        given = read_visits(tmp_path / "visits.parquet")
    elif kind == "pandas":
        given = table.to_pandas()
    elif kind == "pyarrow":
        given = table.to_arrow()
    elif kind == "limits":
        given = emptied(visits).with_columns(
            hba1c__high=pl.when(pl.col("hba1c").is_null() & visits["hba1c"].is_not_null()).then(5.6)
        )
    found = prepare_visits(given, CHOICE)
    question = question_for(found.arrays, make_settings(**SETTINGS))
    whole = prepare_visits(visits, CHOICE).arrays.target_values
    assert found.censored == {"hba1c": int(np.sum(whole < 5.6))}
    assert np.array_equal(question.candidate, np.isnan(whole))
    assert np.array_equal(question.judged, whole >= 5.6)
    assert np.array_equal(question.visible, whole >= 5.6)


def test_an_exact_value_of_the_same_visit_counts_for_more(visits: pl.DataFrame) -> None:
    twice = pl.concat([visits.cast({"hba1c": pl.String}), censored(visits)])
    assert prepare_visits(twice, CHOICE).censored == {}


def test_age_groups_stay_categories(visits: pl.DataFrame) -> None:
    group = visits.with_columns(group=pl.when(pl.col("age") < 65).then(pl.lit("<65")).otherwise(pl.lit(">=65")))
    assert "group" in prepare_visits(group, CHOICE).attributes


def test_units_are_converted_with_their_limits(visits: pl.DataFrame, tmp_path: Path) -> None:
    table = visits.select("subject_id", "time", hba1c=pl.lit("<40"))
    table.write_csv(tmp_path / "visits.csv")
    found = read_visits(tmp_path / "visits.csv", unit_of={"hba1c": "mmol/mol"})
    assert found["hba1c" + HIGH].unique().to_list() == pytest.approx([40 * 0.0915 + 2.15], abs=0.01)


def test_a_fit_neither_imputes_nor_judges_them(visits: pl.DataFrame) -> None:
    imputer = fit_visits(censored(visits))
    imputed = imputer.impute(censored(visits))
    assert len(imputed) == visits["hba1c"].null_count()
    filled = imputer.transform(censored(visits))
    assert filled["hba1c"].filter(visits["hba1c"] < 5.6).unique().to_list() == ["<5.6"]
    assert prepare_visits(filled.drop("hba1c_released"), CHOICE).censored == imputer.labs_["hba1c"].visits.censored
    new = censored(new_visits())
    assert len(imputer.score(new)) == new_visits()["hba1c"].null_count()
    assert imputer.scorer().score(censored(visits)).equals(imputed)


def test_nights_and_whole_tables_judge_by_limits_as_a_fit_does() -> None:
    scorer, night = fitted().scorer(), months(2)
    limit = float(night["hba1c"].quantile(0.3) or 0.0)
    whole, some = (read_new_visits(each, scorer.reading).arrays for each in (night, censored(night, limit)))
    beyond = some.target_censored
    assert beyond.any()
    nobody = np.empty(0, np.uint64)
    enter = visits_to_enter(some, scorer.model, nobody, nobody)
    known = beyond | ~np.isnan(some.target_values)
    assert enter[(some.time > CUT) & known].all()
    no_months = np.full(len(some), "")
    entered = entries_of_visits(some, enter, no_months, scorer.model, scorer.settings.allowed_error)
    assert not entered.censored.any()
    assert entered.measured.sum() == np.sum(known & (some.time > CUT))
    assert np.array_equal(entered.judged, entered.measured)
    hidden = np.isin(entered.visit, some.visit_key[beyond])
    assert entered.risky[hidden].all()
    assert np.isnan(entered.ratio[hidden]).all()
    scored = score_visits(some, scorer.model, measured_too=True)
    assert np.array_equal(scored.candidate, np.isnan(whole.target_values))
    sums = table_sums(some, scorer.model, scorer.settings)
    assert sum(sums.measured) == int(np.sum(known))
    visits_below = sum(each[0].of_visits["visits"][-1] for each in sums.groups.values())
    without = table_sums(replace(some, limits=None), scorer.model, scorer.settings)
    assert visits_below > sum(each[0].of_visits["visits"][-1] for each in without.groups.values())
    assert sum(sums.unmeasured) == int(np.sum(np.isnan(whole.target_values)))


def test_another_tool_is_not_asked_about_them(visits: pl.DataFrame, tmp_path: Path) -> None:
    hidden = si.hide(censored(visits), target="hba1c")
    hidden.save(tmp_path / "hidden")
    again = type(hidden).load(tmp_path / "hidden")
    question = again.question(make_settings(**SETTINGS, claim="visits"))
    whole = prepare_visits(visits, CHOICE).arrays.target_values
    assert np.array_equal(question.candidate, np.isnan(whole))
    assert not (question.judged & ~(whole >= 5.6)).any()
    value = pd.Series(hidden.visits["hba1c"].to_list()).replace("<5.6", None).astype(float).fillna(7.0)
    filled = hidden.visits.with_columns(hba1c=pl.Series(value.to_numpy()))
    released = si.release(again, filled, tolerance=2.0, fdr=0.3)
    assert len(released.table) == visits["hba1c"].null_count()


def test_run_and_check_say_how_many(visits: pl.DataFrame, tmp_path: Path) -> None:
    censored(visits).write_csv(tmp_path / "visits.csv")
    count = int((visits["hba1c"] < 5.6).sum())
    asked = ["check", str(tmp_path / "visits.csv"), "--target", "hba1c"]
    said = CliRunner().invoke(app, asked).output
    assert f"{count:,}" in said
    assert "beyond a limit" in said.lower()


@pytest.mark.parametrize("apart", [False, True], ids=["in the cell", "beside it"])
def test_filled_in_they_count_as_measured(apart: bool, visits: pl.DataFrame) -> None:
    """However a limit is written, nobody is told that its result was imputed or is missing."""
    table = censored(visits)
    table = with_limits(table, ["hba1c"]).with_columns(pl.col("hba1c").cast(pl.Float64)) if apart else table
    full = fit_visits(table).transform(table, fill="all")
    assert full["hba1c__measured"].to_list() == visits["hba1c"].is_not_null().to_list()
    below = (visits["hba1c"] < 5.6).fill_null(False)
    assert set(full["hba1c"].filter(below)) == ({None} if apart else {"<5.6"})


@pytest.mark.parametrize("written", ["limit", "word"])
def test_a_release_answers_for_what_a_limit_leaves_open(written: str, visits: pl.DataFrame) -> None:
    """Below `<5.6` any value may be: what is imputed there may be off. Of a word (`see comment`) nothing is known."""
    table = censored(visits)
    if written == "word":
        table = table.with_columns(pl.col("hba1c").str.replace("<5.6", "see comment"))
    imputer = fit_visits(table)
    calibrated = imputer.labs_["hba1c"].calibrated
    data, beyond = calibrated.selection_data(TOLERANCE), calibrated.question.visits.target_censored
    assert beyond.any()
    assert not (data.candidate & beyond).any()
    assert np.array_equal(data.judged & beyond, beyond & (written == "limit"))
    assert data.risky[data.judged & beyond].all()
    assert np.array_equal(data.judged & ~beyond, calibrated.question.judged)


@pytest.mark.full
def test_the_level_holds_for_values_below_the_limit_too() -> None:
    """Three in ten results are written as a limit; nobody knows which of the missing values lie below it."""
    found = np.zeros(2)
    for seed in range(3):
        drawn = simulate("mimic4", np.random.default_rng(seed), patients=300, shift="covariate")
        table = censored(drawn.visits, round(float(drawn.visits["hba1c"].quantile(0.3) or 0.0), 1))
        truth = drawn.truth.select("subject_id", "time", truth="hba1c")
        told = fit_visits(table, tolerance=1.0).impute(table).filter("released").join(truth, on=["subject_id", "time"])
        found += len(told), int(((told["value"] - told["truth"]).abs() >= 1.0).sum())
    assert found[0] >= 100
    assert found[1] <= 0.2 * found[0]
