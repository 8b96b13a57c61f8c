"""The nearest setting that would release something, read from the sliders' grid."""

from typing import cast

import pytest

from safeimpute.evaluation.next_step import next_steps
from safeimpute.evaluation.run_summary import SliderGrid


def _grid(released: list[list[int]]) -> SliderGrid:
    """Tolerances by levels; the run's own are the second of each."""
    return cast(
        "SliderGrid",
        {
            "levels": [0.1, 0.2, 0.3, 0.4],
            "chosen_level": 1,
            "chosen_tolerance": 1,
            "tolerances": [
                {
                    "tolerance": f"{10 * place}%",
                    "words": f"{10 * place} %",
                    "released": counts,
                    "risky": [0.05] * 4,
                }
                for place, counts in enumerate(released, start=1)
            ],
        },
    )


@pytest.mark.parametrize(
    ("released", "expected"),
    [
        ([[0] * 4, [0, 5, 6, 7], [9] * 4], []),
        ([[0] * 4, [0, 0, 0, 7], [0, 9, 9, 9]], [("level", 0.4, "20%", 7), ("tolerance", 0.2, "30%", 9)]),
        ([[0] * 4, [0, 0, 6, 7], [0, 0, 8, 9]], [("level", 0.3, "20%", 6)]),
        ([[0] * 4, [0] * 4, [0, 0, 0, 9]], [("both", 0.4, "30%", 9)]),
        ([[3] * 4, [0] * 4, [0] * 4], []),
    ],
)
def test_the_nearest_setting_is_named(released: list[list[int]], expected: list[tuple[object, ...]]) -> None:
    found = next_steps(_grid(released))
    assert [(s["changes"], s["fdr"], s["tolerance"], s["released"]) for s in found] == expected
