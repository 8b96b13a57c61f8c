"""The release engine: scope on both sides, reasons, groups, refusals; every decision explained."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.ledgers import drawn_ground
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.cutoff import Cutoff, average_cutoff
from safeimpute.selection.ledger import risk_grid
from safeimpute.selection.p_values import Ranked, conformal_p_values, paper_p_values
from safeimpute.selection.reasons import NO_EVIDENCE, NOT_PROMISED, OUT_OF_SCOPE, RISK_ABOVE_CUTOFF
from safeimpute.selection.release import Ground, Rule, decide, decide_by_cutoff, entries_of

AVERAGE, CONFIDENT = Rule("unmeasured", 0.2), Rule("unmeasured", 0.2, "confident")
VISITS = Rule("visits", 0.2)
RULES = [AVERAGE, CONFIDENT, VISITS, Rule("patients", 0.2), Rule("later", 0.2)]


def ground_with_scope(seed: int = 0) -> Ground:
    rng = np.random.default_rng(seed)
    outside = {NO_EVIDENCE: rng.random(1200) < 0.05, OUT_OF_SCOPE: rng.random(1200) < 0.1}
    return drawn_ground(rng, outside=outside)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_something_is_released_and_every_other_row_says_why(rule: Rule) -> None:
    ground = ground_with_scope()
    decision = decide(ground, rule)
    inside = ground.inside[ground.candidate]
    assert 20 < decision.released.sum() < inside.sum()
    assert not (decision.released & ~inside).any()
    assert (decision.reason[decision.released] == "").all()
    assert (decision.reason[~decision.released & inside] == RISK_ABOVE_CUTOFF).all()
    nowhere = ground.outside[OUT_OF_SCOPE][ground.candidate]
    assert (decision.reason[nowhere] == OUT_OF_SCOPE).all()
    assert (decision.reason[ground.outside[NO_EVIDENCE][ground.candidate] & ~nowhere] == NO_EVIDENCE).all()
    assert not decision.refused


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_released_are_those_up_to_the_cutoff(rule: Rule) -> None:
    ground = ground_with_scope(1)
    decision = decide(ground, rule)
    risk, inside = ground.risk[ground.candidate], ground.inside[ground.candidate]
    np.testing.assert_array_equal(decision.released, inside & (risk <= decision.cutoff))
    assert np.isnan(decision.p_value).all() == (rule.claim != "visits")


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_scope_acts_on_both_sides(rule: Rule) -> None:
    """Errors, risks and weights of visits outside the promise change nothing inside it."""
    ground = ground_with_scope(2)
    out = ~ground.inside
    other = replace(
        ground,
        risk=np.where(out, 0.0, ground.risk),
        risky=np.where(out, ~ground.risky, ground.risky),
        weight=np.where(out, 50.0, ground.weight),
    )
    one, two = decide(ground, rule), decide(other, rule)
    np.testing.assert_array_equal(one.released, two.released)
    assert one.released.any()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_has_no_risk_or_no_weight_is_never_released(rule: Rule) -> None:
    ground = ground_with_scope(3)
    rng = np.random.default_rng(9)
    lost = rng.random(1200) < 0.3
    for missing in (np.nan, np.inf):
        if rule.claim != "visits":
            unweighed = replace(ground, weight=np.where(lost & ground.judged, missing, ground.weight))
            assert decide(unweighed, rule).released.any()
        decision = decide(replace(ground, risk=np.where(lost, missing, ground.risk)), rule)
        assert not decision.released[lost[ground.candidate]].any()
        assert decision.released.any()
        assert (decision.reason[~decision.released] != "").all()


def test_errors_at_candidates_are_not_read() -> None:
    ground = ground_with_scope(4)
    other = replace(ground, risky=ground.risky | ground.candidate)
    for rule in RULES:
        np.testing.assert_array_equal(decide(ground, rule).released, decide(other, rule).released)


def test_each_group_is_released_by_its_own_ledger() -> None:
    rng = np.random.default_rng(5)
    group = np.repeat(rng.integers(0, 2, 300), 4)
    ground = drawn_ground(rng, cell=group)
    worse = (group == 1) & ground.judged & (rng.random(1200) < 0.5)
    ground = replace(ground, risky=ground.risky | worse)
    decision = decide(ground, AVERAGE)
    for number in (0, 1):
        rows = group == number
        part = replace(ground, judged=ground.judged & rows)
        alone = average_cutoff(entries_of(part), risk_grid(ground.risk[rows]), 0.2)
        assert decision.cutoffs[number].risk == alone.risk
    first, second = decision.cutoffs[0].risk, decision.cutoffs[1].risk
    assert first is not None
    assert second is None or second < first
    candidates = group[ground.candidate]
    np.testing.assert_array_equal(decision.cutoff[candidates == 0], first)
    assert decision.released[candidates == 0].any()


def test_a_group_nobody_calibrated_is_withheld() -> None:
    risk, group = np.array([0.1, 0.1, 0.3]), np.array([0, 7, 0])
    decision = decide_by_cutoff(risk, {}, {0: Cutoff(0.2, 0.1, 50.0, 50.0)}, group)
    assert decision.released.tolist() == [True, False, False]


def test_each_visit_is_decided_by_itself() -> None:
    ground = ground_with_scope(6)
    whole = decide(ground, AVERAGE)
    rows = np.flatnonzero(ground.candidate)
    for place in range(0, len(rows), 37):
        outside = {name: visits[rows[[place]]] for name, visits in ground.outside.items()}
        alone = decide_by_cutoff(ground.risk[rows[[place]]], outside, whole.cutoffs)
        assert alone.released[0] == whole.released[place]
        assert alone.reason[0] == whole.reason[place]


def test_the_papers_release_is_p_values_and_bh() -> None:
    ground = ground_with_scope(7)
    inside = ground.inside
    calibration, candidate = ground.judged & inside, ground.candidate & inside
    p = conformal_p_values(
        Ranked(ground.risk[candidate], ground.tie[candidate]),
        Ranked(ground.risk[calibration], ground.tie[calibration]),
        ground.risky[calibration],
    )
    decision = decide(ground, VISITS)
    np.testing.assert_array_equal(decision.released[inside[ground.candidate]], benjamini_hochberg(p, 0.2))
    np.testing.assert_array_equal(decision.p_value[inside[ground.candidate]], p)


def test_the_published_release_knows_no_scope() -> None:
    ground = ground_with_scope(8)
    decision = decide(ground, replace(VISITS, published=True))
    p = paper_p_values(
        ground.risk[ground.candidate],
        ground.risk[ground.judged],
        ground.risky[ground.judged],
        ground.tie[ground.candidate],
    )
    np.testing.assert_array_equal(decision.released, benjamini_hochberg(p, 0.2))
    assert decision.released[~ground.inside[ground.candidate]].any()


@pytest.mark.parametrize("rule", [AVERAGE, CONFIDENT], ids=str)
def test_a_level_that_stands_for_no_countable_number_is_refused_in_words(rule: Rule) -> None:
    rng = np.random.default_rng(10)
    ground = drawn_ground(rng, patients=40, outside={OUT_OF_SCOPE: rng.random(160) < 0.1})
    ground = replace(ground, risky=np.zeros(160, dtype=bool))
    assert decide(ground, replace(rule, alpha=0.5)).released.any()
    decision = decide(ground, replace(rule, alpha=0.01))
    assert not decision.released.any()
    assert "a level of 0.01 needs" in decision.refused
    assert "or a level of" in decision.refused
    nowhere = ground.outside[OUT_OF_SCOPE][ground.candidate]
    assert (decision.reason[nowhere] == OUT_OF_SCOPE).all()
    assert (decision.reason[~nowhere] == NOT_PROMISED).all()


def test_too_few_calibration_visits_are_refused_in_words() -> None:
    ground = drawn_ground(np.random.default_rng(11), patients=3)
    decision = decide(ground, Rule("visits", 0.05))
    assert not decision.released.any()
    assert "needs at least 19 calibration visits; there are" in decision.refused


def test_one_candidate_and_none() -> None:
    ground = ground_with_scope(12)
    first = np.flatnonzero(ground.candidate & ground.inside & (ground.risk < 0.01))[0]
    for rule in RULES[:2]:
        only = np.zeros(1200, dtype=bool)
        assert len(decide(replace(ground, candidate=only), rule).released) == 0
        only[first] = True
        assert decide(replace(ground, candidate=only), rule).released.tolist() == [True]
