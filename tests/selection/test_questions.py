"""Who is visible, judged and asked about under each claim and preset."""

import numpy as np
import pytest

from safeimpute.learning.roles import Role
from safeimpute.selection.questions import draw_roles, question_of
from safeimpute.settings import ClaimName, PresetName, Settings, make_settings
from safeimpute.visits.arrays import VisitArrays

CROSS: tuple[ClaimName, ...] = ("unmeasured", "patients", "later")


def told(claim: ClaimName, preset: PresetName = "best") -> Settings:
    return make_settings(target="hba1c", tolerance=0.5, fdr=0.1, claim=claim, preset=preset)


def measured(visits: VisitArrays) -> np.ndarray:
    return ~np.isnan(visits.target_values)


@pytest.mark.parametrize("claim", CROSS)
def test_under_cross_calibration_every_measured_visit_is_input_and_judge(
    cohort_arrays: VisitArrays, claim: ClaimName
) -> None:
    question = question_of(cohort_arrays, told(claim), draw_roles(cohort_arrays, seed=0))
    assert np.array_equal(question.visible, measured(cohort_arrays))
    assert np.array_equal(question.judged, measured(cohort_arrays))
    assert np.array_equal(question.candidate, ~measured(cohort_arrays))
    assert np.isnan(question.validation_target).all()
    assert np.array_equal(question.visits.target_values, cohort_arrays.target_values, equal_nan=True)


@pytest.mark.parametrize("claim", CROSS)
def test_the_seed_hides_nothing_under_cross_calibration(cohort_arrays: VisitArrays, claim: ClaimName) -> None:
    one, other = (question_of(cohort_arrays, told(claim), draw_roles(cohort_arrays, s)) for s in (0, 1))
    for name in ("judged", "candidate", "visible"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("claim", CROSS)
def test_tested_visits_are_treated_as_unmeasured(cohort_arrays: VisitArrays, claim: ClaimName) -> None:
    roles = draw_roles(cohort_arrays, seed=3, test_fraction=0.2)
    tested = roles == Role.TEST
    assert tested.sum() == round(0.2 * measured(cohort_arrays).sum())
    question = question_of(cohort_arrays, told(claim), roles)
    assert np.array_equal(question.candidate, tested)
    assert np.array_equal(question.visible, measured(cohort_arrays) & ~tested)
    assert np.array_equal(question.judged, question.visible)
    asked = tested | ~measured(cohort_arrays)
    assert np.array_equal(question_of(cohort_arrays, told(claim), roles, asked).candidate, asked)


@pytest.mark.parametrize("preset", ["best", "paper"])
def test_the_claim_visits_sets_calibration_visits_aside(cohort_arrays: VisitArrays, preset: PresetName) -> None:
    roles = draw_roles(cohort_arrays, seed=0)
    question = question_of(cohort_arrays, told("visits", preset), roles)
    assert np.array_equal(question.judged, roles == Role.CALIBRATION)
    assert not (question.judged & question.visible).any(), "what calibrates is no input"
    assert np.array_equal(question.candidate, ~measured(cohort_arrays))
    validation = roles == Role.VALIDATION
    if preset == "paper":
        assert np.array_equal(question.visible, roles == Role.TRAINING)
        assert np.array_equal(~np.isnan(question.validation_target), validation)
        assert np.array_equal(question.task.training, roles == Role.TRAINING)
        assert np.array_equal(question.task.validation, validation)
    else:
        assert np.array_equal(question.visible, (roles == Role.TRAINING) | validation)
        assert np.isnan(question.validation_target).all()


def test_nothing_hidden_stands_in_what_a_system_sees(cohort_arrays: VisitArrays) -> None:
    roles = draw_roles(cohort_arrays, seed=1, test_fraction=0.3)
    question = question_of(cohort_arrays, told("visits", "paper"), roles)
    hidden = np.isin(roles, (Role.CALIBRATION, Role.TEST, Role.UNMEASURED))
    assert np.isnan(question.visits.target_values[hidden]).all()
    assert np.isnan(question.validation_target[hidden]).all()
    assert np.isnan(question.visits.target_values[roles == Role.VALIDATION]).all()


def test_roles_are_the_same_whenever_they_are_drawn_again(cohort_arrays: VisitArrays) -> None:
    one, other = (draw_roles(cohort_arrays, seed=5) for _ in range(2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, draw_roles(cohort_arrays, seed=6))
