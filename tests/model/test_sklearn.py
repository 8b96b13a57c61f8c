"""The estimator as scikit-learn's users expect it: clone, pipelines, cross-validation, pickles, names, new tables."""

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError as SklearnNotFitted
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from helpers.scored_cohorts import cohort_of, fitted_cohort, new_visits
from helpers.unseen import unseen
from safeimpute import SafeImputer
from safeimpute.errors import NotFittedError, OptionError

ARRAYS = "gives an array without columns: whose visit it is and when are needed, so a table with names is"
SPARSE = "gives a sparse matrix, which is no table of visits, and wants the word 'sparse' in the answer"
VALUE_ERROR = "wants a ValueError; what the user gave is answered by VisitsError, a SafeImputeError"
OBJECTS = "allows no objects as defaults; settings of the presets are frozen dataclasses"

EXPECTED = {
    **dict.fromkeys(
        (
            *("check_complex_data", "check_dict_unchanged", "check_dont_overwrite_parameters"),
            *("check_dtype_object", "check_estimators_dtypes", "check_estimators_fit_returns_self"),
            *("check_estimators_overwrite_params", "check_estimators_pickle", "check_f_contiguous_array_estimator"),
            *("check_fit1d", "check_fit2d_1feature", "check_fit2d_1sample", "check_fit2d_predict1d"),
            *("check_fit_check_is_fitted", "check_fit_idempotent", "check_fit_score_takes_y"),
            *("check_methods_sample_order_invariance", "check_methods_subset_invariance"),
            *("check_n_features_in", "check_n_features_in_after_fitting", "check_pipeline_consistency"),
            *("check_positive_only_tag_during_fit", "check_readonly_memmap_input"),
            *("check_transformer_data_not_an_array", "check_transformer_general"),
        ),
        ARRAYS,
    ),
    **dict.fromkeys(
        ("check_estimator_sparse_array", "check_estimator_sparse_matrix", "check_estimator_sparse_tag"), SPARSE
    ),
    "check_estimators_empty_data_messages": VALUE_ERROR,
    "check_parameters_default_constructible": OBJECTS,
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SafeImputer(target="hba1c", tolerance=0.5, fdr=0.1)], expected_failed_checks=lambda _: EXPECTED, xfail_strict=True
)
def test_what_scikit_learn_checks(estimator: SafeImputer, check: Any) -> None:
    """Each listed exception must fail still, and nothing else may."""
    check(estimator)


@pytest.fixture(scope="module")
def fitted() -> SafeImputer:
    return fitted_cohort()[0]


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    return cohort_of(250)


@pytest.fixture(scope="module")
def newcomers() -> pl.DataFrame:
    """Patients the fit never met."""
    return new_visits(40, 77)


def quick(**told: object) -> SafeImputer:
    given: dict[str, object] = {"target": "hba1c", "tolerance": 1.0, "fdr": 0.4}
    return SafeImputer(**given | {"best": {"effort": "light", "folds": 3}} | told)


def test_a_short_repr_says_what_was_told() -> None:
    imputer = SafeImputer(target="hba1c", tolerance=0.5, fdr=0.1, claim="later")
    assert repr(imputer) == "SafeImputer(target='hba1c', tolerance=0.5, fdr=0.1, claim='later')"
    assert repr(clone(imputer)) == repr(imputer)


def test_a_notebook_shows_what_was_fitted_and_decides_nothing(visits: pl.DataFrame) -> None:
    fresh = SafeImputer(target="<b>", tolerance=0.5, fdr=0.1)
    assert "not yet" in fresh._repr_html_()
    assert "<b>" not in fresh._repr_html_()
    imputer = unseen(fitted_cohort()[0])
    shown = imputer._repr_html_()
    assert f"{len(visits):,} visits of 250 patients" in shown
    assert "the expected share" in shown
    assert "call impute" in shown
    assert imputer.labs_["hba1c"].looked is None, "showing is no look"
    table = imputer.impute(visits)
    shown = imputer._repr_html_()
    assert f'<td style="text-align:left">{int(table["released"].sum()):,}</td>' in shown
    assert "withheld" in shown
    imputer.set_params(random_state=9)
    assert "call fit again" in imputer._repr_html_()


def fitted_copy() -> SafeImputer:
    copied: SafeImputer = pickle.loads(pickle.dumps(fitted_cohort()[0]))
    return copied


def test_a_pickle_imputes_and_scores_alike(
    fitted: SafeImputer, visits: pl.DataFrame, newcomers: pl.DataFrame, tmp_path: Path
) -> None:
    joblib.dump(fitted, tmp_path / "imputer.joblib")
    for copied in (fitted_copy(), joblib.load(tmp_path / "imputer.joblib")):
        assert copied.impute(visits).equals(fitted.impute(visits))
        assert copied.score(newcomers).equals(fitted.score(newcomers))


@pytest.mark.full
def test_joblib_runs_it_in_another_process(fitted: SafeImputer, newcomers: pl.DataFrame) -> None:
    there = joblib.Parallel(n_jobs=2)(joblib.delayed(fitted.transform)(part) for part in (newcomers, newcomers))
    assert all(each.equals(fitted.transform(newcomers)) for each in there)


def test_names_out_are_the_columns_that_come_out(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    told = clone(fitted)
    with pytest.raises(NotFittedError, match="call fit"):
        told.get_feature_names_out()
    told = fitted_copy()
    assert told.n_features_in_ == visits.width
    assert told.get_feature_names_out().tolist() == told.transform(visits).columns
    assert told.get_feature_names_out(visits.columns).tolist() == [*visits.columns, "hba1c_released"]
    with pytest.raises(ValueError, match="feature_names_in_"):
        told.get_feature_names_out(["a"])


def test_output_comes_as_the_kind_asked_for(visits: pl.DataFrame) -> None:
    imputer, table = fitted_copy(), visits.to_pandas()
    table.index = table.index + 7
    assert isinstance(imputer.transform(visits), pl.DataFrame)
    assert isinstance(imputer.set_output(transform="pandas").transform(visits), pd.DataFrame)
    assert imputer.transform(table).index.equals(table.index)
    assert isinstance(imputer.set_output(transform="polars").transform(table), pl.DataFrame)
    assert isinstance(imputer.set_output(transform=None).transform(table), pl.DataFrame)
    assert isinstance(imputer.set_output(transform="default").transform(table), pd.DataFrame)
    with pytest.raises(OptionError, match="default, pandas, polars or numbers"):
        imputer.set_output(transform="numpy")  # type: ignore[arg-type]


def test_another_table_is_filled_as_it_is_scored(fitted: SafeImputer, newcomers: pl.DataFrame) -> None:
    """Whatever rows come together: a patient's values hang on its own visits and the model alone."""
    filled, scored = fitted.transform(newcomers), fitted.score(newcomers)
    assert filled.columns == [*newcomers.columns, "hba1c_released"]
    released = scored.filter("released")
    assert 0 < len(released) < len(scored)
    there = filled.filter("hba1c_released").select("subject_id", "time", "hba1c")
    assert there.sort("subject_id", "time").equals(
        released.select("subject_id", "time", pl.col("value").alias("hba1c")).sort("subject_id", "time")
    )
    measured = newcomers["hba1c"].is_not_null()
    assert filled.filter(measured)["hba1c"].equals(newcomers.filter(measured)["hba1c"])
    one = newcomers.filter(pl.col("subject_id") == newcomers["subject_id"][0])
    assert fitted.transform(one).equals(filled.filter(pl.col("subject_id") == newcomers["subject_id"][0]))


def test_a_table_in_which_the_target_was_never_measured_is_filled(fitted: SafeImputer, newcomers: pl.DataFrame) -> None:
    empty = newcomers.with_columns(pl.lit(None, pl.Float64).alias("hba1c"))
    assert fitted.transform(empty).height == newcomers.height


def test_values_the_claim_does_not_cover_are_marked(visits: pl.DataFrame, newcomers: pl.DataFrame) -> None:
    imputer = quick(claim="visits").fit(visits)
    names = [*visits.columns, "hba1c_released", "hba1c_not_promised"]
    own, new = imputer.transform(visits), imputer.transform(newcomers)
    assert own.columns == new.columns == imputer.get_feature_names_out().tolist() == names
    assert not own["hba1c_not_promised"].any()
    assert new["hba1c_released"].any()
    assert new["hba1c_released"].equals(new["hba1c_not_promised"])
    assert imputer.score(newcomers)["released"].sum() == 0


def test_scikit_learn_sees_whether_it_is_fitted(fitted: SafeImputer) -> None:
    check_is_fitted(fitted)
    with pytest.raises(SklearnNotFitted):
        check_is_fitted(clone(fitted))


def test_a_fit_without_a_table_of_names_is_an_error() -> None:
    with pytest.raises(Exception, match="a table is needed"):
        quick().fit(np.zeros((3, 3)))


def test_fitting_twice_gives_the_same(visits: pl.DataFrame) -> None:
    imputer = quick()
    first = imputer.fit(visits).transform(visits)
    told = dict(imputer.get_params())
    assert imputer.fit(visits).transform(visits).equals(first)
    assert imputer.get_params() == told


def test_cross_validation_around_a_pipeline(visits: pl.DataFrame) -> None:
    """Who is missing hba1c is filled in inside each fold: test patients by models that never saw them."""
    table = visits.to_pandas()
    features = make_column_transformer(("passthrough", ["hba1c", "hba1c_released", "age"]))
    model = make_pipeline(quick(), features, HistGradientBoostingRegressor(max_iter=20))
    cv = GroupKFold(2)
    scores = cross_val_score(
        model, table, table["glucose"].fillna(150.0), groups=table["subject_id"], cv=cv, error_score="raise"
    )
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()
    assert isinstance(model, Pipeline)
