"""Which labs the joint course is told of: those that say most, never by a fold's own targets, and at a bounded cost."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from safeimpute.learning.best import fold_model
from safeimpute.learning.best.course import fit_course
from safeimpute.learning.best.evidence import Source, learn_source
from safeimpute.learning.best.partners import PARTNERS, choose_partners
from safeimpute.learning.best.system import fit_best
from safeimpute.learning.roles import fold_of
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import IntArray, VisitArrays, nearest_own_visits

TELLING = (3, 11, 17)


def many_labs(labs: int, telling: tuple[int, ...] = TELLING, seed: int = 0) -> VisitArrays:
    """A target, first among the columns, made of a few of many labs that patients share nothing in."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(60), 6)
    values = rng.standard_normal((len(patient), labs + 1))
    values[:, 0] = values[:, [1 + each for each in telling]].sum(axis=1) + 0.3 * rng.standard_normal(len(patient))
    values[rng.random(values.shape) < 0.2] = np.nan
    keys = rng.integers(0, 2**63, len(patient), dtype=np.int64).view(np.uint64)
    return VisitArrays(
        patient=patient,
        time=np.tile(np.arange(6.0) * 30, 60),
        labs=values,
        lab_names=tuple(f"lab{number}" for number in range(labs + 1)),
        target=0,
        attributes=np.zeros((len(patient), 0)),
        attribute_names=(),
        patient_key=np.repeat(keys[:60], 6),
        visit_key=keys,
    )


def chosen(visits: VisitArrays) -> IntArray:
    rng = np.random.default_rng(1)
    return learn_source(visits, BestSettings(), rng, past_only=False).partners


def test_few_labs_are_all_partners() -> None:
    assert chosen(many_labs(PARTNERS, (3,))).tolist() == list(range(PARTNERS))


def test_of_many_labs_those_that_tell_most_are_partners_and_cost_is_bounded() -> None:
    visits = many_labs(25)
    source = learn_source(visits, BestSettings(), np.random.default_rng(1), past_only=False)
    assert set(TELLING) <= set(source.partners.tolist())
    assert len(set(source.partners.tolist())) == PARTNERS
    assert source.joint.levels.shape == (PARTNERS + 1, PARTNERS + 1)


def test_a_second_lab_that_says_the_same_waits() -> None:
    visits = many_labs(25)
    labs = visits.labs.copy()
    copies = [place for place in range(25) if place not in TELLING][:PARTNERS]
    for place in copies:
        labs[:, 1 + place] = labs[:, 1 + TELLING[0]] + 1e-3 * labs[:, 1 + place]
    found = chosen(replace(visits, labs=labs))
    assert {11, 17} <= set(found.tolist())


class _Learnt(Exception):
    """Thrown once a fold's model has chosen: nothing after it is asked about here."""


def test_a_fold_chooses_by_other_folds_patients_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the targets of the fold's own patients are, its model has the same partners."""
    visits, tolerance = many_labs(25), Tolerance(1.0)
    own = fold_of(visits.patient_key, 0, 3) == 0
    found: list[list[int]] = []

    def learnt(*told: Any, **more: Any) -> Source:
        source = learn_source(*told, **more)
        found.append(source.partners.tolist())
        raise _Learnt

    monkeypatch.setattr(fold_model, "learn_source", learnt)
    for rows in (np.zeros_like(own), own, ~own):
        changed = visits.with_target(np.where(rows, visits.labs[:, 1 + 5], visits.target_values))
        with pytest.raises(_Learnt):
            fit_best(changed, BestSettings(folds=3), tolerance, 0)
    untouched, of_own, of_others = found
    assert of_own == untouched
    assert of_others != untouched  # it does choose by the others


@pytest.mark.parametrize("past_only", [False, True])
def test_a_target_in_no_column_chooses_nobody(past_only: bool) -> None:
    """Only visible targets choose: another value where none is visible, or another patient's, changes nothing."""
    visits = many_labs(25)
    own = nearest_own_visits(visits.patient, ~np.isnan(visits.target_values), 6, 0 if past_only else 6)
    rng = np.random.default_rng(2)
    design = np.column_stack([np.ones(len(visits)), np.nan_to_num(visits.labs[:, 1:]), np.isnan(visits.labs[:, 1:])])
    course = fit_course(design, visits.target_values, visits.time, own, rng)
    found = choose_partners(course, design, visits.target_values, visits.time, own, 25)
    changed = design.copy()
    hidden = np.isnan(visits.target_values)
    changed[hidden, 1:26] += rng.standard_normal((hidden.sum(), 25))
    again = choose_partners(course, changed, visits.target_values, visits.time, own, 25)
    assert again.tolist() == found.tolist()
