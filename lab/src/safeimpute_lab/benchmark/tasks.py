"""What a method of the benchmark is shown: all values but the test's, or what the paper's hold-out leaves."""

import numpy as np

from safeimpute.learning.roles import Role, Roles, Task, hide
from safeimpute.selection.questions import draw_roles
from safeimpute.visits.arrays import IntArray, VisitArrays


def task_for(visits: VisitArrays, seed: int, test_fraction: float, *, stops: bool = True) -> tuple[Task, IntArray]:
    """The task with all values visible but the test's, and the rows of the test.

    A method that `stops` by validation values takes them from the visible ones: 15 % of them, as in the paper's
    split. Any other method learns from them too.
    """
    roles = draw_roles(visits, seed, test_fraction)
    own = (Role.TRAINING, Role.CALIBRATION) if stops else (Role.TRAINING, Role.CALIBRATION, Role.VALIDATION)
    opened = np.where(np.isin(roles, own), np.int8(Role.TRAINING), roles)
    return hide(visits, opened), np.flatnonzero(roles == Role.TEST)


def held_out_task(visits: VisitArrays, roles: Roles, *, stops: bool = True) -> Task:
    """The paper's hold-out: calibration and test are hidden, and validation is no input: it stops or is hidden too."""
    task = hide(visits, roles)
    return task if stops else Task(task.visits, np.full(len(visits), np.nan))


def opened(task: Task) -> Task:
    """The same task once learning is over: validation values, too, are inputs to all visits but their own."""
    target = np.where(task.validation, task.validation_target, task.visits.target_values)
    return Task(task.visits.with_target(target), np.full(len(target), np.nan))
