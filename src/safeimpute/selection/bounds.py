"""A bound for every release, true for whichever threshold is picked: at most so many of these values are risky.

Under claim `visits` it is exact. Elsewhere it is Fay and Feuer's (1997) for weighted counts, as rates in epidemiology
have them, with patients as the counted units and the doubt divided so that it covers all thresholds at once; that it
does is established by simulation (docs/guarantee.md).
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from safeimpute.selection.ledger import Entries, risk_grid
from safeimpute.selection.sums import size_biased
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

THRESHOLDS_HERE = 10.0  # what the thresholds of one table count for: its values share the table's luck
THRESHOLDS = 40.0  # what they count for in the long run, where patients not met yet count too
BRACKETS = 40  # of thresholds under claim `visits`


@dataclass(frozen=True)
class Bound:
    """What is known of the risky values among some released ones; each sentence holds with the confidence."""

    values: int
    confidence: float
    share: float | None  # of all that the rule releases in the long run; None where the claim speaks of these only
    risky: int  # of these values, at most

    def __add__(self, other: "Bound") -> "Bound":
        """Two groups of values together; the confidence was divided between them before."""
        known = [each for each in (self, other) if each.values] or [self]
        shares = [each.share for each in known if each.share is not None]
        share = max(shares) if len(shares) == len(known) else None
        return Bound(self.values + other.values, self.confidence, share, self.risky + other.risky)


def ledger_bound(entries: Entries, cutoff: float, risk: FloatArray, patient: IntArray, confidence: float) -> Bound:
    """The bound for a release up to a cut-off; `risk` and `patient` are the candidates' within the promise."""
    released = risk <= cutoff
    values, doubt = int(released.sum()), 1.0 - confidence
    there = entries.risk <= cutoff
    number = np.unique(entries.patient[there], return_inverse=True)[1]
    weight, risky = (
        np.bincount(number, amount[there], minlength=1).astype(np.float64)
        for amount in (entries.weight, entries.weight * entries.risky)
    )
    total = float(weight.sum())
    if total <= 0.0:
        return Bound(values, confidence, 1.0, values)
    seen = float(risky.sum()) / total
    unit = float(size_biased(weight[:, None])[0])
    here = min(1.0, largest_sum(risky, unit, doubt / THRESHOLDS_HERE) / total)
    share = min(1.0, largest_sum(risky, unit, doubt / THRESHOLDS) / total)
    # One patient's values may be risky together: each patient is one draw, as large as its values.
    per_patient = np.bincount(patient[released], minlength=1).astype(np.float64)
    luck = NormalDist().inv_cdf(1.0 - doubt / THRESHOLDS_HERE)
    chance = luck * math.sqrt(here * (1.0 - here) * float(np.square(per_patient).sum()))
    most = seen * values + math.hypot((here - seen) * values, chance)
    whole = math.floor(most + 1e-9) if entries.risky.dtype == bool else math.ceil(most - 1e-9)  # costs are no counts
    return Bound(values, confidence, share, min(values, whole))


def largest_sum(amounts: FloatArray, unit: float, doubt: float) -> float:
    """Upper limit for the mean of a sum of rare amounts, one more of size `unit` counted as seen (Fay and Feuer)."""
    from scipy.special import gammaincinv

    mean = float(amounts.sum()) + unit
    variance = float(np.square(amounts).sum()) + unit * unit
    return variance / mean * float(gammaincinv(mean * mean / variance, 1.0 - doubt))


def held_out_bound(
    risk: FloatArray, risky: BoolArray, candidate_risk: FloatArray, cutoff: float, confidence: float
) -> Bound:
    """The bound under claim `visits`: exact, since which of the visits calibrate was drawn at random."""
    values = int(np.sum(candidate_risk <= cutoff))
    edges = np.r_[risk_grid(np.r_[risk, candidate_risk], BRACKETS)[:-1], np.inf]
    doubt = (1.0 - confidence) / len(edges)
    best = values
    for edge in edges:
        judged, asked = risk <= edge, int(np.sum(candidate_risk <= edge))
        at_most = most_risky(int(judged.sum()), int(risky[judged].sum()), asked, doubt)
        best = min(best, at_most + max(0, values - asked))
    return Bound(values, confidence, None, best)


def most_risky(judged: int, risky: int, asked: int, doubt: float) -> int:
    """The most risky values among `asked` that would leave so few among the `judged` with a chance above `doubt`."""
    low, high = 0, asked
    while low < high:
        middle = (low + high + 1) // 2
        if chance_of_so_few(judged, risky, asked, middle) > doubt:
            low = middle
        else:
            high = middle - 1
    return low


def chance_of_so_few(
    judged: IntArray | int, risky: IntArray | int, asked: IntArray | int, wrong: IntArray | int
) -> FloatArray:
    """Chance of at most `risky` among the judged if the asked hold `wrong` risky ones (hypergeometric)."""
    from scipy.stats import hypergeom

    return np.asarray(hypergeom.cdf(risky, np.add(judged, asked), np.add(risky, wrong), judged))
