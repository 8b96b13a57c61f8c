"""The learned risk: ranks imputations by the chance of an unacceptable error, from errors out of sample."""

import numpy as np
import pytest

from safeimpute.evaluation.metrics import auc
from safeimpute.learning.best.blend import Blended
from safeimpute.learning.best.evidence import Evidence, learn_source, read_evidence
from safeimpute.learning.best.fold_model import RiskModel, deviation_in_unit, fit_risk, risk_features
from safeimpute.learning.trees import BaggedTrees
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays

N = 3_000


class Errors:
    """Values whose error grows with one feature; half of the visits to learn from, half to judge."""

    def __init__(self) -> None:
        rng = np.random.default_rng(2)
        self.doubt = rng.uniform(0.1, 2.0, N)
        self.truth = rng.uniform(5, 12, N)
        self.value: FloatArray = self.truth + self.doubt * rng.standard_normal(N)
        noise = rng.standard_normal((N, 4))
        self.features = np.column_stack([self.doubt, noise]).astype(np.float32)
        self.deviation = self.doubt * rng.lognormal(0.0, 0.3, N)
        self.learn: BoolArray = np.arange(N) < N // 2
        self.fold: IntArray = rng.integers(0, 4, N)

    def fit(self, tolerance: Tolerance, seed: int = 4) -> RiskModel:
        at = self.learn
        value, deviation, truth = (each[at] for each in (self.value, self.deviation, self.truth))
        return fit_risk(self.features[at], value, deviation, truth, self.fold[at], tolerance, seed)

    def judge(self, model: RiskModel) -> tuple[FloatArray, FloatArray]:
        asked = ~self.learn
        judged = model.judge(self.features[asked], self.value[asked], self.deviation[asked])
        return judged.risk, judged.spread


@pytest.fixture(scope="module")
def errors() -> Errors:
    return Errors()


@pytest.mark.parametrize("tolerance", [Tolerance(0.8), Tolerance(share=0.1), Tolerance(0.5, 0.1)])
def test_ranks_visits_nobody_learnt_from(errors: Errors, tolerance: Tolerance) -> None:
    risk, _ = errors.judge(errors.fit(tolerance))
    there = ~errors.learn
    risky = tolerance.risky(errors.value[there], errors.truth[there])
    assert np.all((risk > 0) & (risk < 1))
    found, ceiling = auc(risk, risky), auc(errors.doubt[there], risky)
    assert found is not None
    assert ceiling is not None
    assert found > ceiling - 0.04
    assert abs(risk.mean() - risky.mean()) < 0.06, "it is a chance, not only a rank"


def test_spread_follows_the_size_of_the_error(errors: Errors) -> None:
    _, spread = errors.judge(errors.fit(Tolerance(0.8)))
    assert spread.min() > 0
    assert np.corrcoef(spread, errors.doubt[~errors.learn])[0, 1] > 0.6


def test_a_wider_tolerance_is_less_risky(errors: Errors) -> None:
    strict, lenient = (errors.judge(errors.fit(Tolerance(size)))[0] for size in (0.3, 1.5))
    assert strict.mean() > lenient.mean() + 0.1


def test_the_same_seed_gives_the_same_bytes(errors: Errors) -> None:
    one, other = (errors.judge(errors.fit(Tolerance(0.8)))[0] for _ in range(2))
    assert one.tobytes() == other.tobytes()


def test_a_stored_risk_says_the_same(errors: Errors) -> None:
    model = errors.fit(Tolerance(0.8))
    restored = RiskModel(
        BaggedTrees.from_texts(model.probability.texts()) if model.probability else None,
        BaggedTrees.from_texts(model.ratio.texts()),
        model.tolerance,
        model.scale,
        model.deviation_share,
        model.course_weight,
        model.largest,
    )
    for one, other in zip(errors.judge(model), errors.judge(restored), strict=True):
        assert one.tobytes() == other.tobytes()


def test_where_trees_learn_nothing_the_joint_course_ranks() -> None:
    """Few errors and features that say nothing: the course's deviation still tells sure values from doubtful ones."""
    rng = np.random.default_rng(7)
    doubt, features = rng.uniform(0.1, 2.0, 200), rng.standard_normal((200, 4)).astype(np.float32)
    truth = rng.uniform(5, 12, 200)
    value = truth + doubt * rng.standard_normal(200)
    fold, tolerance = rng.integers(0, 3, 200), Tolerance(0.8)
    knowing, ignorant = (
        fit_risk(features, value, told, truth, fold, tolerance, 1).judge(features, value, told)
        for told in (doubt, np.ones(200))
    )
    assert np.corrcoef(knowing.spread, doubt)[0, 1] > np.corrcoef(ignorant.spread, doubt)[0, 1] + 0.5
    assert np.corrcoef(knowing.risk, doubt)[0, 1] > np.corrcoef(ignorant.risk, doubt)[0, 1] + 0.3


def test_the_joint_course_weighs_as_much_as_its_deviations_tell(errors: Errors) -> None:
    """Deviations that say nothing are not listened to, however many there are; exact ones are."""
    rng = np.random.default_rng(1)
    value, truth, fold, noise = errors.value, errors.truth, errors.fold, errors.features[:, 1:]
    weights = [
        fit_risk(features, value, told, truth, fold, Tolerance(0.8), 1).course_weight
        for features, told in ((errors.features, rng.lognormal(0.0, 1.0, N)), (noise, errors.doubt))
    ]
    assert weights[0] < 0.1
    assert weights[1] > 0.9


def test_deviations_count_by_the_errors_they_came_with(errors: Errors) -> None:
    """A course that believes itself twice as sure is heard as loudly: its deviations are measured against errors."""
    told = [
        fit_risk(errors.features, errors.value, part * errors.deviation, errors.truth, errors.fold, Tolerance(2.0), 1)
        for part in (1.0, 0.5)
    ]
    assert told[1].deviation_share == pytest.approx(2 * told[0].deviation_share)
    plain, half = (
        model.judge(errors.features, errors.value, part * errors.deviation).spread
        for model, part in zip(told, (1.0, 0.5), strict=True)
    )
    assert half == pytest.approx(plain)


def test_the_deviation_is_told_in_the_unit_of_the_target(cohort_arrays: VisitArrays) -> None:
    visits, rng = cohort_arrays, np.random.default_rng(0)
    source = learn_source(visits, BestSettings(folds=3), rng, past_only=False)
    evidence = read_evidence(visits, source, np.arange(len(visits)) < 40, 1_024)
    z, labs, place = evidence.joint[:, 0], source.units.labs, source.target
    found = deviation_in_unit(source, evidence, z)
    assert labs.log[place], "of a skewed lab a deviation is wider at larger values"
    assert found == pytest.approx(labs.in_unit(z, place) * np.sinh(evidence.joint[:, 1] * labs.scale[place]))


@pytest.mark.filterwarnings("error")
def test_a_truth_of_zero_breaks_no_share_of_it() -> None:
    """A tolerance that is a share allows no error at a true value of zero: such an error counts as the largest."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(400) < 0.3, 0.0, rng.uniform(1, 5, 400))
    value = truth + rng.normal(0, 0.2, 400)
    features = np.column_stack([truth == 0, rng.standard_normal(400)]).astype(np.float32)
    deviation = rng.uniform(0.1, 0.3, 400)
    model = fit_risk(features, value, deviation, truth, rng.integers(0, 3, 400), Tolerance(share=0.2), 1)
    risk, spread, _ = model.judge(features, value, deviation)
    assert np.isfinite(risk).all()
    assert np.isfinite(spread).all()
    assert risk[truth == 0].mean() > risk[truth > 0].mean()


def test_features_hold_the_value_against_each_kind_of_evidence() -> None:
    rng = np.random.default_rng(0)
    names = ("course", "own mean", "analogue mean", "age")
    matrix = rng.standard_normal((5, 4)).astype(np.float32)
    nothing = np.zeros(5, dtype=bool)
    course = matrix[:, 0].astype(float)
    joint = np.column_stack([course, rng.random(5)])
    evidence = Evidence(matrix, names, np.zeros(5), course, joint, np.arange(5.0), nothing)
    z = rng.standard_normal(5)
    blended = Blended(z, {"trees": rng.standard_normal(5)})
    with_time, without = (risk_features(evidence, blended, calendar=each) for each in (True, False))
    assert with_time.shape[1] == without.shape[1] + 1
    assert np.array_equal(with_time[:, -1], np.arange(5, dtype=np.float32))
    assert np.array_equal(with_time[:, :-1], without)
    assert np.array_equal(without[:, :4], matrix)
    assert np.array_equal(without[:, 5], (z - matrix[:, 0]).astype(np.float32))
    assert np.array_equal(without[:, -1], joint[:, 1].astype(np.float32))
