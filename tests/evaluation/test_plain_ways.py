"""Plain ways of filling in never see a visit's own target, and only the past where only the past counts."""

import numpy as np
import pytest

from safeimpute.evaluation.completions import LAST, MEAN, OWN_MEAN, plain_values
from safeimpute.visits.arrays import FloatArray, VisitArrays

NAN = np.nan


def _visits(target: list[float], patient: list[int], known: FloatArray | None = None) -> VisitArrays:
    n = len(target)
    return VisitArrays(
        patient=np.array(patient),
        time=np.arange(n, dtype=np.float64),
        labs=np.array(target)[:, None],
        lab_names=("lab",),
        target=0,
        attributes=np.empty((n, 0)),
        attribute_names=(),
        patient_key=np.array(patient, dtype=np.uint64),
        visit_key=np.arange(n, dtype=np.uint64),
        known=known,
    )


def test_each_visit_is_filled_in_from_the_others() -> None:
    found = plain_values(_visits([1.0, 3.0, NAN, 8.0, 20.0], [0, 0, 0, 0, 1]), past_only=False)
    assert found[MEAN] == pytest.approx([31 / 3, 29 / 3, 8.0, 8.0, 4.0])
    assert found[LAST] == pytest.approx([31 / 3, 1.0, 3.0, 3.0, 4.0])
    assert found[OWN_MEAN] == pytest.approx([5.5, 4.5, 4.0, 2.0, 4.0])


def test_only_what_was_known_by_then_counts_where_only_the_past_does() -> None:
    target, patient = [1.0, 3.0, NAN, 8.0, 20.0], [0, 0, 0, 0, 1]
    found = plain_values(_visits(target, patient), past_only=True)
    assert found[OWN_MEAN] == pytest.approx([31 / 3, 1.0, 2.0, 2.0, 4.0])
    late = np.array([[0.0], [2.5], [NAN], [3.0], [4.0]])  # the second value is known only after the third visit
    waited = plain_values(_visits(target, patient, late), past_only=True)
    assert waited[LAST] == pytest.approx([31 / 3, 1.0, 1.0, 3.0, 4.0])
    assert waited[OWN_MEAN] == pytest.approx([31 / 3, 1.0, 1.0, 2.0, 4.0])


def test_a_visits_own_target_changes_nothing_about_it() -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=40)
    target[rng.random(40) < 0.3] = NAN
    patient = np.repeat(np.arange(8), 5).tolist()
    row = int(np.flatnonzero(~np.isnan(target))[7])
    other = target.copy()
    other[row] = 1e6
    for past_only in (False, True):
        before, after = (plain_values(_visits(t.tolist(), patient), past_only=past_only) for t in (target, other))
        assert all(before[way][row] == pytest.approx(after[way][row]) for way in before)
