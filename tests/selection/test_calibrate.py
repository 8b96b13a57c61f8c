"""The flow on arrays: weights, scope, releases at any level, intervals and doubt, from estimates however made."""

from dataclasses import replace

import numpy as np
import pytest

from safeimpute.learning.protocol import Estimates
from safeimpute.model.fit import calibrate
from safeimpute.selection.calibrated import Calibrated, evidence_scope
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.questions import Question, draw_roles, question_of
from safeimpute.selection.reasons import NO_EVIDENCE, OUT_OF_RANGE, OUT_OF_SCOPE
from safeimpute.settings import BestSettings, Settings, make_settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import FloatArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

TOLERANCE = Tolerance(1.0)


def settings_for(claim: str = "unmeasured") -> Settings:
    return make_settings(
        target="hba1c", tolerance=1.0, fdr=0.2, claim=claim, best=BestSettings(folds=3), random_state=1
    )


@pytest.fixture(scope="module")
def visits() -> tuple[VisitArrays, FloatArray]:
    """A cohort whose measuring depends on what the table shows, and the truth at every visit."""
    drawn = simulate("mimic4", np.random.default_rng(6), patients=300, shift="covariate")
    prepared = prepare_visits(drawn.visits, ColumnChoice("hba1c"))
    keys = ["subject_id", "time"]
    truth = drawn.truth.with_columns(prepared_order=drawn.truth["subject_id"].cast(str))
    order = truth.sort("prepared_order", "time")
    assert order.select(keys)["time"].to_list() == prepared.time.to_list()
    return prepared.arrays, order["hba1c"].to_numpy()


@pytest.fixture(scope="module")
def estimates(visits: tuple[VisitArrays, FloatArray]) -> Estimates:
    """The truth off by an error whose size is known up to noise."""
    arrays, truth = visits
    rng = np.random.default_rng(2)
    spread = rng.uniform(0.1, 1.5, len(arrays))
    risk = np.exp(-1.0 / spread)
    none = np.zeros(len(arrays), dtype=bool)
    return Estimates(truth + spread * rng.laplace(size=len(arrays)), risk, spread, none, TOLERANCE)


def question(arrays: VisitArrays, claim: str = "unmeasured") -> Question:
    return question_of(arrays, settings_for(claim), draw_roles(arrays, 1))


@pytest.fixture(scope="module")
def calibrated(visits: tuple[VisitArrays, FloatArray], estimates: Estimates) -> Calibrated:
    arrays = visits[0]
    return calibrate(question(arrays), arrays.target_values, estimates, settings_for())


def test_measured_visits_are_weighed_by_their_odds(calibrated: Calibrated) -> None:
    assert calibrated.measuring is not None
    assert len(calibrated.measuring.folds) == 3
    assert calibrated.weight.std() > 0.1
    assert list(calibrated.outside) == [NO_EVIDENCE, OUT_OF_RANGE, OUT_OF_SCOPE]
    assert calibrated.diagnosis is not None
    assert calibrated.diagnosis.auc is not None
    assert calibrated.diagnosis.auc > 0.6


def test_the_diagnosis_counts_results_beyond_a_limit_as_measured(
    visits: tuple[VisitArrays, FloatArray], estimates: Estimates
) -> None:
    arrays = visits[0]
    target = arrays.target_values
    beyond = target < np.nanquantile(target, 0.3)
    limits = np.full((*arrays.labs.shape, 2), np.nan)
    limits[beyond, arrays.target] = -np.inf, np.nanquantile(target, 0.3)
    arrays = replace(arrays.with_target(np.where(beyond, np.nan, target)), limits=limits)
    told = calibrate(question(arrays), arrays.target_values, estimates, settings_for()).diagnosis
    assert told is not None
    groups = [
        (group.visits, group.visits * group.predicted, group.visits * group.observed) for group in told.calibration
    ]
    known, predicted, observed = np.sum(groups, axis=0)
    assert known == len(arrays)
    assert abs(predicted - observed) < 0.03 * known
    assert told.measured <= np.sum(~np.isnan(arrays.target_values)), "what the weights rest on are values"


@pytest.mark.parametrize("claim", ["patients", "later"])
def test_the_other_cross_claims_weigh_too(
    visits: tuple[VisitArrays, FloatArray], estimates: Estimates, claim: str
) -> None:
    arrays = visits[0]
    found = calibrate(question(arrays, claim), arrays.target_values, estimates, settings_for(claim))
    assert found.weight.std() > 0
    assert settings_for(claim).uses_calendar == (claim != "later")
    assert found.measuring is not None
    assert found.measuring.columns[0] == ("time" if claim != "later" else "time between visits")


def test_the_claim_visits_and_plain_calibration_weigh_nothing(
    visits: tuple[VisitArrays, FloatArray], estimates: Estimates
) -> None:
    arrays = visits[0]
    alike = [
        calibrate(question(arrays, "visits"), arrays.target_values, estimates, settings_for("visits")),
        calibrate(question(arrays), arrays.target_values, estimates, settings_for(), weigh=False),
    ]
    for found in alike:
        assert (found.weight == 1).all()
        assert found.measuring is None
        assert list(found.outside) == [NO_EVIDENCE, OUT_OF_RANGE]


def test_errors_change_no_weight_and_no_scope(
    visits: tuple[VisitArrays, FloatArray], estimates: Estimates, calibrated: Calibrated
) -> None:
    """Weights and scope are settled before any error is looked at: the truth is no input to them."""
    arrays = visits[0]
    measured = ~np.isnan(arrays.target_values)
    scrambled = np.where(measured, np.random.default_rng(0).uniform(4, 15, len(arrays)), np.nan)
    other = calibrate(question(arrays), scrambled, estimates, settings_for())
    assert other.weight.tobytes() == calibrated.weight.tobytes()
    assert all(np.array_equal(other.outside[name], calibrated.outside[name]) for name in calibrated.outside)
    assert other.question.tie.tobytes() == calibrated.question.tie.tobytes()


def test_scope_reads_the_estimates_alone() -> None:
    value = np.array([5.0, 2.0, 30.0, np.nan, np.inf, -np.inf])
    nothing = np.array([False, True, False, False, False, False])
    estimates = Estimates(value, np.full(6, 0.1), np.ones(6), nothing)
    assert evidence_scope(estimates, (3.0, 20.0))[OUT_OF_RANGE].tolist() == [False, *[True] * 5]
    assert evidence_scope(estimates, None)[OUT_OF_RANGE].tolist() == [False, False, False, True, True, True]
    assert evidence_scope(estimates, None)[NO_EVIDENCE].tolist() == nothing.tolist()


def test_values_that_are_no_numbers_are_never_released(
    visits: tuple[VisitArrays, FloatArray], estimates: Estimates
) -> None:
    arrays = visits[0]
    odd = np.arange(len(arrays)) % 5 == 0
    value = np.where(odd, np.resize([np.nan, np.inf, -np.inf], len(arrays)), estimates.value)
    broken = replace(estimates, value=value, risk=np.where(odd, 0.0, estimates.risk))
    found = calibrate(question(arrays), arrays.target_values, broken, settings_for())
    decision = found.release(TOLERANCE, Rule("unmeasured", 0.2))
    assert decision.released.any()
    assert not decision.released[odd[found.candidates]].any()
    assert set(decision.reason[odd[found.candidates]]) <= {OUT_OF_RANGE, OUT_OF_SCOPE}


def test_a_release_keeps_its_level_here(visits: tuple[VisitArrays, FloatArray], calibrated: Calibrated) -> None:
    _, truth = visits
    rows = calibrated.candidates
    risky = TOLERANCE.risky(calibrated.estimates.value, truth)[rows]
    sizes = []
    for alpha in (0.1, 0.2, 0.3):
        decision = calibrated.release(TOLERANCE, Rule("unmeasured", alpha))
        sizes.append(int(decision.released.sum()))
        assert risky[decision.released].mean() < alpha + 0.08
        assert decision.cutoffs[0].risk == decision.cutoff[0]
        assert np.isnan(decision.p_value).all()
    assert 0 < sizes[0] < sizes[1] < sizes[2]


def test_another_tolerance_ranks_by_spread(calibrated: Calibrated) -> None:
    wide = calibrated.release(Tolerance(2.0), Rule("unmeasured", 0.2)).released.sum()
    narrow = calibrated.release(Tolerance(0.5), Rule("unmeasured", 0.2)).released.sum()
    assert wide > calibrated.release(TOLERANCE, Rule("unmeasured", 0.2)).released.sum() > narrow


def test_intervals_cover_the_candidates(visits: tuple[VisitArrays, FloatArray], calibrated: Calibrated) -> None:
    rows = calibrated.candidates
    error = np.abs(calibrated.estimates.value - visits[1])[rows]
    for coverage in (0.5, 0.9):
        assert np.mean(error <= calibrated.half_widths(coverage)) == pytest.approx(coverage, abs=0.05)


def test_doubt_only_takes_releases_away(calibrated: Calibrated) -> None:
    counts = [
        each.released for each in calibrated.under_doubt(TOLERANCE, Rule("unmeasured", 0.3), (1.0, 1.25, 2.0, 10.0))
    ]
    assert counts[0] == calibrated.release(TOLERANCE, Rule("unmeasured", 0.3)).released.sum()
    assert all(np.diff(counts) <= 0)
    assert counts[-1] < counts[0]


def test_without_candidates_there_is_nothing_to_weigh(
    visits: tuple[VisitArrays, FloatArray], estimates: Estimates
) -> None:
    arrays, truth = visits
    whole = arrays.with_target(truth)
    found = calibrate(question(whole), truth, estimates, settings_for())
    assert found.measuring is None
    assert len(found.candidates) == 0
    assert len(found.release(TOLERANCE, Rule("unmeasured", 0.2)).released) == 0
