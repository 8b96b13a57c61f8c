"""The promise for `visits`, end to end: fits are real, calibration and test are redrawn many times per fit.

Given a fit, every re-partition of its calibration and test visits is an independent, exchangeable draw, so the
mean FDP over re-partitions must stay at or below the level; and something must be released.
"""

import numpy as np
import pytest
from safeimpute.systems.presets import PaperSettings, Plan

from safeimpute.evaluation.evaluate import ScoredSplit, repartition, score_splits
from safeimpute.evaluation.metrics import false_discovery_proportion, power
from safeimpute.records.simulate import simulate
from safeimpute.records.visits import ColumnChoice, prepare_visits
from safeimpute.selection.claims import Claim
from safeimpute.systems.paper.gcn import GcnSettings
from safeimpute.tolerance import Tolerance

ALPHAS = (0.1, 0.2, 0.35)
# At each level a tolerance at which the paper's score can release something: (tolerance in points, power floor).
SETTINGS = {0.1: (1.6, 0.1), 0.2: (1.3, 0.25), 0.35: (0.9, 0.3)}


def redraw(scored: ScoredSplit, tolerance: Tolerance, alpha: float, draws: int, seed: int) -> np.ndarray:
    """FDP and power per re-partition."""
    rng = np.random.default_rng(seed)
    results = []
    for _ in range(draws):
        split, tested = repartition(scored, rng)
        bad = scored.bad(tolerance, tested)
        released = scored.released(tolerance, alpha, split, tested)
        results.append((false_discovery_proportion(bad, released), power(bad, released)))
    return np.array(results)


def fit(seed: int, patients: int) -> ScoredSplit:
    visits = simulate("mimic4", np.random.default_rng(seed), patients=patients).visits
    plan = Plan("paper", Tolerance(1.0), seed, paper=PaperSettings(gcn=GcnSettings(epochs=120)))
    arrays = prepare_visits(visits, ColumnChoice("hba1c")).arrays
    return score_splits(arrays, plan, Claim(), splits=1, test_fraction=0.3)[0]


@pytest.fixture(scope="module")
def fits() -> list[ScoredSplit]:
    return [fit(seed, patients=400) for seed in range(2)]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_mean_fdp_stays_below_the_level_with_power(fits: list[ScoredSplit], alpha: float) -> None:
    width, floor = SETTINGS[alpha]
    draws = [redraw(scored, Tolerance(absolute=width), alpha, 100, seed) for seed, scored in enumerate(fits)]
    for results in draws:
        fdp, se = results[:, 0].mean(), results[:, 0].std(ddof=1) / np.sqrt(len(results))
        assert fdp <= alpha + 3 * se
    assert np.mean([results[:, 1].mean() for results in draws]) > floor


def test_releasing_everything_would_be_caught(fits: list[ScoredSplit]) -> None:
    """Without calibration the level is missed by far, so the study above can fail."""
    alpha, tolerance = 0.1, Tolerance(absolute=0.8)
    bad = fits[0].bad(tolerance, fits[0].tested)
    assert false_discovery_proportion(bad, np.ones(len(bad), bool)) > alpha + 0.1


@pytest.mark.full
@pytest.mark.parametrize("alpha", ALPHAS)
def test_over_many_cohorts(alpha: float) -> None:
    width, floor = SETTINGS[alpha]
    results = np.array(
        [
            redraw(fit(100 + seed, 250), Tolerance(absolute=width), alpha, 20, seed).mean(axis=0)
            for seed in range(20)
        ]
    )
    fdp, powers = results.T
    assert fdp.mean() <= alpha + 3 * fdp.std(ddof=1) / np.sqrt(len(fdp))
    assert powers.mean() > floor
