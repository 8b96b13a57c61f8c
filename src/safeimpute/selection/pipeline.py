"""The flow on arrays: split for a claim, score what the split allows to be seen, calibrate, release.

The estimator and every evaluation run through these few functions, so that what is scored is what is shipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.errors import GuaranteeRefused, VisitsError
from safeimpute.measuring.model import MeasuringModel, learn_measuring
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays, uniform_per_visit
from safeimpute.runtime.progress import Progress, silent
from safeimpute.selection.claims import Claim
from safeimpute.selection.cutoff import Cutoff, stored_cutoff
from safeimpute.selection.p_values import Scores
from safeimpute.selection.release import (
    NO_EVIDENCE,
    OUT_OF_RANGE,
    OUT_OF_SCOPE,
    Batch,
    Decision,
    decide,
    of_patients,
    within_scope,
)
from safeimpute.selection.sensitivity import released_over_gamma
from safeimpute.selection.thresholds import LabelledVisits, risk_thresholds
from safeimpute.splits.roles import HIDDEN_SHARE, Role, Roles, hide, split_patients, split_visits
from safeimpute.systems.presets import Lesson, Plan, VisitScores, hidden_by_lot, score_visits
from safeimpute.tolerance import Tolerance

FEWEST_MEASURED = 30  # fewer measured targets than this cannot be split three ways and learnt from
NEW_PATIENTS = (
    0.25  # share of patients set aside as new, where a release to new patients is asked of one table
)
CUTOFF_GRID = 20  # thresholds tried for a stored cut-off; each one tried costs confidence
SPLIT_STREAM, WEIGHT_STREAM = 11, 13
TIE_STREAM, XI_STREAM = 0, 1  # of hashed uniforms


@dataclass(frozen=True)
class Split:
    """The role of every visit and, where whole patients are split, of its patient."""

    roles: Roles
    group: Roles | None = None

    def rows(self, role: Role) -> IntArray:
        return np.flatnonzero(self.roles == role)

    def patients(self, patient: IntArray, role: Role) -> IntArray:
        """Patients of a group by number; empty where visits are split."""
        return np.empty(0, np.int64) if self.group is None else np.unique(patient[self.group == role])


@dataclass(frozen=True)
class Scored:
    """A fitted, scored table: all that a release at any level needs, before any calibration error is read."""

    arrays: VisitArrays
    split: Split
    scores: VisitScores
    weight: FloatArray
    outside: dict[str, BoolArray]
    claim: Claim
    plan: Plan
    measuring: MeasuringModel | None = None  # where the claim weighs visits

    def candidates(self) -> IntArray:
        """The visits nobody measured; under a claim for new patients, all of them are listed, not all in scope."""
        return self.split.rows(Role.UNMEASURED)


def split_for(claim: Claim, arrays: VisitArrays, seed: int, test_fraction: float = 0.0) -> Split:
    """The split a claim needs."""
    measured = ~np.isnan(arrays.target_values)
    if measured.sum() < FEWEST_MEASURED:
        raise VisitsError(
            f"target {arrays.lab_names[arrays.target]!r} is measured at {measured.sum()} visits; at least "
            f"{FEWEST_MEASURED} are needed to learn, validate and calibrate."
        )
    rng = np.random.default_rng([seed, SPLIT_STREAM])
    if not claim.new_patients:
        return Split(split_visits(measured, rng, test_fraction=test_fraction))
    roles, group = split_patients(arrays.patient, measured, rng, test_fraction=test_fraction or NEW_PATIENTS)
    return Split(_hidden_anew(roles, group, hidden_by_lot(arrays, seed)), group)


def _hidden_anew(roles: Roles, group: Roles, hidden: BoolArray) -> Roles:
    """The same patients with the lot that a patient scored later will draw deciding what is hidden."""
    dealt = (group != Role.TRAINING) & (roles != Role.UNMEASURED)
    return np.where(dealt, np.where(hidden, group, Role.CONTEXT), roles).astype(np.int8)


def score_split(
    arrays: VisitArrays,
    split: Split,
    claim: Claim,
    plan: Plan,
    plausible: tuple[float, float] | None = None,
    progress: Progress = silent,
) -> Scored:
    """Fit and score what the split allows to be seen, and say which visits the claim cannot cover."""
    if claim.new_patients and plan.preset == "paper":
        raise GuaranteeRefused(
            f"claim {claim.name!r} needs the preset 'best': the paper's network knows only the visits it was "
            "trained with, so nothing can be promised for patients it never saw."
        )
    lesson = None if split.group is None else _lesson(split.group)
    scores = score_visits(hide(arrays, split.roles), plan, lesson, progress)
    outside = {NO_EVIDENCE: scores.no_evidence}
    if plausible is not None:
        outside[OUT_OF_RANGE] = (scores.value < plausible[0]) | (scores.value > plausible[1])
    weight, measuring = (
        np.full(len(arrays), 1.0 if lesson is None else _overall_odds(split, lesson.learn)),
        None,
    )
    if claim.unmeasured:
        weight, outside[OUT_OF_SCOPE], measuring = _weigh(arrays, split, scores, lesson, plan.seed)
    return Scored(arrays, split, scores, weight, outside, claim, plan, measuring)


def _lesson(group: Roles) -> Lesson:
    return Lesson(learn=np.isin(group, (Role.TRAINING, Role.VALIDATION)), unhidden=group == Role.TRAINING)


def _overall_odds(split: Split, learn: BoolArray) -> float:
    """Unmeasured visits per scored one among patients that may train: every visit's weight if all are alike."""
    unmeasured = int(np.sum(learn & (split.roles == Role.UNMEASURED)))
    return max(unmeasured, 1) / max(HIDDEN_SHARE * (int(learn.sum()) - unmeasured), 1.0)


def _weigh(
    arrays: VisitArrays, split: Split, scores: VisitScores, lesson: Lesson | None, seed: int
) -> tuple[FloatArray, BoolArray, MeasuringModel | None]:
    """Odds of being a candidate against being scored, where they are too large, and the model that says so."""
    unmeasured = split.roles == Role.UNMEASURED
    if not unmeasured.any():
        return np.ones(len(arrays)), np.zeros(len(arrays), dtype=bool), None
    rng = np.random.default_rng([seed, WEIGHT_STREAM])
    if lesson is None:
        learn = unmeasured | np.isin(split.roles, (Role.TRAINING, Role.VALIDATION))
        model, found = learn_measuring(scores.features, unmeasured, learn, arrays.patient, rng)
        return found.odds, found.too_large, model
    model, found = learn_measuring(scores.features, unmeasured, lesson.learn, arrays.patient, rng)
    apart = model.odds(scores.features[~lesson.learn])
    found.odds[~lesson.learn], found.too_large[~lesson.learn] = apart.odds, apart.too_large
    return found.odds / HIDDEN_SHARE, found.too_large, model


def release(
    scored: Scored,
    tolerance: Tolerance,
    alpha: float,
    candidates: IntArray,
    truth: FloatArray,
    split: Split | None = None,
) -> Decision:
    """Calibrate and release: the only place where calibration errors are used."""
    split = split or scored.split
    batch = batch_of(scored, tolerance, candidates, truth, split)
    return decide(
        batch, _rule(scored.claim, split, candidates), alpha, published_ties=scored.plan.preset == "paper"
    )


def _rule(claim: Claim, split: Split, candidates: IntArray) -> Claim:
    """Which procedure fits the candidates.

    The rule for new patients compares counts, so its candidates must be drawn like the scored visits. Visits nobody
    measured are not: they take the rule for unmeasured visits, with equal weights where the claim models none.
    """
    unmeasured = bool(np.any(split.roles[candidates] == Role.UNMEASURED))
    return replace(claim, unmeasured=True) if claim.new_patients and unmeasured else claim


def released_under_doubt(
    scored: Scored,
    tolerance: Tolerance,
    alpha: float,
    candidates: IntArray,
    truth: FloatArray,
    gammas: Sequence[float],
) -> IntArray:
    """How many values BH would still release if the odds of measuring were off by each factor: an analysis."""
    batch = within_scope(batch_of(scored, tolerance, candidates, truth, scored.split))
    return released_over_gamma(
        Scores(batch.risk[batch.candidates], batch.tie[batch.candidates]),
        Scores(batch.risk[batch.calibration], batch.tie[batch.calibration]),
        batch.bad,
        batch.weight[batch.candidates],
        batch.weight[batch.calibration],
        alpha,
        np.asarray(gammas, dtype=np.float64),
    )


def long_run_cutoff(scored: Scored, tolerance: Tolerance, alpha: float, truth: FloatArray) -> Cutoff:
    """A cut-off to store, for deciding new patients' visits one by one; needs a split by patients."""
    if scored.split.group is None:
        raise GuaranteeRefused(
            "a stored cut-off speaks for new patients and needs calibration patients apart: claim 'patients' or "
            "'patients,unmeasured'."
        )
    batch = within_scope(batch_of(scored, tolerance, scored.candidates(), truth, scored.split))
    calibration = LabelledVisits(
        *of_patients(batch, batch.calibration, batch.calibration_patients), batch.bad
    )
    return stored_cutoff(calibration, risk_thresholds(batch.risk[batch.validation], CUTOFF_GRID), alpha)


def batch_of(
    scored: Scored, tolerance: Tolerance, candidates: IntArray, truth: FloatArray, split: Split
) -> Batch:
    """Everything a release is decided from, calibrated as the split says."""
    value, patient, seed = scored.scores.value, scored.arrays.patient, scored.plan.seed
    calibration, own = split.rows(Role.CALIBRATION), split.rows(Role.TEST)
    _refuse_overlap(scored.split, np.concatenate([calibration, own]))
    own = own if _rule(scored.claim, split, candidates) == Claim(True, True) else own[:0]
    return Batch(
        risk=scored.scores.risk_at(tolerance),
        tie=uniform_per_visit(scored.arrays.visit_key, seed, TIE_STREAM),
        patient=patient,
        weight=scored.weight,
        outside=_with_patients_in_scope(scored.outside, split),
        calibration=calibration,
        bad=tolerance.risky(value[calibration], truth[calibration]),
        candidates=candidates,
        validation=split.rows(Role.VALIDATION),
        xi=_shared_uniform(scored.arrays, calibration, seed),
        own_scored=own,
        own_bad=tolerance.risky(value[own], truth[own]),
        calibration_patients=split.patients(patient, Role.CALIBRATION),
        new_patients=split.patients(patient, Role.TEST),
    )


def _refuse_overlap(fitted: Split, scored_rows: IntArray) -> None:
    """A visit whose target the fit could see, or was steered by, cannot calibrate it."""
    used = int(np.sum(~np.isin(fitted.roles[scored_rows], (Role.CALIBRATION, Role.TEST))))
    if used:
        raise GuaranteeRefused(
            f"{used:,} of {len(scored_rows):,} calibration or test visits took part in the fit: nothing can be "
            "promised from them. Calibrate on visits the fit never saw."
        )


def _shared_uniform(arrays: VisitArrays, calibration: IntArray, seed: int) -> float:
    """One number for the batch, from the seed and from which visits calibrate."""
    key = np.bitwise_xor.reduce(arrays.visit_key[calibration], keepdims=True)
    return float(uniform_per_visit(key, seed, XI_STREAM)[0])


def _with_patients_in_scope(outside: dict[str, BoolArray], split: Split) -> dict[str, BoolArray]:
    """A release to new patients covers neither those that trained nor, as candidates, those that calibrate."""
    if split.group is None:
        return outside
    calibrating = (split.group == Role.CALIBRATION) & (split.roles != Role.UNMEASURED)
    others = ~((split.group == Role.TEST) | calibrating)
    return outside | {OUT_OF_SCOPE: outside.get(OUT_OF_SCOPE, others) | others}
