"""One sentence per quantity, from outcomes written by hand."""

import pytest

from safeimpute.evaluation.completions import COMPLETE, DRAWN, FILLED, NOTHING_MISSING, RELEASED
from safeimpute.evaluation.downstream import WayOutcome, advise


def outcome(
    estimate: float,
    off: float,
    covers: float | None = 1.0,
    spoken: float = 1.0,
    behind: tuple[float, float] | None = None,
) -> WayOutcome:
    return {
        "estimate": {"mean": estimate, "se": 0.01},
        "off": {"mean": off, "se": 0.01},
        "lower": estimate - 0.5,
        "upper": estimate + 0.5,
        "covers": covers,
        "width": 1.1,
        "spoken_for": spoken,
        "behind": None if behind is None else {"mean": behind[0], "se": behind[1]},
    }


def test_draws_are_advised_where_they_hold() -> None:
    ways = {NOTHING_MISSING: outcome(7.0, 0.0), COMPLETE: outcome(7.0, 0.0), RELEASED: outcome(6.4, -0.6, 0.0)}
    ways[DRAWN] = outcome(7.02, 0.02)
    said = advise("mean", "estimate", ways)
    assert said.startswith("mean: use draws, pooled (off by +0.02")
    assert "released only is off by -0.6" in said


def test_what_holds_nowhere_is_said() -> None:
    ways = {NOTHING_MISSING: outcome(7.0, 0.0), DRAWN: outcome(8.0, 1.0, 0.0), RELEASED: outcome(9.0, 2.0, 0.0)}
    assert "no way came close" in advise("mean", "estimate", ways)


@pytest.mark.parametrize(("kind", "better"), [("performance", 0.9), ("error", 0.1)])
def test_single_values_are_judged_by_what_they_find(kind: str, better: float) -> None:
    ways = {
        NOTHING_MISSING: outcome(1.0 if kind == "performance" else 0.0, 0.0),
        COMPLETE: outcome(0.5, 0.0, None, 0.6, (0.4, 0.05)),
        FILLED: outcome(better, 0.0, None),
        RELEASED: outcome(0.6, 0.0, None, 0.8, (0.3, 0.05)),
    }
    said = advise("found at or above 8", kind, ways)
    assert f"use {FILLED} ({better:.2f}" in said
    assert "with a value at 80 % of visits" in said


def test_who_says_nothing_raises_no_false_alarm() -> None:
    ways = {NOTHING_MISSING: outcome(0.0, 0.0), COMPLETE: outcome(0.0, 0.0, None, 0.6), FILLED: outcome(0.1, 0.0, None)}
    assert f"use {FILLED}" in advise("false alarms at 8", "error", ways)


def test_a_difference_within_its_error_is_no_advice() -> None:
    ways = {NOTHING_MISSING: outcome(1.0, 0.0), FILLED: outcome(0.7, -0.3, None, 1.0, (0.2, 0.12))}
    ways |= {DRAWN: outcome(0.9, -0.1, None, 1.0, (0.0, 0.0)), RELEASED: outcome(0.6, -0.4, None, 0.8, (0.3, 0.12))}
    said = advise("patients found at or above 8", "performance", ways)
    assert f"use {FILLED} (0.70, 0.30 missed; 1.00" in said, "0.2 is less than two standard errors"
    assert "released only: 0.60" in said
    ways[RELEASED] = outcome(0.6, -0.4, None, 0.8, (0.3, 0.16))
    said = advise("patients found at or above 8", "performance", ways)
    assert "no other way differs by more than its error" in said
    assert "released only" not in said


def test_a_shift_within_its_error_is_not_told_as_one() -> None:
    ways = {NOTHING_MISSING: outcome(7.0, 0.0), DRAWN: outcome(7.0, 0.0), RELEASED: outcome(7.015, 0.015, 0.5)}
    said = advise("mean", "estimate", ways)
    assert "the interval of released only misses too often" in said
    assert "released only is off" not in said
