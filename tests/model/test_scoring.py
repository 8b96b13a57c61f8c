"""Scoring new visits: the same treatment as at fit, and the same answer in any batch, for any patient."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.scored_cohorts import KEYS, cohort_of, fit_visits, fitted_cohort, new_visits, returning
from safeimpute import SafeImputer
from safeimpute.cli import app
from safeimpute.errors import OptionError
from safeimpute.model import frozen
from safeimpute.model.frozen import score_visits
from safeimpute.model.scorer import Scorer
from safeimpute.selection.reasons import OUT_OF_SCOPE, RISK_ABOVE_CUTOFF
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.new_visits import read_new_visits


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return fitted_cohort()[0].scorer()


@pytest.fixture(scope="module")
def everyone() -> pl.DataFrame:
    """Known patients as at the fit, known ones who came back, and new ones, in no order."""
    visits = fitted_cohort()[1]
    known = visits.filter(pl.col("subject_id") <= 30)
    parts = [known, returning(visits, range(31, 61)), new_visits()]
    return pl.concat(parts).sample(fraction=1.0, shuffle=True, seed=1)


def of_subjects(table: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    return table.filter(pl.col("subject_id").is_between(first, last))


@pytest.mark.parametrize("claim", ["unmeasured", "patients", "later"])
def test_the_fitted_table_scores_as_it_was_imputed(claim: str) -> None:
    imputer, visits = fitted_cohort(claim)
    imputed = imputer.impute(visits)
    assert imputer.score(visits).equals(imputed)
    assert 0 < imputed["released"].sum() < len(imputed)


def test_known_returning_and_new_patients_are_one_case(scorer: Scorer, everyone: pl.DataFrame) -> None:
    """Records that did not change are scored as at the fit; others by the models of their own fold, all together."""
    imputer, visits = fitted_cohort()
    table = scorer.score(everyone)
    assert of_subjects(table, 1, 30).equals(of_subjects(imputer.impute(visits), 1, 30))
    for first, last in ((1, 30), (31, 60), (10_000_000, 20_000_000)):
        part = of_subjects(table, first, last)
        assert part.equals(scorer.score(of_subjects(everyone, first, last)))
        assert part["released"].any(), "every kind of patient gets values"
        assert RISK_ABOVE_CUTOFF in part["reason"]
    came_back = of_subjects(table, 31, 60)
    assert len(came_back) == 30 + len(of_subjects(imputer.impute(visits), 31, 60))


def test_a_patient_keeps_its_fold_in_every_table(scorer: Scorer, everyone: pl.DataFrame) -> None:
    def folds(table: pl.DataFrame) -> dict[str, int]:
        new = read_new_visits(table, scorer.reading)
        names = new.subject.cast(pl.String).to_list()
        return dict(zip(names, scorer.model.system.fold(new.arrays).tolist(), strict=True))

    whole, fitted = folds(everyone), folds(cohort_of(250))
    met = [str(subject) for subject in range(1, 61)]
    assert [whole[subject] for subject in met] == [fitted[subject] for subject in met]
    assert folds(everyone.with_columns(pl.col("subject_id").cast(pl.String))) == whole


def test_one_patient_at_a_time_equals_all_together(scorer: Scorer, everyone: pl.DataFrame) -> None:
    whole = scorer.score(everyone)
    assert whole["released"].any()
    subjects = everyone["subject_id"].unique().sort()
    for size, some in ((1, subjects[::7]), (40, subjects)):
        batches = [some[start : start + size].to_list() for start in range(0, len(some), size)]
        parts = [scorer.score(everyone.filter(pl.col("subject_id").is_in(batch))) for batch in batches]
        expected = whole.filter(pl.col("subject_id").is_in(some.to_list()))
        assert pl.concat(parts).sort(KEYS).equals(expected.sort(KEYS))


def test_row_and_column_order_do_not_matter(scorer: Scorer, everyone: pl.DataFrame) -> None:
    ordered = everyone.sort(KEYS).select(sorted(everyone.columns, reverse=True))
    assert scorer.score(ordered).equals(scorer.score(everyone))


def test_portions_change_nothing(scorer: Scorer, everyone: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scorer.score(everyone)
    monkeypatch.setattr(frozen, "VISITS_AT_ONCE", 37)
    assert scorer.score(everyone).equals(whole)


def test_a_visit_appended_changes_nobody_else(scorer: Scorer, everyone: pl.DataFrame) -> None:
    """One more visit of one patient: its own row is new, rows of other patients stay to the byte."""
    subject = everyone["subject_id"].sort()[0]
    own = everyone.filter(pl.col("subject_id") == subject)
    more = own.sort("time").tail(1).with_columns(pl.col("time") + 14.0, hba1c=pl.lit(None, pl.Float64))
    before, after = scorer.score(everyone), scorer.score(pl.concat([everyone, more]))
    assert len(after) == len(before) + 1
    other = pl.col("subject_id") != subject
    assert after.filter(other).equals(before.filter(other))
    alone = scorer.score(pl.concat([own, more]))
    assert alone.equals(after.filter(~other))


def test_under_later_a_new_visit_leaves_earlier_answers_alone() -> None:
    """What was said as of then stays said, whatever came in since."""
    imputer, visits = fitted_cohort("later")
    scorer, early = imputer.scorer(), visits.filter(pl.col("time") <= 900)
    before = scorer.score(early)
    after = scorer.score(visits).filter(pl.col("time") <= 900)
    for column in before.columns:
        assert after[column].equals(before[column]), column


def test_measured_values_of_a_new_patient_are_context(scorer: Scorer) -> None:
    """Raising a patient's measured targets moves its imputations, and nobody else's."""
    fresh = new_visits()
    counts = fresh.filter(pl.col("hba1c").is_not_null()).group_by("subject_id", maintain_order=True).len()
    chosen = counts.filter(pl.col("len") >= 6)["subject_id"][0]
    raised = fresh.with_columns(pl.col("hba1c") + 3.0 * (pl.col("subject_id") == chosen))
    before, after = scorer.score(fresh), scorer.score(raised)
    own = before["subject_id"] == chosen
    assert (after.filter(own)["value"] > before.filter(own)["value"]).all()
    assert after.filter(~own).equals(before.filter(~own))


def test_the_cutoff_decides_by_risk_alone(scorer: Scorer, everyone: pl.DataFrame) -> None:
    table, (account,) = scorer.score_whole(everyone)
    cutoff = scorer.model.cutoffs[0].risk
    assert cutoff is not None
    assert table["cutoff"].unique().to_list() == [cutoff]
    inside = table.filter(pl.col("reason") != OUT_OF_SCOPE)
    assert inside["released"].equals(inside["risk"] <= cutoff)
    assert table["p_value"].null_count() == len(table)
    assert "nobody measured it" in account.promise
    assert "(time, " in account.assumption, "the columns behind the weights are named"
    assert (account.no_promise, account.advice) == ("", "")
    assert account.visits == len(everyone)
    assert account.patients == everyone["subject_id"].n_unique()
    assert account.released == table["released"].sum()
    assert sum(account.withheld.values()) == (~table["released"]).sum()


def test_only_missing_targets_are_listed_and_released(scorer: Scorer, everyone: pl.DataFrame) -> None:
    new = read_new_visits(everyone, scorer.reading)
    scored = score_visits(new.arrays, scorer.model)
    assert np.array_equal(scored.candidate, np.isnan(new.arrays.target_values))
    assert not scored.released[~scored.candidate].any()
    missing = everyone.filter(pl.col("hba1c").is_null()).sort(pl.col("subject_id").cast(pl.String), "time")
    assert scorer.score(everyone).select(KEYS).equals(missing.select(KEYS))


def test_one_visit_of_an_unknown_patient(scorer: Scorer) -> None:
    one = pl.DataFrame({"subject_id": ["new"], "time": [800.0], "hba1c": [None], "glucose": [150.0]})
    one = one.with_columns(cholesterol=pl.lit(None, pl.Float64), sex=pl.lit("F"), age=pl.lit(60.0))
    table = scorer.score(one)
    assert len(table) == 1
    assert table["value"].is_finite().all()
    assert table["lower"].is_not_null().all()
    emptied = scorer.score(one.with_columns(glucose=pl.lit(None, pl.Float64)))
    assert emptied["reason"].to_list() == ["no evidence"]


def test_pandas_in_pandas_out(scorer: Scorer) -> None:
    import pandas as pd

    table = scorer.score(new_visits().to_pandas())
    assert isinstance(table, pd.DataFrame)
    assert len(table) == new_visits()["hba1c"].null_count()


def test_columns_of_many_levels_are_read_by_their_text() -> None:
    """A site column of many levels counts for who gets measured, in a fit and at scoring, in any batch."""
    visits = cohort_of(250)
    number = pl.Series(np.random.default_rng(1).integers(0, 40, len(visits)))
    named = visits.with_columns(
        site=pl.lit("site ") + number.cast(pl.String), hba1c=pl.when(number < 8).then(None).otherwise(pl.col("hba1c"))
    )
    imputer = fit_visits(named)
    scorer = imputer.scorer()
    assert tuple(scorer.reading.high_cardinality) == ("site",)
    whole = scorer.score(named)
    assert whole.equals(imputer.impute(named))
    some = of_subjects(named, 1, 3)
    assert scorer.score(some).equals(of_subjects(whole, 1, 3))
    moved = scorer.score(some.with_columns(site=pl.lit("site 30")))
    assert moved["value"].equals(of_subjects(whole, 1, 3)["value"]), "no value model reads it"
    here, there = (_weights(scorer, each) for each in (some, some.with_columns(site=pl.lit("site 30"))))
    assert not np.array_equal(here, there)


def _weights(scorer: Scorer, table: pl.DataFrame) -> np.ndarray:
    arrays: VisitArrays = read_new_visits(table, scorer.reading).arrays
    return score_visits(arrays, scorer.model).weight


def test_the_command(tmp_path: Path, scorer: Scorer) -> None:
    model, fresh = tmp_path / "model", new_visits()
    fitted_cohort()[0].save(model)
    fresh.rename({"subject_id": "patient"}).with_columns(extra=1).write_csv(tmp_path / "new.csv")
    arguments = ["score", model, tmp_path / "new.csv", "-o", tmp_path / "out.csv"]
    arguments += ["--columns", "patient=subject_id"]
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "Promise: Of the hba1c values released" in done.output
    assert "Not used: extra" in done.output
    table = pl.read_csv(tmp_path / "out.csv", schema_overrides={"subject_id": pl.String})
    expected = scorer.score(fresh.with_columns(pl.col("subject_id").cast(pl.String)))
    assert table["released"].to_list() == expected["released"].to_list()
    assert np.allclose(table["value"], expected["value"].round(1))  # as HbA1c is reported
    again = CliRunner().invoke(app, [str(each) for each in arguments])
    assert isinstance(again.exception, OptionError)


def test_scores_are_those_of_the_imputer(scorer: Scorer) -> None:
    imputer = fitted_cohort()[0]
    assert isinstance(imputer, SafeImputer)
    assert imputer.score(new_visits()).equals(scorer.score(new_visits()))


def test_scoring_says_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    imputer, _ = fitted_cohort()
    new, shares = new_visits(60), []
    monkeypatch.setattr("safeimpute.model.frozen.VISITS_AT_ONCE", 40)
    whole = imputer.scorer().score_whole(new, progress=lambda _, share: shares.append(share))
    assert len(shares) > 3
    assert shares == sorted(set(shares))
    monkeypatch.setattr("safeimpute.model.frozen.VISITS_AT_ONCE", 10_000)
    assert imputer.score(new).equals(whole.table)
