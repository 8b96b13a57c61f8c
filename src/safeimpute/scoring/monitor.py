"""Monitoring: what was measured since the fit is imputed as if missing, entered into the ledger, and judged."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import GuaranteeRefused, OptionError, VisitsError
from safeimpute.records.arrays import BoolArray, FloatArray
from safeimpute.records.catalogue import load_catalogue
from safeimpute.records.checks import days
from safeimpute.records.new_visits import NewVisits, read_new_visits
from safeimpute.records.tables import to_polars
from safeimpute.scoring.entries import entries_of_visits, nothing_entered, visits_to_enter
from safeimpute.scoring.frozen import FrozenModel
from safeimpute.scoring.night_ledger import Entered, Event, NightLedger
from safeimpute.scoring.scorer import Scorer
from safeimpute.scoring.standing import Standing, in_force, standing_of
from safeimpute.scoring.watch import Bet, Strange, Watched, input_bets, strange_labs, watch

MONTH = 30.4375  # days, where time is a number of days


@dataclass(frozen=True)
class Monitored:
    """What a look at the ledger found, all entries and the model as it stands included."""

    entered: Entered  # everything in the ledger, in order
    new: int  # entries of this look
    watched: Watched
    standing: Standing  # after this look
    events: tuple[Event, ...]
    model: FrozenModel  # as it would be in force but for an alarm
    set_aside: bool = False  # tonight's values were not entered: their unit changed
    before: tuple[Watched, ...] = ()  # each time between two recalibrations, as it was judged then

    @property
    def alarm(self) -> bool:
        """Whether an alarm stands that nobody has answered by recalibrating."""
        return self.standing.alarm is not None


def monitor(scorer: Scorer, measured: Any, ledger: NightLedger) -> Monitored:
    """Enter what was measured since the fit and judge all entries; an alarm is recorded with them.

    Parameters
    ----------
    scorer : Scorer
        Loaded from a model folder fitted with the claim `later`.
    measured : table
        Each patient's record whole, as for scoring; visits after the fit's last one are entered, each once.
    ledger : NightLedger
        The ledger that scoring uses.

    Returns
    -------
    Monitored
        Shares, tests and alarms; `evaluation.monitor_summary` puts them into tables and words.

    Raises
    ------
    GuaranteeRefused
        The model makes another claim than `later`.
    """
    require_nightly(scorer)
    new = read_new_visits(to_polars(measured), scorer.reading)
    _, model = _tonight(scorer, ledger)
    rows = visits_to_enter(new.arrays, model, *ledger.entered(scorer.identity, scorer.settings.target))
    units = _named(strange_labs(new.arrays, rows, model.reference), new, rows, scorer)
    fresh = nothing_entered()
    if rows.any() and not units:
        months = month_labels(new.time, new.arrays.time, model.until)
        fresh = entries_of_visits(new.arrays, rows, months, model, scorer.settings.allowed_error)
    bets = input_bets(new.arrays, model.until, model.reference)
    return _enter_and_judge(scorer, ledger, fresh, bets, units)


def require_nightly(scorer: Scorer) -> None:
    """Refuse models that say nothing about what comes in later, or that no ledger could know."""
    if scorer.settings.claim != "later":
        raise GuaranteeRefused(
            f"this model makes the claim {scorer.settings.claim!r}; monitoring speaks for visits as they come in. Fit "
            "with --claim later."
        )
    if not scorer.identity:
        raise OptionError("a ledger knows saved models: save the model, and load the scorer from its folder.")


def _tonight(scorer: Scorer, ledger: NightLedger) -> tuple[Standing, FrozenModel]:
    """What stands, and the model with the cut-off that is watched, alarm or not."""
    standing = standing_of(ledger.events(scorer.identity))
    return standing, in_force(scorer.model, replace(standing, alarm=None))


def _enter_and_judge(
    scorer: Scorer,
    ledger: NightLedger,
    fresh: Entered,
    bets: Sequence[Bet],
    units: Sequence[Strange],
) -> Monitored:
    settings = scorer.settings

    def judged(entered: Entered, events: Sequence[Event]) -> tuple[Watched, Standing, FrozenModel]:
        standing = standing_of(events)
        model = in_force(scorer.model, replace(standing, alarm=None))
        found = watch(entered, model, settings.fdr, settings.target, standing.first_entry, bets, units)
        return found, standing, model

    def alarm(entered: Entered, events: list[Event]) -> Mapping[str, Any] | None:
        found, standing, _ = judged(entered, events)
        if standing.alarm is not None or not found.found:
            return None
        began = [
            each.began for each in (found.share, found.errors, found.measuring) if each.began is not None
        ]
        last = int(entered.number.max(initial=0))
        return {"found": list(found.found), "began": max(began, default=None), "at_entry": last}

    count = ledger.enter(scorer.identity, settings.target, fresh, alarm)
    entered, events = ledger.entries(scorer.identity, settings.target), ledger.events(scorer.identity)
    found, standing, model = judged(entered, events)
    before = _earlier(scorer, entered, events)
    return Monitored(entered, count, found, standing, tuple(events), model, bool(units), before)


def _earlier(scorer: Scorer, entered: Entered, events: Sequence[Event]) -> tuple[Watched, ...]:
    """The tests up to each recalibration, by the cut-off that was in force."""
    found = []
    for place, event in enumerate(events):
        if event.kind == "recalibrated":
            standing = standing_of(events[:place])
            model = in_force(scorer.model, replace(standing, alarm=None))
            some = entered.at(entered.number <= event.told["last_entry"])
            settings = scorer.settings
            found.append(watch(some, model, settings.fdr, settings.target, standing.first_entry))
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


def _named(
    units: tuple[Strange, ...], new: NewVisits, rows: BoolArray, scorer: Scorer
) -> tuple[Strange, ...]:
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


def groups_of(entered: Entered) -> list[dict[str, str]]:
    """The groups of each entry."""
    return [json.loads(each) for each in entered.groups.tolist()]


def require_visits_since(monitored: Monitored) -> None:
    """Say so where the table holds nothing that came since the fit."""
    if not len(monitored.entered):
        raise VisitsError(
            "no visit of the table lies after the fit's last one: there is nothing to monitor. Give the records as "
            "they are now."
        )
