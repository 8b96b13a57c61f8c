"""The claim `visits`, end to end: fits are real, calibration and test are redrawn many times per fit.

Given a fit, every re-partition of its calibration and test visits is an independent, exchangeable draw, so the
mean FDP over re-partitions must stay at or below the level; and something must be released.
"""

import numpy as np
import pytest

from safeimpute.evaluation.trials import Trial, draws, run_trials
from safeimpute.settings import make_settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import FloatArray
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

ALPHAS = (0.1, 0.2, 0.35)
# At each level a tolerance at which the paper's risk can release something: (tolerance in points, power floor).
SETTINGS = {0.1: (1.6, 0.1), 0.2: (1.3, 0.25), 0.35: (0.9, 0.3)}


def redrawn(trial: Trial, tolerance: Tolerance, alpha: float, times: int) -> FloatArray:
    """FDP and power per re-partition."""
    found = []
    for each in draws(trial, times):
        risky, released = each.risky(tolerance), each.release(tolerance, alpha).released
        good = max(int(np.sum(~risky)), 1)
        found.append((np.sum(released & risky) / max(int(released.sum()), 1), np.sum(released & ~risky) / good))
    return np.array(found, dtype=np.float64)


def fit(seed: int, patients: int) -> Trial:
    visits = simulate("mimic4", np.random.default_rng(seed), patients=patients).visits
    settings = make_settings(
        target="hba1c", tolerance=1.0, fdr=0.2, preset="paper", random_state=seed, paper={"gcn": {"epochs": 120}}
    )
    arrays = prepare_visits(visits, ColumnChoice("hba1c")).arrays
    return run_trials(arrays, settings, splits=1, test_fraction=0.3)[0]


@pytest.fixture(scope="module")
def fits() -> list[Trial]:
    return [fit(seed, patients=400) for seed in range(2)]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_mean_fdp_stays_below_the_level_with_power(fits: list[Trial], alpha: float) -> None:
    width, floor = SETTINGS[alpha]
    found = [redrawn(trial, Tolerance(absolute=width), alpha, 100) for trial in fits]
    for each in found:
        assert each[:, 0].mean() <= alpha + 3 * each[:, 0].std(ddof=1) / np.sqrt(len(each))
    assert np.mean([each[:, 1].mean() for each in found]) > floor


def test_releasing_everything_would_be_caught(fits: list[Trial]) -> None:
    """Without calibration the level is missed by far, so the study above can fail."""
    assert fits[0].risky(Tolerance(absolute=0.8)).mean() > 0.1 + 0.1


@pytest.mark.full
@pytest.mark.parametrize("alpha", ALPHAS)
def test_over_many_cohorts(alpha: float) -> None:
    width, floor = SETTINGS[alpha]
    found = np.array(
        [redrawn(fit(100 + seed, 250), Tolerance(absolute=width), alpha, 20).mean(axis=0) for seed in range(20)]
    )
    fdp, power = found.T
    assert fdp.mean() <= alpha + 3 * fdp.std(ddof=1) / np.sqrt(len(fdp))
    assert power.mean() > floor
