import numpy as np
import pytest

from safeimpute.errors import OptionError
from safeimpute.tolerance import Tolerance, parse_tolerance


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.5, Tolerance(absolute=0.5)),
        ("0.5", Tolerance(absolute=0.5)),
        ("20%", Tolerance(share=0.2)),
        ("20 %", Tolerance(share=0.2)),
        ("10% or 6", Tolerance(share=0.1, absolute=6.0)),
    ],
)
def test_the_three_forms(given: float | str, expected: Tolerance) -> None:
    assert parse_tolerance(given) == expected


@pytest.mark.parametrize("given", [0, "0", "0%", -1, "-5%", "five", "", "nan", "inf", "5 % of it", "1 2"])
def test_what_is_no_tolerance(given: float | str) -> None:
    with pytest.raises(OptionError, match="tolerance"):
        parse_tolerance(given)


def test_an_error_that_reaches_the_tolerance_is_risky() -> None:
    truth = np.array([6.1, 6.1, 100.0, 100.0, 10.0, np.nan])
    value = np.array([6.6, 6.59, 110.0, 109.9, 15.0, 6.0])
    assert parse_tolerance(0.5).risky(value, truth)[:2].tolist() == [True, False]
    assert parse_tolerance("10%").risky(value, truth)[2:4].tolist() == [True, False]
    assert parse_tolerance("10% or 6").risky(value, truth)[2:].tolist() == [True, False, False, False]


@pytest.mark.parametrize("given", [0.5, "20%", "10% or 6", "30% or 0.1"])
@pytest.mark.parametrize("value", [0.4, 6.1, 55.0, 300.0, -12.0])
def test_the_acceptable_true_values_are_those_that_are_not_risky(given: float | str, value: float) -> None:
    """Just inside the band the value is acceptable, just outside it is risky."""
    tolerance = parse_tolerance(given)
    low, high = tolerance.acceptable_truth(value)
    step = 1e-6 * max(1.0, abs(value))
    truth = np.array([low - step, low + step, value, high - step, high + step])
    assert tolerance.risky(np.full(5, value), truth).tolist() == [True, False, False, False, True]


def test_a_share_of_all_accepts_every_larger_truth() -> None:
    assert parse_tolerance("100%").acceptable_truth(5.0)[1] == np.inf


def test_of_a_result_between_limits_the_worst_value_counts() -> None:
    known, value = Tolerance(1.0), np.array([4.5, 0.4, 6.0, 5.0, 7.0])
    limits = np.array([[0.0, 5.0], [0.0, 0.5], [6.5, np.inf], [np.nan, np.nan], [6.5, 7.5]])
    truth = known.farthest_truth(value, np.array([np.nan, np.nan, np.nan, 4.2, np.nan]), limits)
    assert truth.tolist()[:2] == [0.0, 0.0]
    assert truth[3] == 4.2
    assert known.risky(value, truth).tolist() == [True, False, True, False, False]
    assert Tolerance(share=0.2).risky(value, Tolerance(share=0.2).farthest_truth(value, value, limits))[:3].all()
