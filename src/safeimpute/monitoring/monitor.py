"""Monitoring: what was measured since the fit is imputed as if missing, entered into the night log, and judged."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import GuaranteeRefused, OptionError, VisitsError
from safeimpute.model.frozen import FrozenModel, score_visits
from safeimpute.model.night_log import Entered, Event, NightLog, no_entries
from safeimpute.model.open_model import Status, in_force, require_log, status_of, watched_by
from safeimpute.model.scorer import Scorer
from safeimpute.monitoring.watch import Bet, Strange, Watched, input_bets, strange_labs, watch
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays, on_its_way
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.dates import days
from safeimpute.visits.imputations import refuse_known_values
from safeimpute.visits.new_visits import NewVisits, read_new_visits
from safeimpute.visits.tables import to_polars

MONTH = 30.4375  # days, where time is a number of days


@dataclass(frozen=True)
class Monitored:
    """What a look at the night log found, all entries and the model as it stands included."""

    entered: Entered  # everything in the night log, in order
    new: int  # entries of this look
    watched: Watched
    status: Status  # after this look
    events: tuple[Event, ...]
    model: FrozenModel  # as it would be in force but for an alarm
    set_aside: bool = False  # tonight's values were not entered: their unit changed
    before: tuple[Watched, ...] = ()  # each time between two recalibrations, as it was judged then
    heard: bool = True  # the model's folder names the log, so that scoring without it hears an alarm

    @property
    def alarm(self) -> bool:
        """Whether an alarm stands that nobody has answered by recalibrating."""
        return self.status.alarm is not None


def monitor(scorer: Scorer, measured: Any, log: NightLog, beside: Sequence[Path] = ()) -> Monitored:
    """Enter what was measured since the fit and judge all entries; an alarm is recorded with them.

    The model's folder is left a note (`.nights`) of the log, by which every scorer of it hears the alarm.

    Parameters
    ----------
    scorer : Scorer
        Loaded from a model folder fitted with the claim `later`.
    measured : table
        Each patient's record whole, as for scoring; visits after the fit's last one are entered, each once.
    log : NightLog
        The log that scoring uses.
    beside : sequence of Path
        Files or folders next to which registers of released values stand, besides the log's and the model's own.

    Returns
    -------
    Monitored
        Shares, tests and alarms; `evaluation.monitor_summary` puts them into tables and words.

    Raises
    ------
    GuaranteeRefused
        The model makes another claim than `later`.
    OptionError
        Another log watches the model.
    VisitsError
        The table holds values as measured that were released before.
    """
    require_nightly(scorer, log)
    new, folder = read_new_visits(to_polars(measured), scorer.reading), scorer.one.folder
    refuse_known_values(new.arrays, log.path, *beside, *([] if folder is None else [folder, folder.resolve().parent]))
    _, model = _watched(scorer, log.events(scorer.identity))
    rows = visits_to_enter(new.arrays, model, *log.entered(scorer.identity, scorer.settings.target))
    units = _named(strange_labs(new.arrays, rows, model.reference), new, rows, scorer)
    fresh = no_entries()
    if rows.any() and not units:
        months = month_labels(new.time, new.arrays.time, model.until)
        fresh = entries_of_visits(new.arrays, rows, months, model, scorer.settings.allowed_error)
    bets = input_bets(new.arrays, model.until, model.reference)
    heard = folder is not None and watched_by(folder, log.path)  # before an alarm can be recorded
    return replace(_enter_and_judge(scorer, log, fresh, bets, units), heard=heard)


def require_nightly(scorer: Scorer, log: NightLog) -> None:
    """Refuse models that say nothing about what comes in later or that no night log could know, and another's log."""
    if scorer.settings.allowed_error.graded:
        raise GuaranteeRefused(
            "a night log counts values as right or wrong, and this model counts costs. Monitor a fit without --cost."
        )
    if scorer.settings.claim != "later":
        raise GuaranteeRefused(
            f"this model makes the claim {scorer.settings.claim!r}; monitoring speaks for visits as they come in. Fit "
            "with --claim later."
        )
    if not scorer.identity:
        raise OptionError("a night log knows saved models: save the model, and load the scorer from its folder.")
    require_log(scorer.one.folder, scorer.identity, log)


def _watched(scorer: Scorer, events: Sequence[Event]) -> tuple[Status, FrozenModel]:
    """What stands, and the model with the cut-off that is watched, alarm or not."""
    status = status_of(events)
    return status, in_force(scorer.fitted, replace(status, alarm=None))


def _enter_and_judge(
    scorer: Scorer, log: NightLog, fresh: Entered, bets: Sequence[Bet], units: Sequence[Strange]
) -> Monitored:
    settings = scorer.settings

    def judged(entered: Entered, events: Sequence[Event]) -> tuple[Watched, Status, FrozenModel]:
        status, model = _watched(scorer, events)
        found = watch(entered, model, settings.fdr, settings.target, status.first_entry, bets, units)
        return found, status, model

    def alarm(entered: Entered, events: list[Event]) -> Mapping[str, Any] | None:
        found, status, _ = judged(entered, events)
        if status.alarm is not None or not found.found:
            return None
        began = [each.began for each in (found.share, found.errors, found.measuring) if each.began is not None]
        last = int(entered.number.max(initial=0))
        return {"found": list(found.found), "began": max(began, default=None), "at_entry": last}

    count = log.enter(scorer.identity, settings.target, fresh, alarm)
    entered, events = log.entries(scorer.identity, settings.target), log.events(scorer.identity)
    found, status, model = judged(entered, events)
    before = _earlier(scorer, entered, events)
    return Monitored(entered, count, found, status, tuple(events), model, bool(units), before)


def _earlier(scorer: Scorer, entered: Entered, events: Sequence[Event]) -> tuple[Watched, ...]:
    """The tests up to each recalibration, by the cut-off that was in force."""
    found = []
    for place, event in enumerate(events):
        if event.kind == "recalibrated":
            status, model = _watched(scorer, events[:place])
            some = entered.at(entered.number <= event.told["last_entry"])
            settings = scorer.settings
            found.append(watch(some, model, settings.fdr, settings.target, status.first_entry))
    return tuple(found)


def month_labels(time: pl.Series, day: FloatArray, until: float) -> NDArray[np.str_]:
    """The calendar month of each visit, or how many months after the fit where time is a number of days."""
    if time.dtype.is_numeric():
        return np.array([f"month {1 + int((each - until) // MONTH)}" for each in day], dtype=np.str_)
    if time.dtype in (pl.Date, pl.Datetime):
        return time.dt.strftime("%Y-%m").to_numpy().astype(np.str_)
    text = time.cast(pl.String).str.strip_chars()
    if text.cast(pl.Float64, strict=False).null_count() == 0:
        return month_labels(pl.Series(days(time)), day, until)
    return text.str.slice(0, 7).to_numpy().astype(np.str_)


def _named(units: tuple[Strange, ...], new: NewVisits, rows: BoolArray, scorer: Scorer) -> tuple[Strange, ...]:
    """The same labs, each with the unit its values look like, where the catalogue knows one."""
    return tuple(replace(each, lab=each.lab + _looks_like(each.lab, new, rows, scorer)) for each in units)


def _looks_like(lab: str, new: NewVisits, rows: BoolArray, scorer: Scorer) -> str:
    known = load_catalogue().labs.get(lab)
    place = new.arrays.lab_names.index(lab)
    values = new.arrays.labs[rows, place]
    values, reference = values[~np.isnan(values)], scorer.model.reference
    for unit, conversion in (known.units if known else {}).items():
        converted = conversion.times * values + conversion.plus
        if conversion.changes and np.mean(reference.strange(converted, place)) < 0.2:
            return f" (they look like {unit})"
    return ""


def require_visits_since(monitored: Monitored) -> None:
    """Say so where the table holds nothing that came since the fit."""
    if not len(monitored.entered):
        raise VisitsError(
            "no visit of the table lies after the fit's last one: there is nothing to monitor. Give the records as "
            "they are now."
        )


def visits_to_enter(
    visits: VisitArrays,
    model: FrozenModel,
    entered_measured: NDArray[np.uint64],
    entered_unmeasured: NDArray[np.uint64],
) -> BoolArray:
    """Visits since the fit that the night log lacks: measured ones at once, others when no result can be due."""
    measured = ~np.isnan(visits.target_values) | visits.target_censored
    since, key = visits.time > model.until, visits.visit_key
    now = float(visits.time.max(initial=-np.inf))
    ripe = visits.time <= now - model.reference.wait
    lacking = np.where(
        measured,
        ~np.isin(key, entered_measured),
        ripe & ~np.isin(key, entered_unmeasured) & ~np.isin(key, entered_measured),
    )
    return np.asarray(since & lacking)


def entries_of_visits(
    visits: VisitArrays, rows: BoolArray, months: NDArray[np.str_], model: FrozenModel, tolerance: Tolerance
) -> Entered:
    """The entries at some rows, oldest first; only their patients are read."""
    wanted = np.isin(visits.patient, np.unique(visits.patient[rows]))
    scored = score_visits(visits.take(wanted), model, measured_too=True)
    here = np.flatnonzero(rows[wanted])
    part = visits.take(wanted)
    truth, value = part.target_values, scored.estimates.value
    valued, judged = ~np.isnan(truth), part.target_judges
    order = here[np.lexsort((part.visit_key[here], part.time[here]))]
    entered = Entered(
        number=np.zeros(len(part), np.int64),
        visit=part.visit_key,
        patient=part.patient_key,
        day=part.time,
        month=months[wanted],
        measured=valued | part.target_censored,
        late=on_its_way(part, part.target),
        inside=scored.inside,
        part=scored.group,
        value=value,
        risk=scored.estimates.risk,
        odds=scored.weight,
        cutoff=scored.cutoff,
        risky=judged & tolerance.largest_loss(value, truth, part.target_limits).astype(bool),
        strange=valued & model.reference.strange(truth, part.target),
        ratio=np.abs(value - truth) / scored.estimates.spread,
        groups=_groups(part, value, model),
        censored=part.target_censored & ~judged,
    )
    return entered.at(order)


def _groups(visits: VisitArrays, value: FloatArray, model: FrozenModel) -> NDArray[np.str_]:
    """Per visit the groups it is shown in, as the fit told them apart."""
    columns = {
        dimension.name: np.array(dimension.labels)[code].tolist()
        for dimension, code in model.shown.codes(visits, value)
    }
    return np.array(
        [json.dumps(dict(zip(columns, each, strict=True))) for each in zip(*columns.values(), strict=True)],
        dtype=np.str_,
    )
