"""What monitoring found, as plain numbers and words for the report, the page and `monitor.json`."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from safeimpute.model.night_log import Entered
from safeimpute.model.scorer import Scorer
from safeimpute.monitoring.monitor import Monitored
from safeimpute.monitoring.watch import Bet, below_cutoff
from safeimpute.selection.sums import kish_size
from safeimpute.visits.arrays import BoolArray, FloatArray
from safeimpute.visits.units import target_unit

MOST_POINTS = 400  # of a line in the picture
NORMAL_90 = 1.6448536269514722


class ShareRow(TypedDict):
    """Measured values below the cut-off in one month or group."""

    name: str
    values: int
    share: float | None  # risky, weighted as the unmeasured visits they speak for
    low: float | None  # 90 % interval, approximate: it takes patients for independent
    high: float | None


class TestedRow(TypedDict):
    """One test: how strong the evidence against "nothing changed" is, and what would raise an alarm."""

    name: str
    entries: int
    evidence: float  # the largest wealth so far
    alarm_at: float
    found: bool
    after_entries: int | None
    day: list[list[float]]  # of each time between two recalibrations
    log10: list[list[float]]


class MonitorSummary(TypedDict):
    """All of it."""

    target: str
    tolerance: str
    alpha: float
    alarm: bool
    found: list[str]
    warnings: list[str]
    since_when: str | None  # the alarm that stands
    entered: int
    new: int
    set_aside: bool
    measured: int
    below: int
    cutoff: float | None
    recalibrated: int
    overall: ShareRow
    months: list[ShareRow]
    month_days: list[float]  # middle of each month
    groups: dict[str, list[ShareRow]]
    tests: list[TestedRow]
    event_days: list[tuple[str, float]]
    dated: bool  # days are counted from 1970 on
    next_step: str


def summarise_monitoring(monitored: Monitored, scorer: Scorer) -> MonitorSummary:
    settings, entered, watched = scorer.settings, monitored.entered, monitored.watched
    below, status = below_cutoff(entered), monitored.status
    months = list(dict.fromkeys(entered.month[np.argsort(entered.day, kind="stable")].tolist()))
    of_month = [entered.month == month for month in months]
    cutoffs = [each.risk for each in monitored.model.cutoffs.values() if each.risk is not None]
    return MonitorSummary(
        target=settings.target,
        tolerance=settings.allowed_error.describe(target_unit(settings)),
        alpha=settings.fdr,
        alarm=monitored.alarm,
        found=list(status.alarm.told["found"] if status.alarm else []),
        warnings=list(watched.warnings),
        since_when=status.alarm.at if status.alarm else None,
        entered=len(entered),
        new=monitored.new,
        set_aside=monitored.set_aside,
        measured=int(entered.measured.sum()),
        below=int(below.sum()),
        cutoff=max(cutoffs, default=None),
        recalibrated=sum(each.kind == "recalibrated" for each in monitored.events),
        overall=_row("all", entered, below),
        months=[_row(month, entered, below & there) for month, there in zip(months, of_month, strict=True)],
        month_days=[float(np.median(entered.day[there])) for there in of_month],
        groups=_groups(entered, below),
        tests=_tests(monitored),
        dated=all(re.fullmatch(r"\d{4}-\d{2}", month) for month in months),
        event_days=_event_days(monitored),
        next_step=_next_step(monitored),
    )


def _row(name: str, entered: Entered, rows: BoolArray) -> ShareRow:
    weight, risky = (entered.odds + entered.late)[rows], entered.risky[rows]
    if not len(weight):
        return ShareRow(name=name, values=0, share=None, low=None, high=None)
    share = float((weight * risky).sum() / weight.sum())
    per_patient = np.bincount(np.unique(entered.patient[rows], return_inverse=True)[1], weight)
    low, high = _wilson(share, kish_size(per_patient.astype(np.float64)))
    return ShareRow(name=name, values=len(weight), share=share, low=low, high=high)


def _wilson(share: float, size: float) -> tuple[float, float]:
    square = NORMAL_90**2
    middle = (share + square / (2 * size)) / (1 + square / size)
    half = NORMAL_90 / (1 + square / size) * math.sqrt(share * (1 - share) / size + square / (4 * size**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _groups(entered: Entered, below: BoolArray) -> dict[str, list[ShareRow]]:
    told = [json.loads(each) for each in entered.groups.tolist()]
    names = list(dict.fromkeys(name for each in told for name in each))
    found: dict[str, list[ShareRow]] = {}
    for name in names:
        level = np.array([each.get(name, "unknown") for each in told], dtype=np.str_)
        found[name] = [_row(str(each), entered, below & (level == each)) for each in np.unique(level[below])]
    return found


def _tests(monitored: Monitored) -> list[TestedRow]:
    """Tests as they stand since the last recalibration, with the course they took before."""
    looks = (*monitored.before, monitored.watched)
    courses = [[each.share for each in looks], [each.errors for each in looks], [each.measuring for each in looks]]
    return [_test(*course) for course in courses] + [_test(each) for each in monitored.watched.inputs]


def _test(*course: Bet) -> TestedRow:
    bet = course[-1]
    best = float(np.max(bet.log_wealth, initial=0.0))
    lines = [_thinned(each.day, each.log_wealth) for each in course]
    return TestedRow(
        name=bet.about or {"share": "the share", "errors": "errors", "measuring": "measuring"}.get(bet.name, bet.name),
        entries=len(bet.log_wealth),
        evidence=math.exp(min(best, 700.0)),
        alarm_at=1.0 / bet.error,
        found=bet.found,
        after_entries=bet.entries_until,
        day=[day for day, _ in lines],
        log10=[path for _, path in lines],
    )


def _thinned(day: FloatArray, path: FloatArray) -> tuple[list[float], list[float]]:
    """At most so many points: the highest of each stretch, and the last one."""
    step = max(1, math.ceil(len(path) / MOST_POINTS))
    tops = [start + int(np.argmax(path[start : start + step])) for start in range(0, len(path), step)]
    places = np.unique([*tops, len(path) - 1]) if len(path) else np.arange(0)
    return day[places].tolist(), (path[places] / math.log(10)).tolist()


def _event_days(monitored: Monitored) -> list[tuple[str, float]]:
    """When alarms and recalibrations came, on the axis of the visits."""
    entered = monitored.entered
    found: list[tuple[str, float]] = []
    for event in monitored.events:
        last: Any = event.told.get("last_entry", event.told.get("at_entry"))
        there = entered.number <= last if last is not None else np.zeros(len(entered), dtype=bool)
        if there.any():
            found.append((event.kind, float(entered.day[there].max())))
    return found


def _next_step(monitored: Monitored) -> str:
    if monitored.set_aside:
        return "Tonight's values were not entered. Convert them to the fit's unit, run monitor again, then recalibrate."
    if monitored.alarm:
        return "score promises nothing now. Find out what changed; then recalibrate from this night log, or fit anew."
    if not monitored.watched.share.log_wealth.size:
        return "No measured value lies below a cut-off yet: nothing can be said about the share."
    return "The promise stands. Run monitor again when more values have been measured."


def in_words(summary: MonitorSummary) -> Sequence[str]:
    overall, lines = summary["overall"], []
    lines.append(
        f"{summary['entered']:,} visits since the fit in the night log ({summary['new']:,} new), "
        f"{summary['measured']:,} "
        f"of them measured, {summary['below']:,} below the cut-off"
    )
    if overall["share"] is not None:
        lines.append(
            f"Off by {summary['tolerance']} or more: {100 * overall['share']:.1f} % (90 % interval "
            f"{100 * (overall['low'] or 0):.1f} to {100 * (overall['high'] or 0):.1f} %), promised at most "
            f"{100 * summary['alpha']:g} %"
        )
    for test in summary["tests"][:3]:
        lines.append(f"Test of {test['name']}: evidence {test['evidence']:.3g}, alarm at {test['alarm_at']:.0f}")
    lines += [f"Warning: {each}." for each in summary["warnings"]]
    lines += [f"ALARM: {each}." for each in summary["found"]]
    return [*lines, summary["next_step"]]
