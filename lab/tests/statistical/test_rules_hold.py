"""The rules alone, in worlds with known odds of measuring: the level is kept and something is released.

A reduced form of `guarantee rules`. Every assertion of a level stands beside a floor of power.
"""

import numpy as np
import pytest

from safeimpute_lab.studies.guarantee.rules import WORLDS, Draws, Summary, repeat, summaries, summarise

PATIENTS, REPETITIONS = 300, 300
ALPHAS = (0.1, 0.2)
HARD = ("clock", "minority", "rare heavy", "icc 0.9")
# power of the average rule at 0.1 and 0.2, and of the confident one at 0.2: about four fifths of what is measured
FLOORS = {
    "clock": (0.25, 0.70, 0.15),
    "minority": (0.55, 0.75, 0.55),
    "rare heavy": (0.45, 0.65, 0.30),
    "icc 0.9": (0.55, 0.70, 0.60),
}
MEANT = 0.1  # a promise with 90 % confidence may be broken so often


@pytest.fixture(scope="module", params=HARD)
def world(request: pytest.FixtureRequest) -> tuple[str, Draws]:
    return request.param, repeat(request.param, PATIENTS, range(REPETITIONS), ALPHAS)


def of(draws: Draws, rule: str, alpha: float, who: str) -> Summary:
    table = np.array(draws[rule, alpha], dtype=np.float64)
    start = {"same": 0, "new": 3}[who]
    risky, released, good = table[:, start : start + 3].T
    return summarise(risky, released, good, alpha)


@pytest.mark.parametrize("who", ["same", "new"])
def test_average_keeps_the_level_over_all_released_values(world: tuple[str, Draws], who: str) -> None:
    key, draws = world
    for alpha, floor in zip(ALPHAS, FLOORS[key], strict=False):
        told = of(draws, "average", alpha, who)
        assert told.pooled <= alpha + 3 * told.pooled_se
        assert told.mean_fdp <= alpha + 3 * told.mean_fdp_se
        assert told.power >= floor


def test_confident_is_exceeded_in_at_most_a_tenth_of_draws(world: tuple[str, Draws]) -> None:
    key, draws = world
    allowed = MEANT + 3 * np.sqrt(MEANT * (1 - MEANT) / REPETITIONS)
    for alpha in ALPHAS:
        long_run = np.array(draws["confident", alpha])[:, 6]
        assert np.mean(long_run > alpha) <= allowed
        assert of(draws, "confident", alpha, "same").exceeds <= allowed
    assert of(draws, "confident", 0.2, "same").power >= FLOORS[key][2]


def test_a_column_left_out_would_be_caught() -> None:
    """Where the odds ignore what decides measuring, nothing can keep the level: the study above can fail."""
    draws = repeat("left out", PATIENTS, range(50), ALPHAS)
    for alpha in ALPHAS:
        told = of(draws, "average", alpha, "same")
        assert told.pooled > alpha + 3 * told.pooled_se
        assert told.mean_fdp > alpha + 3 * told.mean_fdp_se
    assert of(draws, "confident", 0.2, "same").exceeds > 0.5


@pytest.mark.parametrize("key", ["clock", "site", "minority"])
def test_measured_visits_speak_for_unmeasured_ones(key: str) -> None:
    """The identity: odds times anything, summed over measured visits, is its sum over unmeasured ones on average.

    In `clock` measuring depends on whether the last visit was measured, and the odds are those given all other visits.
    """
    gaps: dict[str, list[float]] = {"odds": [], "all alike": []}
    for seed in range(400):
        world = WORLDS[key](np.random.default_rng([5, seed]), 100)
        anything = world.risky * (world.risk <= 0.3)
        there, known = float(np.sum(anything[~world.measured])), anything[world.measured]
        overall = np.sum(~world.measured) / np.sum(world.measured)
        gaps["odds"].append(float(np.sum(world.weight[world.measured] * known)) - there)
        gaps["all alike"].append(float(overall * np.sum(known)) - there)
    off = {name: abs(np.mean(each)) / (np.std(each) / np.sqrt(len(each))) for name, each in gaps.items()}
    assert off["odds"] <= 3
    assert off["all alike"] > 6


def test_errors_that_come_and_go_by_whole_patients() -> None:
    """All visits of a patient are risky or none, and counts have heavy tails: patients, not visits, are what counts."""
    draws = repeat("whole patients", PATIENTS, range(200), ALPHAS)
    told = of(draws, "average", 0.2, "new")
    assert told.pooled <= 0.2 + 3 * told.pooled_se
    assert told.power >= 0.6
    assert np.mean(np.array(draws["confident", 0.2])[:, 6] > 0.2) <= 0.1


@pytest.mark.parametrize("key", ["binary, shift", "cost, shift"])
def test_classes_and_costs_keep_the_level(key: str) -> None:
    """What an error costs, from 0 to 1, is counted as right and wrong are."""
    draws = repeat(key, PATIENTS, range(120), ALPHAS)
    for alpha in ALPHAS:
        told = of(draws, "average", alpha, "same")
        assert told.mean_fdp <= alpha + 3 * told.mean_fdp_se
        assert told.power >= 0.4
        assert np.mean(np.array(draws["confident", alpha])[:, 6] > alpha) <= 0.1 + 3 * 0.028
    graded = np.unique(WORLDS[key](np.random.default_rng(1), 500).risky.astype(float))
    assert len(graded) == (5 if key.startswith("cost") else 2)


@pytest.mark.full
@pytest.mark.parametrize("key", [key for key in WORLDS if key != "left out"])
def test_over_every_world(key: str) -> None:
    """At 0.1 and 0.2 with 300 patients, 1,000 repetitions.

    Where the best cut-off would release less than two fifths nothing tells good from bad, and what a rule releases
    is luck: less than half of what releasing all would come to. Weights that are blind to what the risk sees earn no
    confidence: 0.12 to 0.17 of draws lie above (docs/guarantee.md).
    """
    draws = repeat(key, PATIENTS, range(1000), ALPHAS)
    for alpha in ALPHAS:
        rows = {row["who"]: row for row in summaries({("average", alpha): draws["average", alpha]})}
        for who in ("same", "new"):
            told = of(draws, "average", alpha, who)
            if rows[who]["oracle"] >= 0.4:
                assert told.mean_fdp <= alpha + 3 * told.mean_fdp_se
                assert told.pooled <= alpha + 3 * told.pooled_se
            else:
                assert rows[who]["excess"] <= 5.0, "per 1,000 candidates; releasing all of them is 10"
        allowed = 0.1 if key != "blind weights" else 0.17
        assert np.mean(np.array(draws["confident", alpha])[:, 6] > alpha) <= allowed + 3 * 0.0095
    if key != "one patient":  # half of all weight on one patient: nothing can be said, and nothing is
        assert of(draws, "average", 0.2, "same").power > 0.2
