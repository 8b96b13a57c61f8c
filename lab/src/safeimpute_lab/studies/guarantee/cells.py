"""One cohort of the study, through the whole program, judged by the truth."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from safeimpute.visits.arrays import BoolArray, FloatArray
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY, Cohort, draw_cohort

ALPHAS = (0.05, 0.1, 0.2)
PROMISES: tuple[Literal["average", "confident"], ...] = ("average", "confident")
CONFIDENCE = 0.9
NEW_KEYS = 1_000_000  # patients that no fit has met are numbered from here


@dataclass(frozen=True)
class Cell:
    """Which cohort."""

    scenario: str
    patients: int
    cohort: int

    def draw(self) -> tuple[Cohort, Cohort]:
        """The cohort that is fitted, and as many patients more from where it came from."""
        scenario = BY_KEY[self.scenario]
        seed = [2026, self.cohort, self.patients]
        fitted = draw_cohort(scenario, np.random.default_rng([*seed, 0]), self.patients)
        new = draw_cohort(scenario, np.random.default_rng([*seed, 1]), self.patients, NEW_KEYS)
        return fitted, new


@dataclass(frozen=True)
class Release:
    """What one rule released at one level."""

    promise: str
    alpha: float
    who: str  # same patients or new
    candidates: int
    good: int
    released: int
    risky: int  # of the released
    refused: bool = False


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit, release and judge one cohort."""
    began = time.perf_counter()
    found = _fit_and_judge(cell)
    return asdict(cell) | {"seconds": round(time.perf_counter() - began, 2)} | found


def judged(
    promise: str, alpha: float, who: str, risky: BoolArray, released: BoolArray, *, refused: bool = False
) -> dict[str, Any]:
    """Count a release against the truth."""
    return asdict(
        Release(
            promise,
            alpha,
            who,
            len(risky),
            int(np.sum(~risky)),
            int(released.sum()),
            int(np.sum(released & risky)),
            refused,
        )
    )


def _fit_and_judge(cell: Cell) -> dict[str, Any]:
    from safeimpute.model.fit import fit_question
    from safeimpute.selection.questions import draw_roles, question_of
    from safeimpute.settings import make_settings

    cohort, new = cell.draw()
    settings = make_settings(
        target="target",
        tolerance=BY_KEY[cell.scenario].tolerance,
        fdr=0.1,
        claim="unmeasured",
        random_state=cell.cohort,
    )
    roles = draw_roles(cohort.visits, cell.cohort)
    question = question_of(cohort.visits, settings, roles)
    fitted, calibrated = fit_question(cohort.visits, question, settings)
    rows, tolerance = calibrated.candidates, settings.allowed_error
    value, risk = calibrated.estimates.value[rows], calibrated.estimates.risk[rows]
    risky = tolerance.risky(value, cohort.truth[rows])
    diagnosis = calibrated.diagnosis
    assert diagnosis is not None
    return {
        "mae": float(np.mean(np.abs(value - cohort.truth[rows]))),
        "risky_share": float(risky.mean()),
        "risk_auc": _auc(risk, risky),
        "measuring_auc": diagnosis.auc,
        "effective_visits": diagnosis.effective_visits,
        "effective_patients": diagnosis.effective_patients,
        "outside": diagnosis.outside,
        "releases": _new_releases(calibrated, fitted, new, risky, settings),
        "bound": _bound(calibrated, tolerance, risky),
        "groups": _in_groups(calibrated, tolerance, risky),
    }


def _bound(calibrated: Any, tolerance: Any, risky: BoolArray) -> dict[str, Any]:
    """Whether the bound fails at any of many thresholds, and what it says at the level 0.2."""
    from safeimpute.selection.cutoff import Rule
    from safeimpute.selection.release import bound_up_to

    data, rule = calibrated.selection_data(tolerance), Rule("unmeasured", 0.2)
    asked = data.inside & data.candidate
    risk, inside = data.risk[data.candidate], asked[data.candidate]
    broken = False
    for cutoff in np.quantile(data.risk[asked], np.arange(1, 21) / 20).tolist():
        bound = bound_up_to({0: data}, replace(rule, confidence=CONFIDENCE), {0: cutoff})
        broken |= int(np.sum(risky & inside & (risk <= cutoff))) > bound.risky
    decision = calibrated.release(tolerance, rule)
    said = calibrated.bound(tolerance, rule, decision)
    true = int(np.sum(risky & decision.released))
    return {"broken": broken, "values": said.values, "most": said.risky, "share": said.share, "risky": true}


def _in_groups(calibrated: Any, tolerance: Any, risky: BoolArray) -> list[dict[str, Any]]:
    """Released and risky values in every group by value and by history: one cut-off for all, and each its own."""
    from safeimpute.selection.cutoff import Rule
    from safeimpute.selection.groups import make_grouping
    from safeimpute.selection.release import decide

    visits, value = calibrated.question.visits, calibrated.estimates.value
    rows, found = calibrated.candidates, []
    for by in ("value", "history"):
        grouping = make_grouping([by], visits, value, past_only=False)
        data = replace(calibrated.selection_data(tolerance), cell=grouping.cells(visits, value))
        assert data.cell is not None
        for alpha in (0.1, 0.2):
            pooled = decide(replace(data, cell=None), Rule("unmeasured", alpha)).released
            own = decide(data, Rule("unmeasured", alpha))
            assert own.merged is not None
            group = own.merged.of(data.cell)[rows]
            for number, members in own.merged.cells.items():
                there = group == number
                found.append(
                    {
                        "by": by,
                        "alpha": alpha,
                        "group": "+".join(grouping.dimensions[0].labels[cell] for cell in members),
                        "candidates": int(there.sum()),
                        "pooled": [int(np.sum(pooled & there & risky)), int(np.sum(pooled & there))],
                        "own": [int(np.sum(own.released & there & risky)), int(np.sum(own.released & there))],
                    }
                )
    return found


def _new_releases(calibrated: Any, fitted: Any, new: Cohort, risky: BoolArray, settings: Any) -> list[dict[str, Any]]:
    from safeimpute.selection.cutoff import Rule
    from safeimpute.selection.release import decide_by_cutoff

    tolerance = settings.allowed_error
    estimates, outside = _meet_new_patients(calibrated, fitted, new, settings)
    rows = np.flatnonzero(new.unmeasured)
    new_risky = tolerance.risky(estimates.value[rows], new.truth[rows])
    found = []
    for promise in PROMISES:
        for alpha in ALPHAS:
            decision = calibrated.release(tolerance, Rule("unmeasured", alpha, promise, CONFIDENCE))
            refused = bool(decision.refused)
            found.append(judged(promise, alpha, "same", risky, decision.released, refused=refused))
            there = {name: visits[rows] for name, visits in outside.items()}
            met = decide_by_cutoff(estimates.risk[rows], there, decision.cutoffs).released & (not refused)
            found.append(judged(promise, alpha, "new", new_risky, met, refused=refused))
    return found


def _meet_new_patients(calibrated: Any, fitted: Any, new: Cohort, settings: Any) -> tuple[Any, Any]:
    """Estimates of patients the fit never met, and which of their visits no promise covers."""
    from safeimpute.learning.roles import fold_of
    from safeimpute.selection.calibrated import evidence_scope
    from safeimpute.selection.measuring.features import measuring_table
    from safeimpute.selection.reasons import OUT_OF_SCOPE

    visits = new.visits
    estimates = fitted.frozen.estimate(visits)
    table = measuring_table(visits, past_only=False, calendar=True)
    fold = fold_of(visits.patient_key, settings.random_state, settings.best.folds)
    weighed = calibrated.measuring.weigh(table, visits.time, fold)
    return estimates, evidence_scope(estimates, None) | {OUT_OF_SCOPE: weighed.outside}


def _auc(score: FloatArray, positive: BoolArray) -> float | None:
    """Chance that a risky visit has the larger risk; ties count half."""
    high, low = np.sort(score[positive]), score[~positive]
    if not len(high) or not len(low):
        return None
    right = np.searchsorted(high, low, side="right")
    ties = right - np.searchsorted(high, low)
    return float(np.sum(len(high) - right + 0.5 * ties) / (len(high) * len(low)))
