"""Stored cut-offs compared in the study: ours beside the ways of bounding that were tried and left."""

from dataclasses import dataclass

import numpy as np
from guarantee_scenarios import Cohort, empirical_cutoff
from safeimpute.selection.thresholds import LabelledVisits, counts_at_thresholds, risk_thresholds
from scipy import stats

from safeimpute.errors import GuaranteeRefused
from safeimpute.records.arrays import FloatArray
from safeimpute.selection.cutoff import stored_cutoff


@dataclass(frozen=True)
class LongRun:
    """The share of bad values, and of good ones released, below any risk, from a very large population."""

    risk: FloatArray
    bad_share: FloatArray
    power: FloatArray

    @classmethod
    def of(cls, cohort: Cohort) -> "LongRun":
        order = np.argsort(cohort.risk)
        bad = np.cumsum(cohort.bad[order])
        n = np.arange(1, len(order) + 1)
        return cls(cohort.risk[order], bad / n, (n - bad) / max(int((~cohort.bad).sum()), 1))

    def at(self, cutoff: float | None) -> tuple[float, float]:
        """Long-run share of bad values among the released, and power."""
        place = -1 if cutoff is None else int(np.searchsorted(self.risk, cutoff, side="right")) - 1
        return (float(self.bad_share[place]), float(self.power[place])) if place >= 0 else (0.0, 0.0)


def cutoff_rules(calibration: Cohort, validation: Cohort, alpha: float) -> dict[str, float | None]:
    """The stored cut-off each way of bounding would give; None where nothing passes or the rule refuses."""
    thresholds = risk_thresholds(validation.risk, 20)
    known = calibration.labelled()
    naive = empirical_cutoff(calibration.risk, calibration.bad, alpha)
    return {
        "naive": naive if np.isfinite(naive) else None,
        "Student, fixed sequence": fixed_sequence(calibration, validation, alpha),
        "betting": betting_cutoff(known, validation, thresholds, alpha),
        "ours": cutoff_or_none(known, thresholds, alpha),
    }


def cutoff_or_none(known: LabelledVisits, thresholds: FloatArray, alpha: float) -> float | None:
    try:
        return stored_cutoff(known, thresholds, alpha).risk
    except GuaranteeRefused:
        return None


def excess_at(cohort: Cohort, thresholds: FloatArray, alpha: float) -> FloatArray:
    return counts_at_thresholds(cohort.scored(), cohort.bad.astype(np.float64) - alpha, thresholds)


def student_p(excess: FloatArray) -> FloatArray:
    error = np.maximum(excess.std(axis=0, ddof=1), 1e-12) / np.sqrt(len(excess))
    return np.asarray(stats.t.cdf(excess.mean(axis=0) / error, len(excess) - 1))


def fixed_sequence(calibration: Cohort, validation: Cohort, alpha: float) -> float | None:
    """Student tests at 5 % each, upward from the threshold validation finds clearest, to a first failure."""
    thresholds = risk_thresholds(validation.risk, 50)
    start = int(np.argmin(student_p(excess_at(validation, thresholds, alpha))))
    passed = student_p(excess_at(calibration, thresholds, alpha))[start:] <= 0.05
    run = int(np.argmin(passed)) if not passed.all() else len(passed)
    return float(thresholds[start + run - 1]) if run else None


def betting_cutoff(
    known: LabelledVisits, validation: Cohort, thresholds: FloatArray, alpha: float
) -> float | None:
    """A bound without any distribution: mean of prod_k (1 - bet X_k) over bets, patients capped in size."""
    largest = np.bincount(validation.patient).max()
    size = np.bincount(known.patient, minlength=known.n_patients)
    kept = size[known.patient] <= largest
    visits = LabelledVisits(
        known.patient[kept], known.risk[kept], known.weight[kept], known.n_patients, known.bad[kept]
    )
    excess = counts_at_thresholds(visits, visits.bad.astype(np.float64) - alpha, thresholds)
    bets = np.arange(1, 21) / 20 / (1.001 * (1 - alpha) * largest)
    wealth = np.mean([np.exp(np.log1p(-bet * excess).sum(axis=0)) for bet in bets], axis=0)
    safe = np.flatnonzero(wealth >= len(thresholds) / 0.05)
    return float(thresholds[safe[-1]]) if len(safe) else None
