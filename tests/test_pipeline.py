import numpy as np
import pytest

from safeimpute.errors import GuaranteeRefused
from safeimpute.records.arrays import VisitArrays
from safeimpute.selection.claims import Claim, parse_claim, promise_in_words
from safeimpute.selection.pipeline import (
    Scored,
    Split,
    long_run_cutoff,
    release,
    released_under_doubt,
    score_split,
    split_for,
)
from safeimpute.splits.roles import Role
from safeimpute.systems.paper.gcn import GcnSettings
from safeimpute.systems.presets import PaperSettings, Plan
from safeimpute.tolerance import Tolerance

TOLERANCE = Tolerance(1.0)


@pytest.fixture(scope="module")
def scored(cohort_arrays: VisitArrays) -> Scored:
    plan = Plan("paper", TOLERANCE, seed=1, paper=PaperSettings(gcn=GcnSettings(epochs=40)))
    split = split_for(Claim(unmeasured=True), cohort_arrays, seed=1, test_fraction=0.2)
    return score_split(cohort_arrays, split, Claim(unmeasured=True), plan)


def test_calibrating_on_what_was_fitted_is_refused(scored: Scored, cohort_arrays: VisitArrays) -> None:
    truth = cohort_arrays.target_values
    for role in (Role.TRAINING, Role.VALIDATION):
        roles = scored.split.roles.copy()
        roles[np.flatnonzero(roles == role)[:3]] = Role.CALIBRATION
        with pytest.raises(GuaranteeRefused, match=r"3 of .* took part in the fit"):
            release(scored, TOLERANCE, 0.3, scored.candidates(), truth, Split(roles))


def test_doubt_only_takes_releases_away(scored: Scored, cohort_arrays: VisitArrays) -> None:
    counts = released_under_doubt(
        scored, Tolerance(1.5), 0.3, scored.candidates(), cohort_arrays.target_values, (1.0, 1.2, 2.0, 5.0)
    )
    assert counts[0] > 0
    assert np.all(np.diff(counts) <= 0)
    assert counts[-1] < counts[0]


def test_no_cutoff_without_whole_patients(scored: Scored, cohort_arrays: VisitArrays) -> None:
    with pytest.raises(GuaranteeRefused, match="calibration patients"):
        long_run_cutoff(scored, TOLERANCE, 0.2, cohort_arrays.target_values)


def test_batch_number_depends_on_the_calibration_visits(scored: Scored, cohort_arrays: VisitArrays) -> None:
    from safeimpute.selection.pipeline import _shared_uniform

    rows = scored.split.rows(Role.CALIBRATION)
    one, other = (_shared_uniform(cohort_arrays, part, 1) for part in (rows, rows[1:]))
    assert one != other
    assert one == _shared_uniform(cohort_arrays, rows, 1)


@pytest.mark.parametrize(
    "text", ["visits", "patients", "unmeasured", "patients,unmeasured", "unmeasured, patients"]
)
def test_claims_are_read_and_said(text: str) -> None:
    claim = parse_claim(text)
    assert parse_claim(claim.name) == claim
    words = promise_in_words(claim, "hba1c", "0.5 percentage points", 0.1)
    assert "10 %" in words["promise"]
    assert ("never saw" in words["promise"]) == claim.new_patients
    assert ("nobody measured" in words["promise"]) == claim.unmeasured
