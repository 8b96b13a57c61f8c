"""Where a release is empty: the nearest level and the nearest tolerance that would have let something through.

Read from the grid of the page's sliders, so nothing is computed twice; like the sliders it is exploration, no promise.
"""

from collections.abc import Sequence
from typing import TypedDict

from safeimpute.evaluation.run_summary import SliderGrid


class NextStep(TypedDict):
    """One setting that would release something."""

    fdr: float
    tolerance: str  # as a user would type it
    tolerance_in_words: str
    changes: str  # "level", "tolerance", or "both"
    released: int
    risky: float  # share of unacceptable errors among measured visits up to the cut-off, weighted


def next_steps(grid: SliderGrid) -> list[NextStep]:
    """The nearest higher level, the nearest wider tolerance; where neither helps alone, the nearest of both."""
    level, tolerance = grid["chosen_level"], grid["chosen_tolerance"]
    if grid["tolerances"][tolerance]["released"][level]:
        return []
    levels, wider = range(level + 1, len(grid["levels"])), range(tolerance + 1, len(grid["tolerances"]))
    found = [
        *_first(grid, [(each, tolerance) for each in levels], "level"),
        *_first(grid, [(level, each) for each in wider], "tolerance"),
    ]
    return found or _first(grid, sorted(((a, b) for a in levels for b in wider), key=sum), "both")


def _first(grid: SliderGrid, places: Sequence[tuple[int, int]], changes: str) -> list[NextStep]:
    """The first of some places of the grid that releases something."""
    for level, place in places:
        setting = grid["tolerances"][place]
        if setting["released"][level]:
            return [
                {
                    "fdr": grid["levels"][level],
                    "tolerance": setting["tolerance"],
                    "tolerance_in_words": setting["words"],
                    "changes": changes,
                    "released": setting["released"][level],
                    "risky": setting["risky"][level],
                }
            ]
    return []
