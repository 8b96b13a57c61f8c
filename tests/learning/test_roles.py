import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.learning.roles import Role, hide, split_visits
from safeimpute.visits.arrays import VisitArrays, uniform_per_visit


@given(st.integers(30, 400), st.floats(0, 0.6), st.integers(0, 2**32 - 1))
def test_shares_and_no_overlap(measured: int, test_fraction: float, seed: int) -> None:
    observed = np.r_[np.ones(measured, bool), np.zeros(17, bool)]
    roles = split_visits(observed, np.random.default_rng(seed), test_fraction=test_fraction)
    counts = {role: int(np.sum(roles == role)) for role in Role}
    assert counts[Role.UNMEASURED] == 17
    assert np.all(roles[~observed] == Role.UNMEASURED)
    assert counts[Role.TEST] == round(test_fraction * measured)
    rest = measured - counts[Role.TEST]
    assert counts[Role.CALIBRATION] == counts[Role.VALIDATION] == round(0.15 * rest)


def test_every_visit_is_as_likely_in_calibration_as_in_test() -> None:
    observed = np.ones(50, bool)
    draws = np.array([split_visits(observed, np.random.default_rng(seed), test_fraction=0.2) for seed in range(2000)])
    for role, share in ((Role.TEST, 0.2), (Role.CALIBRATION, 0.12)):
        rate = (draws == role).mean(axis=0)
        assert np.abs(rate - share).max() < 4.5 * np.sqrt(share * (1 - share) / 2000)


def test_a_task_holds_no_calibration_or_test_target(cohort_arrays: VisitArrays) -> None:
    roles = split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(1), test_fraction=0.2)
    task = hide(cohort_arrays, roles)
    np.testing.assert_array_equal(task.training, roles == Role.TRAINING)
    np.testing.assert_array_equal(task.validation, roles == Role.VALIDATION)


def test_hashed_uniforms_are_uniform_and_follow_the_visit() -> None:
    keys = np.random.default_rng(0).integers(0, 2**63, 20_000).astype(np.uint64)
    draws = uniform_per_visit(keys, seed=3)
    assert abs(draws.mean() - 0.5) < 4 / np.sqrt(12 * 20_000)
    order = np.random.default_rng(1).permutation(20_000)
    np.testing.assert_array_equal(uniform_per_visit(keys[order], seed=3), draws[order])
    for other in (uniform_per_visit(keys, seed=4), uniform_per_visit(keys, seed=3, stream=1)):
        assert abs(np.corrcoef(draws, other)[0, 1]) < 4 / np.sqrt(20_000)
