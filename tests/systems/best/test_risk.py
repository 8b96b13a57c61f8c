import json

import numpy as np
import pytest

from safeimpute.records.arrays import FloatArray, VisitArrays
from safeimpute.splits.roles import Role, Roles, Task, hide, split_visits
from safeimpute.systems.best.evidence import Evidence, EvidenceSettings, fit_evidence, read_evidence
from safeimpute.systems.best.risk import (
    FittedRisk,
    RiskGround,
    SpreadModel,
    cross_fit,
    fit_risk,
    prepare_risk,
)
from safeimpute.systems.protocol import Imputation
from safeimpute.tolerance import Tolerance


@pytest.fixture(scope="module")
def roles(cohort_arrays: VisitArrays) -> Roles:
    return split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(0), test_fraction=0.3)


@pytest.fixture(scope="module")
def task(cohort_arrays: VisitArrays, roles: Roles) -> Task:
    return hide(cohort_arrays, roles)


@pytest.fixture(scope="module")
def evidence(task: Task) -> Evidence:
    source = fit_evidence(task, EvidenceSettings(), np.random.default_rng(1))
    return read_evidence(task.visits, source)


@pytest.fixture(scope="module")
def noisy(cohort_arrays: VisitArrays) -> Imputation:
    """The truth plus an error whose size follows the signal `doubt`."""
    rng = np.random.default_rng(2)
    doubt = rng.uniform(0.1, 2.0, len(cohort_arrays))
    truth = np.nan_to_num(cohort_arrays.target_values, nan=7.0)
    return Imputation(truth + doubt * rng.standard_normal(len(truth)), {"doubt": doubt})


@pytest.fixture(scope="module")
def ground(task: Task, evidence: Evidence, noisy: Imputation) -> RiskGround:
    return prepare_risk(task, evidence, noisy, np.random.default_rng(3))


def auc(score: FloatArray, bad: np.ndarray) -> float:
    return float(np.mean(score[bad][:, None] > score[~bad][None, :]))


@pytest.mark.parametrize(
    "tolerance", [Tolerance(absolute=0.8), Tolerance(share=0.1)], ids=["absolute", "share"]
)
def test_ranks_visits_nobody_learnt_from(
    tolerance: Tolerance,
    cohort_arrays: VisitArrays,
    roles: Roles,
    evidence: Evidence,
    noisy: Imputation,
    ground: RiskGround,
) -> None:
    risk = fit_risk(ground, tolerance, seed=4)
    score = risk.score(evidence, noisy)
    assert np.all((score > 0) & (score < 1))
    unseen = (roles == Role.TEST) | (roles == Role.CALIBRATION)
    bad = tolerance.risky(noisy.value, cohort_arrays.target_values)
    ceiling = auc(noisy.signals["doubt"][unseen], bad[unseen])
    assert auc(score[unseen], bad[unseen]) > max(0.70, ceiling - 0.08)


def test_spread_follows_the_size_of_the_error(
    evidence: Evidence, noisy: Imputation, ground: RiskGround
) -> None:
    spread = ground.spread.spread(evidence, noisy)
    assert spread.min() > 0
    assert np.corrcoef(spread, noisy.signals["doubt"])[0, 1] > 0.6


def test_learns_from_training_and_validation_only(task: Task, roles: Roles, ground: RiskGround) -> None:
    assert len(ground.truth) == np.sum((roles == Role.TRAINING) | (roles == Role.VALIDATION))
    assert set(ground.truth) <= set(task.visits.target_values) | set(task.validation_target)


def test_another_tolerance_leaves_the_ground_alone(
    evidence: Evidence, noisy: Imputation, ground: RiskGround
) -> None:
    strict, lenient = (fit_risk(ground, Tolerance(absolute=size), seed=4) for size in (0.3, 1.5))
    assert strict.score(evidence, noisy).mean() > lenient.score(evidence, noisy).mean() + 0.1
    again = fit_risk(ground, Tolerance(absolute=0.3), seed=4)
    assert again.score(evidence, noisy).tobytes() == strict.score(evidence, noisy).tobytes()


def test_a_stored_risk_scores_the_same_bytes(
    evidence: Evidence, noisy: Imputation, ground: RiskGround
) -> None:
    risk = fit_risk(ground, Tolerance(absolute=0.8), seed=4)
    restored = FittedRisk.from_state({}, json.loads(json.dumps(risk.state()[1])))
    assert restored.score(evidence, noisy).tobytes() == risk.score(evidence, noisy).tobytes()
    spread = SpreadModel.from_state({}, json.loads(json.dumps(ground.spread.state()[1])))
    assert spread.spread(evidence, noisy).tobytes() == ground.spread.spread(evidence, noisy).tobytes()


class Echo:
    """Imputes a visible target by itself and any other visit by 0: caught out unless the target is hidden."""

    def impute(self, task: Task) -> Imputation:
        visible = np.nan_to_num(task.visits.target_values)
        return Imputation(visible, {"visible": task.training.astype(float)})


def test_cross_fitting_hides_every_training_target_once(task: Task) -> None:
    fits: list[int] = []

    def refit(reduced: Task) -> Echo:
        fits.append(int(reduced.training.sum()))
        assert np.array_equal(reduced.validation_target, task.validation_target, equal_nan=True)
        return Echo()

    plain = Echo().impute(task)
    honest = cross_fit(task, plain, refit, np.random.default_rng(0), folds=4)
    assert len(fits) == 4
    assert sum(task.training.sum() - left for left in fits) == task.training.sum()
    assert not honest.value[task.training].any()
    assert not honest.signals["visible"][task.training].any()
    assert np.array_equal(honest.value[~task.training], plain.value[~task.training])
    assert plain.value[task.training].all()


def test_explored_risk_is_as_good_as_on_new_visits() -> None:
    """At visits a risk learnt from, the explored risk must not flatter itself."""
    from safeimpute.evaluation.metrics import auc
    from safeimpute.records.simulate import simulate
    from safeimpute.records.visits import ColumnChoice, prepare_visits
    from safeimpute.splits.roles import Role, hide, split_visits
    from safeimpute.systems.presets import Plan, score_visits
    from safeimpute.tolerance import Tolerance

    visits = simulate("mimic4", np.random.default_rng(8), patients=500).visits
    arrays = prepare_visits(visits, ColumnChoice("hba1c")).arrays
    roles = split_visits(~np.isnan(arrays.target_values), np.random.default_rng(0), test_fraction=0.3)
    tolerance = Tolerance(0.8)
    scores = score_visits(hide(arrays, roles), Plan("best", tolerance, seed=0))

    def area(risk: np.ndarray, role: Role) -> float:
        rows = roles == role
        found = auc(risk[rows], tolerance.risky(scores.value[rows], arrays.target_values[rows]))
        assert found is not None
        return found

    on_test = area(scores.risk, Role.TEST)
    assert abs(area(scores.explored_risk, Role.VALIDATION) - on_test) < 0.08
    assert area(scores.risk, Role.VALIDATION) > on_test + 0.08
    assert np.array_equal(
        scores.explored_risk[roles == Role.CALIBRATION], scores.risk[roles == Role.CALIBRATION]
    )
