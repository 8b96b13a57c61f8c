"""SafeImputer with its defaults: preset `best`, claim `unmeasured`."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused, ModelFolderError, NotFittedError, OptionError
from safeimpute.records.simulate import simulate


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    return simulate("mimic4", np.random.default_rng(21), patients=400).visits


@pytest.fixture(scope="module")
def fitted(visits: pl.DataFrame) -> SafeImputer:
    return SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3).fit(visits)


def test_defaults_release_something_with_units(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    assert (fitted.preset, fitted.claim) == ("best", "unmeasured")
    table = fitted.impute(visits)
    assert 0.1 < table["released"].mean() < 1
    assert table["unit"].unique().to_list() == ["%"]
    assert fitted.decision_.effective_sample_size > 30


def test_every_value_is_explained_by_visits_of_weight_one(fitted: SafeImputer, visits: pl.DataFrame) -> None:
    why = fitted.explain(visits)
    total = why.group_by("subject_id", "time").agg(pl.col("weight").sum())
    assert (total["weight"] <= 1 + 1e-6).all()
    own = why.filter(pl.col("carried_by") == "own visit")
    assert own["gap_days"].null_count() == 0
    assert (own["gap_days"] != 0).all()
    others = why.filter(pl.col("carried_by") != "own visit")
    assert others["value_distance"].null_count() == 0


def test_a_saved_best_imputes_the_same_and_refuses_another_tolerance(
    fitted: SafeImputer, visits: pl.DataFrame, tmp_path: Path
) -> None:
    table = fitted.impute(visits)  # looked at before it is saved
    fitted.save(tmp_path / "model")
    loaded = SafeImputer.load(tmp_path / "model")
    assert loaded.impute(visits).equals(table)
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        SafeImputer.load(tmp_path / "model").set_params(tolerance=1.0).impute(visits)
    manifest = tmp_path / "model" / "model.json"
    manifest.write_text(manifest.read_text().replace('"looked": true', '"looked": false'))
    with pytest.raises(ModelFolderError, match="changed after it was written"):
        SafeImputer.load(tmp_path / "model")
    with pytest.raises(NotFittedError, match="fit first"):
        loaded.explain(visits)


def test_another_tolerance_before_looking_refits_the_risk_alone(visits: pl.DataFrame) -> None:
    imputer = SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3).fit(visits)
    narrow = imputer.scores_.risk.copy()
    table = imputer.set_params(tolerance=1.2).impute(visits)
    candidates = imputer.scored_.candidates()
    assert np.array_equal(table["value"].to_numpy(), imputer.scores_.value[candidates])
    assert table["risk"].mean() < narrow[candidates].mean()


def test_past_only_ignores_the_future(visits: pl.DataFrame) -> None:
    def value_at(table: pl.DataFrame, chosen: pl.DataFrame) -> float:
        imputer = SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3, past_only=True, claim="visits")
        found = imputer.fit(table).impute(table).join(chosen, on=["subject_id", "time"])
        return float(found["value"][0])

    missing = visits.filter(pl.col("hba1c").is_null())
    chosen = missing.head(1).select("subject_id", "time")
    subject, time = chosen.row(0)
    after = (pl.col("subject_id") == subject) & (pl.col("time") > time)
    changed = visits.with_columns(
        pl.when(after).then(pl.col("glucose") * 2).otherwise(pl.col("glucose")).alias("glucose")
    )
    assert (
        abs(value_at(visits, chosen) - value_at(changed, chosen)) < 0.25
    )  # the model moves a little, the record not
    with pytest.raises(OptionError, match="past_only"):
        SafeImputer(target="hba1c", tolerance=1.0, fdr=0.3, past_only=True, preset="paper").fit(visits)


def test_past_only_is_carried_by_earlier_visits_alone(visits: pl.DataFrame, fitted: SafeImputer) -> None:
    imputer = SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3, past_only=True, claim="visits").fit(visits)
    own = pl.col("carried_by") == "own visit"
    assert (imputer.explain(visits).filter(own)["gap_days"] < 0).all()
    assert (fitted.explain(visits).filter(own)["gap_days"] > 0).any()


def test_new_patients_need_the_best_preset(visits: pl.DataFrame) -> None:
    with pytest.raises(GuaranteeRefused, match="needs the preset 'best'"):
        SafeImputer(target="hba1c", tolerance=1.0, fdr=0.3, preset="paper", claim="patients").fit(visits)


def test_a_release_to_new_patients_leaves_training_patients_out() -> None:
    visits = simulate("mimic4", np.random.default_rng(22), patients=1200).visits
    imputer = SafeImputer(target="hba1c", tolerance=1.2, fdr=0.35, claim="patients").fit(visits)
    table = imputer.impute(visits)
    reasons = table["reason"].value_counts()
    assert "outside the guarantee's scope" in reasons["reason"].to_list()
    released = table.filter("released")["subject_id"].n_unique()
    assert 0 < released <= round(0.25 * visits["subject_id"].n_unique())


def test_weights_too_uneven_are_refused() -> None:
    """Measured only when glucose is high: unmeasured visits have hardly a counterpart."""
    table = simulate("mimic4", np.random.default_rng(5), patients=300).visits
    hidden = pl.col("glucose").fill_null(0) < 190
    uneven = table.with_columns(pl.when(hidden).then(None).otherwise(pl.col("hba1c")).alias("hba1c"))
    with pytest.raises(GuaranteeRefused, match="equally weighted"):
        SafeImputer(target="hba1c", tolerance=1.0, fdr=0.1).fit(uneven).impute(uneven)
