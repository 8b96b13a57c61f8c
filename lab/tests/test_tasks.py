"""What a method is shown: all values but the test's; by the paper's hold-out, neither calibration nor test."""

import numpy as np
import pytest

from safeimpute.learning.roles import Role
from safeimpute.selection.questions import draw_roles
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits
from safeimpute_lab.benchmark.tasks import held_out_task, opened, task_for


@pytest.fixture(scope="module")
def visits() -> VisitArrays:
    table = simulate("mimic4", np.random.default_rng(2), patients=60).visits
    return prepare_visits(table, ColumnChoice("hba1c")).arrays


def test_all_values_but_the_tests_are_the_methods_own(visits: VisitArrays) -> None:
    task, rows = task_for(visits, 3, 0.2)
    roles = draw_roles(visits, 3, 0.2)
    assert rows.tolist() == np.flatnonzero(roles == Role.TEST).tolist()
    measured = ~np.isnan(visits.target_values)
    assert (task.training | task.validation).sum() == measured.sum() - len(rows)
    assert not (task.training & task.validation).any()
    assert not (task.training | task.validation)[rows].any()
    assert task.validation.sum() == pytest.approx(0.15 * (measured.sum() - len(rows)), abs=1)


def test_a_method_that_never_stops_learns_from_all_of_them(visits: VisitArrays) -> None:
    task, rows = task_for(visits, 3, 0.2, stops=False)
    stopped, _ = task_for(visits, 3, 0.2)
    assert not task.validation.any()
    assert task.visits.labs.tobytes() == opened(stopped).visits.labs.tobytes()
    assert np.isnan(task.visits.target_values[rows]).all()


def test_the_hold_out_is_the_papers(visits: VisitArrays) -> None:
    roles = draw_roles(visits, 3, 0.2)
    task = held_out_task(visits, roles)
    assert (task.training == (roles == Role.TRAINING)).all()
    assert (task.validation == (roles == Role.VALIDATION)).all()
    unstopped = held_out_task(visits, roles, stops=False)
    assert unstopped.visits.labs.tobytes() == task.visits.labs.tobytes()
    assert not unstopped.validation.any()
