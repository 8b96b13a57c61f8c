"""Who trains, validates, calibrates and is tested, and what is hidden from whom.

The promise rests on one symmetry: calibration visits and candidates must be treated identically. `hide` makes
that a fact of the data structure: the `Task` an imputer receives holds no calibration or test target at all.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays


class Role(IntEnum):
    """What a visit's target is used for."""

    TRAINING = 0
    VALIDATION = 1
    CALIBRATION = 2
    TEST = 3
    UNMEASURED = 4
    CONTEXT = 5  # visible to the patient's own other visits, never scored (splits by patient only)


Roles = NDArray[np.int8]


HIDDEN_SHARE = 0.3  # of the measured targets of a patient outside training: hidden to be scored


@dataclass(frozen=True)
class Task:
    """Everything an imputer or a risk may see, and nothing else."""

    visits: VisitArrays  # target column: values of training and context visits, NaN everywhere else
    validation_target: FloatArray  # values of validation visits, NaN everywhere else; never an input

    @property
    def training(self) -> BoolArray:
        """Visits with a visible target. Split by visits, these are the training visits."""
        return ~np.isnan(self.visits.target_values)

    @property
    def validation(self) -> BoolArray:
        return ~np.isnan(self.validation_target)

    def of_patients(self, rows: BoolArray) -> "Task":
        """The part of the task at `rows`, which hold all visits of some patients."""
        return Task(self.visits.take(rows), self.validation_target[rows])


def split_visits(
    observed: BoolArray,
    rng: np.random.Generator,
    *,
    test_fraction: float = 0.0,
    fractions: tuple[float, float, float] = (0.70, 0.15, 0.15),
) -> Roles:
    """Assign every visit with an observed target to a role at random; the others are unmeasured.

    `fractions` are the shares of training, validation and calibration among the visits that are not tested.
    """
    order = rng.permutation(np.flatnonzero(observed))
    n_test = round(test_fraction * len(order))
    rest = len(order) - n_test
    n_calibration, n_validation = round(fractions[2] * rest), round(fractions[1] * rest)
    roles = np.full(len(observed), Role.UNMEASURED, dtype=np.int8)
    ends = np.cumsum([n_test, n_calibration, n_validation])
    for role, part in zip(
        (Role.TEST, Role.CALIBRATION, Role.VALIDATION, Role.TRAINING), np.split(order, ends), strict=True
    ):
        roles[part] = role
    return roles


def split_patients(
    patient: IntArray,
    observed: BoolArray,
    rng: np.random.Generator,
    *,
    test_fraction: float,
    fractions: tuple[float, float, float] = (0.70, 0.15, 0.15),
) -> tuple[Roles, Roles]:
    """Assign whole patients; returns the role of every visit and, per visit, the role of its patient.

    Outside training a random share of a patient's measured targets is hidden to be scored: one mechanism for
    validation, calibration and test patients alike. What it leaves visible is context for the patient's own
    other visits.
    """
    role_of_patient = split_visits(
        np.ones(patient.max() + 1, dtype=bool), rng, test_fraction=test_fraction, fractions=fractions
    )
    hidden = rng.random(len(patient)) < HIDDEN_SHARE
    group = role_of_patient[patient]
    roles = np.where((group != Role.TRAINING) & ~hidden, Role.CONTEXT, group).astype(np.int8)
    roles[~observed] = Role.UNMEASURED
    return roles, group


def hide(visits: VisitArrays, roles: Roles) -> Task:
    """The task with every target removed that an imputer must not see."""
    target = visits.target_values
    visible = np.isin(roles, (Role.TRAINING, Role.CONTEXT))
    return Task(
        visits=visits.with_target(np.where(visible, target, np.nan)),
        validation_target=np.where(roles == Role.VALIDATION, target, np.nan),
    )
