"""SafeImputer with the preset `paper`: its contract, its levels, its tables; quick to fit."""

import json
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused, ModelFolderError, NotFittedError, OptionError, VisitsError
from safeimpute.settings import GcnSettings, PaperSettings
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.imputations import COLUMNS
from safeimpute.visits.visits import prepare_visits

QUICK = PaperSettings(gcn=GcnSettings(epochs=80))


def make_imputer(**changes: object) -> SafeImputer:
    given: dict[str, object] = {"target": "hba1c", "tolerance": 0.9, "fdr": 0.35, "preset": "paper"}
    return SafeImputer(**given | {"paper": QUICK} | changes)


@pytest.fixture(scope="module")
def fitted(cohort: pl.DataFrame) -> SafeImputer:
    return make_imputer().fit(cohort)


def test_one_row_per_missing_target(fitted: SafeImputer, cohort: pl.DataFrame) -> None:
    table = fitted.impute(cohort)
    assert tuple(table.columns) == COLUMNS
    assert table["p_value"].is_between(0, 1).all(), "the claim `visits` has p-values"
    missing = cohort.filter(pl.col("hba1c").is_null())
    assert set(zip(table["subject_id"], table["time"], strict=True)) == set(
        zip(missing["subject_id"], missing["time"], strict=True)
    )
    assert table["value"].is_finite().all()
    assert (table["lower"] <= table["value"]).all()
    assert (table["value"] <= table["upper"]).all()
    released = table.filter("released")
    assert len(released) > 0, "a tolerance this wide must let something through"
    assert (released["reason"] == "").all()
    assert (table.filter(~pl.col("released"))["reason"] != "").all()
    withheld = table.filter(reason="risk above cut-off")
    assert len(withheld) > 0
    assert released["risk"].max() <= withheld["risk"].min()


def test_transform_fills_released_values_and_nothing_else(fitted: SafeImputer, cohort: pl.DataFrame) -> None:
    filled, table = fitted.transform(cohort), fitted.impute(cohort)
    assert filled.columns == [*cohort.columns, "hba1c_released"]
    measured = cohort["hba1c"].is_not_null()
    assert filled.filter(measured)["hba1c"].to_list() == cohort.filter(measured)["hba1c"].to_list()
    assert filled["hba1c_released"].sum() == table["released"].sum()
    joined = filled.join(table.filter("released"), on=["subject_id", "time"])
    assert (joined["hba1c"] == joined["value"]).all()
    untouched = filled.filter(~pl.col("hba1c_released") & ~measured)
    assert untouched["hba1c"].null_count() == len(untouched)


def test_the_kind_of_table_comes_back(cohort: pl.DataFrame) -> None:
    as_pandas = cohort.to_pandas()
    before = as_pandas.copy(deep=True)
    table = make_imputer().fit(as_pandas).impute(as_pandas)
    assert isinstance(table, pd.DataFrame)
    pd.testing.assert_frame_equal(as_pandas, before)


def test_row_and_column_order_change_nothing(fitted: SafeImputer, cohort: pl.DataFrame) -> None:
    shuffled = cohort.sample(fraction=1.0, shuffle=True, seed=5).select(sorted(cohort.columns, reverse=True))
    other = make_imputer().fit(shuffled).impute(shuffled)
    assert other.equals(fitted.impute(cohort))


def test_scikit_learn_conventions(cohort: pl.DataFrame) -> None:
    from sklearn.base import clone

    imputer = make_imputer()
    assert imputer.get_params()["tolerance"] == 0.9
    copy = clone(imputer)
    assert copy is not imputer
    assert copy.get_params() == imputer.get_params()
    assert copy.set_params(fdr=0.2).fdr == 0.2
    with pytest.raises(ValueError, match="no parameter"):
        copy.set_params(alpha=0.2)
    with pytest.raises(NotFittedError, match="call fit"):
        copy.impute(cohort)
    assert not [name for name in vars(copy) if name.endswith("_")]


def test_save_and_load_give_the_same_table(fitted: SafeImputer, cohort: pl.DataFrame, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = SafeImputer.load(tmp_path / "model")
    assert loaded.impute(cohort).equals(fitted.impute(cohort))
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".pkl", ".pt", ".joblib")]


def test_damaged_models_are_refused(fitted: SafeImputer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    fitted.save(folder)
    tensors = folder / "arrays.safetensors"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-100])
    with pytest.raises(ModelFolderError, match="damaged"):
        SafeImputer.load(folder)
    tensors.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(ModelFolderError, match="damaged"):
        SafeImputer.load(folder)
    tensors.write_bytes(whole)
    manifest = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(ModelFolderError, match="format 99"):
        SafeImputer.load(folder)
    with pytest.raises(ModelFolderError, match="no readable"):
        SafeImputer.load(tmp_path / "nowhere")


def test_levels_are_fixed_once_calibration_was_used(cohort: pl.DataFrame) -> None:
    imputer = make_imputer().fit(cohort)
    imputer.set_params(fdr=0.25)
    imputer.impute(cohort)
    imputer.impute(cohort)
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        imputer.set_params(fdr=0.2).impute(cohort)
    with pytest.raises(NotFittedError, match="call fit again"):
        imputer.set_params(fdr=0.25, tolerance=0.8).impute(cohort)


def test_what_cannot_succeed_is_refused_before_the_fit(cohort: pl.DataFrame) -> None:
    said: list[str] = []
    with pytest.raises(GuaranteeRefused, match="calibration visits"):
        make_imputer(fdr=0.001).fit(cohort, progress=lambda stage, _: said.append(stage))
    with pytest.raises(VisitsError, match="nothing to impute"):
        make_imputer().fit(cohort.drop_nulls("hba1c"), progress=lambda stage, _: said.append(stage))
    assert not said, "no stage was begun"


def test_a_saved_model_remembers_that_it_was_looked_at(cohort: pl.DataFrame, tmp_path: Path) -> None:
    imputer = make_imputer().fit(cohort)
    imputer.save(tmp_path / "unseen")
    imputer.impute(cohort)
    imputer.save(tmp_path / "seen")
    assert SafeImputer.load(tmp_path / "unseen").set_params(fdr=0.45).impute(cohort)["released"].any()
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        SafeImputer.load(tmp_path / "seen").set_params(fdr=0.45).impute(cohort)


def test_text_targets_are_kept_by_transform(cohort: pl.DataFrame) -> None:
    text = cohort.with_columns((" " + pl.col("hba1c").cast(pl.String)).alias("hba1c"))
    filled = make_imputer().fit(text).transform(text)
    measured = cohort["hba1c"].is_not_null()
    assert filled.filter(measured)["hba1c"].to_list() == cohort.filter(measured)["hba1c"].to_list()


def test_visits_checked_before_serve_as_the_table(fitted: SafeImputer, cohort: pl.DataFrame) -> None:
    checked = prepare_visits(cohort, ColumnChoice("hba1c"))
    imputer = make_imputer().fit(checked)
    assert imputer.labs_["hba1c"].visits is checked
    assert imputer.impute(checked).equals(fitted.impute(cohort))
    with pytest.raises(VisitsError, match="other columns"):
        make_imputer(exclude=("glucose",)).fit(checked)


def test_the_unit_is_part_of_the_fit(cohort: pl.DataFrame) -> None:
    """What the target can be hangs on it, for calibrating visits and for visits scored later alike."""
    imputer = make_imputer().fit(cohort)
    with pytest.raises(NotFittedError, match="call fit again"):
        imputer.set_params(unit="mmol/mol").impute(cohort)


def test_another_table_is_refused(fitted: SafeImputer, cohort: pl.DataFrame) -> None:
    with pytest.raises(GuaranteeRefused, match="another table"):
        fitted.impute(cohort.head(len(cohort) - 1))
    changed = cohort.with_columns(pl.col("glucose") + 1)
    with pytest.raises(GuaranteeRefused, match="'paper' cannot score new visits"):
        fitted.transform(changed)


def test_a_parameter_changed_since_fit_is_refused(cohort: pl.DataFrame) -> None:
    imputer = make_imputer().fit(cohort)
    with pytest.raises(NotFittedError, match="call fit again"):
        imputer.set_params(random_state=9).impute(cohort)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"fdr": 0}, "fdr"),
        ({"fdr": 1}, "fdr"),
        ({"fdr": float("nan")}, "fdr"),
        ({"tolerance": 0}, "tolerance"),
        ({"preset": "magic"}, "preset"),
        ({"claim": "everything"}, "claim"),
        ({"random_state": -1}, "random_state"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_unusable_options_are_named(cohort: pl.DataFrame, change: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        make_imputer(**change).fit(cohort)
