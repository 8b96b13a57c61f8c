"""From balances to a cut-off, on average and with confidence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.ledgers import drawn_entries
from safeimpute.selection.cutoff import DOUBT, UNSEEN, Cutoff, Rule, _chance_of_excess, find_cutoff
from safeimpute.selection.ledger import Entries, Ledger, risk_grid, sums_of
from safeimpute.selection.sums import Level

SURE = Rule("unmeasured", 0.2, "confident")


def average(alpha: float) -> Rule:
    return Rule("unmeasured", alpha)


def many(seed: int, patients: int = 300) -> Ledger:
    entries = drawn_entries(np.random.default_rng(seed), 5 * patients, patients)
    return Ledger(entries, risk_grid(entries.risk))


def both(ledger: Ledger, alpha: float = 0.2) -> tuple[Cutoff, Cutoff]:
    return find_cutoff(ledger, average(alpha)), find_cutoff(ledger, Rule("unmeasured", alpha, "confident"))


def changed(ledger: Ledger, weight: float = 1.0, risky: bool | None = None) -> Ledger:
    entries = ledger.entries
    errors = entries.risky if risky is None else np.full(len(entries.risk), risky)
    return Ledger(Entries(entries.patient, entries.risk, weight * entries.weight, errors), ledger.thresholds)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.35])
def test_the_average_rule_keeps_the_level_by_what_was_counted_and_by_what_is_expected(seed: int, alpha: float) -> None:
    ledger = many(seed)
    cutoff = find_cutoff(ledger, average(alpha))
    assert cutoff.risk is not None
    below = ledger.entries.risk <= cutoff.risk
    share = np.average(ledger.entries.risky[below], weights=ledger.entries.weight[below])
    assert cutoff.share == pytest.approx(share)
    assert share <= alpha
    excess, doubt = ledger.curve.excess(alpha)
    place = int(np.searchsorted(ledger.thresholds, cutoff.risk))
    assert excess[place] + DOUBT * doubt[place] <= 0
    weight, risky = ledger.visit("weight"), ledger.visit("risky_weight")
    beyond = slice(place + 1, None)
    allowed = (risky <= alpha * weight)[beyond] & (excess + 3 * DOUBT * doubt <= 0)[beyond]
    assert not allowed.any(), "nor is any larger threshold clearly safe"


def test_a_lucky_count_alone_is_not_enough() -> None:
    """Every visit is as risky as the level forbids; the count up to some threshold says otherwise by luck."""
    released, lucky = [], []
    for seed in range(60):
        ledger = _flat(seed, 0.22)
        released.append(find_cutoff(ledger, average(0.2)).risk is not None)
        counted = ledger.visit("risky_weight") <= 0.2 * ledger.visit("weight")
        lucky.append(bool(counted[20:].any()))
    assert np.mean(lucky) > 0.35
    assert np.mean(released) < 0.75 * np.mean(lucky)
    assert np.mean([find_cutoff(_flat(seed, 0.12), average(0.2)).risk is not None for seed in range(60)]) > 0.9


def _flat(seed: int, share: float) -> Ledger:
    rng = np.random.default_rng(seed)
    risk = rng.uniform(0.1, 0.4, 900)
    entries = Entries(np.repeat(np.arange(300), 3), risk, np.ones(900), rng.random(900) < share)
    return Ledger(entries, risk_grid(risk), rng.uniform(0.1, 0.4, 900))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", [average(0.2), average(0.1), SURE, Rule("unmeasured", 0.2, gamma=1.2)])
def test_sums_of_batches_decide_as_the_whole_ledger_does(seed: int, rule: Rule) -> None:
    ledger = many(seed)
    parts = [Ledger(ledger.entries.at(ledger.entries.patient % 3 == k), ledger.thresholds) for k in range(3)]
    first, second, third = (sums_of(each) for each in parts)
    total = third.plus(first).plus(second)
    assert find_cutoff(total, rule) == find_cutoff(ledger, rule)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.floats(0.05, 0.6), st.floats(0.05, 0.6))
def test_a_higher_level_releases_no_less_on_average(seed: int, one: float, other: float) -> None:
    ledger = many(seed, patients=60)
    low, high = (find_cutoff(ledger, average(each)).risk for each in sorted((one, other)))
    assert low is None or (high is not None and high >= low)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.05, 0.5), st.sampled_from(["average", "confident"]))
def test_more_doubt_releases_no_more(seed: int, alpha: float, promise: str) -> None:
    ledger = many(seed, patients=200)
    rules = [Rule("unmeasured", alpha, promise, gamma=each) for each in (1.0, 1.1, 1.5, 2.0, 5.0)]  # type: ignore[arg-type]
    risks = [find_cutoff(ledger, rule).risk or -1.0 for rule in rules]
    if promise == "average":
        assert risks == sorted(risks, reverse=True)
    assert risks[-1] <= risks[0]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("gamma", [1.2, 1.5])
def test_doubt_covers_the_worst_odds_it_speaks_of(seed: int, gamma: float) -> None:
    """Errors heavier and good visits lighter: what is released in doubt keeps the level on those odds, and is less."""
    ledger = many(seed)
    entries = ledger.entries
    weight = entries.weight * np.where(entries.risky, gamma, 1 / gamma)
    worst = Ledger(Entries(entries.patient, entries.risk, weight, entries.risky), ledger.thresholds)
    cutoff = find_cutoff(ledger, Rule("unmeasured", 0.2, gamma=gamma)).risk
    assert cutoff is not None
    place = int(np.searchsorted(ledger.thresholds, cutoff))
    assert worst.visit("risky_weight")[place] <= 0.2 * worst.visit("weight")[place]
    certain = find_cutoff(ledger, average(0.2)).risk
    assert certain is not None
    assert 0 < cutoff < certain


def test_confidence_costs_something_and_less_with_more_patients() -> None:
    shares = []
    for patients in (150, 3000):
        usual, sure = both(many(2, patients))
        assert usual.risk is not None
        assert sure.risk is not None
        assert 0 < sure.risk <= usual.risk
        shares.append(sure.risk / usual.risk)
    assert shares[0] <= shares[1]


def test_more_confidence_releases_no_more() -> None:
    ledger = many(3)
    rules = [Rule("unmeasured", 0.2, "confident", each) for each in (0.6, 0.9, 0.99)]
    risks = [find_cutoff(ledger, rule).risk or 0.0 for rule in rules]
    assert risks == sorted(risks, reverse=True)
    assert risks[1] > 0


def test_everything_good_is_released_and_everything_risky_is_not() -> None:
    ledger = many(4)
    for cutoff in both(changed(ledger, risky=False)):
        assert cutoff.risk == ledger.thresholds[-1]
    for cutoff in both(changed(ledger, risky=True)):
        assert cutoff.risk is None


def test_the_scale_of_the_weights_does_not_matter() -> None:
    ledger = many(5)
    for one, scaled, small in zip(both(ledger), both(changed(ledger, 7.0)), both(changed(ledger, 1e-3)), strict=True):
        assert one.risk is not None
        assert one.risk == scaled.risk == small.risk


def test_a_count_of_exactly_the_level_is_allowed_whatever_the_scale() -> None:
    for scale in (1.0, 1 / 3, 0.1):
        entries = Entries(np.arange(500), np.full(500, 0.02), np.full(500, scale), np.arange(500) < 100)
        ledger = Ledger(entries, np.array([0.02]), np.full(500, 0.02))
        assert find_cutoff(ledger, average(0.2)).share in (None, pytest.approx(0.2))
        assert find_cutoff(ledger, average(0.22)).risk is not None


def test_one_patient_with_nearly_all_the_weight_decides_nothing() -> None:
    """It is good at every visit; the others, who err as their risks say, would never be released so far."""
    ledger = many(6)
    entries = ledger.entries
    heavy = Entries(
        np.r_[entries.patient, np.full(200, 300)],
        np.r_[entries.risk, np.linspace(0, 1, 200)],
        np.r_[entries.weight, np.full(200, 0.02 * entries.weight.sum())],
        np.r_[entries.risky, np.zeros(200, bool)],
    )
    assert find_cutoff(Ledger(heavy, ledger.thresholds), SURE).risk is None


def test_no_visit_gives_no_cutoff() -> None:
    nobody = drawn_entries(np.random.default_rng(0), 0, patients=3)
    for cutoff in both(Ledger(nobody, risk_grid(nobody.risk))):
        assert cutoff.risk is None
        assert cutoff.visits == 0


@pytest.mark.parametrize(("seed", "patients"), [(0, 40), (1, 150), (2, 1000)])
def test_the_chance_is_that_of_random_proportions(seed: int, patients: int) -> None:
    """Drawn a hundred thousand times: every patient seen in a random proportion, and the unseen one in another."""
    rng, level = np.random.default_rng(seed), Level(0.2)
    entries = drawn_entries(rng, 4 * patients, patients)
    ledger = Ledger(entries, np.quantile(entries.risk, [0.2, 0.4, 0.6]))
    chances = _chance_of_excess(ledger, level)
    for threshold, chance in zip(ledger.thresholds, chances, strict=True):
        below = entries.at(entries.risk <= threshold)
        each = below.weight * np.where(below.risky, level.risky, -level.good)
        balance = np.bincount(below.patient, each, minlength=patients)
        dearest = np.bincount(below.patient, below.weight * below.risky).max()
        unseen = UNSEEN * level.risky * max(dearest, below.weight.max())
        drawn = [
            rng.exponential(size=(1000, patients)) @ balance + unseen * rng.exponential(size=1000) for _ in range(100)
        ]
        assert chance == pytest.approx(np.mean(np.concatenate(drawn) > 0.0), abs=0.01)


def test_a_world_at_the_level_is_released_with_confidence_as_rarely_as_promised() -> None:
    """Whatever is released errs just above the level: confidence allows one in ten, the average rule does not ask."""
    sure = [find_cutoff(_flat(seed, 0.205), SURE).risk is not None for seed in range(150)]
    assert np.mean(sure) < 0.1 + 3 * np.sqrt(0.09 / 150)
    assert np.mean([find_cutoff(_flat(seed, 0.1), SURE).risk is not None for seed in range(40)]) > 0.9


def test_nothing_is_proved_by_fewer_patients_than_the_level_can_tell() -> None:
    good = Entries(np.arange(24), np.full(24, 0.01), np.ones(24), np.zeros(24, bool))
    assert find_cutoff(Ledger(good, np.array([0.01])), SURE).risk is None
    more = Entries(np.arange(40), np.full(40, 0.01), np.ones(40), np.zeros(40, bool))
    assert find_cutoff(Ledger(more, np.array([0.01])), SURE).risk == 0.01
