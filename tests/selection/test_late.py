"""Results still on their way: released at night like unmeasured visits, so the level must count them."""

from dataclasses import replace

import numpy as np
import pytest

from safeimpute.selection.cutoff import Rule
from safeimpute.selection.release import Decision, SelectionData, decide
from safeimpute.visits.arrays import BoolArray

RULE = Rule("later", 0.2)


def world(rng: np.random.Generator, late_is_worse: float) -> tuple[SelectionData, BoolArray, BoolArray]:
    """Risks that are true chances for measured and unmeasured alike; of the measured half are late, and go wrong more
    (or less) often than those in time."""
    patients, each = 400, 6
    patient = np.repeat(np.arange(patients), each)
    risk = rng.beta(2, 5, len(patient))
    unmeasured = rng.random(len(patient)) < 0.4
    late = ~unmeasured & (rng.random(len(patient)) < 0.5)
    factor = np.where(unmeasured, 1.0, np.where(late, late_is_worse, 2.0 - late_is_worse))
    risky = rng.random(len(patient)) < risk * factor
    odds = np.full(len(patient), 0.4 / 0.6)
    data = SelectionData(
        risk, rng.random(len(patient)), patient, odds, {}, ~unmeasured, risky & ~unmeasured, unmeasured
    )
    return data, late, risky


def decide_at_night(data: SelectionData, late: BoolArray, rule: Rule) -> Decision:
    return decide(replace(data, late=late), rule)


def share_of(cutoff: float | None, data: SelectionData, risky: BoolArray, who: BoolArray) -> tuple[int, int]:
    if cutoff is None:
        return 0, 0
    out = who & (data.risk <= cutoff)
    return int(np.sum(out & risky)), int(out.sum())


@pytest.mark.parametrize("worse", [1.6, 0.4])
def test_the_level_holds_at_night_and_for_what_stays_imputed(worse: float) -> None:
    """Late results that go wrong more often, or less: both would break a level that overlooked one of the two."""
    rng = np.random.default_rng(0)
    at_night, alone, overlooked, only_together = (np.zeros(2) for _ in range(4))
    for _ in range(60):
        data, late, risky = world(rng, worse)
        cutoff = decide_at_night(data, late, RULE).cutoffs[0].risk
        at_night += share_of(cutoff, data, risky, data.candidate | late)
        alone += share_of(cutoff, data, risky, data.candidate)
        overlooked += share_of(decide(data, RULE).cutoffs[0].risk, data, risky, data.candidate | late)
        heavier = replace(data, weight=data.weight + late)
        only_together += share_of(decide(heavier, RULE).cutoffs[0].risk, data, risky, data.candidate)
    for wrong, out in (at_night, alone):
        assert out > 60 * 100
        assert wrong / out <= 0.205
    if worse > 1:
        assert overlooked[0] / overlooked[1] > 0.22, "the unmeasured alone would say too much"
    else:
        assert only_together[0] / only_together[1] > 0.22, "both together would say too much"


def test_the_stricter_release_is_what_both_release() -> None:
    data, late, _ = world(np.random.default_rng(1), 1.6)
    one = decide(data, RULE)
    both = decide_at_night(data, late, RULE)
    assert both.released.sum() < one.released.sum()
    assert not (both.released & ~one.released).any()
    assert set(both.reason[~both.released]) == {"risk above cut-off"}
    assert both.cutoffs[0].risk == pytest.approx(np.nanmax(both.cutoff))


def test_group_by_group() -> None:
    data, late, _ = world(np.random.default_rng(1), 1.6)
    grouped = replace(data, cell=data.patient % 2)
    found = decide_at_night(grouped, late, RULE)
    assert set(found.cutoffs) == {0, 1}
    assert found.merged is not None
    for number in (0, 1):
        part = replace(data, judged=data.judged & (data.patient % 2 == number))
        assert (found.cutoffs[number].risk or 0) <= (decide(part, RULE).cutoffs[0].risk or 0)
    group = (data.patient % 2)[data.candidate]
    limits = np.array([found.cutoffs[int(each)].risk for each in group])
    assert np.array_equal(found.released, data.risk[data.candidate] <= limits)


def test_too_few_promise_nothing() -> None:
    data, late, _ = world(np.random.default_rng(1), 1.6)
    few = replace(data, judged=data.judged & (data.patient < 5))
    nothing = decide_at_night(few, late, RULE)
    assert not nothing.released.any()
    assert "needs measured visits" in nothing.refused
    assert "" not in nothing.reason
