import numpy as np
import pytest

from safeimpute.errors import OptionError
from safeimpute.settings import make_settings
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute.visits.lab_settings import settings_of_one, tolerances_of


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


@pytest.mark.parametrize("given", [0, "0", "0%", -1, "-5%", "five", "", "nan", "inf", "5 % of it", "1 2", "9" * 41])
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


def test_limits_and_their_bands() -> None:
    tolerance = parse_tolerance("limits 5.7 6.5")
    assert tolerance == Tolerance(limits=(5.7, 6.5))
    assert tolerance.bands == ("below 5.7", "5.7 to below 6.5", "6.5 or more")
    assert tolerance.band(np.array([5.6, 5.7, 6.4, 6.5, 5.6 + 0.1])).tolist() == [0, 1, 1, 2, 1]
    assert tolerance.fault("%") == "on the wrong side of a limit (5.7, 6.5 %)"


def test_risky_is_another_band_and_with_an_error_either() -> None:
    truth = np.array([6.4, 6.6, 6.6, np.nan, 9.0])
    value = np.array([6.5, 6.5, 5.6, 6.0, 7.0])
    assert parse_tolerance("limits 5.7 6.5").risky(value, truth).tolist() == [True, False, True, False, False]
    assert parse_tolerance("0.5 and limits 5.7 6.5").risky(value, truth).tolist() == [True, False, True, False, True]


@pytest.mark.parametrize("given", ["limits 5.7 6.5", "0.5 and limits 5.7 6.5", "10% or 0.2 and limits 5.7 6.5"])
@pytest.mark.parametrize("value", [4.0, 6.1, 6.4, 12.0])
def test_the_acceptable_true_values_stay_in_the_band(given: str, value: float) -> None:
    tolerance = parse_tolerance(given)
    low, high = tolerance.acceptable_truth(value)
    inside = np.linspace(max(low, 0.0), min(high, 30.0), 50)[1:-1]
    assert not tolerance.risky(np.full(48, value), inside).any()
    for edge in (low - 1e-6, high + 1e-6):
        assert not np.isfinite(edge) or tolerance.risky(np.array([value]), np.array([edge]))[0]


@pytest.mark.parametrize(
    "given",
    ["limits 5 4", "limits 5 5", "limits a", "limits nan", "limits inf", "limits " + " ".join(map(str, range(1, 12)))],
)
def test_what_are_no_limits(given: str) -> None:
    with pytest.raises(OptionError, match="limits"):
        parse_tolerance(given)


def test_what_is_typed_is_read_again() -> None:
    for given in ("limits 5.7 6.5", "0.5 and limits 5.7 6.5", "10% or 6", "20%", "0.5"):
        assert parse_tolerance(parse_tolerance(given).typed()) == parse_tolerance(given)
        assert parse_tolerance(parse_tolerance(given).times(2.0).typed()).limits == parse_tolerance(given).limits


def test_a_chance_of_crossing_falls_with_the_distance() -> None:
    tolerance = parse_tolerance("limits 6.5")
    chance = tolerance.chance(np.array([6.5, 6.7, 7.5]), np.full(3, 0.4))
    assert chance[0] > chance[1] > chance[2] > 0
    assert chance[0] <= 0.5 + 1e-9
    combined = parse_tolerance("0.5 and limits 6.5").chance(np.array([6.5, 6.7, 7.5]), np.full(3, 0.4))
    assert (combined >= chance).all()


def test_limits_given_beside_the_tolerance() -> None:
    told = make_settings(target="hba1c", fdr=0.1, limits="5.7,6.5")
    assert told.tolerance == "limits 5.7 6.5"
    assert make_settings(target="hba1c", fdr=0.1, tolerance="0.5 and limits", limits=(6.5,)).allowed_error == Tolerance(
        0.5, 0.0, (6.5,)
    )
    with pytest.raises(OptionError, match="does not speak of them"):
        make_settings(target="hba1c", fdr=0.1, tolerance=0.5, limits=(6.5,))


def test_limits_are_looked_up_by_lab_and_unit() -> None:
    one = make_settings(target="hba1c", fdr=0.1, tolerance="0.5 and limits")
    assert settings_of_one(one).tolerance == "0.5 and limits 5.7 6.5 8"
    several = make_settings(target="hba1c,ldl", fdr=0.1, tolerance="limits,ldl=10%")
    assert tolerances_of(several, ("hba1c", "ldl")) == {"hba1c": "limits 5.7 6.5 8", "ldl": "10%"}
    for told in ({"target": "ast"}, {"target": "hba1c", "unit": "mmol/mol"}):
        with pytest.raises(OptionError, match="--limits"):
            settings_of_one(make_settings(**told, fdr=0.1, tolerance="limits"))


def test_classes_are_bands_half_way_between_levels() -> None:
    tolerance = parse_tolerance("class 0<0.5<1")
    assert tolerance == Tolerance(limits=(0.25, 0.75), levels=(0.0, 0.5, 1.0))
    assert tolerance.bands == ("0", "0.5", "1")
    assert tolerance.settled(np.array([-3.0, 0.3, 0.9, 7.0])).tolist() == [0.0, 0.5, 1.0, 1.0]
    assert np.isnan(tolerance.settled(np.array([np.nan]))).all()
    assert tolerance.risky(np.array([0.0, 0.5]), np.array([0.0, 1.0])).tolist() == [False, True]
    assert parse_tolerance(tolerance.typed()) == tolerance
    assert Tolerance.from_state(tolerance.state()) == tolerance


@pytest.mark.parametrize(
    "given", ["class", "class 0", "class 1<0", "class no<1", "class 0<0", "class 0<inf", "class red green blue"]
)
def test_what_are_no_classes(given: str) -> None:
    with pytest.raises(OptionError, match="class"):
        parse_tolerance(given)


@pytest.mark.parametrize(
    "given", ["limits 5.7 6.5", "0.5 and limits 5.7 6.5", "limits 5.7 6.5 cost 0 1 2; 3 0 1; 9 4 0"]
)
def test_a_limit_hides_at_most_its_dearest_band(given: str) -> None:
    tolerance = parse_tolerance(given)
    value = np.repeat(np.linspace(4.0, 9.0, 26), 3)
    limits = np.tile([[5.0, 6.0], [-np.inf, 5.5], [6.0, np.inf]], (26, 1))
    found = tolerance.largest_loss(value, np.full(len(value), np.nan), limits)
    inside = np.stack(
        [
            np.clip(limits[:, 0], 0, 20) + k / 400 * (np.clip(limits[:, 1], 0, 20) - np.clip(limits[:, 0], 0, 20))
            for k in range(401)
        ]
    )
    tried = np.max([tolerance.loss(value, each) for each in inside], axis=0)
    assert np.array_equal(found, tried)
