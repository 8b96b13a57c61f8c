"""Downstream on a simulated cohort with its truth, and on its own hidden values."""

import numpy as np
import polars as pl
import pytest

from safeimpute.errors import VisitsError
from safeimpute.evaluation.completions import (
    COMPLETE,
    DRAWN,
    FILLED,
    NOTHING_MISSING,
    RELEASED,
    WAYS,
    Completed,
    nothing_missing,
    outcome_of,
    regressor_of,
)
from safeimpute.evaluation.downstream import Downstream, Plan, _behind, _quantities, kind_of, run_downstream
from safeimpute.settings import BestSettings, make_settings
from safeimpute.visits.arrays import VisitArrays

LIMIT = 8.0


@pytest.fixture(scope="module")
def result(cohort_arrays: VisitArrays) -> Downstream:
    settings = make_settings(
        target="hba1c", tolerance=0.5, fdr=0.2, best=BestSettings(folds=3, analogues=4), random_state=2
    )
    age = cohort_arrays.attributes[:, cohort_arrays.attribute_names.index("age")]
    high = np.random.default_rng(0).random(len(age)) < 1 / (1 + np.exp(-(age - age.mean()) / age.std()))
    plan = Plan((LIMIT,), age, "age", high.astype(float), "event", splits=1, draws=5)
    return run_downstream(cohort_arrays, settings, plan)


def test_every_quantity_by_every_way(result: Downstream, cohort_arrays: VisitArrays) -> None:
    names = {each["quantity"]: each for each in result["quantities"]}
    assert {"mean", "median", "share at or above 8", "slope on age", "ranking of patients"} <= set(names)
    assert {"found at or above 8", "false alarms at 8", "AUC for event"} <= set(names)
    assert set(names["mean"]["ways"]) == {NOTHING_MISSING, *WAYS}
    assert result["visits"] == int(np.sum(~np.isnan(cohort_arrays.target_values)))
    assert 0.2 < result["hidden"] < 0.4
    assert all(each["advice"].startswith(each["quantity"]) for each in result["quantities"])


def test_figures_are_what_they_say(result: Downstream, cohort_arrays: VisitArrays) -> None:
    names = {each["quantity"]: each["ways"] for each in result["quantities"]}
    measured = cohort_arrays.target_values[~np.isnan(cohort_arrays.target_values)]
    whole = names["mean"][NOTHING_MISSING]
    assert whole["estimate"]["mean"] == pytest.approx(measured.mean())
    assert whole["off"]["mean"] == 0
    assert whole["width"] == 1
    drawn = names["mean"][DRAWN]
    assert drawn["spoken_for"] == 1
    assert drawn["covers"] == 1.0
    assert drawn["off"]["mean"] == pytest.approx((drawn["estimate"]["mean"] or 0) - measured.mean())
    assert names["mean"][COMPLETE]["spoken_for"] == pytest.approx(1 - result["hidden"])
    found = names["found at or above 8"]
    assert found[NOTHING_MISSING]["estimate"]["mean"] == 1
    assert (found[FILLED]["estimate"]["mean"] or 0) > (found[RELEASED]["estimate"]["mean"] or 0)
    assert names["ranking of patients"][NOTHING_MISSING]["estimate"]["mean"] == pytest.approx(1)
    assert 0.5 < (names["AUC for event"][NOTHING_MISSING]["estimate"]["mean"] or 0) < 0.85


def test_patients_are_found_or_missed_with_their_error(result: Downstream) -> None:
    names = {each["quantity"]: each["ways"] for each in result["quantities"]}
    found, alarmed = names["patients found at or above 8"], names["patients falsely alarmed at 8"]
    assert found[NOTHING_MISSING]["estimate"]["mean"] == 1
    assert alarmed[NOTHING_MISSING]["estimate"]["mean"] == alarmed[COMPLETE]["estimate"]["mean"] == 0
    assert found[NOTHING_MISSING]["lower"] is None
    for way in WAYS:
        told = found[way]
        assert (told["lower"] or 0) <= (told["estimate"]["mean"] or 0) <= (told["upper"] or 0)
    assert (found[COMPLETE]["estimate"]["mean"] or 0) < (found[FILLED]["estimate"]["mean"] or 0)
    behind = {way: found[way]["behind"] for way in WAYS}
    assert min((each or {"mean": None})["mean"] or 0.0 for each in behind.values()) == 0
    worst = behind[COMPLETE]
    assert worst is not None
    assert (worst["se"] or 0) > 0


def test_the_error_of_a_difference_is_that_of_patients_paired() -> None:
    """Two ways that differ at one patient of many: a small error, however much patients differ among themselves."""
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(80), 3)
    truth = rng.normal(size=240)
    plan = Plan((0.5,), np.full(240, np.nan), "")
    one = Completed(FILLED, truth[:, None], np.ones(240))
    changed = truth.copy()
    changed[:3] = -5.0
    two = Completed(DRAWN, changed[:, None], np.ones(240))
    tables = _quantities([nothing_missing(truth), one, two], patient, truth, plan)
    name = "patients found at or above 0.5"
    reached = np.array([truth[patient == each].max() >= 0.5 for each in range(80)])
    lost = float(reached[0]) / reached.sum()
    behind = _behind([tables], (name, FILLED), (name, DRAWN), 1.0)
    assert behind["mean"] == pytest.approx(lost)
    assert behind["se"] == pytest.approx(lost, rel=0.4), "one patient, drawn about Poisson(1) times"
    assert tables[name, FILLED].value == 1
    assert tables["ranking of patients", FILLED].value == pytest.approx(1)


def test_kinds() -> None:
    assert kind_of("AUC for death") == "performance"
    assert kind_of("false alarms at 8") == kind_of("patients falsely alarmed at 8") == "error"
    assert kind_of("patients found at or above 8") == "performance"
    assert kind_of("calibration slope for death") == "estimate"


def test_columns_of_an_analysis(cohort_arrays: VisitArrays) -> None:
    assert regressor_of(cohort_arrays, "glucose", "hba1c")[0] == "glucose"
    name, column = regressor_of(cohort_arrays, "sex", "hba1c")
    assert name.startswith("sex")
    assert set(np.unique(column)) <= {0.0, 1.0}
    assert regressor_of(cohort_arrays, "", "hba1c")[0] in cohort_arrays.attribute_names
    with pytest.raises(VisitsError, match="'hba1c' is no lab or attribute beside the target"):
        regressor_of(cohort_arrays, "hba1c", "hba1c")


def test_an_outcome_is_read_by_visit() -> None:
    frame = pl.DataFrame({"death": [0, 1, None, 0]})
    assert outcome_of(frame, "death", np.array([0, 0, 1, 2]), 3).tolist()[::2] == [1.0, 0.0]
    assert np.isnan(outcome_of(frame, "death", np.array([0, 0, 1, 2]), 3)[1])
    with pytest.raises(VisitsError, match=r"holds 1 values other than 0 and 1"):
        outcome_of(pl.DataFrame({"death": [0, 2]}), "death", np.array([0, 1]), 2)
    with pytest.raises(VisitsError, match="death"):
        outcome_of(pl.DataFrame({"age": [0, 2]}), "death", np.array([0, 1]), 2)
