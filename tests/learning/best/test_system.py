"""The cross-fitted system: accurate, the same in any table, stored without code, explained by measured visits."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from safetensors.numpy import load, save

from safeimpute.errors import VisitsError
from safeimpute.learning.best import fold_model
from safeimpute.learning.best.blend import GRID, _simplex, blend, convex_weights
from safeimpute.learning.best.evidence import Evidence, Source, learn_source, read_evidence
from safeimpute.learning.best.fold_model import Lesson, fit_fold_model
from safeimpute.learning.best.system import FittedBest, FrozenBest, fit_best
from safeimpute.learning.roles import fold_of
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

QUICK, TOLERANCE = BestSettings(folds=3), Tolerance(0.8)
NAMES = ("value", "risk", "spread", "no_evidence")


@cache
def cohort() -> tuple[VisitArrays, np.ndarray]:
    """120 patients, a fifth of the measured targets hidden, and all that was measured."""
    visits = simulate("mimic4", np.random.default_rng(11), patients=120).visits
    arrays = prepare_visits(visits, ColumnChoice("hba1c")).arrays
    truth = arrays.target_values
    hidden = np.random.default_rng(0).random(len(truth)) < 0.2
    return arrays.with_target(np.where(hidden, np.nan, truth)), truth


@cache
def fitted(past_only: bool) -> FittedBest:
    return fit_best(cohort()[0], QUICK, TOLERANCE, 7, past_only=past_only)


@pytest.fixture(params=[False, True], ids=["both ways", "past only"])
def fit(request: pytest.FixtureRequest) -> FittedBest:
    return fitted(request.param)


def test_is_more_accurate_than_the_mean_and_the_patient_mean(fit: FittedBest) -> None:
    visits, truth = cohort()
    asked = np.isnan(visits.target_values) & ~np.isnan(truth)
    mean = np.nanmean(visits.target_values)
    of_patient = np.array(
        [np.nanmean(np.append(visits.target_values[visits.patient == each], mean)) for each in range(120)]
    )[visits.patient]
    error, by_patient, by_mean = (
        np.abs(each - truth)[asked].mean() for each in (fit.estimates.value, of_patient, np.full(len(truth), mean))
    )
    assert np.isfinite(fit.estimates.value).all()
    assert error < 0.85 * by_mean
    if not fit.frozen.models[0].source.past_only:  # the patient's mean knows later values too
        assert error < by_patient


def test_errors_at_measured_visits_are_those_at_hidden_ones(fit: FittedBest) -> None:
    """Each measured visit is imputed without its own value by a model that never saw its patient: no flattery."""
    visits, truth = cohort()
    error = np.abs(fit.estimates.value - truth)
    measured, asked = ~np.isnan(visits.target_values), np.isnan(visits.target_values) & ~np.isnan(truth)
    assert error[measured].mean() == pytest.approx(error[asked].mean(), rel=0.35)
    risky = TOLERANCE.risky(fit.estimates.value, truth)
    assert fit.estimates.risk[measured].mean() == pytest.approx(risky[measured].mean(), abs=0.08)


def test_the_same_seed_gives_the_same_bytes_however_many_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safeimpute.machine.resources.thread_count", lambda: 3)
    again = fit_best(cohort()[0], QUICK, TOLERANCE, 7)
    for name in NAMES:
        assert getattr(again.estimates, name).tobytes() == getattr(fitted(False).estimates, name).tobytes()
    assert again.frozen.state()[1] == fitted(False).frozen.state()[1]


def test_the_frozen_models_estimate_their_table_again(fit: FittedBest) -> None:
    visits, _ = cohort()
    whole = fit.frozen.estimate(visits)
    for name in NAMES:
        assert getattr(whole, name).tobytes() == getattr(fit.estimates, name).tobytes()
    some = visits.patient % 4 == 2
    alone = fit.frozen.estimate(visits.take(some))
    assert alone.value.tobytes() == whole.value[some].tobytes()


def test_deleting_later_visits_changes_nothing_when_only_the_past_counts(fit: FittedBest) -> None:
    visits, _ = cohort()
    early = visits.time <= np.median(visits.time)
    cut = fit.frozen.estimate(visits.take(early))
    same = cut.risk.tobytes() == fit.estimates.risk[early].tobytes()
    assert same == fit.frozen.models[0].source.past_only


def test_a_stored_model_estimates_the_same_bytes(fit: FittedBest) -> None:
    visits, _ = cohort()
    arrays, plain = fit.frozen.state()
    stored = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    restored = FrozenBest.from_state(load(stored), json.loads(json.dumps(plain)))
    other = restored.estimate(visits)
    for name in NAMES:
        assert getattr(other, name).tobytes() == getattr(fit.estimates, name).tobytes()
    assert list(other.signals) == list(fit.estimates.signals)
    assert other.learnt_for == TOLERANCE


def test_a_panel_holds_nobody_of_its_own_fold(fit: FittedBest) -> None:
    visits, _ = cohort()
    fold = fold_of(visits.patient_key, 7, QUICK.folds)
    for number, model in enumerate(fit.frozen.models):
        own = set(visits.patient_key[fold == number].view(np.int64).tolist())
        assert len(model.source.panel.patient) > 50
        assert not own & set(model.source.panel.patient.tolist())


def test_risk_at_another_tolerance_needs_no_fit() -> None:
    estimates = fitted(False).estimates
    assert estimates.risk_at(TOLERANCE) is estimates.risk
    narrow, wide = (estimates.risk_at(Tolerance(size)) for size in (0.3, 1.5))
    assert (narrow > wide).all()
    order = np.argsort(estimates.risk)
    assert np.corrcoef(np.argsort(order), np.argsort(np.argsort(wide)))[0, 1] > 0.8


def test_explanation_names_visits_that_carried_the_value(fit: FittedBest) -> None:
    visits, _ = cohort()
    rows = np.flatnonzero(np.isnan(visits.target_values))[:60]
    support = fit.explain(rows)
    own = support.own
    assert own.any()
    assert (~own).any()
    assert set(support.visit.tolist()) <= set(rows.tolist())
    assert (np.diff(support.visit) >= 0).all()
    for visit, gap, value in zip(support.visit[own], support.gap_days[own], support.target[own], strict=True):
        there = (visits.patient == visits.patient[visit]) & np.isclose(visits.time, visits.time[visit] + gap)
        assert visits.target_values[there] == pytest.approx([value])
    assert np.isnan(support.gap_days[~own]).all()
    totals = np.bincount(support.visit, support.weight)
    assert support.weight.min() >= 0
    assert totals.max() <= 1 + 1e-6
    if fit.frozen.models[0].source.past_only:
        assert support.gap_days[own].max() < 0
    assert len(fit.explain(np.empty(0, np.int64)).visit) == 0


def test_weights_are_convex_and_beat_each_part() -> None:
    visits, _ = cohort()
    rng = np.random.default_rng(0)
    source = learn_source(visits, QUICK, rng, past_only=False)
    target = rng.standard_normal(500)
    parts = {name: target + size * rng.standard_normal(500) for name, size in (("a", 0.5), ("b", 0.7))}
    weights = convex_weights(parts, target, source, rng)
    assert sum(weights.values()) == pytest.approx(1)
    assert 0 < weights["b"] < weights["a"] < 1
    blended = blend(parts, weights)
    assert np.abs(blended.z - target).mean() < min(np.abs(each - target).mean() for each in parts.values())
    assert blended.apart["a"] == pytest.approx(parts["a"] - blended.z)
    points = _simplex(3, GRID)
    assert np.all(points.sum(axis=1) == GRID)
    assert len({tuple(point) for point in points.tolist()}) == (GRID + 2) * (GRID + 1) // 2


def test_weights_found_in_two_steps_are_those_of_the_whole_grid() -> None:
    visits, _ = cohort()
    rng = np.random.default_rng(4)
    source = learn_source(visits, QUICK, rng, past_only=False)
    for spread in ((0.5, 0.7, 0.6, 0.9), (0.3, 0.31, 0.9, 0.9), (0.2, 2.0, 2.0, 2.0)):
        target = rng.standard_normal(800)
        parts = {str(place): target + size * rng.standard_normal(800) for place, size in enumerate(spread)}
        found = convex_weights(parts, target, source, rng)
        table, units = np.stack(list(parts.values())), source.units.labs
        truth = units.in_unit(target, source.target)
        errors = [
            np.abs(units.in_unit(point @ table, source.target) - truth).mean() for point in _simplex(4, GRID) / GRID
        ]
        own = np.abs(units.in_unit(np.array(list(found.values())) @ table, source.target) - truth).mean()
        assert own <= min(errors) * 1.002


def test_a_table_without_other_labs_or_attributes_is_estimated() -> None:
    visits, _ = cohort()
    bare = replace(
        visits,
        labs=visits.labs[:, [visits.target]],
        lab_names=("hba1c",),
        target=0,
        attributes=np.empty((len(visits), 0)),
        attribute_names=(),
    )
    estimates = fit_best(bare, QUICK, TOLERANCE, 1).estimates
    assert np.isfinite(estimates.value).all()
    assert np.isfinite(estimates.risk).all()


def test_a_table_too_small_is_refused() -> None:
    visits, _ = cohort()
    with pytest.raises(VisitsError, match="at least"):
        fit_best(visits.take(visits.patient < 8), QUICK, TOLERANCE, 1)


def test_a_fold_learns_from_no_more_visits_than_told(monkeypatch: pytest.MonkeyPatch) -> None:
    visits, truth = cohort()
    rows: list[int] = []

    def reading(table: VisitArrays, source: Source, wanted: np.ndarray, *more: object) -> Evidence:
        rows.append(int(wanted.sum()))
        return read_evidence(table, source, wanted, *more)  # type: ignore[arg-type]

    fold = fold_of(visits.patient_key, 7, 3)
    lesson = Lesson(QUICK, TOLERANCE, past_only=False, calendar=False)
    monkeypatch.setattr(fold_model, "read_evidence", reading)
    measured = int((~np.isnan(visits.target_values)).sum())
    told = replace(lesson, settings=replace(QUICK, learn_visits=measured))
    most = replace(lesson, settings=replace(QUICK, learn_visits=200))
    whole, bound, some = (fit_fold_model(visits, fold, each, np.random.default_rng(1)) for each in (lesson, told, most))
    assert rows == [measured, measured, 200]
    assert whole.state()[1] == bound.state()[1]  # a bound that does not bind changes no byte
    asked = np.isnan(visits.target_values) & ~np.isnan(truth)
    error = np.abs(some.estimate(visits).value - truth)[asked].mean()
    assert error < 0.9 * np.abs(truth - np.nanmean(visits.target_values))[asked].mean()
