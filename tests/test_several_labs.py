"""Several labs through SafeImputer: one fit, one long table, one wide table, save and load, scoring, other promises."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused, ModelFolderError, NotFittedError, OptionError, VisitsError
from safeimpute.model.labs import decided
from safeimpute.model.scorer import Scorer

LABS = ("first", "second")
TOLERANCE = {"first": 2.0, "second": "15%"}


def visits_table(patients: int = 70, seed: int = 0) -> pl.DataFrame:
    """Two labs that share a factor, and a third that is measured at every visit."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), 6)
    shared = 2.0 * rng.normal(size=patients)[patient]
    columns = {"third": 5.0 + shared + rng.normal(size=len(patient))}
    for name, level in (("first", 20.0), ("second", 40.0)):
        value = level + 2.0 * shared + rng.normal(size=len(patient))
        columns[name] = np.where(rng.random(len(patient)) < 0.6, value, np.nan)
    frame = pl.DataFrame({"subject_id": patient, "time": np.tile(np.arange(6.0) * 30, patients), **columns})
    return frame.with_columns(pl.col(LABS).fill_nan(None))


def imputer_of(**told: object) -> SafeImputer:
    given: dict[str, object] = {"target": LABS, "tolerance": TOLERANCE, "fdr": 0.2, "best": {"folds": 3}}
    return SafeImputer(**given | told)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return visits_table()


@pytest.fixture(scope="module")
def fitted(table: pl.DataFrame) -> SafeImputer:
    return imputer_of().fit(table)


@pytest.fixture(scope="module")
def imputed(fitted: SafeImputer, table: pl.DataFrame) -> pl.DataFrame:
    found: pl.DataFrame = fitted.impute(table)
    return found


def test_one_long_table_holds_every_missing_cell(imputed: pl.DataFrame, table: pl.DataFrame) -> None:
    counts = dict(imputed.group_by("lab").len().iter_rows())
    assert counts == {lab: table[lab].null_count() for lab in LABS}
    assert dict(imputed.group_by("lab").agg(pl.col("released").sum()).iter_rows()).keys() == counts.keys()
    assert imputed["released"].any()


def test_each_lab_is_as_if_imputed_alone(imputed: pl.DataFrame, table: pl.DataFrame) -> None:
    alone = SafeImputer(target="second", tolerance="15%", fdr=0.2, labs=LABS, best={"folds": 3, "effort": "light"})
    assert alone.fit(table).impute(table).equals(imputed.filter(pl.col("lab") == "second"))


def test_the_wide_table_is_filled_in_lab_by_lab(
    fitted: SafeImputer, imputed: pl.DataFrame, table: pl.DataFrame
) -> None:
    filled = fitted.transform(table)
    assert filled.columns == [*table.columns, "first_released", "second_released"]
    for lab in LABS:
        released = imputed.filter(pl.col("released") & (pl.col("lab") == lab))
        assert filled[f"{lab}_released"].sum() == len(released)
        assert filled[lab].null_count() == table[lab].null_count() - len(released)
        there = table[lab].is_not_null()
        assert filled[lab].filter(there).equals(table[lab].filter(there))
    with pytest.raises(VisitsError, match="first_released"):
        imputer_of().fit(filled)


def test_saved_labs_come_back_whole(
    fitted: SafeImputer, imputed: pl.DataFrame, table: pl.DataFrame, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    again = SafeImputer.load(tmp_path / "model")
    assert again.impute(table).equals(imputed)
    new = visits_table(patients=20, seed=9).with_columns(pl.col("subject_id") + 1000)
    scored = again.score(new)
    assert scored.equals(fitted.score(new))
    assert set(scored["lab"]) == set(LABS)
    warm = Scorer.load(tmp_path / "model")
    table_, accounts = warm.score_whole(new)
    assert table_.equals(scored)
    assert [account.target for account in accounts] == list(LABS)
    assert again.transform(new).equals(fitted.transform(new))
    assert "first, second" in again._repr_html_()
    with pytest.raises(VisitsError, match="2 labs"):
        _ = warm.model
    one = SafeImputer.load(tmp_path / "model" / "02-second")
    assert one.impute(table).equals(imputed.filter(pl.col("lab") == "second"))


def test_a_damaged_folder_names_the_lab(fitted: SafeImputer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    manifest = tmp_path / "model" / "01-first" / "model.json"
    manifest.write_text(manifest.read_text() + " ")
    with pytest.raises(ModelFolderError, match="'first'"):
        SafeImputer.load(tmp_path / "model")
    (tmp_path / "model" / "labs.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="labs"):
        SafeImputer.load(tmp_path / "model")


def test_one_level_over_all_cells(fitted: SafeImputer, table: pl.DataFrame, tmp_path: Path) -> None:
    cells = imputer_of(over="cells").fit(table)
    found = cells.impute(table)
    assert len(found["cutoff"].unique()) == 1
    assert "Over all 2 labs together" in cells.promised().promise
    fitted.impute(table)  # decides, where no other test did
    alone = {lab: decided(fitted.labs_[lab]).cutoffs[0].risk or 0.0 for lab in LABS}
    assert min(alone.values()) <= found["cutoff"][0] <= max(alone.values())
    cells.save(tmp_path / "model")
    assert SafeImputer.load(tmp_path / "model").impute(table).equals(found)
    with pytest.raises(GuaranteeRefused, match="together with others"):
        SafeImputer.load(tmp_path / "model" / "01-first")


def test_promises_speak_of_each_lab(fitted: SafeImputer) -> None:
    said = fitted.promised()
    assert "For each of 2 labs" in said.promise
    assert "first 2" in said.promise
    assert "second 15 %" in said.promise


def test_what_may_not_change_is_refused(fitted: SafeImputer, imputed: pl.DataFrame, table: pl.DataFrame) -> None:
    assert len(imputed)
    fitted.set_params(fdr=0.3)
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        fitted.impute(table)
    fitted.set_params(fdr=0.2, target="first,third")
    with pytest.raises(NotFittedError):
        fitted.impute(table)
    fitted.set_params(target=LABS)
    with pytest.raises(GuaranteeRefused, match="another table"):
        fitted.impute(table.head(300))
    with pytest.raises(VisitsError, match=r"labs_\['first'\]"):
        fitted.to_mice(table)
    with pytest.raises(VisitsError, match=r"labs_\['first'\]"):
        _ = fitted.bound_


def test_bad_input_is_named_before_any_work(table: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match="none is given for 'second'"):
        imputer_of(tolerance={"first": 2.0}).fit(table)
    with pytest.raises(GuaranteeRefused, match="'third' is measured at every visit"):
        imputer_of(target="first,third", tolerance="10%").fit(table)
    never = table.with_columns(never=pl.lit(None, pl.Float64))
    with pytest.raises(VisitsError, match="'never' is never measured"):
        imputer_of(target="first,never", tolerance="10%").fit(never)
    rare = table.with_columns(rare=pl.when(pl.int_range(pl.len()) % 40 == 0).then(pl.col("third")))
    with pytest.raises(GuaranteeRefused, match="'rare' is measured at"):
        imputer_of(target="first,rare", tolerance="10%").fit(rare)
    copied = table.with_columns(copy=pl.col("first") * 3)
    with pytest.raises(VisitsError, match="'first' and 'copy' nearly copy each other"):
        imputer_of(target="first,copy", tolerance="10%").fit(copied)
    with pytest.raises(GuaranteeRefused, match="lab 'first'"):
        imputer_of(tolerance="10%", fdr=0.01).fit(table)


def test_all_leaves_out_what_cannot_be_imputed_and_says_why(table: pl.DataFrame) -> None:
    imputer = imputer_of(target="all", tolerance="15%").fit(table)
    assert tuple(imputer.labs_) == LABS
    assert "every visit" in imputer.left_out_["third"]
    assert set(imputer.set_params(fdr=0.25).impute(table)["lab"]) == set(LABS)
    with pytest.raises(NotFittedError, match="call fit again"):
        imputer.set_params(labs=("third",)).impute(table)
