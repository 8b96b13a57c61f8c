"""Rubin's rules against figures worked out by hand and against their limits."""

import numpy as np
import pytest

from safeimpute.draws.pooling import pool
from safeimpute.errors import OptionError


def test_an_example_by_hand() -> None:
    """Estimates 1, 2, 3 with variance 4: within 4, between 1, total 4 + 4/3; old degrees of freedom 2 / (1/4)^2."""
    found = pool([1.0, 2.0, 3.0], [4.0, 4.0, 4.0])
    assert found.estimate == 2.0
    assert found.se == pytest.approx(np.sqrt(16 / 3))
    assert found.df == pytest.approx(2 / 0.25**2)
    assert found.fmi == pytest.approx((1 / 3 + 2 / 35) / (4 / 3))
    assert (found.within, found.between, found.draws) == (4.0, 1.0, 3)
    assert found.upper - found.estimate == pytest.approx(2.036933343460101 * np.sqrt(16 / 3))  # t, 32 df


def test_barnard_and_rubin_never_exceed_the_complete_degrees_of_freedom() -> None:
    small = pool([1.0, 2.0, 3.0], [4.0, 4.0, 4.0], df=10)
    observed = 11 / 13 * 10 * 0.75
    assert small.df == pytest.approx(1 / (1 / 32 + 1 / observed))
    assert pool([1.0, 1.0], [4.0, 4.0], df=10).df <= 10


def test_without_spread_nothing_is_missing() -> None:
    found = pool([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], df=20)
    assert found.fmi == 0
    assert found.se == 1


def test_several_quantities_at_once() -> None:
    both = pool([[1.0, 10.0], [2.0, 10.0], [3.0, 10.0]], np.full((3, 2), 4.0))
    assert both.estimate.tolist() == [2.0, 10.0]
    assert both.se[0] == pool([1.0, 2.0, 3.0], [4.0] * 3).se
    assert both.fmi[1] == 0


@pytest.mark.parametrize(
    ("estimates", "variances", "told", "said"),
    [
        ([1.0], [1.0], {}, "at least two draws"),
        ([1.0, 2.0], [1.0], {}, "one variance per estimate"),
        ([1.0, np.nan], [1.0, 1.0], {}, "not finite"),
        ([1.0, 2.0], [1.0, -1.0], {}, "negative variance"),
        ([1.0, 2.0], [1.0, 1.0], {"df": 0.0}, "df must be positive"),
        ([1.0, 2.0], [1.0, 1.0], {"confidence": 1.0}, "confidence"),
    ],
)
def test_what_cannot_be_pooled_is_refused(
    estimates: list[float], variances: list[float], told: dict[str, float], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        pool(estimates, variances, **told)
