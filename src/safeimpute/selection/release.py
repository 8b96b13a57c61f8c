"""One release engine: risks, weights, known errors and a rule in; released or withheld, and why, out.

Whatever withholds a visit for another reason than its risk (no evidence, an impossible value, odds too large) reads
no target, applies to measured visits and candidates alike, and acts before any error is looked at.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.cutoff import (
    FEWEST_PATIENTS,
    FEWEST_VISITS,
    Cutoff,
    average_cutoff,
    confident_cutoff,
    enough,
)
from safeimpute.selection.ledger import Entries, Worth, risk_grid
from safeimpute.selection.p_values import Ranked, conformal_p_values, fewest_calibration, paper_p_values
from safeimpute.selection.reasons import NOT_PROMISED, RISK_ABOVE_CUTOFF
from safeimpute.settings import ClaimName, PromiseName, Settings


@dataclass(frozen=True)
class Rule:
    """How a release is decided."""

    claim: ClaimName
    alpha: float
    promise: PromiseName = "average"
    confidence: float = 0.9
    published: bool = False  # the paper's own p-value, with nobody out of scope


def rule_of(settings: Settings) -> Rule:
    """How a release is decided under these settings."""
    return Rule(
        settings.claim,
        settings.fdr,
        settings.promise,
        settings.confidence,
        published=settings.preset == "paper",
    )


@dataclass(frozen=True)
class Ground:
    """Everything a release is decided from; arrays have one entry per visit."""

    risk: FloatArray
    tie: FloatArray  # hashed uniform number per visit
    patient: IntArray
    weight: FloatArray  # odds of being a candidate
    outside: Mapping[str, BoolArray]  # reason -> visits outside the promise
    judged: BoolArray  # visits whose error is known and calibrates
    risky: BoolArray  # of judged visits: the error reaches the tolerance
    candidate: BoolArray
    group: IntArray | None = None  # the level holds within each; known before any error is read

    @property
    def inside(self) -> BoolArray:
        """Visits within the promise."""
        there = np.isfinite(self.risk) & np.isfinite(self.weight)
        for visits in self.outside.values():
            there &= ~visits
        return there


@dataclass(frozen=True)
class Decision:
    """Per candidate whether it is released and, if not, why; and what decided it."""

    released: BoolArray
    reason: NDArray[np.str_]
    cutoff: FloatArray  # the risk up to which its group was released; NaN where none
    p_value: FloatArray  # under claim `visits`; NaN elsewhere
    cutoffs: Mapping[int, Cutoff]  # by group; 0 where there are none
    refused: str = ""  # why nothing could be promised; empty where something was


def decide(ground: Ground, rule: Rule) -> Decision:
    """Release candidates by the rule that earns the claim."""
    return _by_p_values(ground, rule) if rule.claim == "visits" else _by_ledger(ground, rule)


def entries_of(ground: Ground, group: int | None = None) -> Entries:
    """The measured visits of the ledger; patients without one count as patients too."""
    rows = ground.judged & ground.inside
    if group is not None and ground.group is not None:
        rows &= ground.group == group
    return Entries(
        ground.patient[rows],
        ground.risk[rows],
        ground.weight[rows],
        ground.risky[rows],
        int(ground.patient.max(initial=-1)) + 1,
    )


def cutoff_for(entries: Entries, thresholds: FloatArray, rule: Rule) -> Cutoff:
    """The largest risk the rule releases; none where the level stands for too few risky values."""
    worth = entries.worth
    if not enough(worth, rule.alpha):
        return Cutoff(None, None, worth.visits, worth.patients)
    if rule.promise == "confident":
        return confident_cutoff(entries, thresholds, rule.alpha, rule.confidence)
    return average_cutoff(entries, thresholds, rule.alpha)


def cutoffs_of(ground: Ground, rule: Rule) -> dict[int, Cutoff]:
    """A cut-off for every group, or one for all."""
    groups = [None] if ground.group is None else sorted(np.unique(ground.group).tolist())
    found = {}
    for group in groups:
        there = ground.inside & (ground.judged | ground.candidate)
        if group is not None and ground.group is not None:
            there &= ground.group == group
        found[group or 0] = cutoff_for(entries_of(ground, group), risk_grid(ground.risk[there]), rule)
    return found


def _by_ledger(ground: Ground, rule: Rule) -> Decision:
    cutoffs = cutoffs_of(ground, rule)
    group = None if ground.group is None else ground.group[ground.candidate]
    outside = {name: visits[ground.candidate] for name, visits in ground.outside.items()}
    decision = decide_by_cutoff(ground.risk[ground.candidate], outside, cutoffs, group)
    worths = [Worth(each.visits, each.patients) for each in cutoffs.values()]
    if any(enough(worth, rule.alpha) for worth in worths):
        return decision
    return withhold_all(decision, too_few(rule.alpha, max(worths, key=lambda worth: worth.patients)))


def decide_by_cutoff(
    risk: FloatArray,
    outside: Mapping[str, BoolArray],
    cutoffs: Mapping[int, Cutoff],
    group: IntArray | None = None,
) -> Decision:
    """Release every visit within the promise whose risk is at most its group's cut-off: each visit by itself."""
    limits = {number: math.nan if each.risk is None else each.risk for number, each in cutoffs.items()}
    cutoff = np.full(len(risk), limits.get(0, math.nan))
    if group is not None:
        cutoff = np.array([limits.get(int(number), math.nan) for number in group], dtype=np.float64)
    inside = np.isfinite(risk)
    for visits in outside.values():
        inside &= ~visits
    with np.errstate(invalid="ignore"):
        released = inside & (risk <= cutoff)
    reason = reasons(released, outside)
    return Decision(released, reason, cutoff, np.full(len(risk), np.nan), dict(cutoffs))


def reasons(released: BoolArray, outside: Mapping[str, BoolArray]) -> NDArray[np.str_]:
    """Why each visit is withheld; empty where it is released."""
    reason = np.where(released, "", RISK_ABOVE_CUTOFF).astype(object)
    for name, visits in outside.items():
        reason[visits & ~released] = name
    return reason.astype(np.str_)


def _by_p_values(ground: Ground, rule: Rule) -> Decision:
    """Plain conformal p-values against the calibration visits, and Benjamini-Hochberg (the paper's release)."""
    inside = np.isfinite(ground.risk) if rule.published else ground.inside
    calibration, candidate = ground.judged & inside, ground.candidate & inside
    if rule.published:
        p_value = paper_p_values(
            ground.risk[candidate], ground.risk[calibration], ground.risky[calibration], ground.tie[candidate]
        )
    else:
        p_value = conformal_p_values(
            Ranked(ground.risk[candidate], ground.tie[candidate]),
            Ranked(ground.risk[calibration], ground.tie[calibration]),
            ground.risky[calibration],
        )
    released, p_values = np.zeros(len(ground.risk), dtype=bool), np.full(len(ground.risk), np.nan)
    p_values[candidate], released[candidate] = p_value, benjamini_hochberg(p_value, rule.alpha)
    limit = float(ground.risk[released].max()) if released.any() else math.nan
    outside = {} if rule.published else {n: v[ground.candidate] for n, v in ground.outside.items()}
    rows = ground.candidate
    decision = Decision(
        released[rows],
        reasons(released[rows], outside),
        np.full(int(rows.sum()), limit),
        p_values[rows],
        {0: _observed_cutoff(ground, calibration, limit)},
    )
    needed = fewest_calibration(rule.alpha)
    if int(calibration.sum()) >= needed:
        return decision
    return withhold_all(
        decision,
        f"an FDR level of {rule.alpha:g} needs at least {needed} calibration visits; there are "
        f"{int(calibration.sum())}. Give more measured visits or a higher level",
    )


def _observed_cutoff(ground: Ground, calibration: BoolArray, limit: float) -> Cutoff:
    """The risk of the last value released, for display; decisions came from the p-values."""
    below = calibration & (ground.risk <= limit)
    share = float(ground.risky[below].mean()) if below.any() else None
    patients = len(np.unique(ground.patient[calibration]))
    return Cutoff(None if math.isnan(limit) else limit, share, float(calibration.sum()), float(patients))


def withhold_all(decision: Decision, why: str) -> Decision:
    """The decision where nothing can be promised: nobody is released, and why."""
    nothing = np.zeros(len(decision.released), dtype=bool)
    reason = np.where(decision.reason == "", NOT_PROMISED, decision.reason)
    reason = np.where(reason == RISK_ABOVE_CUTOFF, NOT_PROMISED, reason)
    nowhere = np.full(len(nothing), np.nan)
    return Decision(nothing, reason, nowhere, decision.p_value, decision.cutoffs, why)


def too_few(alpha: float, worth: Worth) -> str:
    """Why a ledger of so many visits and patients promises nothing at a level, and which level it could bear."""
    visits, patients = math.ceil(FEWEST_VISITS / alpha), math.ceil(FEWEST_PATIENTS / alpha)
    words = (
        f"a level of {alpha:g} needs measured visits worth {visits} of equal weight, of patients worth {patients}; "
        f"these are worth {worth.visits:.0f} and {worth.patients:.0f}"
    )
    level = max(FEWEST_VISITS / max(worth.visits, 1e-9), FEWEST_PATIENTS / max(worth.patients, 1e-9))
    if level >= 0.5:
        return f"{words}. Give more patients with measured values"
    return f"{words}. Give more patients with measured values, or a level of {math.ceil(100 * level) / 100:g} or higher"
