"""No leak, by mutation: what a visit's own target, its fold's targets and other patients can and cannot change."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
import pytest

from safeimpute.learning.best.system import FittedBest
from safeimpute.learning.roles import fold_of
from safeimpute.model.fit import fit_question
from safeimpute.model.frozen import FrozenModel, Scored, freeze, learn_reference, score_visits
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.questions import question_for
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.settings import BestSettings, Settings, make_settings
from safeimpute.visits.arrays import BoolArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

PLAUSIBLE = (3.0, 20.0)
FOLDS, FOLD = 3, 1  # the fold whose targets are changed
BOTH_WAYS, PAST, CLOCKS, LATER = "both ways", "past only", "past only, clocks", "later, clocks"


@dataclass(frozen=True)
class Fit:
    """A fitted table and all that was learnt from it."""

    arrays: VisitArrays
    system: FittedBest
    calibrated: Calibrated
    settings: Settings

    @property
    def frozen(self) -> FrozenModel:
        decision = self.calibrated.release(self.settings.allowed_error, Rule(self.settings.claim, 0.3))
        reference = learn_reference(self.calibrated, decision, self.settings)
        return freeze(self.system.frozen, self.calibrated, decision, self.settings, PLAUSIBLE, reference, "")


@cache
def cohort(clocks: bool) -> VisitArrays:
    """A small cohort whose labs, the target among them, may be reported long after they were drawn."""
    visits = simulate("mimic4", np.random.default_rng(5), patients=90, shift="covariate").visits
    if clocks:
        delay = pl.Series(np.random.default_rng(6).choice([0.0, 1.0, 200.0], len(visits)))
        visits = visits.with_columns(hba1c__known=pl.col("time") + delay, glucose__known=pl.col("time") + delay / 2)
    return prepare_visits(visits, ColumnChoice("hba1c")).arrays


def settings_for(kind: str) -> Settings:
    return make_settings(
        target="hba1c",
        tolerance=1.0,
        fdr=0.3,
        claim="later" if kind == LATER else "unmeasured",
        past_only=kind != BOTH_WAYS,
        best=BestSettings(folds=FOLDS),
    )


def fit(arrays: VisitArrays, settings: Settings) -> Fit:
    system, calibrated = fit_question(arrays, question_for(arrays, settings), settings, PLAUSIBLE)
    assert isinstance(system, FittedBest)
    return Fit(arrays, system, calibrated, settings)


@cache
def base(kind: str) -> Fit:
    return fit(cohort(kind in (CLOCKS, LATER)), settings_for(kind))


def in_fold(arrays: VisitArrays) -> BoolArray:
    return np.asarray(fold_of(arrays.patient_key, 0, FOLDS) == FOLD)


def one_measured_per_patient(arrays: VisitArrays, place: int = 0) -> BoolArray:
    """The measured visit at a place (-1: the last) of every patient that has so many."""
    measured = ~np.isnan(arrays.target_values)
    chosen = np.zeros(len(arrays), dtype=bool)
    for patient in np.unique(arrays.patient):
        rows = np.flatnonzero(measured & (arrays.patient == patient))
        if len(rows) > max(place, 0):
            chosen[rows[place]] = True
    return chosen


def changed(arrays: VisitArrays, rows: BoolArray, how: str) -> VisitArrays:
    values = arrays.target_values.copy()
    values[rows] = np.nan if how == "hidden" else np.random.default_rng(9).uniform(4, 18, rows.sum())
    return arrays.with_target(values)


def said(fit: Fit, rows: BoolArray) -> dict[str, bytes]:
    """Everything that is said of some visits, as bytes."""
    estimates, calibrated = fit.system.estimates, fit.calibrated
    columns = {
        "value": estimates.value,
        "risk": estimates.risk,
        "spread": estimates.spread,
        "no evidence": estimates.no_evidence,
        "odds": calibrated.weight,
        "tie": calibrated.question.tie,
    }
    columns |= {f"signal {name}": each for name, each in estimates.signals.items()}
    columns |= {f"outside: {name}": each for name, each in calibrated.outside.items()}
    assert OUT_OF_SCOPE in calibrated.outside
    return {name: column[rows].tobytes() for name, column in columns.items()}


def scored_bytes(scored: Scored, rows: BoolArray) -> dict[str, bytes]:
    estimates = scored.estimates
    columns = {name: getattr(estimates, name) for name in ("value", "risk", "spread", "no_evidence")}
    columns |= {"odds": scored.weight, "half width": scored.half_width}
    return {name: column[rows].tobytes() for name, column in columns.items()}


@pytest.mark.parametrize("how", ["changed", "hidden"])
@pytest.mark.parametrize("kind", [BOTH_WAYS, PAST, LATER])
def test_a_visits_own_target_changes_nothing_about_it(kind: str, how: str) -> None:
    """End to end: the whole fit is repeated with one measured target of every patient of a fold changed."""
    whole = base(kind)
    rows = one_measured_per_patient(whole.arrays) & in_fold(whole.arrays)
    assert rows.sum() > 15
    other = fit(changed(whole.arrays, rows, how), whole.settings)
    assert said(other, rows) == said(whole, rows)
    elsewhere = in_fold(whole.arrays) & ~rows
    assert said(other, elsewhere)["value"] != said(whole, elsewhere)["value"], "other visits do see it"


@pytest.mark.parametrize("how", ["changed", "hidden"])
@pytest.mark.parametrize("kind", [BOTH_WAYS, PAST, CLOCKS, LATER])
def test_no_measured_visit_sees_itself(kind: str, how: str) -> None:
    """Against the frozen models, every measured visit in turn: first ones, last ones, those in between."""
    whole = base(kind)
    frozen = whole.frozen
    before = score_visits(whole.arrays, frozen, measured_too=True)
    everything = np.ones(len(whole.arrays), dtype=bool)
    assert scored_bytes(before, everything)["risk"] == said(whole, everything)["risk"]
    seen = np.zeros(len(whole.arrays), dtype=bool)
    for place in (-1, *range(50)):
        rows = one_measured_per_patient(whole.arrays, place)
        after = score_visits(changed(whole.arrays, rows, how), frozen, measured_too=True)
        assert scored_bytes(after, rows) == scored_bytes(before, rows)
        assert (after.reason == before.reason)[rows].all()
        seen |= rows
        if not rows.any():
            break
    assert np.array_equal(seen, ~np.isnan(whole.arrays.target_values))


def measuring_state(fit: Fit, number: int) -> tuple[dict[str, bytes], object]:
    """All that one fold's model of measuring is made of."""
    assert fit.calibrated.measuring is not None
    arrays, plain = fit.calibrated.measuring.state()
    own = {name: each.tobytes() for name, each in arrays.items() if name.startswith(f"{number}.")}
    assert own
    return own, plain["folds"][number]


@pytest.mark.parametrize("kind", [BOTH_WAYS, LATER])
def test_a_folds_targets_change_nothing_in_its_model(kind: str) -> None:
    """All targets of a fold's patients are replaced, some hidden, some filled in; other folds' models do change."""
    whole = base(kind)
    rng, own = np.random.default_rng(1), in_fold(whole.arrays)
    values = whole.arrays.target_values.copy()
    values[own] = np.where(rng.random(own.sum()) < 0.4, np.nan, rng.uniform(4, 18, own.sum()))
    other = fit(whole.arrays.with_target(values), whole.settings)
    for number in range(FOLDS):
        one, two = (each.system.frozen.models[number].state() for each in (whole, other))
        same = one[0].keys() == two[0].keys() and one[1] == two[1]
        same &= all(one[0][name].tobytes() == two[0][name].tobytes() for name in one[0])
        assert same == (number == FOLD)
        assert (measuring_state(whole, number) == measuring_state(other, number)) == (number == FOLD)


@pytest.mark.parametrize("kind", [BOTH_WAYS, LATER])
def test_other_patients_of_a_scored_table_change_nothing(kind: str) -> None:
    """Given the frozen models, a patient is estimated and weighed the same alone and among others, old and new."""
    whole = base(kind)
    frozen, arrays = whole.frozen, whole.arrays
    together = score_visits(arrays, frozen, measured_too=True)
    scrambled = changed(arrays, arrays.patient % 2 == 1, "changed")
    beside = score_visits(scrambled, frozen, measured_too=True)
    lonely = np.flatnonzero(np.bincount(arrays.patient) == 1)
    assert len(lonely) > 5, "records of one visit are among them"
    for patient in {*range(0, 40, 2), *lonely[lonely % 2 == 0].tolist()}:
        rows = arrays.patient == patient
        alone = score_visits(arrays.take(rows), frozen, measured_too=True)
        assert scored_bytes(alone, np.ones(rows.sum(), dtype=bool)) == scored_bytes(together, rows)
        assert scored_bytes(beside, rows) == scored_bytes(together, rows)
        assert np.array_equal(alone.reason, together.reason[rows])
        assert np.array_equal(alone.released, together.released[rows])
