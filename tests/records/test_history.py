import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.records.history import NONE, first_visit, last_visit, next_observed, previous_observed

blocks = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def patients(sizes: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


@given(blocks)
def test_first_and_last_visit_bound_each_patients_block(sizes: list[int]) -> None:
    patient = patients(sizes)
    for row in range(len(patient)):
        own = np.flatnonzero(patient == patient[row])
        assert first_visit(patient)[row] == own[0]
        assert last_visit(patient)[row] == own[-1]


@given(blocks, st.data())
def test_neighbours_in_time_match_a_plain_search(sizes: list[int], data: st.DataObject) -> None:
    patient = patients(sizes)
    observed = np.array(data.draw(st.lists(st.booleans(), min_size=len(patient), max_size=len(patient))))
    for row in range(len(patient)):
        own = np.flatnonzero((patient == patient[row]) & observed)
        earlier, later = own[own < row], own[own > row]
        assert previous_observed(patient, observed)[row] == (earlier[-1] if len(earlier) else NONE)
        assert next_observed(patient, observed)[row] == (later[0] if len(later) else NONE)
