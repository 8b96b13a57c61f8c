"""What a fit and its release came to, as data: where risky values gather, what would help, what other choices give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.claims import Promised, bound_in_words, headline_in_words
from safeimpute.selection.cutoff import Rule, rule_of
from safeimpute.selection.enough import RISKY_PATIENTS, RISKY_VISITS
from safeimpute.selection.groups import Grouping
from safeimpute.selection.ledger import Ledger, risk_grid
from safeimpute.selection.release import Decision, SelectionData, decide, entries_of, passing
from safeimpute.selection.sums import ratio
from safeimpute.selection.what_if import AtTolerance, Stability, UnderDoubt, WhatIf
from safeimpute.settings import Settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, IntArray

LEVELS = (0.1, 0.2, 0.35)
FEWEST_ERRORS = 10  # a share of fewer says nothing


@dataclass(frozen=True)
class GatheringCell:
    """One group at one level: what the rule over all values does there, and what a rule of its own would do."""

    fdr: float
    released: int
    share: float | None  # of unacceptable errors among its measured visits that would be released, weighted
    own_released: int
    own_share: float | None


@dataclass(frozen=True)
class GatheringGroup:
    """One group of visits, at every level."""

    group: str
    missing: int
    cells: tuple[GatheringCell, ...]


@dataclass(frozen=True)
class Gathering:
    """Where risky values gather by one way to group visits."""

    by: str
    groups: tuple[GatheringGroup, ...]


def where_risky_gathers(calibrated: Calibrated, tolerance: Tolerance, rule: Rule) -> list[Gathering]:
    """For bands of the value, own history and a few attributes: each group under one rule for all and under its own."""
    if rule.published:
        return []
    visits, value = calibrated.question.visits, calibrated.estimates.value
    data = replace(calibrated.selection_data(tolerance), cell=None)
    levels = sorted({*LEVELS, rule.alpha})
    together = {level: decide(data, replace(rule, alpha=level)) for level in levels}
    found: list[Gathering] = []
    for grouping in calibrated.shown.alone():
        cells = grouping.cells(visits, value)
        rows = _groups(replace(data, cell=cells), rule, grouping, cells, together)
        if len(rows) > 1:
            found.append(Gathering(grouping.dimensions[0].name, rows))
    return found


def _groups(
    data: SelectionData, rule: Rule, grouping: Grouping, cells: IntArray, together: dict[float, Decision]
) -> tuple[GatheringGroup, ...]:
    own = {level: decide(data, replace(rule, alpha=level)) for level in together}
    there = np.unique(cells[data.candidate | data.judged])
    return tuple(
        GatheringGroup(
            grouping.dimensions[0].labels[cell],
            int(np.sum(data.candidate & (cells == cell))),
            tuple(_cell(data, cells == cell, level, together[level], own[level]) for level in sorted(together)),
        )
        for cell in there.tolist()
    )


def _cell(data: SelectionData, member: BoolArray, level: float, together: Decision, own: Decision) -> GatheringCell:
    released, share = _share(data, member, passing(replace(data, cell=None), together))
    own_released, own_share = _share(data, member, passing(data, own))
    return GatheringCell(level, released, share, own_released, own_share)


def _share(data: SelectionData, member: BoolArray, through: BoolArray) -> tuple[int, float | None]:
    """Values released in a group, and the weighted share of risky ones among its measured visits let through."""
    judged = member & through & data.judged
    released = int(np.sum(member & through & data.candidate))
    if int(judged.sum()) < FEWEST_ERRORS:
        return released, None
    weight = data.weight[judged]
    return released, float(weight @ data.risky[judged] / weight.sum())


def what_would_help(calibrated: Calibrated, decision: Decision, settings: Settings) -> str:
    """Empty where something is released, or where the claim itself is the reason."""
    if settings.claim == "visits" or calibrated.measuring is None:
        return ""
    if any(each.risk is not None for each in decision.cutoffs.values()):
        return ""
    entries = entries_of(calibrated.selection_data(settings.allowed_error))
    if not len(entries.risk):
        return "no measured visit lies within the promise: give more patients with measured values."
    ledger, alpha = Ledger(entries, risk_grid(entries.risk)), settings.fdr
    if decision.refused:
        there = ledger.effective_size
        needed = (RISKY_VISITS / alpha / max(there.visits, 1.0), RISKY_PATIENTS / alpha / max(there.patients, 1.0))
        times = max(2.0, *needed)
        return f"about {times:.0f} times as many patients, or a higher level."
    share, size = _least_share(ledger, alpha)
    error = np.abs(calibrated.estimates.value - calibrated.truth)[calibrated.question.judged]
    tolerance = settings.allowed_error
    wider = f"a wider tolerance (half of all errors are below {np.nanmedian(error):.3g})"
    return (
        f"of the {size:,.0f} least risky measured values {100 * share:.0f} % were {tolerance.in_short}, and no "
        f"more than {100 * alpha:g} % may be. A level above that, {'fewer limits' if tolerance.limits else wider}, a "
        "longer history or labs that go with the target would help; more patients make the proof easier, not the "
        "values better. A level chosen now needs visits that were not looked at."
    )


def next_step(settings: Settings, decision: Decision, elsewhere: Sequence[AtTolerance], advice: str) -> str:
    """Where nothing was released: the nearest level and the nearest tolerance that would have; empty where some was.

    Seen after looking at the errors, so not promised; `advice` is said where none would have.
    """
    if not len(decision.released) or decision.released.any():
        return ""
    own = elsewhere_at(elsewhere, settings)
    levels = [each for each in own.reaches if each.released and each.level > settings.fdr]
    wider = [
        (at.typed, reach.released)
        for at in elsewhere
        for reach in at.reaches
        if at.tolerance.allowed_more_than(own.tolerance) and reach.level == settings.fdr and reach.released
    ]
    said = [f"a level of {each.level:g} would have released {each.released:,}" for each in levels[:1]]
    said += [f"a tolerance of {typed} would have released {released:,}" for typed, released in wider[:1]]
    why = f" ({decision.refused})" if decision.refused else ""
    start = f"None of the {len(decision.released):,} missing values was released{why}."
    if not said:
        most = f"No level up to {own.reaches[-1].level:g} and no tolerance up to twice this one would have."
        if not own.tolerance.of_error:
            most = f"No level up to {own.reaches[-1].level:g} would have."
        return f"{start} {most} {advice}".strip()
    return (
        f"{start} The nearest that would: {'; '.join(said)}. This is seen after looking at these errors "
        "and so not promised: a choice made now needs visits that were not looked at."
    )


def elsewhere_at(elsewhere: Sequence[AtTolerance], settings: Settings) -> AtTolerance:
    """What every level would release at the run's own tolerance."""
    return next(each for each in elsewhere if each.tolerance == settings.allowed_error)


def _least_share(ledger: Ledger, alpha: float) -> tuple[float, float]:
    """The smallest share of risky values below any threshold that leaves enough to count."""
    weight, count = ledger.visit("weight"), ledger.visit("visits")
    share = ratio(ledger.visit("risky_weight"), weight)
    enough = ratio(np.square(weight), ledger.visit("weight_square")) >= RISKY_VISITS / alpha
    place = int(np.argmin(np.where(enough, share, np.inf))) if enough.any() else -1
    return float(share[place]), float(count[place])


@dataclass(frozen=True)
class RunResult:
    """The release, what it promises, and what other choices would have released."""

    settings: Settings
    unit: str | None  # of the target
    calibrated: Calibrated
    rule: Rule
    decision: Decision
    promised: Promised
    bound: Bound
    headline: str  # the release in one sentence with one number; empty without a promise
    bound_in_words: str
    bound_alone: str  # the same where no level is promised
    passing: BoolArray  # every visit within the promise, measured or not, that the decision lets through
    gathering: list[Gathering]  # to look at, not to promise; so are the next three
    doubts: list[UnderDoubt]  # empty where the claim does not look at who gets measured
    elsewhere: tuple[AtTolerance, ...]
    stability: Stability
    next_step: str  # the nearest that would have released, where nothing was; empty elsewhere
    seconds: Mapping[str, float]  # spent in each stage of the fit


def result_of(
    settings: Settings,
    unit: str | None,
    calibrated: Calibrated,
    decision: Decision,
    promised: Promised,
    bound: Bound,
    seconds: Mapping[str, float],
    what_if: WhatIf | None = None,
) -> RunResult:
    """Put together what was decided, and look at what other choices would have released, unless that was done."""
    tolerance, rule = settings.allowed_error, rule_of(settings)
    words = tolerance.fault(unit)
    if what_if is None:
        doubts = calibrated.under_doubt(tolerance, rule, settings.gammas) if settings.claim != "visits" else []
        what_if = WhatIf(calibrated.elsewhere(tolerance, rule), doubts, calibrated.stability(tolerance, rule))
    advice = what_would_help(calibrated, decision, settings)
    return RunResult(
        settings=settings,
        unit=unit,
        calibrated=calibrated,
        rule=rule,
        decision=decision,
        promised=promised,
        bound=bound,
        headline=headline_in_words(bound.values, words, settings) if promised.promise else "",
        bound_in_words=bound_in_words(bound, words, settings.fdr if promised.promise else None),
        bound_alone=bound_in_words(bound, words),
        passing=passing(calibrated.selection_data(tolerance), decision),
        gathering=where_risky_gathers(calibrated, tolerance, rule),
        doubts=what_if.doubts,
        elsewhere=what_if.elsewhere,
        stability=what_if.stability,
        next_step=next_step(settings, decision, what_if.elsewhere, advice),
        seconds={name: float(each) for name, each in seconds.items()},
    )
