"""The four claims, end to end with real fits of the default preset, against known truth.

Patient splits redraw calibration and new patients many times per fit. For unmeasured visits the simulation knows the
truth; measuring is at random in half of the cohorts and follows the table in the other half.
"""

import numpy as np
import pytest
from safeimpute.systems.presets import BestSettings, Plan

from safeimpute.errors import GuaranteeRefused
from safeimpute.evaluation.evaluate import ScoredSplit, repartition, score_splits
from safeimpute.evaluation.metrics import false_discovery_proportion, power
from safeimpute.records.simulate import Shift, simulate
from safeimpute.records.visits import ColumnChoice, prepare_visits
from safeimpute.selection.claims import Claim
from safeimpute.systems.best.blend import BlendSettings
from safeimpute.tolerance import Tolerance

ALPHA, TOLERANCE = 0.2, Tolerance(0.8)
QUICK = BestSettings(BlendSettings(attention=None))


def fit(claim: Claim, seed: int, patients: int, shift: Shift = "none", *, with_truth: bool) -> ScoredSplit:
    cohort = simulate("mimic4", np.random.default_rng(500 + seed), patients=patients, shift=shift)
    visits = prepare_visits(cohort.visits, ColumnChoice("hba1c"))
    truth = None
    if with_truth:
        asked = visits.subject.to_frame("subject_id").with_columns(time=visits.time)
        joined = asked.join(cohort.truth, on=["subject_id", "time"], how="left", maintain_order="left")
        truth = joined["hba1c"].to_numpy()
    plan = Plan("best", TOLERANCE, seed, best=QUICK)
    return score_splits(visits.arrays, plan, claim, splits=1, test_fraction=0.3, truth=truth)[0]


def fdp_and_power(result: ScoredSplit, redraws: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    partitions = [repartition(result, rng) for _ in range(redraws)] or [(result.scored.split, result.tested)]
    found = []
    for split, tested in partitions:
        bad = result.bad(TOLERANCE, tested)
        try:
            released = result.released(TOLERANCE, ALPHA, split, tested)
        except GuaranteeRefused:
            released = np.zeros(len(bad), dtype=bool)
        found.append((false_discovery_proportion(bad, released), power(bad, released)))
    return np.array(found)


def holds(found: np.ndarray, floor: float) -> None:
    fdp, powers = found.T
    assert fdp.mean() <= ALPHA + 3 * fdp.std(ddof=1) / np.sqrt(len(fdp))
    assert powers.mean() > floor


def test_new_patients_as_evaluated() -> None:
    """Hidden measured visits of new patients: given the fit, every redraw of patients is exchangeable."""
    holds(fdp_and_power(fit(Claim(new_patients=True), 0, 800, with_truth=False), redraws=100), floor=0.4)


def test_new_patients_as_run() -> None:
    """Visits of new patients where nobody measured, measuring being at random; over cohorts, which redraw it."""
    claim = Claim(new_patients=True)
    found = [fdp_and_power(fit(claim, s, 800, with_truth=True), redraws=10).mean(axis=0) for s in range(6)]
    holds(np.array(found), floor=0.4)


def test_counting_unmeasured_visits_like_scored_ones_would_be_caught() -> None:
    """The rule for measured visits, given unmeasured candidates, compares counts of different kinds and fails."""
    from safeimpute.selection.pipeline import batch_of

    from safeimpute.selection.release import decide

    claim = Claim(new_patients=True)
    result = fit(claim, 0, 800, with_truth=True)
    rng, fdp = np.random.default_rng(0), []
    for _ in range(50):
        split, tested = repartition(result, rng)
        batch = batch_of(result.scored, TOLERANCE, tested, result.truth, split)
        released = decide(batch, claim, ALPHA).released
        fdp.append(false_discovery_proportion(result.bad(TOLERANCE, tested), released))
    assert np.mean(fdp) > ALPHA + 3 * np.std(fdp, ddof=1) / np.sqrt(len(fdp))


@pytest.mark.parametrize("shift", ["none", "covariate"])
def test_unmeasured_visits(shift: Shift) -> None:
    found = [
        fdp_and_power(fit(Claim(unmeasured=True), s, 250, shift, with_truth=True), 0)[0] for s in range(5)
    ]
    holds(np.array(found), floor=0.2)


@pytest.mark.full
@pytest.mark.parametrize("shift", ["none", "covariate"])
@pytest.mark.parametrize("new_patients", [False, True])
def test_unmeasured_visits_over_many_cohorts(shift: Shift, new_patients: bool) -> None:
    claim = Claim(new_patients, unmeasured=True)
    cohorts, patients, redraws = (8, 2000, 20) if new_patients else (20, 900, 0)
    found = [
        fdp_and_power(fit(claim, s, patients, shift, with_truth=True), redraws).mean(axis=0)
        for s in range(cohorts)
    ]
    holds(np.array(found), floor=0.3)
