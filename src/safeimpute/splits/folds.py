"""Folds by patient, by hash: model f never sees a patient of fold f, in this table or in any later one."""

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import BoolArray, IntArray
from safeimpute.splits.streams import Hashed, hashed_number

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
