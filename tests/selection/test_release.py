"""The release engine: scope on both sides, reasons, groups, refusals; every decision explained."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.ledgers import drawn_selection_data
from safeimpute.selection.cutoff import Cutoff, Rule, find_cutoff
from safeimpute.selection.ledger import Ledger, risk_grid
from safeimpute.selection.p_values import Ranked, benjamini_hochberg, conformal_p_values, paper_p_values
from safeimpute.selection.reasons import NO_EVIDENCE, NOT_PROMISED, OUT_OF_SCOPE, RISK_ABOVE_CUTOFF
from safeimpute.selection.release import SelectionData, bound_of, decide, decide_by_cutoff, entries_of
from safeimpute.settings import ClaimName

AVERAGE, CONFIDENT = Rule("unmeasured", 0.2), Rule("unmeasured", 0.2, "confident")
VISITS = Rule("visits", 0.2)
RULES = [AVERAGE, CONFIDENT, VISITS, Rule("patients", 0.2), Rule("later", 0.2)]


def ground_with_scope(seed: int = 0) -> SelectionData:
    rng = np.random.default_rng(seed)
    outside = {NO_EVIDENCE: rng.random(1200) < 0.05, OUT_OF_SCOPE: rng.random(1200) < 0.1}
    return drawn_selection_data(rng, outside=outside)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_something_is_released_and_every_other_row_says_why(rule: Rule) -> None:
    data = ground_with_scope()
    decision = decide(data, rule)
    inside = data.inside[data.candidate]
    assert 20 < decision.released.sum() < inside.sum()
    assert not (decision.released & ~inside).any()
    assert (decision.reason[decision.released] == "").all()
    assert (decision.reason[~decision.released & inside] == RISK_ABOVE_CUTOFF).all()
    nowhere = data.outside[OUT_OF_SCOPE][data.candidate]
    assert (decision.reason[nowhere] == OUT_OF_SCOPE).all()
    assert (decision.reason[data.outside[NO_EVIDENCE][data.candidate] & ~nowhere] == NO_EVIDENCE).all()
    assert not decision.refused


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_released_are_those_up_to_the_cutoff(rule: Rule) -> None:
    data = ground_with_scope(1)
    decision = decide(data, rule)
    risk, inside = data.risk[data.candidate], data.inside[data.candidate]
    np.testing.assert_array_equal(decision.released, inside & (risk <= decision.cutoff))
    assert np.isnan(decision.p_value).all() == (rule.claim != "visits")


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_scope_acts_on_both_sides(rule: Rule) -> None:
    """Errors, risks and weights of visits outside the promise change nothing inside it."""
    data = ground_with_scope(2)
    out = ~data.inside
    other = replace(
        data,
        risk=np.where(out, 0.0, data.risk),
        risky=np.where(out, ~data.risky, data.risky),
        weight=np.where(out, 50.0, data.weight),
    )
    one, two = decide(data, rule), decide(other, rule)
    np.testing.assert_array_equal(one.released, two.released)
    assert one.released.any()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_has_no_risk_or_no_weight_is_never_released(rule: Rule) -> None:
    data = ground_with_scope(3)
    rng = np.random.default_rng(9)
    lost = rng.random(1200) < 0.3
    for missing in (np.nan, np.inf):
        if rule.claim != "visits":
            unweighed = replace(data, weight=np.where(lost & data.judged, missing, data.weight))
            assert decide(unweighed, rule).released.any()
        decision = decide(replace(data, risk=np.where(lost, missing, data.risk)), rule)
        assert not decision.released[lost[data.candidate]].any()
        assert decision.released.any()
        assert (decision.reason[~decision.released] != "").all()


def test_errors_at_candidates_are_not_read() -> None:
    data = ground_with_scope(4)
    other = replace(data, risky=data.risky | data.candidate)
    for rule in RULES:
        np.testing.assert_array_equal(decide(data, rule).released, decide(other, rule).released)


def test_each_group_is_released_by_its_own_ledger() -> None:
    rng = np.random.default_rng(5)
    group = np.repeat(rng.integers(0, 2, 300), 4)
    data = drawn_selection_data(rng, cell=group)
    worse = (group == 1) & data.judged & (rng.random(1200) < 0.5)
    data = replace(data, risky=data.risky | worse)
    decision = decide(data, AVERAGE)
    for number in (0, 1):
        rows = group == number
        part = replace(data, judged=data.judged & rows)
        asked = data.risk[rows & data.candidate]
        alone = find_cutoff(Ledger(entries_of(part), risk_grid(data.risk[rows]), asked), AVERAGE)
        assert decision.cutoffs[number].risk == alone.risk
    first, second = decision.cutoffs[0].risk, decision.cutoffs[1].risk
    assert first is not None
    assert second is None or second < first
    candidates = group[data.candidate]
    np.testing.assert_array_equal(decision.cutoff[candidates == 0], first)
    assert decision.released[candidates == 0].any()


def test_a_group_nobody_calibrated_is_withheld() -> None:
    risk, group = np.array([0.1, 0.1, 0.3]), np.array([0, 7, 0])
    decision = decide_by_cutoff(risk, {}, {0: Cutoff(0.2, 0.1, 50.0, 50.0)}, group)
    assert decision.released.tolist() == [True, False, False]


def test_each_visit_is_decided_by_itself() -> None:
    data = ground_with_scope(6)
    whole = decide(data, AVERAGE)
    rows = np.flatnonzero(data.candidate)
    for place in range(0, len(rows), 37):
        outside = {name: visits[rows[[place]]] for name, visits in data.outside.items()}
        alone = decide_by_cutoff(data.risk[rows[[place]]], outside, whole.cutoffs)
        assert alone.released[0] == whole.released[place]
        assert alone.reason[0] == whole.reason[place]


def test_the_papers_release_is_p_values_and_bh() -> None:
    data = ground_with_scope(7)
    inside = data.inside
    calibration, candidate = data.judged & inside, data.candidate & inside
    p = conformal_p_values(
        Ranked(data.risk[candidate], data.tie[candidate]),
        Ranked(data.risk[calibration], data.tie[calibration]),
        data.risky[calibration],
    )
    decision = decide(data, VISITS)
    np.testing.assert_array_equal(decision.released[inside[data.candidate]], benjamini_hochberg(p, 0.2))
    np.testing.assert_array_equal(decision.p_value[inside[data.candidate]], p)


def test_the_published_release_knows_no_scope() -> None:
    data = ground_with_scope(8)
    decision = decide(data, replace(VISITS, published=True))
    p = paper_p_values(
        data.risk[data.candidate], data.risk[data.judged], data.risky[data.judged], data.tie[data.candidate]
    )
    np.testing.assert_array_equal(decision.released, benjamini_hochberg(p, 0.2))
    assert decision.released[~data.inside[data.candidate]].any()


@pytest.mark.parametrize("rule", [AVERAGE, CONFIDENT], ids=str)
def test_a_level_that_stands_for_no_countable_number_is_refused_in_words(rule: Rule) -> None:
    rng = np.random.default_rng(10)
    data = drawn_selection_data(rng, patients=40, outside={OUT_OF_SCOPE: rng.random(160) < 0.1})
    data = replace(data, risky=np.zeros(160, dtype=bool))
    assert decide(data, replace(rule, alpha=0.5)).released.any()
    decision = decide(data, replace(rule, alpha=0.01))
    assert not decision.released.any()
    assert "a level of 0.01 needs" in decision.refused
    assert "or a level of" in decision.refused
    nowhere = data.outside[OUT_OF_SCOPE][data.candidate]
    assert (decision.reason[nowhere] == OUT_OF_SCOPE).all()
    assert (decision.reason[~nowhere] == NOT_PROMISED).all()


def test_too_few_calibration_visits_are_refused_in_words() -> None:
    data = drawn_selection_data(np.random.default_rng(11), patients=3)
    decision = decide(data, Rule("visits", 0.05))
    assert not decision.released.any()
    assert "needs at least 19 calibration visits; there are" in decision.refused


def test_one_candidate_and_none() -> None:
    data = ground_with_scope(12)
    first = np.flatnonzero(data.candidate & data.inside & (data.risk < 0.01))[0]
    for rule in RULES[:2]:
        only = np.zeros(1200, dtype=bool)
        assert len(decide(replace(data, candidate=only), rule).released) == 0
        only[first] = True
        assert decide(replace(data, candidate=only), rule).released.tolist() == [True]


@pytest.mark.parametrize("claim", ["unmeasured", "visits"])
def test_groups_of_nobody_release_nothing_and_say_so(claim: ClaimName) -> None:
    """Every visit lies outside the promise."""
    data = drawn_selection_data(np.random.default_rng(1), cell=np.repeat(np.arange(300) % 2, 4))
    nobody = replace(data, outside={"no evidence": np.ones(1200, dtype=bool)})
    rule = Rule(claim, 0.2)
    decision = decide(nobody, rule)
    assert not decision.released.any()
    assert decision.refused
    assert bound_of(nobody, rule, decision).risky == 0


def test_under_visits_the_bound_speaks_of_the_released_values() -> None:
    """Of many equal risks, ties decide which are released."""
    data = drawn_selection_data(np.random.default_rng(3), 400)
    coarse = replace(data, risk=np.round(data.risk, 1))
    rule = Rule("visits", 0.2)
    decision = decide(coarse, rule)
    bound = bound_of(coarse, rule, decision)
    assert bound.values == decision.released.sum() > 0
    assert bound.risky <= bound.values
