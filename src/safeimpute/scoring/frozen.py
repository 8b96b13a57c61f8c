"""Visits that came in after the fit, scored by frozen functions and decided against the stored calibration (arrays).

A new patient is treated as a calibration patient was: the same lot hides the same share of its measured targets, the
same panel offers analogues, the same models weigh it. A visit's score depends on its own patient's visits and on the
model alone, to the byte; so does the decision by the stored cut-off. The joint rule looks at the whole table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import GuaranteeRefused
from safeimpute.measuring.model import MeasuringModel
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays, uniform_per_visit
from safeimpute.runtime.memory import scored_at_once
from safeimpute.selection.bh import require_batch
from safeimpute.selection.claims import Claim
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.intervals import conformal_radii
from safeimpute.selection.p_values import require_calibration_size
from safeimpute.selection.patients import release_unmeasured_of_new_patients
from safeimpute.selection.pipeline import XI_STREAM, Scored, batch_of, long_run_cutoff
from safeimpute.selection.release import (
    NO_EVIDENCE,
    OUT_OF_RANGE,
    OUT_OF_SCOPE,
    RISK_ABOVE_CUTOFF,
    THRESHOLDS,
)
from safeimpute.selection.thresholds import LabelledVisits, ScoredVisits, risk_thresholds
from safeimpute.selection.weighted import require_effective_sample_size
from safeimpute.splits.roles import HIDDEN_SHARE, Role
from safeimpute.systems.best.evidence import EvidenceTable
from safeimpute.systems.presets import FittedBest, hidden_by_lot
from safeimpute.tolerance import Tolerance

COVERED = Claim(new_patients=True, unmeasured=True)  # the one claim that speaks for what is scored
VISITS_AT_ONCE = 20_000  # at most; bounds memory, portions hold whole patients
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Calibration:
    """What the fit's calibration and validation patients say about a release; holds no identifier."""

    patient: IntArray  # per scored visit, 0 … n_patients - 1
    risk: FloatArray
    weight: FloatArray
    inside: BoolArray  # within the promise
    bad: BoolArray
    error: FloatArray  # absolute, in the target's unit
    spread: FloatArray
    validation_risk: FloatArray
    n_patients: int  # also those without any scored visit
    key: int  # of the calibration visits, for the number shared by a batch

    def labelled(self) -> LabelledVisits:
        """The visits within the promise."""
        kept = self.inside
        return LabelledVisits(
            self.patient[kept], self.risk[kept], self.weight[kept], self.n_patients, self.bad[kept]
        )

    def thresholds(self) -> FloatArray:
        """The thresholds of the joint rule, fixed by validation risks."""
        return risk_thresholds(self.validation_risk, THRESHOLDS)


@dataclass(frozen=True)
class ScoringModel:
    """Everything that scoring needs; nothing here changes any more."""

    fitted: FittedBest
    measuring: MeasuringModel | None
    calibration: Calibration | None  # None where nothing is promised for new patients
    cutoff: Cutoff | None  # None where the calibration patients were too few for one
    no_promise: str  # why nothing, or nothing by the cut-off, is promised; empty where something is
    known_patients: Keys  # sorted: those the fit learnt from or calibrated with
    by_patient: bool  # fitted on whole patients, so that new ones draw the same lot
    plausible: tuple[float, float] | None
    tolerance: Tolerance
    alpha: float
    interval: float
    seed: int

    def without_promise(self, rule: str) -> str:
        """Why a rule promises nothing with this model; empty where it does."""
        if self.calibration is None or (rule == "cutoff" and self.cutoff is None):
            return self.no_promise
        if rule == "cutoff" and self.cutoff is not None and self.cutoff.risk is None:
            return "no risk cut-off could be shown to keep the level, so that nothing is released"
        return ""


def freeze(
    scored: Scored,
    tolerance: Tolerance,
    alpha: float,
    interval: float,
    truth: FloatArray,
    plausible: tuple[float, float] | None,
    doubt: str = "",
) -> ScoringModel:
    """The scoring model of a fit by `best`. Where it promises something, this uses the calibration errors.

    `doubt` says why the fit may promise nothing, where somebody knows such a reason.
    """
    if scored.scores.frozen_at is None:
        raise GuaranteeRefused(
            "preset 'paper' cannot score new visits: its network knows only the visits of the graph it was trained "
            "on. Fit the preset 'best'."
        )
    calibration, cutoff, no_promise = None, None, doubt or _uncovered(scored)
    if not no_promise:
        calibration = _calibration(scored, tolerance, truth)
        try:
            cutoff = long_run_cutoff(scored, tolerance, alpha, truth)
        except GuaranteeRefused as refused:
            no_promise = str(refused)
    group = scored.split.group
    new = np.zeros(len(scored.arrays), dtype=bool) if group is None else group == Role.TEST
    return ScoringModel(
        fitted=scored.scores.frozen_at(tolerance),
        measuring=scored.measuring,
        calibration=calibration,
        cutoff=cutoff,
        no_promise=no_promise,
        known_patients=np.unique(scored.arrays.patient_key[~new]),
        by_patient=group is not None,
        plausible=plausible,
        tolerance=tolerance,
        alpha=alpha,
        interval=interval,
        seed=scored.plan.seed,
    )


def _uncovered(scored: Scored) -> str:
    """Why a fit promises nothing for visits of new patients that nobody measured; empty where it does."""
    if scored.claim != COVERED:
        return (
            f"the model was fitted for the claim {scored.claim.name!r}; unmeasured visits of new patients need "
            f"{COVERED.name!r}"
        )
    if scored.plan.best.blend.evidence.past_only and scored.arrays.known is not None:
        return (
            "the model reads when each result became known; in a table scored live, results still on their way look "
            "unmeasured, which no calibration patient's did"
        )
    if scored.measuring is None:
        return "the fitted table had no unmeasured visit, so that nothing was learnt about who gets measured"
    return ""


def _calibration(scored: Scored, tolerance: Tolerance, truth: FloatArray) -> Calibration:
    batch = batch_of(scored, tolerance, scored.candidates(), truth, scored.split)
    rows, inside = batch.calibration, np.ones(len(batch.risk), dtype=bool)
    for visits in batch.outside.values():
        inside &= ~visits
    keys = np.bitwise_xor.reduce(scored.arrays.visit_key[rows], keepdims=True)
    return Calibration(
        patient=np.searchsorted(batch.calibration_patients, batch.patient[rows]).astype(np.int64),
        risk=batch.risk[rows],
        weight=batch.weight[rows],
        inside=inside[rows],
        bad=batch.bad,
        error=np.abs(scored.scores.value[rows] - truth[rows]),
        spread=scored.scores.spread[rows],
        validation_risk=batch.risk[batch.validation],
        n_patients=len(batch.calibration_patients),
        key=int(keys[0]),
    )


@dataclass(frozen=True)
class NewScores:
    """What the frozen functions say about every visit of a new table, before any decision."""

    patient: IntArray
    visit_key: Keys
    value: FloatArray
    risk: FloatArray
    spread: FloatArray
    weight: FloatArray
    candidate: BoolArray  # nobody measured the target
    own_scored: BoolArray  # measured, hidden by lot: its error is known
    bad: BoolArray  # of such visits
    known: BoolArray  # visits of patients the fit has met
    outside: dict[str, BoolArray]  # reason -> visits outside the promise

    def at(self, rows: BoolArray) -> "NewScores":
        return NewScores(
            **{name: getattr(self, name)[rows] for name in _ARRAYS},
            outside={reason: visits[rows] for reason, visits in self.outside.items()},
        )

    def inside(self) -> BoolArray:
        """Visits within the promise."""
        there = np.ones(len(self.risk), dtype=bool)
        for visits in self.outside.values():
            there &= ~visits
        return there


_ARRAYS = (
    *("patient", "visit_key", "value", "risk", "spread", "weight"),
    *("candidate", "own_scored", "bad", "known"),
)


def score_new(visits: VisitArrays, model: ScoringModel) -> NewScores:
    """Score every visit of a table, portion by portion."""
    at_once = scored_at_once(visits, model.fitted.blend.source.settings, VISITS_AT_ONCE)
    parts = [_score_portion(visits.take(rows), model) for rows in _portions(visits.patient, at_once)]
    scores = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    reasons = {name: np.concatenate([part.outside[name] for part in parts]) for name in parts[0].outside}
    return NewScores(**scores | {"patient": visits.patient}, outside=reasons)


def _portions(patient: IntArray, at_once: int) -> Iterator[BoolArray]:
    """Whole patients, about so many visits together."""
    first = np.r_[True, patient[1:] != patient[:-1]]
    starts = np.flatnonzero(first)
    portion = np.searchsorted(starts, np.arange(at_once, len(patient), at_once))
    edges = np.unique(np.r_[0, np.append(starts, len(patient))[portion], len(patient)])
    for start, stop in pairwise(edges):
        rows = np.zeros(len(patient), dtype=bool)
        rows[start:stop] = True
        yield rows


def _score_portion(visits: VisitArrays, model: ScoringModel) -> NewScores:
    target = visits.target_values
    measured = ~np.isnan(target)
    hidden = measured & hidden_by_lot(visits, model.seed) if model.by_patient else np.zeros_like(measured)
    read = model.fitted.read(visits.with_target(np.where(hidden, np.nan, target)))
    value = read.imputation.value
    outside = {NO_EVIDENCE: read.evidence.nothing_known}
    if model.plausible is not None:
        outside[OUT_OF_RANGE] = (value < model.plausible[0]) | (value > model.plausible[1])
    known = _met(visits.patient_key, model.known_patients)
    weight, outside[OUT_OF_SCOPE] = _weigh(read.evidence.matrix, known, model)
    return NewScores(
        patient=visits.patient,
        visit_key=visits.visit_key,
        value=value,
        risk=read.risk,
        spread=read.spread,
        weight=weight,
        candidate=~measured,
        own_scored=hidden,
        bad=hidden & model.tolerance.risky(value, target),
        known=known,
        outside=outside,
    )


def _met(keys: Keys, known: Keys) -> BoolArray:
    """Which keys are among the known ones, which are sorted: one look-up each, however many are known."""
    if not len(known):
        return np.zeros(len(keys), dtype=bool)
    found: BoolArray = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
    return found


def _weigh(features: EvidenceTable, known: BoolArray, model: ScoringModel) -> tuple[FloatArray, BoolArray]:
    """Odds of being a candidate against being scored, and the visits no promise covers."""
    if model.calibration is None or model.measuring is None:
        return np.ones(len(known)), np.ones(len(known), dtype=bool)
    found = model.measuring.odds(features)
    return found.odds / HIDDEN_SHARE, found.too_large | known


@dataclass(frozen=True)
class NewDecision:
    """Per visit of the table whether it is released and, if not, why; only candidates ever are."""

    released: BoolArray
    reason: NDArray[np.str_]


def decide_by_cutoff(scores: NewScores, model: ScoringModel) -> NewDecision:
    """Release each candidate within the promise whose risk is at most the stored cut-off."""
    limit = -np.inf if model.cutoff is None or model.cutoff.risk is None else model.cutoff.risk
    released = scores.candidate & scores.inside() & (scores.risk <= limit)
    return explained(scores, released, everybody_outside=model.cutoff is None)


def decide_jointly(scores: NewScores, model: ScoringModel) -> NewDecision:
    """The rule for unmeasured visits of new patients, over the whole table at once."""
    released = np.zeros(len(scores.risk), dtype=bool)
    if model.calibration is not None:
        joint = joint_part(scores)
        require_joint_release(model.calibration, len(joint.rows), model.alpha)
        released[joint.rows] = release_unmeasured_of_new_patients(
            joint.candidates,
            joint.own_scored,
            model.calibration.labelled(),
            model.calibration.thresholds(),
            model.alpha,
            shared_uniform(model, combined_key(scores.visit_key[joint.rows])),
        )
    return explained(scores, released)


class JointPart(NamedTuple):
    """The new patients of a table, or of a part of it with whole patients, as the joint rule takes them."""

    rows: IntArray  # of the candidates within the promise
    candidates: ScoredVisits
    own_scored: LabelledVisits


def joint_part(scores: NewScores) -> JointPart:
    inside = scores.inside()
    rows, own = np.flatnonzero(scores.candidate & inside), np.flatnonzero(scores.own_scored & inside)
    new = np.unique(scores.patient[~scores.known])
    candidates = ScoredVisits(
        np.searchsorted(new, scores.patient[rows]), scores.risk[rows], scores.weight[rows], len(new)
    )
    own_scored = LabelledVisits(
        np.searchsorted(new, scores.patient[own]),
        scores.risk[own],
        scores.weight[own],
        len(new),
        scores.bad[own],
    )
    return JointPart(rows, candidates, own_scored)


def require_joint_release(calibration: Calibration, candidates: int, alpha: float) -> None:
    """Refuse a batch, or a calibration, too small for the joint rule."""
    require_batch(candidates)
    require_calibration_size(calibration.n_patients, alpha, "calibration patients")
    per_patient = np.zeros(calibration.n_patients)
    labelled = calibration.labelled()
    np.add.at(per_patient, labelled.patient, labelled.weight)
    require_effective_sample_size(per_patient, alpha, "patients")


def combined_key(keys: Keys) -> int:
    """The candidates' keys taken together, in any order and in any portions (exclusive or)."""
    return int(np.bitwise_xor.reduce(keys, initial=np.uint64(0)))


def shared_uniform(model: ScoringModel, candidate_key: int) -> float:
    """The uniform number of a batch: from the seed, the calibration visits and the candidates in scope."""
    calibrated = 0 if model.calibration is None else model.calibration.key
    return float(
        uniform_per_visit(np.array([calibrated ^ candidate_key], np.uint64), model.seed, XI_STREAM)[0]
    )


def explained(scores: NewScores, released: BoolArray, *, everybody_outside: bool = False) -> NewDecision:
    """The decision with a reason wherever a visit is withheld."""
    reason = np.where(released, "", OUT_OF_SCOPE if everybody_outside else RISK_ABOVE_CUTOFF).astype(object)
    for name, visits in scores.outside.items():
        reason[visits] = name
    return NewDecision(released, reason.astype(np.str_))


def half_widths(scores: NewScores, model: ScoringModel) -> FloatArray:
    """Half the width of each visit's interval; NaN where the patient is outside every promise."""
    calibration = model.calibration
    if calibration is None:
        return np.full(len(scores.risk), np.nan)
    radii = conformal_radii(
        calibration.error, calibration.spread, model.interval, calibration.weight, scores.weight
    )
    return np.where(scores.known, np.nan, radii * scores.spread)
