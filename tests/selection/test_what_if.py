"""Other levels, and odds of measuring that are off by a factor: what the same rule would release then."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.ledgers import drawn_selection_data
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.release import decide
from safeimpute.selection.what_if import reaches, released_under_doubt
from safeimpute.settings import PromiseName

RULES = [
    Rule("unmeasured", 0.2),
    Rule("unmeasured", 0.2, "confident"),
    Rule("visits", 0.2),
    Rule("visits", 0.2, "confident"),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("grouped", [False, True])
def test_every_level_releases_what_a_run_at_that_level_would(rule: Rule, grouped: bool) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        cell = np.repeat(rng.integers(0, 3, 400), 4) if grouped else None
        data = drawn_selection_data(rng, 400, cell=cell)
        levels = (0.05, 0.1, 0.2, 0.3, 0.5)
        found = reaches(data, rule, levels)
        decisions = [decide(data, replace(rule, alpha=level)) for level in levels]
        assert [each.released for each in found] == [int(each.released.sum()) for each in decisions]
        assert found[-1].released > 0
        for reach, decision in zip(found, decisions, strict=True):
            named = set(reach.cutoffs)
            open_cells = {
                cell
                for group, each in decision.cutoffs.items()
                if each.risk is not None and not decision.refused
                for cell in ((0,) if decision.merged is None else decision.merged.cells[group])
            }
            assert named == open_cells
            assert 0 <= reach.bound <= reach.released


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.35])
@pytest.mark.parametrize("promise", ["average", "confident"])
def test_no_doubt_is_the_release_and_more_doubt_releases_no_more(alpha: float, promise: PromiseName) -> None:
    rule = Rule("unmeasured", alpha, promise)
    data = drawn_selection_data(np.random.default_rng(1), 400)
    counts = [each.released for each in released_under_doubt(data, rule, (1.0, 1.1, 1.5, 3.0))]
    assert counts[0] == decide(data, rule).released.sum() > 0
    assert counts[-1] < counts[0]
    assert max(counts) == counts[0]
