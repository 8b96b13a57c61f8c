import numpy as np
import pytest

from helpers.ledgers import drawn_selection_data
from safeimpute.errors import OptionError
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.release import decide, entries_of
from safeimpute.selection.several import (
    as_part_of_several,
    bound_together,
    decide_together,
    join_selection_data,
    promise_of_several,
)
from safeimpute.settings import make_settings

RULE = Rule("unmeasured", 0.2)


def test_one_lab_together_is_that_lab_alone() -> None:
    data = drawn_selection_data(np.random.default_rng(0))
    together, alone = decide_together({"a": data}, RULE)["a"], decide(data, RULE)
    assert np.array_equal(together.released, alone.released)
    assert np.array_equal(together.reason, alone.reason)
    assert together.cutoffs == alone.cutoffs


def test_all_labs_are_released_up_to_one_risk() -> None:
    data_by_lab = {name: drawn_selection_data(np.random.default_rng(seed)) for seed, name in enumerate("abc")}
    found = decide_together(data_by_lab, RULE)
    limits = {each.cutoffs[0].risk for each in found.values()}
    assert len(limits) == 1
    limit = limits.pop()
    assert limit is not None
    for name, data in data_by_lab.items():
        assert np.array_equal(found[name].released, data.risk[data.candidate] <= limit)


def test_a_patient_is_one_patient_in_every_lab() -> None:
    data_by_lab = [drawn_selection_data(np.random.default_rng(seed), patients=50) for seed in range(3)]
    joined = entries_of(join_selection_data(data_by_lab))
    assert len(np.unique(joined.patient)) <= 50
    assert len(joined.risk) == sum(len(entries_of(each).risk) for each in data_by_lab)
    sums = sum(np.bincount(e.patient, e.weight, minlength=50) for e in map(entries_of, data_by_lab))
    assert np.allclose(np.bincount(joined.patient, joined.weight, minlength=50), sums)


def test_reasons_of_one_lab_stay_with_it() -> None:
    rng = np.random.default_rng(4)
    plain = drawn_selection_data(rng)
    barred = drawn_selection_data(rng, outside={"no evidence": np.ones(1200, dtype=bool)})
    found = decide_together({"a": plain, "b": barred}, RULE)
    assert not found["b"].released.any()
    assert set(found["b"].reason) == {"no evidence"}
    assert found["a"].released.any()
    assert np.array_equal(found["a"].released, decide(plain, RULE).released)


def test_too_little_for_the_level_is_refused_as_a_whole() -> None:
    data_by_lab = {
        name: drawn_selection_data(np.random.default_rng(seed), patients=4) for seed, name in enumerate("ab")
    }
    found = decide_together(data_by_lab, Rule("unmeasured", 0.05))
    assert all(each.refused and not each.released.any() for each in found.values())


def test_the_bound_of_all_labs_counts_every_lab() -> None:
    data_by_lab = {name: drawn_selection_data(np.random.default_rng(seed)) for seed, name in enumerate("ab")}
    decisions = {name: decide(data, RULE) for name, data in data_by_lab.items()}
    bound = bound_together(data_by_lab, RULE, decisions)
    cells = decide_together(data_by_lab, RULE)
    whole = bound_together(data_by_lab, RULE, cells, "cells")
    assert whole.values == sum(int(each.released.sum()) for each in cells.values())
    assert whole.risky / whole.values < bound.risky / bound.values, "one release needs no divided doubt"
    assert bound.values == sum(int(each.released.sum()) for each in decisions.values())
    assert 0.2 * bound.values < bound.risky < bound.values
    assert bound.confidence == RULE.confidence


@pytest.mark.parametrize(("over", "said"), [("labs", "each of 2 labs"), ("cells", "Over all 2 labs together")])
def test_the_promise_says_over_what_the_level_holds(over: str, said: str) -> None:
    settings = make_settings(target="a,b", tolerance="10%", fdr=0.2, over=over)
    promised = promise_of_several(settings, {"a": "10 %", "b": "5 mg/dL"}, ("age",))
    assert said in promised.promise
    assert "b 5 mg/dL" in promised.promise
    assert "20 %" in promised.promise
    assert ("single lab may exceed" in promised.limits) == (over == "cells")
    part = as_part_of_several(promised, settings)
    assert (part == promised) == (over == "labs")


def test_what_cannot_be_promised_over_cells_is_refused() -> None:
    with pytest.raises(OptionError, match="visits"):
        make_settings(target="a,b", tolerance="10%", fdr=0.2, over="cells", claim="visits")
    with pytest.raises(OptionError, match="groups"):
        make_settings(target="a,b", tolerance="10%", fdr=0.2, over="cells", groups="value")
