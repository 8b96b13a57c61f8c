"""SafeImputer with its defaults: preset `best`, claim `unmeasured`."""

import pickle
from copy import copy

import numpy as np
import polars as pl
import pytest

from helpers.scored_cohorts import KEYS, LEVEL, TOLERANCE, cohort_of, fit_visits, fitted_cohort
from helpers.unseen import unseen
from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused, NotFittedError, OptionError, VisitsError
from safeimpute.model.labs import decided
from safeimpute.selection.reasons import RISK_ABOVE_CUTOFF
from safeimpute.visits.examples import simulate
from safeimpute.visits.imputations import COLUMNS


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    return cohort_of(250)


@pytest.fixture(scope="module")
def fitted() -> SafeImputer:
    return fitted_cohort()[0]


def test_defaults() -> None:
    imputer = SafeImputer(target="hba1c", tolerance=0.5, fdr=0.1)
    told = imputer.get_params()
    assert (told["preset"], told["promise"], told["past_only"]) == ("best", "average", False)
    assert not [name for name in vars(imputer) if name.endswith("_")], "the constructor does no work"


def test_one_row_per_missing_target(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    table = fitted.impute(visits)
    assert tuple(table.columns) == COLUMNS
    assert table.select(KEYS).sort(KEYS).equals(visits.filter(pl.col("hba1c").is_null()).select(KEYS).sort(KEYS))
    assert table["value"].is_finite().all()
    assert (table["lower"] <= table["value"]).all()
    assert (table["value"] <= table["upper"]).all()
    assert table["p_value"].null_count() == len(table)
    assert table["unit"].unique().to_list() == ["%"]
    released, above = table.filter("released"), table.filter(reason=RISK_ABOVE_CUTOFF)
    assert len(released) > 0
    assert len(above) > 0
    assert released["risk"].max() <= table["cutoff"][0] < above["risk"].min()
    assert table["cutoff"][0] == decided(fitted.labs_["hba1c"]).cutoffs[0].risk


def test_every_measured_visit_calibrates(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    question = fitted.labs_["hba1c"].calibrated.question
    measured = int(visits["hba1c"].is_not_null().sum())
    assert question.judged.sum() == question.visible.sum() == measured
    assert question.candidate.sum() == len(visits) - measured
    assert fitted.labs_["hba1c"].calibrated.diagnosis is not None
    assert fitted.labs_["hba1c"].calibrated.diagnosis.measured > 0.9 * measured


def test_judged_errors_are_errors_of_the_imputer(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    """Where the truth is known, also at unmeasured visits: the same size of error on both sides."""
    truth = simulate("mimic4", np.random.default_rng(3), patients=250).truth
    table = fitted.impute(visits).join(truth, on=KEYS)
    unmeasured = float((table["value"] - table["hba1c"]).abs().mean())
    calibrated = fitted.labs_["hba1c"].calibrated
    error = np.abs(calibrated.estimates.value - calibrated.truth)[calibrated.question.judged]
    assert abs(error.mean() / unmeasured - 1) < 0.15
    risky = (table.filter("released")["value"] - table.filter("released")["hba1c"]).abs() >= TOLERANCE
    assert risky.mean() < LEVEL + 0.1
    inside = (table["hba1c"] >= table["lower"]) & (table["hba1c"] <= table["upper"])
    assert 0.85 < inside.mean() < 0.97


def test_every_value_is_explained_by_visits_of_weight_one(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    why = fitted.explain(visits)
    total = why.group_by(KEYS).agg(pl.col("weight").sum())
    assert (total["weight"] <= 1 + 1e-6).all()
    own = why.filter(pl.col("carried_by") == "own visit")
    assert own["gap_days"].null_count() == 0
    assert (own["gap_days"] != 0).all()
    measured = visits.filter(pl.col("hba1c").is_not_null())["hba1c"].unique().to_numpy()
    nearest = np.abs(own["value"].to_numpy()[:, None] - measured).min(axis=1)
    assert nearest.max() < 1e-6, "own visits are shown with the values that were measured"
    others = why.filter(pl.col("carried_by") != "own visit")
    assert others["value_distance"].null_count() == 0


def test_the_explained_are_the_table_in_any_fold(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    """Measured neighbours on both sides are used, because they are there: none is hidden by a draw."""
    why = fitted.explain(visits).filter(pl.col("carried_by") == "own visit")
    measured = visits.filter(pl.col("hba1c").is_not_null())
    for subject, time in fitted.impute(visits).select(KEYS).rows()[:40]:
        own = measured.filter(pl.col("subject_id") == subject)["time"]
        near = sorted(abs(t - time) for t in own)[:1]
        gaps = why.filter((pl.col("subject_id") == subject) & (pl.col("time") == time))["gap_days"]
        assert sorted(gaps.abs())[:1] == near


def test_transform_fills_released_values_and_nothing_else(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    filled, table = fitted.transform(visits), fitted.impute(visits)
    measured = visits["hba1c"].is_not_null()
    assert filled.filter(measured)["hba1c"].equals(visits.filter(measured)["hba1c"])
    assert filled["hba1c_released"].sum() == table["released"].sum()
    with pytest.raises(VisitsError, match="hba1c_released"):
        fitted.transform(visits.with_columns(hba1c_released=pl.lit(True)))


def test_row_and_column_order_change_nothing(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    shuffled = visits.sample(fraction=1.0, shuffle=True, seed=5).select(sorted(visits.columns, reverse=True))
    assert fit_visits(shuffled).impute(shuffled).equals(fitted.impute(visits))


def test_levels_may_change_before_the_first_look_only(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    imputer = unseen(fitted)
    strict = imputer.set_params(fdr=0.1).impute(visits)
    assert strict["released"].sum() < fitted.impute(visits)["released"].sum()
    for change in ({"fdr": 0.2}, {"promise": "confident"}):
        with pytest.raises(GuaranteeRefused, match="changed after impute"):
            copy(imputer).set_params(**change).impute(visits)
    with pytest.raises(NotFittedError, match="call fit again"):
        copy(imputer).set_params(tolerance=1.0).impute(visits)


def test_confidence_releases_less(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    imputer = unseen(fitted)
    confident = imputer.set_params(promise="confident", confidence=0.9).impute(visits)
    assert confident["released"].sum() <= fitted.impute(visits)["released"].sum()
    assert "With 90 % confidence" in imputer.promised().promise


def test_the_promise_names_claim_tolerance_and_columns(fitted: SafeImputer) -> None:
    words = fitted.promised()
    assert "nobody measured it" in words.promise
    assert "0.6" in words.promise
    assert "20 %" in words.promise
    for column in ("time", "hba1c", "glucose", "cholesterol", "age", "sex"):
        assert column in words.assumption


def test_past_only_looks_back_alone(visits: pl.DataFrame, fitted: SafeImputer) -> None:
    """The later claim implies it: values are carried by earlier visits, and later ones change nothing."""
    imputer, _ = fitted_cohort("later")
    assert imputer.settings_.past_only
    own = pl.col("carried_by") == "own visit"
    assert (imputer.explain(visits).filter(own)["gap_days"] < 0).all()
    assert (fitted.explain(visits).filter(own)["gap_days"] > 0).any()
    with pytest.raises(OptionError, match="past_only"):
        SafeImputer(target="hba1c", tolerance=1.0, fdr=0.3, past_only=True, preset="paper").fit(visits)


def test_claims_beyond_the_fitted_visits_need_the_best_preset(visits: pl.DataFrame) -> None:
    for claim in ("unmeasured", "patients", "later"):
        with pytest.raises(OptionError, match="needs the preset 'best'"):
            SafeImputer(target="hba1c", tolerance=1.0, fdr=0.3, preset="paper", claim=claim).fit(visits)


def test_the_old_name_of_the_claim_patients(visits: pl.DataFrame) -> None:
    imputer, _ = fitted_cohort("patients,unmeasured")
    assert imputer.settings_.claim == "patients"
    assert "patients the fit never met" in imputer.promised().promise


def test_weights_too_uneven_are_refused() -> None:
    """Measured only when glucose is high: unmeasured visits have hardly a counterpart."""
    table = simulate("mimic4", np.random.default_rng(5), patients=150).visits
    hidden = pl.col("glucose").fill_null(0) < 190
    uneven = table.with_columns(pl.when(hidden).then(None).otherwise(pl.col("hba1c")).alias("hba1c"))
    imputer = fit_visits(uneven, fdr=0.1)
    assert not imputer.impute(uneven)["released"].any()
    words = imputer.promised()
    assert (words.promise == "") == bool(decided(imputer.labs_["hba1c"]).refused)
    told = imputer.labs_["hba1c"].calibrated.diagnosis
    assert told is not None
    assert told.auc is not None
    assert told.auc > 0.85
    assert told.outside > 0.5 * len(imputer.impute(uneven)), "most of them are outside what can be promised"


def test_a_fitted_imputer_pickles(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    assert again.impute(visits).equals(fitted.impute(visits))
    assert again.score(visits).equals(fitted.impute(visits))


def test_too_small_tables_are_refused_before_any_work() -> None:
    few = simulate("mimic4", np.random.default_rng(1), patients=8).visits
    said: list[str] = []
    with pytest.raises((VisitsError, GuaranteeRefused), match=r"patients|equal weight"):
        SafeImputer(target="hba1c", tolerance=1.0, fdr=0.5).fit(few, progress=lambda what, _: said.append(what))
    assert not [stage for stage in said if "fold" in stage]
