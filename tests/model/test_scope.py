"""What scoring promises and what it does not: claims, time, missing columns, second looks."""

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from helpers.scored_cohorts import KEYS, cohort_of, fit_visits, fitted_cohort, new_visits
from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused, NotFittedError, OptionError, VisitsError
from safeimpute.model.labs import decided
from safeimpute.model.scorer import Scorer
from safeimpute.selection.enough import require_promisable
from safeimpute.selection.reasons import NO_EVIDENCE, NOT_PROMISED, OUT_OF_RANGE, OUT_OF_SCOPE
from safeimpute.settings import GcnSettings, PaperSettings, make_settings
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

FAR = 10_000.0  # days beyond the last visit of the fit


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return fitted_cohort()[0].scorer()


@pytest.fixture(scope="module")
def fresh() -> pl.DataFrame:
    return new_visits()


def test_time_beyond_the_learnt_range_is_out_of_scope(scorer: Scorer, fresh: pl.DataFrame) -> None:
    """Nothing measured speaks for that time; the values are still given, and the advice names the claim."""
    for shift in (FAR, -FAR):
        table, (account,) = scorer.score_whole(fresh.with_columns(pl.col("time") + shift))
        assert set(table["reason"]) == {OUT_OF_SCOPE}
        assert table["value"].is_finite().all()
        assert account.released == 0
        assert "claim 'later'" in account.advice
    late = fresh["time"] > fresh["time"].quantile(0.7)
    some = fresh.with_columns(pl.col("time") + FAR * late)
    beyond = scorer.score(some)["time"] > fresh["time"].max()
    assert not scorer.score(some).filter(beyond)["released"].any()
    assert scorer.score(some).filter(~beyond)["released"].any()


def test_under_later_the_months_to_come_are_in_scope(fresh: pl.DataFrame) -> None:
    """Absolute time is in no model then: the same records moved to another time get the same answers."""
    later = fitted_cohort("later")[0].scorer()
    here, there = later.score(fresh), later.score(fresh.with_columns(pl.col("time") + FAR))
    assert there.drop("time").equals(here.drop("time"))
    assert there["released"].any()
    words = later.one.promised()
    assert "as they come in after the fit" in words.promise
    assert "months to come" in words.assumption
    assert "(time between visits, " in words.assumption


def long_record(visits: int) -> pl.DataFrame:
    """One patient seen every ten days, measured at half of the visits."""
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "subject_id": 1,
            "time": 10.0 * np.arange(visits),
            "age": 60.0,
            "sex": "F",
            "hba1c": pl.Series(np.where(rng.random(visits) < 0.5, 7.0, np.nan)).fill_nan(None),
            "glucose": rng.normal(150, 20, visits),
            "cholesterol": 180.0,
        }
    )


def test_more_visits_than_any_fitted_patient_had_are_out_of_scope(scorer: Scorer) -> None:
    most = max(fold.most_visits for fold in scorer.model.measuring.folds)  # type: ignore[union-attr]
    many = long_record(most + 1)
    assert set(scorer.score(many)["reason"]) == {OUT_OF_SCOPE}
    assert set(scorer.score(many.head(most // 2))["reason"]) != {OUT_OF_SCOPE}


def test_under_later_the_length_of_a_record_counts_as_of_then() -> None:
    """Visits that came in since take back nothing that was said before."""
    later = fitted_cohort("later")[0].scorer()
    most = max(fold.most_visits for fold in later.model.measuring.folds)  # type: ignore[union-attr]
    many = long_record(most + 5)
    early, whole = later.score(many.head(20)), later.score(many)
    assert whole.head(len(early)).equals(early)
    assert set(early["reason"]) != {OUT_OF_SCOPE}
    assert set(whole.filter(pl.col("time") >= 10.0 * most)["reason"]) <= {OUT_OF_SCOPE}


def test_what_the_table_lacks_is_an_error_or_declared(scorer: Scorer, fresh: pl.DataFrame) -> None:
    with pytest.raises(VisitsError, match=r"'glucose' \(lab of the fitted model\).*--without"):
        scorer.score(fresh.drop("glucose"))
    table, (account,) = scorer.score_whole(fresh.drop("glucose"), without=("glucose",))
    assert not table["released"].any()
    assert set(table["reason"]) <= {OUT_OF_SCOPE, NOT_PROMISED, NO_EVIDENCE}
    assert table["value"].is_finite().all()
    assert account.promise == ""
    assert "'glucose'" in account.no_promise
    with pytest.raises(VisitsError, match="the table has it"):
        scorer.score(fresh, without=("glucose",))
    with pytest.raises(VisitsError, match="no lab or attribute"):
        scorer.score(fresh, without=("ferritin",))
    with pytest.raises(VisitsError, match="no rows"):
        scorer.score(fresh.clear())


def test_without_the_target_every_visit_is_asked_about(scorer: Scorer, fresh: pl.DataFrame) -> None:
    table = scorer.score(fresh.drop("hba1c"), without=("hba1c",))
    assert len(table) == len(fresh)
    assert not table["released"].any()


def test_values_that_transform_filled_in_are_no_measurements(scorer: Scorer, fresh: pl.DataFrame) -> None:
    with pytest.raises(VisitsError, match="'hba1c_released' says which values"):
        scorer.score(fresh.with_columns(hba1c_released=pl.lit(True)))


def test_extra_columns_and_unknown_levels_are_named(scorer: Scorer, fresh: pl.DataFrame) -> None:
    other = fresh.with_columns(
        pl.lit(1.5).alias("ferritin"), pl.when(pl.col("age") > 60).then(pl.lit("X")).otherwise("sex").alias("sex")
    )
    table, (account,) = scorer.score_whole(other)
    assert account.ignored == ("ferritin",)
    assert account.unknown_levels == {"sex": int((fresh["age"] > 60).sum())}
    assert len(table) == fresh["hba1c"].null_count()


def test_impossible_values_are_withheld(fresh: pl.DataFrame) -> None:
    """A range of plausible values is kept with the model; what falls outside it is withheld by that name."""
    scorer = fitted_cohort()[0].scorer()
    assert scorer.model.plausible is not None
    narrow = Scorer({"hba1c": replace(scorer.one, fitted=replace(scorer.fitted, plausible=(6.5, 7.5)))})
    table = narrow.score(fresh)
    outside = ~table["value"].is_between(6.5, 7.5) & (table["reason"] != OUT_OF_SCOPE)
    assert set(table.filter(outside)["reason"]) == {OUT_OF_RANGE}
    assert table.filter(~outside)["released"].any()


def test_the_claim_visits_promises_nothing_to_new_visits(fresh: pl.DataFrame) -> None:
    table, (account,) = fitted_cohort("visits")[0].scorer().score_whole(fresh)
    assert not table["released"].any()
    assert set(table["reason"]) <= {OUT_OF_SCOPE, NOT_PROMISED, NO_EVIDENCE, OUT_OF_RANGE}
    assert table["value"].is_finite().all()
    assert account.promise == ""
    assert "'visits'" in account.no_promise


def lowest_level(visits: pl.DataFrame) -> float:
    """The lowest level not refused before the fit, when nothing is known yet of how visits are weighed."""
    arrays = prepare_visits(visits, ColumnChoice("hba1c")).arrays
    for percent in range(1, 100):
        try:
            require_promisable(arrays, make_settings(target="hba1c", tolerance=0.6, fdr=percent / 100))
        except GuaranteeRefused:
            continue
        return percent / 100
    raise AssertionError("every level is refused")


def test_too_few_patients_promise_nothing(fresh: pl.DataFrame) -> None:
    """Refused by the ledger after the fit: the scorer says the same, and no row is released."""
    visits = simulate("mimic4", np.random.default_rng(3), patients=60).visits
    imputer = fit_visits(visits, fdr=lowest_level(visits))
    assert not imputer.impute(visits)["released"].any()
    assert decided(imputer.labs_["hba1c"]).refused
    table, (account,) = imputer.scorer().score_whole(fresh)
    assert not table["released"].any()
    assert account.no_promise == decided(imputer.labs_["hba1c"]).refused
    assert imputer.score(visits).equals(imputer.impute(visits))
    assert account.promise == imputer.promised().promise == ""


def test_a_second_look_promises_nothing(fresh: pl.DataFrame, tmp_path: Path) -> None:
    imputer = copy(fitted_cohort()[0])
    imputer.save(tmp_path / "model", second_look=True)
    table, (account,) = Scorer.load(tmp_path / "model").score_whole(fresh)
    assert not table["released"].any()
    assert "after looking" in account.no_promise


def test_levels_are_fixed_once_scored(fresh: pl.DataFrame) -> None:
    imputer = copy(fitted_cohort()[0])
    imputer.scorer()
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        imputer.set_params(fdr=0.3).score(fresh)
    with pytest.raises(NotFittedError, match="call fit again"):
        imputer.set_params(fdr=0.2, tolerance=0.9).score(fresh)


def test_the_paper_preset_cannot_score(cohort: pl.DataFrame, tmp_path: Path) -> None:
    quick = PaperSettings(gcn=GcnSettings(epochs=3))
    imputer = SafeImputer(target="hba1c", tolerance=0.9, fdr=0.35, preset="paper", paper=quick).fit(cohort)
    with pytest.raises(GuaranteeRefused, match="preset 'paper'"):
        imputer.score(cohort)
    imputer.save(tmp_path / "model")
    with pytest.raises(GuaranteeRefused, match="preset 'paper'"):
        Scorer.load(tmp_path / "model")


def test_unusable_options_are_refused(scorer: Scorer, fresh: pl.DataFrame) -> None:
    with pytest.raises(VisitsError, match="'time'"):
        scorer.score(fresh.drop("time"))
    with pytest.raises((VisitsError, OptionError), match="empty"):
        scorer.score(fresh.with_columns(subject_id=pl.lit(None, pl.Int64)))
    assert scorer.score(fresh).select(KEYS).n_unique() == fresh["hba1c"].null_count()


def test_a_loaded_second_look_promises_nothing_for_its_own_table_either(tmp_path: Path) -> None:
    visits = cohort_of(250)
    imputer = fit_visits(visits, "unmeasured", tolerance=1.0)
    imputer.save(tmp_path / "model", second_look=True)
    loaded = SafeImputer.load(tmp_path / "model")
    with pytest.raises(NotFittedError, match="call impute with it first"):
        loaded.results()
    loaded.impute(visits)
    assert "chosen after looking" in loaded.promised().no_promise
