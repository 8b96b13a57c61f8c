"""How strong an unseen reason for measuring must be to overturn a release: an analysis, no promise.

If the true odds of being unmeasured differ from the modelled ones by a factor of at most gamma either way, a patient's
balance is at most the sum of w_i 1{risk_i <= T} (gamma (1 - alpha) 1{risky_i} - alpha / gamma 1{not risky_i}).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import FloatArray
from safeimpute.selection.ledger import Entries, per_patient, size_biased


@dataclass(frozen=True)
class UnderDoubt:
    """What would still be released if an unseen reason changed the odds by so much."""

    gamma: float
    released: int


def released_under_doubt(
    entries: Entries,
    thresholds: FloatArray,
    candidate_risk: FloatArray,
    alpha: float,
    gammas: Sequence[float],
) -> list[UnderDoubt]:
    """Released candidates for each factor, by the average rule."""
    return [
        UnderDoubt(float(gamma), int(np.sum(candidate_risk <= _cutoff(entries, thresholds, alpha, gamma))))
        for gamma in gammas
    ]


def _cutoff(entries: Entries, thresholds: FloatArray, alpha: float, gamma: float) -> float:
    """The average rule's cut-off against the worst balance that odds off by `gamma` allow; -inf for none."""
    cost = np.where(entries.risky, gamma * (1.0 - alpha), -alpha / gamma)
    balance = per_patient(entries, entries.weight * cost, thresholds)
    size = per_patient(entries, entries.weight, thresholds)
    total = size.sum(axis=0)
    heavy = per_patient(entries, np.square(entries.weight), thresholds).sum(axis=0)
    visit = np.divide(heavy, total, out=np.zeros_like(total), where=total > 0)
    correction = size_biased(np.maximum(balance, 0.0)) + (1.0 - alpha) * gamma * visit
    safe = np.flatnonzero((total > 0.0) & (balance.sum(axis=0) + correction <= 0.0))
    return float(thresholds[safe[-1]]) if len(safe) else -np.inf
