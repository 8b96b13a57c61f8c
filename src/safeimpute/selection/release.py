"""From risks and calibration errors to a release, by the procedure that earns the claim.

Whatever withholds a visit for another reason than its risk (no evidence, an impossible value, a weight too large)
reads no target, applies to calibration visits and candidates alike, and acts before any p-value is formed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.claims import Claim
from safeimpute.selection.p_values import (
    Scores,
    conformal_p_values,
    paper_p_values,
    require_attainable_level,
    require_calibration_size,
)
from safeimpute.selection.patients import release_new_patients, release_unmeasured_of_new_patients
from safeimpute.selection.thresholds import LabelledVisits, ScoredVisits, risk_thresholds
from safeimpute.selection.weighted import (
    effective_sample_size,
    require_effective_sample_size,
    weighted_selection,
)

RISK_ABOVE_CUTOFF = "risk above cut-off"
NO_EVIDENCE = "no evidence"
OUT_OF_RANGE = "out of range"
OUT_OF_SCOPE = "outside the guarantee's scope"
THRESHOLDS = 100  # fixed from validation risks, for releases to new patients


@dataclass(frozen=True)
class Batch:
    """Everything a release is decided from. Arrays without another note have one entry per visit of the table."""

    risk: FloatArray
    tie: FloatArray  # hashed uniform per visit
    patient: IntArray
    weight: FloatArray  # odds of being a candidate; 1 where the claim needs none
    outside: Mapping[str, BoolArray]  # reason -> visits outside the promise
    calibration: IntArray  # rows whose error is known and was used for nothing else
    bad: BoolArray  # per calibration row
    candidates: IntArray  # rows
    validation: IntArray  # rows that fix thresholds
    xi: float  # one uniform number for the whole batch
    own_scored: IntArray  # rows of new patients whose error is known (claim `patients,unmeasured`)
    own_bad: BoolArray  # per such row
    calibration_patients: IntArray  # patients by number, also those without any scored visit
    new_patients: IntArray


@dataclass(frozen=True)
class Decision:
    """Per candidate: its p-value where the procedure has one, whether it is released, and if not, why."""

    p_value: FloatArray
    released: BoolArray
    reason: NDArray[np.str_]
    calibration_visits: int
    effective_sample_size: float


def decide(batch: Batch, claim: Claim, alpha: float, *, published_ties: bool = False) -> Decision:
    """Release candidates under a claim; `published_ties` keeps the paper's own p-value."""
    scoped = within_scope(batch)
    if claim.new_patients:
        p_value = np.full(len(scoped.candidates), np.nan)
        released = _release_to_new_patients(scoped, claim, alpha)
    elif claim.unmeasured:
        p_value, released = _release_weighted(scoped, alpha)
    else:
        p_value, released = _release_plain(scoped, alpha, published_ties)
    return _spread_out(batch, p_value, released, scoped)


def _inside(batch: Batch) -> BoolArray:
    inside = np.ones(len(batch.risk), dtype=bool)
    for visits in batch.outside.values():
        inside &= ~visits
    return inside


def within_scope(batch: Batch) -> Batch:
    """The batch with every visit outside the promise gone from both sides."""
    inside = _inside(batch)
    kept, own = inside[batch.calibration], inside[batch.own_scored]
    return replace(
        batch,
        outside={},
        calibration=batch.calibration[kept],
        bad=batch.bad[kept],
        candidates=batch.candidates[inside[batch.candidates]],
        own_scored=batch.own_scored[own],
        own_bad=batch.own_bad[own],
    )


def _scores(batch: Batch, rows: IntArray) -> Scores:
    return Scores(batch.risk[rows], batch.tie[rows])


def _release_plain(batch: Batch, alpha: float, published_ties: bool) -> tuple[FloatArray, BoolArray]:
    require_calibration_size(len(batch.calibration), alpha)
    candidate, calibration = _scores(batch, batch.candidates), _scores(batch, batch.calibration)
    if published_ties:
        p_value = paper_p_values(candidate.risk, calibration.risk, batch.bad, candidate.tie)
    else:
        p_value = conformal_p_values(candidate, calibration, batch.bad)
    return p_value, benjamini_hochberg(p_value, alpha)


def _release_weighted(batch: Batch, alpha: float) -> tuple[FloatArray, BoolArray]:
    candidate_weight, calibration_weight = batch.weight[batch.candidates], batch.weight[batch.calibration]
    require_effective_sample_size(calibration_weight, alpha)
    if len(batch.candidates):
        require_attainable_level(candidate_weight, calibration_weight, alpha)
    sides = _scores(batch, batch.candidates), _scores(batch, batch.calibration)
    p_value = conformal_p_values(*sides, batch.bad, candidate_weight, calibration_weight)
    released = weighted_selection(*sides, batch.bad, candidate_weight, calibration_weight, alpha, batch.xi)
    return p_value, released


def _release_to_new_patients(batch: Batch, claim: Claim, alpha: float) -> BoolArray:
    require_calibration_size(len(batch.calibration_patients), alpha, "calibration patients")
    thresholds = risk_thresholds(batch.risk[batch.validation], THRESHOLDS)
    candidates = ScoredVisits(*of_patients(batch, batch.candidates, batch.new_patients))
    calibration = LabelledVisits(
        *of_patients(batch, batch.calibration, batch.calibration_patients), batch.bad
    )
    if not claim.unmeasured:
        return release_new_patients(candidates, calibration, thresholds, alpha, batch.xi)
    per_patient = np.zeros(calibration.n_patients)
    np.add.at(per_patient, calibration.patient, calibration.weight)
    require_effective_sample_size(per_patient, alpha, "patients")
    own = LabelledVisits(*of_patients(batch, batch.own_scored, batch.new_patients), batch.own_bad)
    return release_unmeasured_of_new_patients(candidates, own, calibration, thresholds, alpha, batch.xi)


def of_patients(
    batch: Batch, rows: IntArray, patients: IntArray
) -> tuple[IntArray, FloatArray, FloatArray, int]:
    """Patient numbers from 0, risks, weights, and how many patients there are."""
    number = np.searchsorted(patients, batch.patient[rows]).astype(np.int64)
    return number, batch.risk[rows], batch.weight[rows], len(patients)


def _spread_out(batch: Batch, p_value: FloatArray, released: BoolArray, scoped: Batch) -> Decision:
    """Back from the visits inside the promise to all candidates."""
    there = _inside(batch)[batch.candidates]
    all_p, all_released = np.full(len(there), np.nan), np.zeros(len(there), dtype=bool)
    all_p[there], all_released[there] = p_value, released
    reason = np.where(all_released, "", RISK_ABOVE_CUTOFF).astype(object)
    for name, visits in batch.outside.items():
        reason[visits[batch.candidates]] = name
    weight = scoped.weight[scoped.calibration]
    return Decision(
        all_p, all_released, reason.astype(np.str_), len(scoped.calibration), effective_sample_size(weight)
    )
