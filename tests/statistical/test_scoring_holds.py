"""What scoring promises to patients the fit never met, against a truth known also where nobody measured.

Every cohort is fitted and calibrated anew; its new patients come from the same population.
"""

from typing import Literal

import numpy as np
import polars as pl
import pytest

from helpers.scored_cohorts import NEW_SUBJECTS
from safeimpute import SafeImputer
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray
from safeimpute.visits.examples import simulate

Shift = Literal["none", "covariate"]


def scored(shift: Shift, cohort: int, patients: int, tolerance: float, level: float) -> tuple[BoolArray, BoolArray]:
    """Whether each candidate of new patients is risky, and whether it is released."""
    table, new = (
        simulate("mimic4", np.random.default_rng([cohort, stream]), patients=patients, shift=shift) for stream in (1, 2)
    )
    imputer = SafeImputer(
        target="hba1c", tolerance=tolerance, fdr=level, claim="patients", random_state=cohort, best={"folds": 3}
    )
    scorer = imputer.fit(table.visits).scorer()
    visits, truth = (each.with_columns(pl.col("subject_id") + NEW_SUBJECTS) for each in new)
    known = scorer.score(visits).join(
        truth.rename({"hba1c": "truth"}), on=["subject_id", "time"], maintain_order="left"
    )
    risky = Tolerance(tolerance).risky(known["value"].to_numpy(), known["truth"].to_numpy())
    return risky, known["released"].to_numpy()


@pytest.mark.full
def test_600_patients_are_enough_for_new_ones() -> None:
    risky, released = scored("none", 0, 600, tolerance=0.6, level=0.2)
    assert risky.mean() > 0.3
    assert released.sum() > 100
    assert risky[released].mean() <= 0.25


@pytest.mark.full
@pytest.mark.parametrize(("shift", "tolerance", "floor"), [("none", 0.55, 0.6), ("covariate", 0.45, 0.4)])
def test_over_cohorts(shift: Shift, tolerance: float, floor: float) -> None:
    """The pooled share at level 0.3, and a cut-off in nearly every cohort."""
    level, counts = 0.3, []
    for cohort in range(8):
        risky, released = scored(shift, cohort, 1500, tolerance, level)
        counts.append((np.sum(released & risky), released.sum(), np.sum(~risky), risky.mean()))
    wrong, out, good, everything = np.array(counts, dtype=np.float64).T
    pooled = wrong.sum() / out.sum()
    error = np.std(wrong - pooled * out) / np.sqrt(len(out)) / out.mean()
    assert everything.mean() > level + 0.02  # releasing everything would break the level
    assert pooled <= level + 3 * error
    assert np.mean((out - wrong) / good) >= floor
    assert np.sum(out > 0) >= 6
