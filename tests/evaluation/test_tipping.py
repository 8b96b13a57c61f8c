"""Where a conclusion turns: against a shift worked out by hand."""

import numpy as np
import pytest

from safeimpute.evaluation.drawn_run import OPEN, Drawn, tipping_points


@pytest.fixture
def drawn() -> Drawn:
    """200 patients, half measured around 5, half drawn around 5."""
    rng = np.random.default_rng(0)
    values = np.repeat(rng.normal(5.0, 1.0, 200)[:, None], 4, axis=1)
    candidates = np.arange(100, 200)
    values[candidates] = rng.normal(5.0, 1.0, (100, 4))
    return Drawn(values, candidates, np.arange(200), 0.0, 20.0)


def test_the_mean_turns_where_its_interval_meets_the_limit(drawn: Drawn) -> None:
    mean, share = tipping_points(drawn, [-2, -1, 1, 2], " %", limit=5.5)
    rows = {row["delta"]: row for row in mean["rows"]}
    assert list(rows) == [-2, -1, 0, 1, 2]
    assert rows[1]["estimate"] - rows[0]["estimate"] == pytest.approx(0.5), "half of the values move"
    assert rows[0]["conclusion"] == "below 5.5"
    assert rows[2]["conclusion"] == "above 5.5"
    assert mean["turns_below"] is None
    assert mean["turns_above"] is not None
    assert 0 < mean["turns_above"] < 1
    meets = rows[0]["upper"] + mean["turns_above"] * (rows[1]["upper"] - rows[0]["upper"])
    assert meets == pytest.approx(5.5)
    assert "That turns where unmeasured values are" in mean["words"]
    assert "higher than drawn" in mean["words"]
    assert share["reference"] is None
    assert {row["conclusion"] for row in share["rows"]} == {""}


def test_an_association_may_turn(drawn: Drawn) -> None:
    group = (np.arange(200) >= 100).astype(float)
    *_, slope = tipping_points(drawn, [-1.0, 1.0], "", regressor=group, regressor_name="group")
    said = {row["delta"]: row["conclusion"] for row in slope["rows"]}
    assert said == {-1.0: "negative", 0.0: OPEN, 1.0: "positive"}
    assert "would be settled" in slope["words"]


def test_shifted_values_stay_possible(drawn: Drawn) -> None:
    assert drawn.shifted(-50.0)[drawn.candidates].min() == 0.0
    assert np.array_equal(drawn.shifted(-50.0)[:100], drawn.values[:100]), "measured values never move"
