"""One release engine: risks, weights, known errors and a rule in; released or withheld, and why, out.

Whatever withholds a visit for another reason than its risk (no evidence, an impossible value, odds too large) reads
no target, applies to measured visits and candidates alike, and acts before any error is looked at.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from safeimpute.selection.bounds import Bound, chance_of_so_few, held_out_bound, ledger_bound
from safeimpute.selection.cutoff import Cutoff, Rule, find_cutoffs
from safeimpute.selection.enough import fewest_calibration
from safeimpute.selection.groups import Merged, merge_cells
from safeimpute.selection.ledger import Entries, Ledger, risk_grid
from safeimpute.selection.p_values import Ranked, benjamini_hochberg, conformal_p_values, paper_p_values
from safeimpute.selection.reasons import NOT_PROMISED, RISK_ABOVE_CUTOFF
from safeimpute.tolerance import Risky
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class SelectionData:
    """Everything a release is decided from; arrays have one entry per visit."""

    risk: FloatArray
    tie: FloatArray  # hashed uniform number per visit
    patient: IntArray
    weight: FloatArray  # odds of being a candidate
    outside: Mapping[str, BoolArray]  # reason -> visits outside the promise
    judged: BoolArray  # visits whose error is known and calibrates
    risky: Risky  # of judged visits: the error reaches the tolerance
    candidate: BoolArray
    cell: IntArray | None = None  # the level holds within each, or within several small ones together
    late: BoolArray | None = None  # under claim later: measured visits that looked unmeasured at their own time

    @cached_property
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


def decide(data: SelectionData, rule: Rule) -> Decision:
    """Release candidates by the rule that earns the claim."""
    return _by_p_values(data, rule) if rule.claim == "visits" else _by_balances(data, rule)


def merge_groups(data: SelectionData, rule: Rule) -> Merged | None:
    """Which cells stand together at the rule's level; None without groups."""
    if data.cell is None:
        return None
    there = data.inside & (data.judged | data.candidate)
    rows = data.inside & data.judged
    return merge_cells(data.cell[rows], data.patient[rows], data.weight[rows], rule.alpha, data.cell[there])


def groups_of(data: SelectionData, merged: Merged | None) -> tuple[IntArray, tuple[int, ...]]:
    """Each visit's group, and all groups; one where none were asked for."""
    if merged is None or data.cell is None:
        return np.zeros(len(data.risk), dtype=np.int64), (0,)
    return merged.of(data.cell), tuple(merged.cells)


def parts_of(data: SelectionData, merged: Merged | None) -> dict[int, SelectionData]:
    """The data of every group."""
    return divided(data, *groups_of(data, merged))


def divided(data: SelectionData, group: IntArray, numbers: Sequence[int]) -> dict[int, SelectionData]:
    """The data of every group: visits of other groups neither calibrate nor are asked about."""
    member = {number: group == number for number in numbers}
    return {
        number: replace(data, judged=data.judged & here, candidate=data.candidate & here)
        for number, here in member.items()
    }


def entries_of(data: SelectionData) -> Entries:
    """The measured visits within the promise."""
    rows = data.judged & data.inside
    return Entries(data.patient[rows], data.risk[rows], data.weight[rows], data.risky[rows])


def grid_of(data: SelectionData) -> FloatArray:
    """Thresholds tried: quantiles of the risks within the promise, measured or asked about."""
    return risk_grid(data.risk[data.inside & (data.judged | data.candidate)])


def ledgers_of(parts: Mapping[int, SelectionData]) -> dict[int, tuple[Ledger, ...]]:
    """The ledgers of every group: of what stays imputed, and with late results counted among it where there are any.

    At night a result on its way looks like one nobody took, and its visit is released or withheld like any other. So
    the values released at night are those of unmeasured visits and of late results; the level must hold for both
    together, and for the unmeasured ones alone. A late result speaks for itself: it counts once more beside the odds
    with which it speaks for unmeasured visits (docs/guarantee.md).
    """
    found = {}
    for number, part in parts.items():
        weights = [part.weight] if part.late is None else [part.weight, part.weight + part.late]
        asked = [part.candidate] if part.late is None else [part.candidate, part.candidate | (part.judged & part.late)]
        grid = grid_of(part)
        found[number] = tuple(
            Ledger(entries_of(replace(part, weight=weight)), grid, part.risk[part.inside & there])
            for weight, there in zip(weights, asked, strict=True)
        )
    return found


def _by_balances(data: SelectionData, rule: Rule) -> Decision:
    merged = merge_groups(data, rule)
    group, numbers = groups_of(data, merged)
    ledgers = ledgers_of(divided(data, group, numbers))
    cutoffs, refused = find_cutoffs(ledgers, rule)
    rows = data.candidate
    outside = {name: visits[rows] for name, visits in data.outside.items()}
    decision = decide_by_cutoff(data.risk[rows], outside, cutoffs, None if merged is None else group[rows])
    decision = replace(decision, merged=merged)
    return withhold_all(decision, refused) if refused else decision


def bound_of(data: SelectionData, rule: Rule, decision: Decision) -> Bound:
    """With the rule's confidence, how many of the released values are risky at most; true for any level picked."""
    cutoffs = (
        dict.fromkeys(decision.cutoffs)
        if decision.refused
        else {number: each.risk for number, each in decision.cutoffs.items()}
    )
    bound = bound_up_to(parts_of(data, decision.merged), rule, cutoffs)
    if rule.claim != "visits":
        return bound
    values = int(decision.released.sum())  # of equal risks at the cut-off, ties may release some only
    return replace(bound, values=values, risky=min(bound.risky, values))


def bound_up_to(parts: Mapping[int, SelectionData], rule: Rule, cutoffs: Mapping[int, float | None]) -> Bound:
    """The bound for a release of every group up to its cut-off; the doubt is divided between groups."""
    confidence = rule.in_each_of(len(parts)).confidence
    found = [
        _bound_at(part, rule, -math.inf if (limit := cutoffs[number]) is None else limit, confidence)
        for number, part in parts.items()
    ]
    nothing = Bound(0, rule.confidence, None, 0)
    return replace(reduce(add, found, nothing), confidence=rule.confidence) if found else nothing


def _bound_at(data: SelectionData, rule: Rule, cutoff: float, confidence: float) -> Bound:
    inside = _scope(data, rule)
    asked = inside & data.candidate
    if rule.claim == "visits":
        judged = inside & data.judged
        return held_out_bound(data.risk[judged], data.risky[judged] > 0, data.risk[asked], cutoff, confidence)
    return ledger_bound(entries_of(data), cutoff, data.risk[asked], data.patient[asked], confidence)


def passing(data: SelectionData, decision: Decision) -> BoolArray:
    """Every visit within the promise, measured or not, that the decision's cut-offs let through."""
    limits = np.full(len(data.risk), -np.inf)
    for number, part in parts_of(data, decision.merged).items():
        limit = decision.cutoffs[number].risk
        if limit is not None and not decision.refused:
            limits[part.judged | part.candidate] = limit
    return data.inside & (data.risk <= limits)


def decide_by_cutoff(
    risk: FloatArray, outside: Mapping[str, BoolArray], cutoffs: Mapping[int, Cutoff], group: IntArray | None = None
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


def _scope(data: SelectionData, rule: Rule) -> BoolArray:
    """Visits the rule speaks of: all with a risk in the paper's own release."""
    return np.isfinite(data.risk) if rule.published else data.inside


def _by_p_values(data: SelectionData, rule: Rule) -> Decision:
    """Plain conformal p-values against the calibration visits, and Benjamini-Hochberg (the paper's release).

    With promise `confident` the release goes up to the last threshold that random division shows to be safe.
    """
    merged = merge_groups(data, rule)
    released, p_values = np.zeros(len(data.risk), dtype=bool), np.full(len(data.risk), np.nan)
    limits, cutoffs = np.full(len(data.risk), np.nan), {}
    parts = parts_of(data, merged)
    for number, part in parts.items():
        inside = _scope(part, rule)
        calibration, candidate = part.judged & inside, part.candidate & inside
        p_values[candidate] = _p_values_of(part, calibration, candidate, rule)
        if rule.promise == "confident":
            limit = _confident_limit(part, calibration, candidate, rule.in_each_of(len(parts)))
            released[candidate] = part.risk[candidate] <= limit
        else:
            released[candidate] = benjamini_hochberg(p_values[candidate], rule.alpha)
            out = candidate & released
            limit = float(part.risk[out].max()) if out.any() else math.nan
        limits[part.candidate] = limit
        cutoffs[number] = _observed_cutoff(part, calibration, limit)
    rows = data.candidate
    outside = {} if rule.published else {n: v[rows] for n, v in data.outside.items()}
    decision = Decision(
        released[rows], reasons(released[rows], outside), limits[rows], p_values[rows], cutoffs, merged=merged
    )
    needed, there = fewest_calibration(rule.alpha), int(np.sum(data.judged & _scope(data, rule)))
    if there >= needed:
        return decision
    return withhold_all(
        decision,
        f"an FDR level of {rule.alpha:g} needs at least {needed} calibration visits; there are {there}. Give more "
        "measured visits or a higher level",
    )


def _p_values_of(data: SelectionData, calibration: BoolArray, candidate: BoolArray, rule: Rule) -> FloatArray:
    risky = data.risky[calibration] > 0
    if rule.published:
        return paper_p_values(data.risk[candidate], data.risk[calibration], risky, data.tie[candidate])
    return conformal_p_values(
        Ranked(data.risk[candidate], data.tie[candidate]), Ranked(data.risk[calibration], data.tie[calibration]), risky
    )


def _confident_limit(data: SelectionData, calibration: BoolArray, candidate: BoolArray, rule: Rule) -> float:
    """The last of a sequence of thresholds at which so few risky calibration visits show the level to be kept.

    Which visits calibrate was drawn at random: so, were more than alpha of the candidates up to a threshold risky, the
    count among the calibration visits would be hypergeometric. The sequence starts where a share of alpha / 2 would
    be proof and goes up; it reads no error.
    """
    risk, asked, doubt = data.risk[calibration], data.risk[candidate], 1.0 - rule.confidence
    grid = risk_grid(np.r_[risk, asked])
    n, m = (np.searchsorted(np.sort(each), grid, side="right") for each in (risk, asked))
    seen = np.searchsorted(np.sort(risk[data.risky[calibration] > 0]), grid, side="right")
    wrong = np.floor(rule.alpha * m + 1e-9).astype(np.int64) + 1
    hoped = chance_of_so_few(n, np.floor(rule.alpha * n / 2).astype(np.int64), m, wrong) <= doubt
    if not hoped.any():
        return math.nan
    first = int(np.argmax(hoped))
    failed = chance_of_so_few(n, seen, m, wrong)[first:] > doubt
    last = first + (int(np.argmax(failed)) if failed.any() else len(failed)) - 1
    return float(grid[last]) if last >= first else math.nan


def _observed_cutoff(data: SelectionData, calibration: BoolArray, limit: float) -> Cutoff:
    """The risk of the last value released, for display; decisions came from the p-values."""
    below = calibration & (data.risk <= limit)
    share = float(data.risky[below].mean()) if below.any() else None
    patients = len(np.unique(data.patient[calibration]))
    return Cutoff(None if math.isnan(limit) else limit, share, float(calibration.sum()), float(patients))


def withhold_all(decision: Decision, why: str) -> Decision:
    """The decision where nothing can be promised: nobody is released, and why."""
    nothing = np.zeros(len(decision.released), dtype=bool)
    reason = np.where(decision.reason == "", NOT_PROMISED, decision.reason)
    reason = np.where(reason == RISK_ABOVE_CUTOFF, NOT_PROMISED, reason)
    nowhere = np.full(len(nothing), np.nan)
    return replace(decision, released=nothing, reason=reason, cutoff=nowhere, refused=why)
