"""A table looked at before any fit: what is refused, by how much, and what a run may come to."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from helpers.scored_cohorts import fit_visits
from safeimpute.errors import GuaranteeRefused, VisitsError
from safeimpute.evaluation.check import check_lab, check_table, labs_with_holes
from safeimpute.evaluation.release_forecast import look_roughly
from safeimpute.learning.protocol import Estimates
from safeimpute.learning.roles import CALIBRATION_SHARE
from safeimpute.machine.progress import fit_seconds, in_words
from safeimpute.model.fit import calibrate
from safeimpute.selection.enough import (
    EffectiveSize,
    enough,
    fewest_calibration,
    fewest_measured,
    lowest_level,
    lowest_level_held_out,
    require_promisable,
)
from safeimpute.selection.questions import question_for
from safeimpute.settings import Settings, make_settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import load_pbc, simulate
from safeimpute.visits.visits import prepare_visits


@pytest.fixture(scope="module")
def pbc() -> pl.DataFrame:
    return load_pbc()


def _asked(**told: object) -> Settings:
    return make_settings(**{"target": "cholesterol", "tolerance": "20%", "fdr": 0.2, **told})


def _arrays(table: pl.DataFrame, target: str = "cholesterol") -> VisitArrays:
    return prepare_visits(table, ColumnChoice(target)).arrays


def test_columns_are_told_with_their_units_and_holes(pbc: pl.DataFrame) -> None:
    settings = _asked()
    found = check_table(pl.concat([pbc, pbc[:3]]), settings, {"cholesterol": settings})
    assert found["merged_rows"] == 3
    assert (found["visits"], found["patients"]) == (1945, 312)
    columns = found["columns"]
    assert (columns["cholesterol"]["role"], columns["age"]["role"]) == ("target", "attribute")
    assert columns["albumin"]["unit"] == "g/dL"
    assert columns["albumin"]["otherwise"].startswith("--attributes albumin")
    assert columns["cholesterol"]["missing"] == pbc["cholesterol"].null_count() + pbc["cholesterol"][:3].null_count()


def test_labs_that_lack_values_are_found(pbc: pl.DataFrame) -> None:
    assert labs_with_holes(pbc, _asked(target="all")) == ("alkaline_phosphatase", "cholesterol", "platelets")


def test_the_effective_sample_is_near_the_one_of_a_run(pbc: pl.DataFrame) -> None:
    """The main effects alone weigh nearly as the whole model does: within a factor of two."""
    settings, arrays = _asked(), _arrays(pbc)
    rough = look_roughly(arrays, 0, past_only=False, calendar=True)
    assert rough is not None
    question = question_for(arrays, settings)
    nothing = np.zeros(len(arrays))
    estimates = Estimates(nothing + 200.0, nothing, nothing, np.zeros(len(arrays), dtype=bool))
    diagnosis = calibrate(question, arrays.target_values, estimates, settings).diagnosis
    assert diagnosis is not None
    assert 0.5 < rough.effective_size.visits / diagnosis.effective_visits < 2.0
    assert 0.5 < rough.effective_size.patients / diagnosis.effective_patients < 2.0


def test_a_wider_tolerance_or_a_higher_level_releases_more(pbc: pl.DataFrame) -> None:
    rough = look_roughly(_arrays(pbc), 0, past_only=False, calendar=True)
    assert rough is not None
    most = [rough.released(_asked().allowed_error, level)[1] for level in (0.05, 0.2, 0.35)]
    assert most == sorted(most)
    assert 0.2 < most[1] <= most[2] <= 1.0
    assert rough.released(_asked(tolerance="40%").allowed_error, 0.2)[1] > most[1]


def test_a_large_table_is_judged_by_some_of_its_patients(pbc: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = look_roughly(_arrays(pbc), 0, past_only=False, calendar=True)
    monkeypatch.setattr("safeimpute.evaluation.release_forecast.MOST_VISITS", 1000)
    some = look_roughly(_arrays(pbc), 0, past_only=False, calendar=True)
    assert whole is not None
    assert some is not None
    assert len(some.visits) < 0.7 * len(whole.visits)
    assert 0.5 < some.effective_size.patients / whole.effective_size.patients < 2.0


def test_a_table_without_holes_is_refused_at_once(pbc: pl.DataFrame) -> None:
    found = check_lab(pbc, _asked(target="albumin"))
    assert "nothing to impute" in found["problem"]
    assert (found["missing"], found["claims"], found["forecast"]) == (0, {}, None)


def test_mixed_units_are_a_problem_of_the_lab(pbc: pl.DataFrame) -> None:
    mixed = pbc.with_columns(
        pl.when(pl.int_range(pl.len()) % 4 == 0).then(pl.col("cholesterol") / 38.67).otherwise(pl.col("cholesterol"))
    )
    assert "Two units are mixed" in check_lab(mixed, _asked())["problem"]


def test_too_strict_a_level_comes_with_the_nearest_that_works(pbc: pl.DataFrame) -> None:
    found = check_lab(pbc, _asked(fdr=0.01))
    own = found["claims"]["unmeasured"]
    assert own["refused"]
    assert found["claims"]["visits"]["lowest_level"] is not None
    assert own["lowest_level"] is not None
    assert f"a level of {own['lowest_level']:g} or higher" in found["nearest"]
    at_that = check_lab(pbc, _asked(fdr=own["lowest_level"]))
    assert not at_that["claims"]["unmeasured"]["refused"]


def test_no_level_or_tolerance_is_offered_for_what_a_look_at_errors_showed(pbc: pl.DataFrame) -> None:
    found = check_lab(pbc, _asked(tolerance="10%", fdr=0.1))
    assert found["forecast"] is not None
    assert (found["forecast"]["released"] or (1.0,))[0] == 0.0
    assert found["nearest"] == ""


@pytest.mark.full
@pytest.mark.parametrize(("patients", "seed", "tolerance"), [(300, 1, 0.8), (400, 2, 0.6), (300, 3, 0.4)])
def test_the_forecast_is_near_what_a_run_releases(patients: int, seed: int, tolerance: float) -> None:
    visits = simulate("mimic4", np.random.default_rng(seed), patients=patients, shift="covariate").visits
    rough = look_roughly(prepare_visits(visits, ColumnChoice("hba1c")).arrays, 0, past_only=False, calendar=True)
    assert rough is not None
    released = fit_visits(visits, tolerance=tolerance).impute(visits)["released"].to_numpy().mean()
    least, most = rough.released(Tolerance(tolerance), 0.2)
    assert least - 0.15 <= released <= most + 0.15
    assert most - least < 0.7


def test_a_table_that_cannot_be_read_is_an_error(pbc: pl.DataFrame) -> None:
    settings = _asked()
    with pytest.raises(VisitsError, match="'time'"):
        check_table(pbc.drop("time"), settings, {"cholesterol": settings})
    assert "'hdl'" in check_lab(pbc, _asked(target="hdl"))["problem"]


@pytest.mark.parametrize("alpha", [0.03, 0.05, 0.1, 0.2, 0.3])
def test_what_would_do_does_and_less_does_not(alpha: float) -> None:
    measured = fewest_measured(alpha)
    assert round(CALIBRATION_SHARE * measured) >= fewest_calibration(alpha)
    assert round(CALIBRATION_SHARE * (measured - 1)) < fewest_calibration(alpha)
    lowest = lowest_level_held_out(measured)
    assert lowest is not None
    assert lowest <= alpha + 1e-9
    for effective_size in (EffectiveSize(45, 30), EffectiveSize(400, 25), EffectiveSize(20, 400)):
        level = lowest_level(effective_size)
        assert level is not None
        assert enough(effective_size, level)
        assert not enough(effective_size, level - 0.01)


def test_a_refusal_names_the_claim_that_works(pbc: pl.DataFrame) -> None:
    few = pbc.filter(pl.col("subject_id").is_in(pbc["subject_id"].unique().sort()[:18].to_list()))
    arrays = _arrays(few)
    with pytest.raises(GuaranteeRefused, match=r"a level of 0\.12 or higher; or the claim 'visits'"):
        require_promisable(arrays, _asked(fdr=0.1))
    require_promisable(arrays, replace(_asked(fdr=0.1), claim="visits"))
    with pytest.raises(GuaranteeRefused, match=r"324 measured visits would do, or a level of 0\.1 or"):
        require_promisable(arrays, replace(_asked(fdr=0.02), claim="visits"))


def test_time_is_told_no_finer_than_it_is_known() -> None:
    assert fit_seconds(200_000, 5, 1.0, 1) > 10 * fit_seconds(2_000, 5, 1.0, 1)
    assert fit_seconds(2_000, 4, 2.0, 1) < fit_seconds(2_000, 5, 1.0, 1) / 2
    assert [in_words(each) for each in (3, 44, 200, 9000)] == ["5 seconds", "40 seconds", "3 minutes", "2.5 hours"]
