"""One decision, whichever path prepares it: fit, what-ifs, sensitivity and recalibration agree to the byte."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.ledgers import drawn_selection_data
from safeimpute.learning.protocol import Estimates
from safeimpute.model.betting import fit_line
from safeimpute.model.fit import calibrate
from safeimpute.model.night_log import Entered
from safeimpute.model.open_model import Status
from safeimpute.monitoring.recalibrate import recalibration
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.groups import own_values
from safeimpute.selection.questions import question_for
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.selection.release import SelectionData, decide
from safeimpute.selection.result import where_risky_gathers
from safeimpute.selection.several import decide_together, what_if_together
from safeimpute.settings import BestSettings, PromiseName, Settings, make_settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

TOLERANCE = Tolerance(1.0)
RULES = [Rule("unmeasured", 0.2), Rule("unmeasured", 0.2, "confident"), Rule("unmeasured", 0.1)]


def settings_for(claim: str, **options: object) -> Settings:
    told = {"target": "hba1c", "tolerance": 1.0, "fdr": 0.2, "best": BestSettings(folds=3), "random_state": 1}
    return make_settings(**told | options, claim=claim)


@pytest.fixture(scope="module")
def cohort() -> tuple[VisitArrays, FloatArray, Estimates]:
    """Visits, the truth at each, and estimates off by an error whose size is known up to noise."""
    drawn = simulate("mimic4", np.random.default_rng(6), patients=400, shift="covariate")
    prepared = prepare_visits(drawn.visits, ColumnChoice("hba1c"))
    order = drawn.truth.with_columns(drawn.truth["subject_id"].cast(str)).sort("subject_id", "time")
    truth, rng = order["hba1c"].to_numpy(), np.random.default_rng(2)
    spread = rng.uniform(0.1, 1.2, len(truth))
    value = truth + spread * rng.laplace(size=len(truth))
    none = np.zeros(len(truth), dtype=bool)
    return prepared.arrays, truth, Estimates(value, np.exp(-1.0 / spread), spread, none, TOLERANCE)


def calibrated_for(cohort: tuple[VisitArrays, FloatArray, Estimates], settings: Settings) -> Calibrated:
    visits, _, estimates = cohort
    return calibrate(question_for(visits, settings), visits.target_values, estimates, settings)


def test_older_visits_stay_out_of_scope_where_nothing_is_missing_since(
    cohort: tuple[VisitArrays, FloatArray, Estimates],
) -> None:
    visits, truth, estimates = cohort
    since = float(np.quantile(visits.time, 0.6))
    told = settings_for("later", since=str(since))
    recent = visits.time >= since
    filled = visits.with_target(np.where(recent, truth, visits.target_values))
    found = calibrated_for((filled, truth, estimates), told)
    decision = found.release(TOLERANCE, Rule("later", 0.3))
    assert len(decision.released) > 100
    assert not decision.released.any()
    assert OUT_OF_SCOPE in set(decision.reason)
    with_recent = calibrated_for(cohort, told).release(TOLERANCE, Rule("later", 0.3))
    asked = visits.time[np.isnan(visits.target_values)] >= since
    assert not with_recent.released[~asked].any()
    assert with_recent.released[asked].any()


@pytest.mark.parametrize("promise", ["average", "confident"])
@pytest.mark.parametrize("groups", [(), ("value",), ("value", "history")])
@pytest.mark.parametrize("claim", ["unmeasured", "later"])
def test_sensitivity_at_factor_one_and_the_own_level_are_the_release(
    cohort: tuple[VisitArrays, FloatArray, Estimates], promise: str, groups: tuple[str, ...], claim: str
) -> None:
    settings = settings_for(claim, promise=promise, groups=groups)
    found = calibrated_for(cohort, settings)
    rule = replace(Rule("unmeasured", 0.35), claim=settings.claim, promise=settings.promise)
    released = int(found.release(TOLERANCE, rule).released.sum())
    assert released > 0
    (doubt,) = found.under_doubt(TOLERANCE, rule, [1.0])
    assert doubt.released == released
    own = next(each for each in found.elsewhere(TOLERANCE, rule) if each.tolerance is TOLERANCE)
    (reach,) = [each for each in own.reaches if each.level == rule.alpha]
    assert reach.released == released


def entered_from(data: SelectionData, odds: FloatArray, part: IntArray, late: BoolArray) -> Entered:
    """What monitoring would have entered of the same visits."""
    count = len(data.risk)
    keys, words = np.arange(count, dtype=np.uint64), np.full(count, "{}")
    no = np.zeros(count, dtype=bool)
    return Entered(
        number=np.arange(1, count + 1),
        visit=keys,
        patient=data.patient.astype(np.uint64),
        day=np.zeros(count),
        month=words,
        measured=data.judged,
        late=late,
        inside=data.inside,
        part=part,
        value=np.zeros(count),
        risk=data.risk,
        odds=odds,
        cutoff=np.zeros(count),
        risky=data.risky,
        strange=no,
        ratio=np.ones(count),
        groups=words,
        censored=no,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("with_late", [False, True])
def test_recalibration_on_the_entries_of_a_fit_is_its_decision(rule: Rule, with_late: bool) -> None:
    rng = np.random.default_rng(5)
    odds = np.exp(0.3 * rng.standard_normal(2400))
    cell = np.repeat(rng.integers(0, 2, 600), 4)
    data = drawn_selection_data(rng, 600)
    late = data.judged & (rng.random(2400) < 0.3) & with_late
    shift = fit_line(np.log(odds), ~data.judged)
    weight = np.exp(shift[0] + shift[1] * np.log(odds))
    # In one group the risks predict far more risky values than there are, and the errors say otherwise.
    risk = np.where(cell == 1, 0.5 + data.risk / 2, data.risk)
    data = replace(data, weight=weight, risk=risk, cell=cell, late=late if with_late else None)
    data = replace(data, risky=data.risky & ~((cell == 1) & (rng.random(2400) < 0.9)))
    fitted = decide(data, rule)
    again = recalibration(entered_from(data, odds, cell, late), Status(), rule, None, tuple(fitted.cutoffs))
    assert again.cutoffs == fitted.cutoffs
    assert fitted.cutoffs[0].risk is not None
    if rule.promise == "average":
        assert fitted.cutoffs[1].risk is not None


def test_history_is_counted_as_of_then_under_later_whatever_groups_were_asked_for(
    cohort: tuple[VisitArrays, FloatArray, Estimates],
) -> None:
    found = calibrated_for(cohort, settings_for("later"))
    (history,) = [each for each in where_risky_gathers(found, TOLERANCE, Rule("later", 0.2)) if each.by == "history"]
    own = own_values(found.question.visits, past_only=True)[found.question.candidate]
    assert [each.missing for each in history.groups] == [
        int(np.sum(own == 0)),
        int(np.sum((own >= 1) & (own < 3))),
        int(np.sum(own >= 3)),
    ]


def test_labs_decided_together_count_late_results() -> None:
    rng = np.random.default_rng(3)
    one, other = drawn_selection_data(rng, 400), drawn_selection_data(rng, 400)
    late = other.judged & (rng.random(1600) < 0.5)
    other = replace(other, late=late, risky=other.risky | (late & (rng.random(1600) < 0.5)))
    rule = Rule("later", 0.2)
    together = decide_together({"a": one, "b": other}, rule)["a"].cutoffs[0].risk
    overlooked = decide_together({"a": one, "b": replace(other, late=None)}, rule)["a"].cutoffs[0].risk
    assert together is not None
    assert overlooked is not None
    assert together < overlooked


@pytest.mark.parametrize("promise", ["average", "confident"])
def test_labs_decided_together_are_looked_at_together(
    cohort: tuple[VisitArrays, FloatArray, Estimates], promise: PromiseName
) -> None:
    visits, truth, estimates = cohort
    settings = settings_for("unmeasured")
    worse = replace(estimates, value=truth + 1.5 * (estimates.value - truth))
    labs = {name: calibrated_for((visits, truth, each), settings) for name, each in (("a", estimates), ("b", worse))}
    rule = Rule("unmeasured", 0.3, promise)
    decisions = decide_together({name: each.selection_data(TOLERANCE) for name, each in labs.items()}, rule)
    found = what_if_together(labs, dict.fromkeys(labs, TOLERANCE), rule, (1.0, 1.5))
    for name, decision in decisions.items():
        released = int(decision.released.sum())
        assert released > 0
        assert found[name].doubts[0].released == released
        own = next(each for each in found[name].elsewhere if each.tolerance is TOLERANCE)
        assert [each.released for each in own.reaches if each.level == rule.alpha] == [released]
