"""Benjamini and Hochberg's step-up procedure."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.selection.p_values import benjamini_hochberg


def literal_step_up(p: list[Fraction], alpha: Fraction) -> list[bool]:
    """Exact arithmetic: the largest k with p_(k) <= k alpha / m, then every p up to p_(k)."""
    m = len(p)
    passing = [k for k in range(1, m + 1) if sorted(p)[k - 1] <= Fraction(k, m) * alpha]
    cut = sorted(p)[passing[-1] - 1] if passing else Fraction(-1)
    return [value <= cut for value in p]


def test_reference_example() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.002, 0.005, 0.03, 0.12, 0.06])
    np.testing.assert_array_equal(np.flatnonzero(benjamini_hochberg(p, 0.05)) + 1, [1, 3, 4, 5, 6])


def test_steps_up_over_a_failing_small_p_value() -> None:
    assert benjamini_hochberg(np.array([0.04, 0.045]), 0.05).all()


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.lists(st.integers(1, n + 1).map(lambda k: Fraction(k, n + 1)), max_size=60)
    ),
    st.sampled_from(["0.05", "0.1", "0.2", "0.3", "0.35", "0.5"]),
)
def test_equals_exact_arithmetic_also_on_the_boundary(p: list[Fraction], alpha: str) -> None:
    released = benjamini_hochberg(np.array([float(value) for value in p]), float(alpha))
    assert released.tolist() == literal_step_up(p, Fraction(alpha))


def test_equality_in_tenths_is_not_lost_to_rounding() -> None:
    # 1/10 <= 1/3 of 3/10 holds with equality, but 0.1 * 3 exceeds 0.3 in floating point.
    np.testing.assert_array_equal(benjamini_hochberg(np.array([1 / 10, 1.0, 1.0]), 0.3), [True, False, False])
