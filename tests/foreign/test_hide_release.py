"""Anybody's imputer: what is hidden, what comes back, how it can fail to fit, and that the level holds."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

import safeimpute as si
from helpers.command_line import invoke
from safeimpute.errors import GuaranteeRefused, ImputedError, ModelFolderError, VisitsError
from safeimpute.evaluation.evaluate import release_at
from safeimpute.evaluation.trials import Trial
from safeimpute.foreign.hidden import Hidden
from safeimpute.foreign.release import Release
from safeimpute.learning.roles import Role
from safeimpute.machine.looks_log import VARIABLE
from safeimpute.selection.claims import SECOND_LOOK
from safeimpute.visits.examples import load_pbc, simulate

LABS = ["hba1c", "glucose", "cholesterol"]


def iterative(visits: pl.DataFrame) -> pl.DataFrame:
    """scikit-learn's chained regressions on labs and time."""
    columns = [name for name in visits.columns if visits[name].dtype.is_numeric() and name != "subject_id"]
    table = visits.select(columns).to_numpy()
    filled = IterativeImputer(random_state=0, max_iter=5).fit_transform(table)
    return visits.with_columns(pl.Series(name, filled[:, k]) for k, name in enumerate(columns) if name != "time")


def nearest(visits: pl.DataFrame) -> pl.DataFrame:
    filled = KNNImputer(n_neighbors=10).fit_transform(visits.select(LABS).to_numpy())
    return visits.with_columns(hba1c=pl.Series(filled[:, 0]))


def carried(visits: pl.DataFrame) -> pl.DataFrame:
    """The last value carried forward, then back; nothing where a patient has none."""
    return visits.with_columns(pl.col("hba1c").forward_fill().backward_fill().over("subject_id"))


def shuffled(visits: pl.DataFrame) -> pl.DataFrame:
    """A deliberately bad tool: some measured value, whoever's."""
    known = visits["hba1c"].drop_nulls().to_numpy()
    drawn = np.random.default_rng(3).choice(known, len(visits))
    return visits.with_columns(pl.coalesce("hba1c", pl.Series(drawn)))


TOOLS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "iterative": iterative,
    "nearest": nearest,
    "carried": carried,
    "shuffled": shuffled,
}


@pytest.fixture(scope="module")
def cohort() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Visits with a quarter of the values left out at random, and the same with all of them."""
    whole = simulate("mimic4", np.random.default_rng(8), patients=500).visits.select("subject_id", "time", *LABS)
    whole = whole.filter(pl.col("hba1c").is_not_null()).sort("subject_id", "time")
    whole = whole.with_columns(pl.col("subject_id").cast(pl.String).str.zfill(6))  # in the order of visits
    left = np.random.default_rng(9).random(len(whole)) < 0.25
    return whole.with_columns(pl.when(~pl.Series(left)).then("hba1c").alias("hba1c")), whole


@pytest.fixture
def hidden(cohort: tuple[pl.DataFrame, pl.DataFrame]) -> Hidden:
    return si.hide(cohort[0], target="hba1c")


def test_hidden_and_never_measured_cannot_be_told_apart(
    cohort: tuple[pl.DataFrame, pl.DataFrame], hidden: Hidden
) -> None:
    visits, shown = cohort[0], hidden.visits
    assert shown.columns == visits.columns
    assert shown.drop("hba1c").equals(visits.drop("hba1c"))
    measured = int(visits["hba1c"].is_not_null().sum())
    assert shown["hba1c"].is_not_null().sum() == pytest.approx(0.7 * measured, abs=1)
    assert (hidden.roles == Role.CALIBRATION).sum() == pytest.approx(0.15 * measured, abs=1)
    with_clock = visits.with_columns(hba1c__drawn=pl.when(pl.col("hba1c").is_not_null()).then("time"))
    again = si.hide(with_clock, target="hba1c").visits
    assert again["hba1c"].is_null().equals(again["hba1c__drawn"].is_null())


def test_table_type_in_is_table_type_out(cohort: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    hidden = si.hide(cohort[0].to_pandas(), target="hba1c")
    assert isinstance(hidden.visits, pd.DataFrame)
    filled = carried(pl.from_pandas(hidden.visits)).to_pandas()
    done = si.release(hidden, filled, tolerance=1.0, fdr=0.3)
    assert isinstance(done.table, pd.DataFrame)
    released = done.filled["hba1c_released"]
    assert released.sum() == done.table["released"].sum() > 0
    kept = cohort[0]["hba1c"].is_not_null().to_numpy()
    np.testing.assert_allclose(done.filled["hba1c"][kept], cohort[0]["hba1c"].drop_nulls().to_numpy())
    empty = done.table["reason"] == "not filled in"  # patients without any visible value
    assert empty.sum() > 0
    assert done.table["value"][empty].isna().all()


def trial_of(done: Release, truth: pl.DataFrame) -> Trial:
    """The release with the truth of what was left out at random: calibration and candidates are alike."""
    known = truth["hba1c"].to_numpy()
    return Trial(replace(done.calibrated, truth=known), known, done.settings, {})


@pytest.fixture(scope="module")
def achieved(cohort: tuple[pl.DataFrame, pl.DataFrame]) -> dict[str, dict[str, float]]:
    """Mean FDP, its standard error and power over a hundred re-partitions, per tool."""
    found = {}
    for name, tool in TOOLS.items():
        hidden = si.hide(cohort[0], target="hba1c")
        done = si.release(hidden, tool(hidden.visits), tolerance=1.2, fdr=0.3)
        trial = trial_of(done, cohort[1])
        per_draw = [release_at([each], done.settings.allowed_error, 0.3) for each in _draws(trial, 100)]
        fdp = np.array([row["fdp"]["mean"] for row in per_draw], dtype=float)
        power = np.mean([row["power"]["mean"] or 0.0 for row in per_draw])
        found[name] = {
            "fdp": float(fdp.mean()),
            "se": float(fdp.std(ddof=1) / np.sqrt(len(fdp))),
            "power": float(power),
            "released": float(np.mean([row["acceptance"]["mean"] or 0.0 for row in per_draw])),
        }
    return found


def _draws(trial: Trial, times: int) -> list[Trial]:
    rng = np.random.default_rng(4)
    return [trial.redrawn(rng) for _ in range(times)]


@pytest.mark.parametrize("tool", TOOLS)
def test_the_level_holds_for_any_tool(achieved: dict[str, dict[str, float]], tool: str) -> None:
    found = achieved[tool]
    assert found["fdp"] <= 0.3 + 3 * found["se"]
    assert found["power"] > 0.03 if tool == "shuffled" else found["power"] > 0.3


def test_a_bad_tool_loses_power_not_validity(achieved: dict[str, dict[str, float]]) -> None:
    worst = achieved["shuffled"]
    assert worst["released"] < 0.7 * min(achieved[name]["released"] for name in ("iterative", "carried"))


def test_a_tools_own_risk_and_signals_are_taken(cohort: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    hidden = si.hide(cohort[0], target="hba1c")
    filled = carried(hidden.visits).with_columns(doubt=pl.col("time") * 0.0 + np.arange(len(cohort[0])))
    done = si.release(hidden, filled, tolerance=1.2, fdr=0.3, risk="doubt")
    asked = done.calibrated.candidates
    np.testing.assert_array_equal(done.calibrated.estimates.risk[asked], filled["doubt"].to_numpy()[asked])
    signalled = si.release(si.hide(cohort[0], target="hba1c"), filled, tolerance=1.2, fdr=0.3, signals=("doubt",))
    assert set(signalled.calibrated.estimates.signals) == {"doubt"}


def test_the_other_promises_are_there_too(cohort: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    """With confidence, within groups, with a cap; and a bound whatever is asked."""
    hidden = si.hide(cohort[0], target="hba1c", calibration=0.3)
    sure = si.release(hidden, iterative(hidden.visits), tolerance=1.5, fdr=0.35, promise="confident")
    assert sure.promised.promise.startswith("With 90 % confidence")
    assert 0 < sure.bound.risky < sure.bound.values
    hidden = si.hide(cohort[0], target="hba1c", calibration=0.3)
    grouped = si.release(hidden, iterative(hidden.visits), tolerance=1.5, fdr=0.35, groups="history", risk_cap=0.4)
    assert "history" in grouped.promised.promise
    risk = grouped.table.filter(pl.col("released"))["risk"].max()
    assert risk is not None
    assert risk <= 0.4


def test_claim_unmeasured_weighs_the_visits(cohort: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    hidden = si.hide(cohort[0], target="hba1c", calibration=0.3)
    done = si.release(hidden, iterative(hidden.visits), tolerance=1.5, fdr=0.35, claim="unmeasured")
    assert "nobody measured it" in done.promised.promise
    assert done.calibrated.measuring is not None
    assert done.table["released"].sum() > 0
    again = si.hide(cohort[0], target="hba1c")
    with pytest.raises(GuaranteeRefused, match="outside the table"):
        si.release(again, iterative(again.visits), tolerance=1.5, fdr=0.35, claim="later")


def test_values_at_visits_that_were_not_hidden_are_refused(hidden: Hidden) -> None:
    smoothed = nearest(hidden.visits).with_columns(pl.col("hba1c") * 1.01)
    with pytest.raises(ImputedError, match="visits that were not hidden"):
        si.release(hidden, smoothed, tolerance=1.0, fdr=0.3)
    only_empty = smoothed.filter(hidden.visits["hba1c"].is_null())
    assert si.release(hidden, only_empty, tolerance=1.2, fdr=0.3).table.height > 0


def test_missing_and_strange_rows_are_refused(hidden: Hidden) -> None:
    filled = nearest(hidden.visits)
    with pytest.raises(ImputedError, match=r"lacks [\d,]+ of the [\d,]+ visits"):
        si.release(hidden, filled.head(len(filled) - 50), tolerance=1.0, fdr=0.3)
    with pytest.raises(ImputedError, match="belong to no visit"):
        si.release(hidden, filled.with_columns(pl.col("time") + 0.5), tolerance=1.0, fdr=0.3)
    with pytest.raises(ImputedError, match="nothing was filled in"):
        si.release(hidden, hidden.visits, tolerance=1.0, fdr=0.3)
    with pytest.raises(VisitsError, match="needed in the filled-in table"):
        si.release(hidden, filled.drop("hba1c"), tolerance=1.0, fdr=0.3)


def test_another_unit_and_the_answers_themselves_are_refused(
    cohort: tuple[pl.DataFrame, pl.DataFrame], hidden: Hidden
) -> None:
    filled = nearest(hidden.visits)
    empty = hidden.visits["hba1c"].is_null()
    other = filled.with_columns(((pl.col("hba1c") - 2.15) / 0.0915).alias("hba1c")).filter(empty)
    with pytest.raises(ImputedError, match="look like mmol/mol"):
        si.release(hidden, other, tolerance=1.0, fdr=0.3)
    scaled = filled.with_columns(pl.col("hba1c") * 0.1).filter(empty)
    with pytest.raises(ImputedError, match="another scale"):
        si.release(hidden, scaled, tolerance=1.0, fdr=0.3)
    with pytest.raises(ImputedError, match="given the original table"):
        si.release(hidden, cohort[1], tolerance=1.0, fdr=0.3)
    assert not hidden.released  # what is refused has looked at nothing that decides


def test_a_second_release_is_refused(hidden: Hidden) -> None:
    si.release(hidden, nearest(hidden.visits), tolerance=1.0, fdr=0.3)
    with pytest.raises(GuaranteeRefused, match="before"):
        si.release(hidden, nearest(hidden.visits), tolerance=1.2, fdr=0.3)


def test_a_level_chosen_after_a_release_is_a_second_look_saved_or_not(
    cohort: tuple[pl.DataFrame, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "state"))
    first = si.hide(cohort[0], target="hba1c")
    first.save(tmp_path / "hidden")
    assert si.release(first, nearest(first.visits), tolerance=1.0, fdr=0.3).promised.promise
    again = si.hide(cohort[0], target="hba1c")
    assert si.release(again, nearest(again.visits), tolerance=1.0, fdr=0.25).promised.no_promise == SECOND_LOOK


def test_both_commands_on_pbc_with_the_csv_r_would_write(tmp_path: Path) -> None:
    """mice leaves columns it cannot use with NA, quotes its text, and writes all columns of the table."""
    load_pbc().write_csv(tmp_path / "pbc.csv")
    folder = tmp_path / "pbc"
    said = invoke("hide", tmp_path / "pbc.csv", "--target", "cholesterol", "--unit", "mg/dL", "-o", folder)
    assert "to decide the release" in said
    shown = pd.read_csv(folder / "visits.csv")
    other = shown["cholesterol"].fillna(shown["cholesterol"].median())
    shown["cholesterol"] = shown.groupby("subject_id")["cholesterol"].transform(lambda v: v.ffill().bfill())
    shown["cholesterol"] = shown["cholesterol"].fillna(other)
    shown.to_csv(tmp_path / "mice.csv", index=False, na_rep="NA", quoting=2)
    said = invoke("release", folder, tmp_path / "mice.csv", "--tolerance", "20%", "--fdr", "0.3")
    assert "Promise: Of the cholesterol values released" in said
    kept = json.loads((folder / "release" / "release.json").read_text())
    table = pl.read_parquet(folder / "release" / "imputations.parquet")
    assert kept["released"] == table["released"].sum() > 0
    assert kept["missing"] == len(table) == load_pbc()["cholesterol"].null_count()
    with pytest.raises(GuaranteeRefused, match="before"):
        invoke("release", folder, tmp_path / "mice.csv", "--tolerance", "20%", "--fdr", "0.2")


def test_a_changed_folder_is_refused(tmp_path: Path, hidden: Hidden) -> None:
    hidden.save(tmp_path / "kept")
    nearest(hidden.visits).write_parquet(tmp_path / "kept" / "visits.parquet")
    with pytest.raises(ModelFolderError, match="changed since hide wrote it"):
        Hidden.load(tmp_path / "kept")
    with pytest.raises(ModelFolderError, match="no folder that hide wrote"):
        Hidden.load(tmp_path)


def test_too_few_values_to_hide_are_refused(cohort: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    with pytest.raises(VisitsError, match="only"):
        si.hide(cohort[0].head(60), target="hba1c")
