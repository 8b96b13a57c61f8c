import itertools
import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeimpute.errors import GuaranteeRefused
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.p_values import Scores, conformal_p_values
from safeimpute.selection.weighted import (
    effective_sample_size,
    prune,
    require_effective_sample_size,
    weighted_selection,
)


def bh_size(p, alpha):
    ordered, m = sorted(p), len(p)
    return max((k for k in range(1, m + 1) if ordered[k - 1] <= alpha * k / m), default=0)


def literal_selection(v, own, calibration_v, bad, weight, alpha, xi):
    """The procedure as written, one candidate at a time, in exact arithmetic; v are (risk, tie) pairs."""
    m, total = len(v), sum(weight)
    below = [
        sum(w for c, b, w in zip(calibration_v, bad, weight, strict=True) if b and c < v[j]) for j in range(m)
    ]
    sizes, selected = [], []
    for j in range(m):
        p_j = [
            Fraction(0) if k == j else (below[k] + (own[j] if v[j] < v[k] else 0)) / Fraction(total + own[j])
            for k in range(m)
        ]
        sizes.append(bh_size(p_j, alpha))
        selected.append((own[j] + below[j]) / Fraction(total + own[j]) <= alpha * sizes[j] / m)
    scaled = [xi * size for size in sizes]
    r_star = max(
        (r for r in range(m + 1) if sum(s and x <= r for s, x in zip(selected, scaled, strict=True)) >= r),
        default=0,
    )
    return [s and x <= r_star for s, x in zip(selected, scaled, strict=True)]


@st.composite
def batches(draw):
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 14))
    weights = draw(st.sampled_from([st.just(1), st.integers(1, 5), st.sampled_from([1, 10, 1000, 10**6])]))
    risk, tie = (
        st.integers(0, draw(st.sampled_from([1, 3, 50]))),
        st.integers(0, draw(st.sampled_from([0, 1, 1000]))),
    )
    pair = st.tuples(risk, tie)
    badness = draw(st.sampled_from([st.booleans(), st.just(True), st.just(False)]))
    return (
        draw(st.lists(pair, min_size=m, max_size=m)),
        draw(st.lists(weights, min_size=m, max_size=m)),
        draw(st.lists(pair, min_size=n, max_size=n)),
        draw(st.lists(badness, min_size=n, max_size=n)),
        draw(st.lists(weights, min_size=n, max_size=n)),
        Fraction(draw(st.sampled_from(["0.1", "0.2", "0.35", "0.5", "0.8"]))),
        Fraction(draw(st.integers(1, 16)), 16),
    )


def as_scores(pairs):
    return Scores(np.array([p[0] for p in pairs], float), np.array([p[1] for p in pairs], float))


@settings(max_examples=400, deadline=None)
@given(batches())
def test_equals_the_literal_procedure_in_exact_arithmetic(batch):
    v, own, calibration_v, bad, weight, alpha, xi = batch
    fast = weighted_selection(
        as_scores(v), as_scores(calibration_v), np.array(bad), np.array(own, float), np.array(weight, float),
        float(alpha), float(xi),
    )  # fmt: skip
    assert fast.tolist() == literal_selection(v, own, calibration_v, bad, weight, alpha, xi)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0.05, 0.1, 0.2, 0.35]), st.floats(0.01, 1.0))
def test_equal_weights_reduce_to_plain_bh(seed, alpha, weight):
    rng = np.random.default_rng(seed)
    n, m = 80, 60
    candidate = Scores(rng.integers(0, 9, m).astype(float), rng.random(m))
    calibration = Scores(rng.integers(0, 9, n).astype(float), rng.random(n))
    bad = rng.random(n) < calibration.risk / 12
    released = weighted_selection(
        candidate, calibration, bad, np.full(m, weight), np.full(n, weight), alpha, rng.random()
    )
    np.testing.assert_array_equal(
        released, benjamini_hochberg(conformal_p_values(candidate, calibration, bad), alpha)
    )


def test_equality_in_tenths_is_not_lost_to_rounding():
    # p = (1/10, 1, 1) at alpha 0.3: the first passes with equality, 1/10 <= 0.3 / 3.
    candidate = Scores(np.array([0.0, 2.0, 3.0]), np.zeros(3))
    calibration = Scores(np.ones(9), np.linspace(0, 0.9, 9))
    released = weighted_selection(candidate, calibration, np.ones(9, bool), np.ones(3), np.ones(9), 0.3, 0.5)
    assert released.tolist() == [True, False, False]


def exact_fdr(v, bad, odds, weight, alpha, xis):
    """Over every measuring outcome of fixed visits, weighted by its chance: FDR and chance of a release."""
    fdr = released = 0.0
    for pattern in itertools.product([False, True], repeat=len(v)):
        seen = np.array(pattern)
        chance = np.prod(np.where(seen, 1, odds) / (1 + odds))
        candidate, calibration = (Scores(v[k], v[k]) for k in (~seen, seen))
        for xi in xis:
            got = weighted_selection(
                candidate, calibration, bad[seen], weight[~seen], weight[seen], alpha, xi
            )
            fdr += chance / len(xis) * (got & bad[~seen]).sum() / max(got.sum(), 1)
            released += chance / len(xis) * got.any()
    return fdr, released


@pytest.mark.parametrize("seed", range(4))
def test_false_discovery_rate_is_below_alpha_exactly_over_every_way_of_measuring(seed):
    rng = np.random.default_rng(seed)
    v, bad, odds = rng.standard_normal(8), rng.random(8) < 0.6, rng.choice([0.25, 0.5, 1.0, 2.0], 8)
    fdr, released = exact_fdr(v, bad, odds, odds, 0.5, (np.arange(16) + 0.5) / 16)
    assert fdr <= 0.5 + 1e-9
    assert released > 0.1


def test_without_weights_the_rate_exceeds_alpha_where_bad_visits_are_rarely_measured():
    v, bad = np.arange(8.0), np.arange(8) % 2 == 0
    odds = np.where(bad, 4.0, 0.5)
    xis = (np.arange(16) + 0.5) / 16
    assert exact_fdr(v, bad, odds, np.ones(8), 0.4, xis[:1])[0] > 0.45
    fdr, released = exact_fdr(v, bad, odds, odds, 0.4, xis)
    assert fdr <= 0.4 + 1e-9
    assert released > 0.02


def test_pruning_keeps_r_star_candidates():
    sizes, selected = np.array([4.0, 4.0, 4.0, 1.0, 1.0]), np.array([True, True, True, False, True])
    np.testing.assert_array_equal(prune(sizes, selected, 1.0), selected)
    np.testing.assert_array_equal(prune(np.array([4.0, 4.0, 3.0]), np.ones(3, bool), 1.0), [False] * 3)
    np.testing.assert_array_equal(prune(np.array([4.0, 4.0, 3.0]), np.ones(3, bool), 0.75), [True] * 3)


def test_twenty_thousand_candidates_in_a_second_without_quadratic_memory():
    rng = np.random.default_rng(9)
    n, m = 5_000, 20_000
    candidate, calibration = (Scores(rng.standard_normal(k), rng.random(k)) for k in (m, n))
    bad = rng.random(n) < 1 / (1 + np.exp(-2 * calibration.risk))
    own, weight = rng.gamma(2.0, size=m), rng.gamma(2.0, size=n)
    tracemalloc.start()
    began = time.perf_counter()
    released = weighted_selection(candidate, calibration, bad, own, weight, 0.2, 0.5)
    seconds = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1_000 < released.sum() < m
    assert seconds < 2.0
    assert peak < 50 * 2**20


def test_effective_sample_size():
    assert effective_sample_size(np.full(40, 3.0)) == pytest.approx(40)
    assert effective_sample_size(np.array([1.0, 0.0])) == pytest.approx(1)
    assert effective_sample_size(np.zeros(0)) == 0.0


def test_uneven_weights_are_refused():
    require_effective_sample_size(np.ones(30), 0.2)
    with pytest.raises(GuaranteeRefused, match="worth 29 equally weighted visits"):
        require_effective_sample_size(np.ones(29), 0.2)
    with pytest.raises(GuaranteeRefused, match="needs 60"):
        require_effective_sample_size(np.ones(59), 0.05)
    with pytest.raises(GuaranteeRefused):
        require_effective_sample_size(np.r_[np.ones(500), 1e4], 0.2)
