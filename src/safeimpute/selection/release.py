"""One release engine: risks, weights, known errors and a rule in; released or withheld, and why, out.

Whatever withholds a visit for another reason than its risk (no evidence, an impossible value, odds too large) reads
no target, applies to measured visits and candidates alike, and acts before any error is looked at.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.bounds import Bound, chance_of_so_few, held_out_bound, ledger_bound
from safeimpute.selection.cutoff import Cutoff, average_cutoff, confident_cutoff
from safeimpute.selection.groups import Merged, merge_cells
from safeimpute.selection.ledger import Entries, below, risk_grid
from safeimpute.selection.p_values import Ranked, conformal_p_values, paper_p_values
from safeimpute.selection.reasons import NOT_PROMISED, RISK_ABOVE_CUTOFF
from safeimpute.settings import ClaimName, PromiseName, Settings
from safeimpute.splits.enough import Worth, enough, fewest_calibration, too_few

HOPEFUL = 2.0  # times the level: what the risks may predict for a group's threshold to be tried


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
    cell: IntArray | None = None  # the level holds within each, or within several small ones together

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
    merged: Merged | None = None  # which cells stand together as a group


def decide(ground: Ground, rule: Rule) -> Decision:
    """Release candidates by the rule that earns the claim."""
    return _by_p_values(ground, rule) if rule.claim == "visits" else _by_ledger(ground, rule)


def merge_groups(ground: Ground, rule: Rule) -> Merged | None:
    """Which cells stand together at the rule's level; None without groups."""
    if ground.cell is None:
        return None
    there = ground.inside & (ground.judged | ground.candidate)
    rows = ground.inside & ground.judged
    return merge_cells(
        ground.cell[rows], ground.patient[rows], ground.weight[rows], rule.alpha, ground.cell[there]
    )


def parts_of(ground: Ground, merged: Merged | None) -> dict[int, Ground]:
    """The ground of every group: visits of other groups neither calibrate nor are asked about."""
    if merged is None or ground.cell is None:
        return {0: ground}
    group = merged.of(ground.cell)
    return {
        number: replace(
            ground, judged=ground.judged & (group == number), candidate=ground.candidate & (group == number)
        )
        for number in merged.cells
    }


def in_each(rule: Rule, groups: int) -> Rule:
    """The rule within one of several groups: confidence speaks for all of them together."""
    return replace(rule, confidence=1.0 - (1.0 - rule.confidence) / max(groups, 1))


def entries_of(ground: Ground) -> Entries:
    """The measured visits of the ledger; patients without one count as patients too."""
    rows = ground.judged & ground.inside
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


def grid_of(ground: Ground) -> FloatArray:
    """Thresholds tried: quantiles of the risks within the promise, measured or asked about."""
    return risk_grid(ground.risk[ground.inside & (ground.judged | ground.candidate)])


def _by_ledger(ground: Ground, rule: Rule) -> Decision:
    merged = merge_groups(ground, rule)
    parts = parts_of(ground, merged)
    each_rule = in_each(rule, len(parts))
    cutoffs = {}
    for number, part in parts.items():
        entries, grid = entries_of(part), grid_of(part)
        hopeful = grid if merged is None else hopeful_thresholds(entries, grid, rule.alpha)
        cutoffs[number] = cutoff_for(entries, hopeful, each_rule)
    group = None if merged is None or ground.cell is None else merged.of(ground.cell)[ground.candidate]
    outside = {name: visits[ground.candidate] for name, visits in ground.outside.items()}
    decision = replace(
        decide_by_cutoff(ground.risk[ground.candidate], outside, cutoffs, group), merged=merged
    )
    worths = [Worth(each.visits, each.patients) for each in cutoffs.values()]
    if any(enough(worth, rule.alpha) for worth in worths):
        return decision
    return withhold_all(decision, too_few(rule.alpha, max(worths, key=lambda worth: worth.patients)))


def hopeful_thresholds(entries: Entries, thresholds: FloatArray, alpha: float) -> FloatArray:
    """Thresholds up to which the risks themselves do not predict far more risky values than the level; no error read.

    A group in which every value is too risky would else be released now and then by the luck of a few.
    """
    risk = below(entries.risk, entries.weight * entries.risk, thresholds)
    weight = below(entries.risk, entries.weight, thresholds)
    return thresholds[risk <= HOPEFUL * alpha * weight]


def bound_of(ground: Ground, rule: Rule, decision: Decision) -> Bound:
    """With the rule's confidence, how many of the released values are risky at most; true for any level picked."""
    parts = parts_of(ground, decision.merged)
    confidence = in_each(rule, len(parts)).confidence
    found = []
    for number, part in parts.items():
        limit = decision.cutoffs[number].risk
        cutoff = -math.inf if limit is None or decision.refused else limit
        found.append(bound_at(part, rule, cutoff, confidence))
    return replace(reduce(add, found), confidence=rule.confidence)


def bound_at(ground: Ground, rule: Rule, cutoff: float, confidence: float) -> Bound:
    """The bound for a release of one group up to a cut-off."""
    inside = _scope(ground, rule)
    asked = inside & ground.candidate
    if rule.claim == "visits":
        judged = inside & ground.judged
        return held_out_bound(
            ground.risk[judged], ground.risky[judged], ground.risk[asked], cutoff, confidence
        )
    return ledger_bound(entries_of(ground), cutoff, ground.risk[asked], ground.patient[asked], confidence)


def passing(ground: Ground, decision: Decision) -> BoolArray:
    """Every visit within the promise, measured or not, that the decision's cut-offs let through."""
    limits = np.full(len(ground.risk), -np.inf)
    for number, part in parts_of(ground, decision.merged).items():
        limit = decision.cutoffs[number].risk
        if limit is not None and not decision.refused:
            limits[part.judged | part.candidate] = limit
    return ground.inside & (ground.risk <= limits)


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


def _scope(ground: Ground, rule: Rule) -> BoolArray:
    """Visits the rule speaks of: all with a risk in the paper's own release."""
    return np.isfinite(ground.risk) if rule.published else ground.inside


def _by_p_values(ground: Ground, rule: Rule) -> Decision:
    """Plain conformal p-values against the calibration visits, and Benjamini-Hochberg (the paper's release).

    With promise `confident` the release goes up to the last threshold that random division shows to be safe.
    """
    merged = merge_groups(ground, rule)
    released, p_values = np.zeros(len(ground.risk), dtype=bool), np.full(len(ground.risk), np.nan)
    limits, cutoffs = np.full(len(ground.risk), np.nan), {}
    parts = parts_of(ground, merged)
    for number, part in parts.items():
        inside = _scope(part, rule)
        calibration, candidate = part.judged & inside, part.candidate & inside
        p_values[candidate] = _p_values_of(part, calibration, candidate, rule)
        if rule.promise == "confident":
            limit = _confident_limit(part, calibration, candidate, in_each(rule, len(parts)))
            released[candidate] = part.risk[candidate] <= limit
        else:
            released[candidate] = benjamini_hochberg(p_values[candidate], rule.alpha)
            out = candidate & released
            limit = float(part.risk[out].max()) if out.any() else math.nan
        limits[part.candidate] = limit
        cutoffs[number] = _observed_cutoff(part, calibration, limit)
    rows = ground.candidate
    outside = {} if rule.published else {n: v[rows] for n, v in ground.outside.items()}
    decision = Decision(
        released[rows], reasons(released[rows], outside), limits[rows], p_values[rows], cutoffs, merged=merged
    )
    needed, there = fewest_calibration(rule.alpha), int(np.sum(ground.judged & _scope(ground, rule)))
    if there >= needed:
        return decision
    return withhold_all(
        decision,
        f"an FDR level of {rule.alpha:g} needs at least {needed} calibration visits; there are {there}. Give more "
        "measured visits or a higher level",
    )


def _p_values_of(ground: Ground, calibration: BoolArray, candidate: BoolArray, rule: Rule) -> FloatArray:
    risky = ground.risky[calibration]
    if rule.published:
        return paper_p_values(ground.risk[candidate], ground.risk[calibration], risky, ground.tie[candidate])
    return conformal_p_values(
        Ranked(ground.risk[candidate], ground.tie[candidate]),
        Ranked(ground.risk[calibration], ground.tie[calibration]),
        risky,
    )


def _confident_limit(ground: Ground, calibration: BoolArray, candidate: BoolArray, rule: Rule) -> float:
    """The last of a sequence of thresholds at which so few risky calibration visits show the level to be kept.

    Which visits calibrate was drawn at random: so, were more than alpha of the candidates up to a threshold risky, the
    count among the calibration visits would be hypergeometric. The sequence starts where a share of alpha / 2 would
    be proof and goes up; it reads no error.
    """
    risk, asked = ground.risk[calibration], ground.risk[candidate]
    risky, doubt, limit = ground.risky[calibration], 1.0 - rule.confidence, math.nan
    started = False
    for threshold in risk_grid(np.r_[risk, asked]).tolist():
        n, m = int(np.sum(risk <= threshold)), int(np.sum(asked <= threshold))
        wrong = math.floor(rule.alpha * m + 1e-9) + 1
        if not started:
            started = chance_of_so_few(n, math.floor(rule.alpha * n / 2), m, wrong) <= doubt
            if not started:
                continue
        if chance_of_so_few(n, int(np.sum(risky[risk <= threshold])), m, wrong) > doubt:
            break
        limit = threshold
    return limit


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
    return replace(decision, released=nothing, reason=reason, cutoff=nowhere, refused=why)
