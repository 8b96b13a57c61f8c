"""Who sees what: folds of patients by hash, and the roles that measured targets have in the paper's split."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import VisitsError
from safeimpute.visits.arrays import BoolArray, FloatArray, Hashed, IntArray, VisitArrays, hashed_number

FEWEST_MEASURED = 30  # fewer measured targets than this teach nothing
FEWEST_PATIENTS = 10  # with a measured target: fewer cannot fill the folds


def fold_of(patient_key: NDArray[np.uint64], seed: int, folds: int) -> IntArray:
    """The fold of every visit's patient; it hangs on the seed and the subject alone."""
    number = hashed_number(patient_key, seed, Hashed.FOLD) % np.uint64(folds)
    return number.astype(np.int64)


def require_learnable(target: str, patient: IntArray, visible: BoolArray, fold: IntArray) -> None:
    """Refuse, before any work, a table too small to learn from in folds of patients."""
    measured, patients = int(visible.sum()), len(np.unique(patient[visible]))
    if measured < FEWEST_MEASURED or patients < FEWEST_PATIENTS:
        raise VisitsError(
            f"target {target!r} is measured at {measured} visits of {patients} patients; at least "
            f"{FEWEST_MEASURED} visits of {FEWEST_PATIENTS} patients are needed to learn and to calibrate."
        )
    if len(np.unique(fold[visible])) < 3:
        raise VisitsError(
            f"the {patients} patients with a measured {target!r} fall into fewer than three folds: too few to "
            "learn from some and judge by others. Give more patients."
        )


class Role(IntEnum):
    """What a visit's target is used for."""

    TRAINING = 0
    VALIDATION = 1
    CALIBRATION = 2
    TEST = 3
    UNMEASURED = 4
    CENSORED = 5  # measured, but known only by a limit: neither asked about nor judged


Roles = NDArray[np.int8]
SHARES = (0.70, 0.15, 0.15)  # of training, validation and calibration
CALIBRATION_SHARE = SHARES[2]


@dataclass(frozen=True)
class Task:
    """Everything an imputation method may see, and nothing else."""

    visits: VisitArrays  # target column: values of training visits, NaN everywhere else
    validation_target: FloatArray  # values of validation visits, NaN everywhere else; never an input

    @property
    def training(self) -> BoolArray:
        """Visits with a visible target."""
        return ~np.isnan(self.visits.target_values)

    @property
    def validation(self) -> BoolArray:
        """Visits whose target may steer settings and stopping."""
        return ~np.isnan(self.validation_target)


def split_visits(
    observed: BoolArray,
    rng: np.random.Generator,
    *,
    test_fraction: float = 0.0,
    fractions: tuple[float, float, float] = SHARES,
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


def hide(visits: VisitArrays, roles: Roles) -> Task:
    """The task with every target removed that a method must not see."""
    target = visits.target_values
    return Task(
        visits=visits.with_target(np.where(roles == Role.TRAINING, target, np.nan)),
        validation_target=np.where(roles == Role.VALIDATION, target, np.nan),
    )
