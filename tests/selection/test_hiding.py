import numpy as np

from safeimpute.learning.roles import Role
from safeimpute.selection.questions import hide_some, roles_with_hidden
from safeimpute.visits.arrays import VisitArrays


def test_the_asked_share_of_measured_values_is_hidden(cohort_arrays: VisitArrays) -> None:
    measured = ~np.isnan(cohort_arrays.target_values)
    for how in ("random", "covariates"):
        hidden = hide_some(cohort_arrays, 0.3, how, np.random.default_rng(0))
        assert not (hidden & ~measured).any()
        assert 0.22 < hidden[measured].mean() < 0.38
        roles = roles_with_hidden(cohort_arrays, hidden, 0)
        assert np.array_equal(roles == Role.TEST, hidden)
        assert np.array_equal(roles == Role.UNMEASURED, ~measured)


def test_covariates_decide_where_they_should(cohort_arrays: VisitArrays) -> None:
    """Some column must differ between hidden and kept visits by more than chance; by lot none does."""
    measured = ~np.isnan(cohort_arrays.target_values)
    table = np.column_stack([cohort_arrays.attributes, cohort_arrays.labs[:, cohort_arrays.other_labs]])

    def largest(hidden: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
        kept, gone = table[measured & ~hidden], table[hidden]
        gap = np.nanmean(gone, axis=0) - np.nanmean(kept, axis=0)
        return float(np.nanmax(np.abs(gap) / np.nanstd(table, axis=0)))

    rngs = [np.random.default_rng(seed) for seed in range(5)]
    by_lot = [largest(hide_some(cohort_arrays, 0.3, "random", rng)) for rng in rngs]
    by_columns = [largest(hide_some(cohort_arrays, 0.3, "covariates", rng)) for rng in rngs]
    assert np.mean(by_columns) > 1.5 * np.mean(by_lot)
