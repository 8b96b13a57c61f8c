"""Scoring new visits: the same treatment as at fit, the same answer in any batch, no promise that was not earned."""

from copy import copy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.scored_cohorts import LEVEL, QUICK, TOLERANCE, fitted_cohort, new_visits
from safeimpute import SafeImputer
from safeimpute.cli import app
from safeimpute.errors import GuaranteeRefused, NotFittedError, OptionError, VisitsError
from safeimpute.records.new_visits import read_new_visits
from safeimpute.records.simulate import simulate
from safeimpute.report.run_folder import write_run
from safeimpute.scoring import frozen as scoring
from safeimpute.scoring.frozen import decide_jointly, score_new
from safeimpute.scoring.scorer import Scorer
from safeimpute.selection.pipeline import release
from safeimpute.splits.roles import Role
from safeimpute.systems.paper.gcn import GcnSettings
from safeimpute.systems.presets import PaperSettings

KEYS = ["subject_id", "time"]
SCOPE = "outside the guarantee's scope"


@pytest.fixture(scope="module")
def fit() -> tuple[SafeImputer, pl.DataFrame]:
    return fitted_cohort()


@pytest.fixture(scope="module")
def folder(fit: tuple[SafeImputer, pl.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scoring") / "model"
    fit[0].impute(fit[1])
    fit[0].save(path)
    return path


@pytest.fixture(scope="module")
def scorer(folder: Path) -> Scorer:
    return Scorer.load(folder)


@pytest.fixture(scope="module")
def fresh() -> pl.DataFrame:
    return new_visits()


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_fitted_visits_score_as_at_fit(fit: tuple[SafeImputer, pl.DataFrame], scorer: Scorer) -> None:
    imputer, visits = fit
    at_fit, scored = imputer.impute(visits), scorer.score(visits)
    assert scored.select(KEYS).equals(at_fit.select(KEYS))
    for column in ("value", "risk"):
        assert scored[column].equals(at_fit[column]), f"{column} differs from the fit's own"
    group = imputer.scored_.split.group
    assert group is not None
    new = group[imputer.scored_.candidates()] == Role.TEST
    assert 0.2 < new.mean() < 0.3
    for column in ("lower", "upper"):
        assert scored.filter(new)[column].equals(at_fit.filter(new)[column])
        assert scored.filter(~new)[column].null_count() == (~new).sum()


def test_patients_of_the_fit_are_outside_the_promise(
    fit: tuple[SafeImputer, pl.DataFrame], scorer: Scorer
) -> None:
    imputer, visits = fit
    scored = scorer.score(visits)
    group = imputer.scored_.split.group
    assert group is not None
    met = group[imputer.scored_.candidates()] != Role.TEST
    assert set(scored.filter(met)["reason"]) == {SCOPE}
    assert scored.filter(~met)["released"].any()


def test_the_joint_rule_is_the_one_of_the_run(fit: tuple[SafeImputer, pl.DataFrame], scorer: Scorer) -> None:
    """On the same new patients and with the same shared number, the stored calibration decides as the run did."""
    imputer, visits = fit
    scored, config = imputer.scored_, imputer.current_config()
    split = scored.split
    assert split.group is not None
    truth = imputer.visits_.arrays.target_values
    candidates = np.flatnonzero((split.roles == Role.UNMEASURED) & (split.group == Role.TEST))
    for xi in (0.05, 0.5, 0.95):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("safeimpute.selection.pipeline._shared_uniform", lambda *_, xi=xi: xi)
            patch.setattr("safeimpute.scoring.frozen.shared_uniform", lambda *_, xi=xi: xi)
            run = release(scored, config.allowed_error, config.fdr, candidates, truth)
            new = read_new_visits(visits, scorer.reading)
            later = decide_jointly(score_new(new.arrays, scorer.model), scorer.model)
        assert run.released.any()
        assert np.array_equal(later.released[candidates], run.released)
        assert later.released.sum() == run.released.sum()


def test_the_same_in_batches_of_any_size_and_order(scorer: Scorer, fresh: pl.DataFrame) -> None:
    whole = scorer.score(fresh)
    assert whole["released"].any()
    shuffled = fresh.sample(fraction=1.0, shuffle=True, seed=2).select(sorted(fresh.columns, reverse=True))
    assert scorer.score(shuffled).equals(whole)
    subjects = fresh["subject_id"].unique(maintain_order=True)
    for size in (1, 100):
        some = subjects[:25] if size == 1 else subjects
        batches = [some[start : start + size] for start in range(0, len(some), size)]
        parts = [scorer.score(fresh.filter(pl.col("subject_id").is_in(part.to_list()))) for part in batches]
        expected = whole.filter(pl.col("subject_id").is_in(some.to_list()))
        assert pl.concat(parts).equals(expected)


def test_portions_change_nothing(
    scorer: Scorer, fresh: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = scorer.score(fresh, "bh")
    monkeypatch.setattr(scoring, "VISITS_AT_ONCE", 37)
    assert scorer.score(fresh, "bh").equals(whole)


def test_the_cutoff_decides_by_risk_alone(scorer: Scorer, fresh: pl.DataFrame) -> None:
    table, account = scorer.score_whole(fresh)
    cutoff = scorer.model.cutoff
    assert cutoff is not None
    assert cutoff.risk is not None
    inside = table.filter(pl.col("reason") != SCOPE)
    assert inside["released"].equals(inside["risk"] <= cutoff.risk)
    assert inside["released"].any()
    assert not inside["released"].all()
    assert "95 % confidence" in account.promise
    assert account.no_promise == ""
    assert account.released == table["released"].sum()
    assert sum(account.withheld.values()) == (~table["released"]).sum()


def test_measured_values_of_a_new_patient_are_context(scorer: Scorer, fresh: pl.DataFrame) -> None:
    """Raising a patient's measured targets moves its imputations, and nobody else's."""
    subject = fresh.filter(pl.col("hba1c").is_not_null()).group_by("subject_id", maintain_order=True).len()
    chosen = subject.filter(pl.col("len") >= 6)["subject_id"][0]
    raised = fresh.with_columns(pl.col("hba1c") + 3.0 * (pl.col("subject_id") == chosen))
    before, after = scorer.score(fresh), scorer.score(raised)
    own = before["subject_id"] == chosen
    assert (after.filter(own)["value"] > before.filter(own)["value"]).all()
    assert after.filter(~own).equals(before.filter(~own))


@pytest.mark.parametrize("claim", ["visits", "unmeasured", "patients"])
def test_a_claim_that_does_not_cover_new_patients_promises_nothing(
    claim: str, fresh: pl.DataFrame, tmp_path: Path
) -> None:
    imputer, _ = fitted_cohort(claim, patients=200)
    imputer.save(tmp_path / "model")
    imputer.set_params(fdr=0.25)  # nothing was looked at, so that levels may still change
    assert imputer.current_config().fdr == 0.25
    for rule in ("cutoff", "bh"):
        table, account = Scorer.load(tmp_path / "model").score_whole(fresh, rule)  # type: ignore[arg-type]
        assert not table["released"].any()
        assert set(table["reason"]) <= {SCOPE, "no evidence", "out of range"}
        assert table["value"].is_finite().all()
        assert table["lower"].null_count() == len(table)
        assert account.promise == ""
        assert repr(claim) in account.no_promise
    fresh.write_parquet(tmp_path / "new.parquet")
    said = invoke("score", tmp_path / "model", tmp_path / "new.parquet", "-o", tmp_path / "out.parquet")
    assert "No guarantee: the model was fitted for the claim" in said
    assert "Promise" not in said


def test_too_few_calibration_patients_promise_nothing_by_the_cutoff(fresh: pl.DataFrame) -> None:
    imputer, _ = fitted_cohort(patients=120)
    table, account = imputer.scorer().score_whole(fresh)
    assert not table["released"].any()
    assert set(table["reason"]) == {SCOPE}
    assert "Calibrate on more patients" in account.no_promise
    with pytest.raises(GuaranteeRefused, match="equally weighted patients"):
        imputer.score(fresh, "bh")


def test_a_level_chosen_after_looking_promises_nothing(
    fit: tuple[SafeImputer, pl.DataFrame], fresh: pl.DataFrame, tmp_path: Path
) -> None:
    imputer = copy(fit[0])
    imputer.save(tmp_path / "model", chosen_after_looking=True)
    for scorer in (Scorer.load(tmp_path / "model"), imputer.scorer()):
        table, account = scorer.score_whole(fresh)
        assert not table["released"].any()
        assert "after looking" in account.no_promise


def test_a_run_redone_after_looking_leaves_a_model_that_promises_nothing(
    fit: tuple[SafeImputer, pl.DataFrame], fresh: pl.DataFrame, tmp_path: Path
) -> None:
    imputer, visits = copy(fit[0]), fit[1]
    write_run(tmp_path, imputer, imputer.impute(visits), None, {}, looked_before=True)
    table, account = Scorer.load(tmp_path / "model").score_whole(fresh)
    assert not table["released"].any()
    assert account.promise == ""
    assert "after looking" in account.no_promise


def test_results_still_on_their_way_are_outside_every_promise(fresh: pl.DataFrame) -> None:
    """A model that reads when results became known was calibrated on complete records; a live table is none."""
    visits = simulate("mimic4", np.random.default_rng(3), patients=150).visits
    reported = pl.when(pl.col("hba1c").is_not_null()).then(pl.col("time"))
    visits = visits.with_columns(hba1c__known=reported)
    told = {"target": "hba1c", "tolerance": TOLERANCE, "fdr": LEVEL, "best": QUICK}
    imputer = SafeImputer(**told, claim="patients,unmeasured", past_only=True).fit(visits)
    table, account = imputer.scorer().score_whole(fresh)
    assert not table["released"].any()
    assert "became known" in account.no_promise


def test_a_joint_release_needs_a_batch(scorer: Scorer, fresh: pl.DataFrame) -> None:
    with pytest.raises(GuaranteeRefused, match="at least 100 candidates"):
        scorer.score(fresh.head(60), "bh")


def test_the_shared_number_follows_the_batch_not_its_order(scorer: Scorer, fresh: pl.DataFrame) -> None:
    keys = read_new_visits(fresh, scorer.reading).arrays.visit_key
    whole = scoring.shared_uniform(scorer.model, scoring.combined_key(keys))
    assert scoring.shared_uniform(scorer.model, scoring.combined_key(keys[::-1])) == whole
    assert scoring.shared_uniform(scorer.model, scoring.combined_key(keys[1:])) != whole
    parts = scoring.combined_key(keys[:50]) ^ scoring.combined_key(keys[50:])
    assert scoring.shared_uniform(scorer.model, parts) == whole


def test_what_the_table_lacks_is_an_error_or_declared(scorer: Scorer, fresh: pl.DataFrame) -> None:
    with pytest.raises(VisitsError, match=r"'glucose' \(lab of the fitted model\).*--without"):
        scorer.score(fresh.drop("glucose"))
    table, account = scorer.score_whole(fresh.drop("glucose"), without=("glucose",))
    assert not table["released"].any()
    assert set(table["reason"]) == {SCOPE, "no evidence"}
    assert "'glucose'" in account.no_promise
    with pytest.raises(VisitsError, match="the table has it"):
        scorer.score(fresh, without=("glucose",))
    with pytest.raises(VisitsError, match="no lab or attribute"):
        scorer.score(fresh, without=("ferritin",))
    with pytest.raises(VisitsError, match="no rows"):
        scorer.score(fresh.clear())
    with pytest.raises(OptionError, match="rule 'fdr'"):
        scorer.score(fresh, "fdr")  # type: ignore[arg-type]


def test_values_that_transform_filled_in_are_no_measurements(scorer: Scorer, fresh: pl.DataFrame) -> None:
    with pytest.raises(VisitsError, match="'hba1c_released' says which values"):
        scorer.score(fresh.with_columns(hba1c_released=pl.lit(True)))


def test_extra_columns_and_unknown_levels_are_named(scorer: Scorer, fresh: pl.DataFrame) -> None:
    other = fresh.with_columns(
        pl.lit(1.5).alias("ferritin"),
        pl.when(pl.col("age") > 60).then(pl.lit("X")).otherwise("sex").alias("sex"),
    )
    table, account = scorer.score_whole(other)
    assert account.ignored == ("ferritin",)
    assert account.unknown_levels == {"sex": int((fresh["age"] > 60).sum())}
    assert len(table) == fresh["hba1c"].null_count()


def test_one_visit_of_an_unknown_patient(scorer: Scorer) -> None:
    one = pl.DataFrame({"subject_id": ["new"], "time": [0.0], "hba1c": [None], "glucose": [150.0]})
    table = scorer.score(one.with_columns(cholesterol=None, sex=pl.lit("F"), age=pl.lit(60.0)))
    assert len(table) == 1
    assert table["value"].is_finite().all()
    assert table["lower"].is_not_null().all()


def test_pandas_in_pandas_out(fit: tuple[SafeImputer, pl.DataFrame], fresh: pl.DataFrame) -> None:
    import pandas as pd

    table = fit[0].score(fresh.to_pandas())
    assert isinstance(table, pd.DataFrame)
    assert len(table) == fresh["hba1c"].null_count()


def test_a_fresh_fit_scores_as_its_saved_folder(
    fit: tuple[SafeImputer, pl.DataFrame], scorer: Scorer, folder: Path, fresh: pl.DataFrame
) -> None:
    for rule in ("cutoff", "bh"):
        assert fit[0].score(fresh, rule).equals(scorer.score(fresh, rule))  # type: ignore[arg-type]
    loaded = SafeImputer.load(folder)
    assert loaded.score(fresh).equals(scorer.score(fresh))
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        loaded.set_params(fdr=0.2).score(fresh)


def test_saving_a_model_that_promises_fixes_the_levels(tmp_path: Path, fresh: pl.DataFrame) -> None:
    imputer, visits = fitted_cohort(patients=200)
    imputer.save(tmp_path / "model")
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        imputer.set_params(fdr=0.2).impute(visits)


def test_a_loaded_model_scores_at_its_own_levels(tmp_path: Path, fresh: pl.DataFrame) -> None:
    imputer, visits = fitted_cohort("visits", patients=200)
    imputer.save(tmp_path / "model")
    with pytest.raises(NotFittedError, match="levels it was saved with"):
        SafeImputer.load(tmp_path / "model").set_params(fdr=0.2).score(fresh)
    with pytest.raises(NotFittedError, match="keeps the tolerance"):
        SafeImputer.load(tmp_path / "model").set_params(tolerance=1.2).impute(visits)


def test_the_paper_preset_cannot_score(cohort: pl.DataFrame, tmp_path: Path) -> None:
    imputer = SafeImputer(
        target="hba1c",
        tolerance=TOLERANCE,
        fdr=LEVEL,
        preset="paper",
        claim="visits",
        paper=PaperSettings(gcn=GcnSettings(epochs=3)),
    ).fit(cohort)
    with pytest.raises(GuaranteeRefused, match="preset 'paper'"):
        imputer.score(cohort)
    imputer.save(tmp_path / "model")
    with pytest.raises(GuaranteeRefused, match="preset 'paper'"):
        Scorer.load(tmp_path / "model")
    assert "cannot be scored" in invoke("doctor", tmp_path / "model")


def test_the_command(folder: Path, fresh: pl.DataFrame, scorer: Scorer, tmp_path: Path) -> None:
    fresh.rename({"subject_id": "patient"}).with_columns(extra=1).write_csv(tmp_path / "new.csv")
    said = invoke(
        *(
            "score",
            folder,
            tmp_path / "new.csv",
            "-o",
            tmp_path / "out.csv",
            "--columns",
            "patient=subject_id",
        ),
        *("--rule", "bh"),
    )
    assert "Promise: Among the hba1c values released" in said
    assert "Not used: extra" in said
    table = pl.read_csv(tmp_path / "out.csv", schema_overrides={"subject_id": pl.String})
    expected = scorer.score(fresh.with_columns(pl.col("subject_id").cast(pl.String)), "bh")
    assert table["released"].to_list() == expected["released"].to_list()
    assert np.allclose(table["value"], expected["value"])
    refused = CliRunner().invoke(
        app, ["score", str(folder), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")]
    )
    assert isinstance(refused.exception, OptionError)


def test_doctor_describes_a_model(folder: Path) -> None:
    said = invoke("doctor", folder)
    for words in (
        "hba1c (%)",
        "patients,unmeasured",
        "FDR 0.3",
        "1,400 patients",
        "cut-off",
        "checksums   ok",
        "panel",
    ):
        assert words in said
