"""The nearest setting that would have released, where nothing was."""

import numpy as np

from safeimpute.selection.release import Decision
from safeimpute.selection.result import next_step
from safeimpute.selection.what_if import AtTolerance, Reach
from safeimpute.settings import make_settings
from safeimpute.tolerance import parse_tolerance

SETTINGS = make_settings(target="a", tolerance=0.5, fdr=0.1)


def _decision(released: int, refused: str = "") -> Decision:
    there, nowhere = np.arange(40) < released, np.full(40, np.nan)
    return Decision(there, np.full(40, ""), nowhere, nowhere, {}, refused)


def _at(tolerance: str, *released: int) -> AtTolerance:
    levels = (0.05, 0.1, 0.2, 0.3)
    reaches = tuple(Reach(level, {}, n, n) for level, n in zip(levels, released, strict=True))
    return AtTolerance(parse_tolerance(tolerance), tolerance, reaches)


def test_the_nearest_level_and_tolerance_are_named_and_labelled() -> None:
    elsewhere = (_at("0.25", 0, 0, 0, 0), _at("0.5", 0, 0, 7, 30), _at("0.6", 0, 0, 9, 9), _at("0.75", 0, 4, 9, 9))
    said = next_step(SETTINGS, _decision(0), elsewhere, "advice")
    assert "a level of 0.2 would have released 7; a tolerance of 0.75 would have released 4" in said
    assert "so not promised" in said
    assert "advice" not in said


def test_nothing_is_said_where_something_was_released() -> None:
    assert next_step(SETTINGS, _decision(1), (_at("0.5", 0, 1, 7, 30),), "advice") == ""


def test_where_nothing_would_have_released_advice_is_given() -> None:
    elsewhere = (_at("0.5", 0, 0, 0, 0), _at("1", 0, 0, 3, 3))
    said = next_step(SETTINGS, _decision(0, "too few"), elsewhere, "Give more patients.")
    assert said.startswith("None of the 40 missing values was released (too few).")
    assert said.endswith("No level up to 0.3 and no tolerance up to twice this one would have. Give more patients.")
