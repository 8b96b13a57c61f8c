"""Ways to go on with missing values, on made-up estimates: what each leaves, and the weights of the released."""

import numpy as np
import pytest

from safeimpute.evaluation.completions import (
    CARRIED,
    COMPLETE,
    DRAWN,
    FILLED,
    MOST_WEIGHT,
    RELEASED,
    WAYS,
    WEIGHTED,
    Completed,
    Estimated,
    complete,
    interval_of,
    mean_of,
    release_weights,
)
from safeimpute.learning.protocol import Estimates
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.groups import Grouping
from safeimpute.selection.questions import question_for
from safeimpute.settings import make_settings
from safeimpute.visits.arrays import VisitArrays

SETTINGS = make_settings(target="hba1c", tolerance=0.5, fdr=0.2)


def made(visits: VisitArrays) -> tuple[Calibrated, dict[str, Completed]]:
    """Imputed at 1 where nobody measured; every other candidate released; draws of 2 and 3."""
    question, n = question_for(visits, SETTINGS), len(visits)
    estimates = Estimates(np.ones(n), np.zeros(n), np.ones(n), np.zeros(n, dtype=bool))
    calibrated = Calibrated(question, visits.target_values, estimates, np.ones(n), {}, Grouping((), False))
    rows = calibrated.candidates
    drawn = np.column_stack([np.full(len(rows), 2.0), np.full(len(rows), 3.0)])
    ways = complete(calibrated, np.arange(len(rows)) % 2 == 0, drawn, SETTINGS, np.random.default_rng(0))
    return calibrated, {way.way: way for way in ways}


def test_what_each_way_leaves(cohort_arrays: VisitArrays) -> None:
    calibrated, ways = made(cohort_arrays)
    measured, rows = ~np.isnan(cohort_arrays.target_values), calibrated.candidates
    assert tuple(ways) == WAYS
    assert np.array_equal(ways[COMPLETE].available, measured)
    assert ways[FILLED].values[rows, 0].tolist() == [1.0] * len(rows)
    assert ways[DRAWN].values[rows].tolist() == [[2.0, 3.0]] * len(rows)
    assert np.isfinite(ways[RELEASED].values[rows, 0]).tolist() == [k % 2 == 0 for k in range(len(rows))]
    assert ways[CARRIED].available.all()
    for way in ways.values():
        assert np.array_equal(way.values[measured, 0], cohort_arrays.target_values[measured]), way.way
    assert ways[WEIGHTED].weight.max() <= MOST_WEIGHT
    assert ways[WEIGHTED].weight.min() >= 1


def test_inverse_release_weights_mend_what_the_table_shows(cohort_arrays: VisitArrays) -> None:
    """Values kept by age alone: weighted, the kept are as old as all."""
    age = cohort_arrays.attributes[:, cohort_arrays.attribute_names.index("age")]
    rng = np.random.default_rng(1)
    kept = rng.random(len(age)) < 1 / (1 + np.exp(-(age - age.mean()) / age.std()))
    weight = release_weights(cohort_arrays, kept, SETTINGS, rng)
    plain, mended = age[kept].mean() - age.mean(), np.average(age[kept], weights=weight[kept]) - age.mean()
    assert plain > 0.3 * age.std()
    assert abs(mended) < 0.25 * plain
    nothing_missing = np.ones(len(age), dtype=bool)
    assert release_weights(cohort_arrays, nothing_missing, SETTINGS, rng).tolist() == [1.0] * len(age)


def test_draws_are_pooled_and_one_table_is_not() -> None:
    one, two = Estimated(1.0, 0.04, 50), Estimated(1.4, 0.04, 50)
    single, both = interval_of([one]), interval_of([one, two])
    assert single.missing_information is None
    assert single.upper - single.estimate == pytest.approx(2.0095752 * 0.2)  # t, 49 degrees of freedom
    assert both.estimate == pytest.approx(1.2)
    assert both.width > single.width
    assert both.covers(1.2)
    assert not both.covers(99.0)


def test_a_table_of_one_patient_gives_an_endless_interval() -> None:
    assert interval_of([mean_of(np.ones(3), np.zeros(3, dtype=np.int64))]).width == np.inf
