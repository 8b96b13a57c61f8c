"""From measurements to visits: where a visit stands, and each lab's most recent value at or before it."""

from collections.abc import Sequence

import ibis
import ibis.expr.types as ir

from safeimpute.sources.cohort.definition import CohortDefinition, CohortLab
from safeimpute.sources.readers.engine import TIME
from safeimpute.visits.columns import DRAWN, KNOWN
from safeimpute.visits.limits import HIGH, LOW

# MIMIC-III moves the birth of patients over 89 three centuries back; MIMIC-IV writes 91 for them.
OLDEST_AGE, HIDDEN_AGE = 120, 91

_NO_TIME = ibis.null(TIME)


def anchor_visits(measured: ir.Table, definition: CohortDefinition, admissions: ir.Table | None) -> ir.Table:
    """Where visits stand: each measurement of a target, or each day with a measurement or an admission.

    A day's visit stands at its last draw, so that all of the day's results lie at or before it; a day of
    admission without any draw stands at the admission.
    """
    return _within(_every_anchor(measured, definition, admissions), definition)


def _within(anchors: ir.Table, definition: CohortDefinition) -> ir.Table:
    """The places inside the window of days; what a visit looks back to may lie before it."""
    if definition.since is not None:
        anchors = anchors.filter(anchors.time >= ibis.literal(definition.since).cast(TIME))
    if definition.until is not None:
        anchors = anchors.filter(anchors.time < ibis.literal(definition.until).cast(TIME))
    return anchors


def _every_anchor(measured: ir.Table, definition: CohortDefinition, admissions: ir.Table | None) -> ir.Table:
    if definition.anchors == "target" or admissions is None:
        targets = measured.filter(measured.lab.isin([item.name for item in definition.targets]))
        return targets.select(subject_id=targets.subject_id, time=targets.drawn).distinct()
    draws = measured.select("subject_id", day=measured.drawn.truncate("D"), draw=measured.drawn, admitted=_NO_TIME)
    stays = admissions.select(
        "subject_id", day=admissions.admitted.truncate("D"), draw=_NO_TIME, admitted=admissions.admitted
    )
    contacts = ibis.union(draws, stays)
    days = contacts.group_by("subject_id", "day").agg(draw=contacts.draw.max(), admitted=contacts.admitted.min())
    return days.select(subject_id=days.subject_id, time=ibis.coalesce(days.draw, days.admitted))


def look_back(anchors: ir.Table, measured: ir.Table, definition: CohortDefinition) -> ir.Table:
    """For each visit and lab the moment of the most recent measurement at or before it, within the look-back.

    An as-of join written as a running maximum over measurements and visits in one timeline per patient and
    lab: one sort, the same SQL on every engine (PostgreSQL has no as-of join, and Ibis's substitute there
    scans all measurements for every visit).
    """
    asked = [
        anchors.select(
            "subject_id",
            "time",
            lab=ibis.literal(item.name),
            moment=anchors.time,
            since=_since(anchors, item, definition),
        )
        for item in definition.labs
    ]
    measurements = measured.select("subject_id", time=_NO_TIME, lab=measured.lab, moment=measured.drawn, since=_NO_TIME)
    timeline = ibis.union(measurements, *asked)
    timeline = timeline.mutate(visit=timeline.time.notnull().ifelse(1, 0))  # sorts after measurements of its moment
    so_far = ibis.window(group_by=["subject_id", "lab"], order_by=["moment", "visit"], rows=(None, 0))
    drawn = (timeline.visit == 1).ifelse(_NO_TIME, timeline.moment).max().over(so_far)
    latest = timeline.mutate(drawn=drawn)
    found = latest.filter(latest.visit == 1, latest.drawn >= latest.since)
    return found.select("subject_id", "time", "lab", "drawn")


def _since(anchors: ir.Table, item: CohortLab, definition: CohortDefinition) -> ir.Value:
    """The earliest draw that still counts. A target counts only if it was measured at the visit itself."""
    visit_start = anchors.time if definition.anchors == "target" else anchors.time.truncate("D")
    if item in definition.targets:
        return visit_start.cast(TIME)
    earliest = anchors.time - ibis.interval(hours=int(item.lookback.total_seconds() // 3600))
    return ibis.least(earliest, visit_start).cast(TIME)


def at_visits(anchors: ir.Table, limits: ir.Table, definition: CohortDefinition) -> ir.Table:
    """Censored results at the visit itself, as a target counts only there: at its moment, or on its day."""

    def place(moment: ir.Value) -> ir.Value:
        return moment if definition.anchors == "target" else moment.truncate("D")

    visits = anchors.select("subject_id", "time", place=place(anchors.time))
    found = visits.inner_join(limits.mutate(place=place(limits.drawn)), ["subject_id", "place"])
    return found.group_by("subject_id", "time", "lab").agg(low=found.low.max(), high=found.high.min())


def visits_table(
    found: ir.Table,
    measured: ir.Table,
    patients: ir.Table,
    definition: CohortDefinition,
    limits: ir.Table,
    *,
    known_clock: bool,
    censored: Sequence[str],
) -> ir.Table:
    """One row per visit: labs in their units, attributes, when each value was drawn and known, and limits.

    `censored` are the labs of which `limits` has any.
    """
    keys = ["subject_id", "lab", "drawn"]
    values = found.inner_join(measured.select(*keys, "value", "known"), keys)
    names = [item.name for item in definition.labs]
    companions = {DRAWN: values.drawn} | ({KNOWN: values.known} if known_clock else {})
    cells = {name: values.value.max(where=values.lab == name) for name in names}
    for suffix, moment in companions.items():
        cells |= {name + suffix: moment.max(where=values.lab == name) for name in names}
    visits = values.group_by("subject_id", "time").agg(**cells)
    if censored:
        visits = _beside(visits, limits, censored)
    people = patients.select(owner=patients.subject_id, sex=patients.sex, born=patients.born)
    joined = visits.left_join(people, visits.subject_id == people.owner)
    described = joined.mutate(age=_age(joined.born, joined.time))
    moments = [name + suffix for name in names for suffix in companions]
    bounds = [name + ending for name in censored for ending in (LOW, HIGH)]
    columns = ["subject_id", "time", *names, *definition.attributes, *moments, *bounds]
    return described.select(*columns).order_by("subject_id", "time")


def _beside(visits: ir.Table, limits: ir.Table, censored: Sequence[str]) -> ir.Table:
    """The visits with the limits of these labs, where a lab has no exact value."""
    ends = ((LOW, limits.low), (HIGH, limits.high))
    cells = {name + ending: end.max(where=limits.lab == name) for name in censored for ending, end in ends}
    wide = limits.group_by(owner=limits.subject_id, moment=limits.time).agg(**cells)
    joined = visits.left_join(wide, [visits.subject_id == wide.owner, visits.time == wide.moment])
    alone = {
        name + ending: joined[name].isnull().ifelse(joined[name + ending], ibis.null("float64"))
        for name in censored
        for ending in (LOW, HIGH)
    }
    return joined.mutate(**alone).drop("owner", "moment")


def _age(born: ir.Value, time: ir.Value) -> ir.Value:
    """Whole calendar years, so that a birth known to the year gives the difference of years."""
    birthday_passed = time.month() * 100 + time.day() >= born.month() * 100 + born.day()
    years = time.year() - born.year() - birthday_passed.ifelse(0, 1)
    return (years > OLDEST_AGE).ifelse(HIDDEN_AGE, years).cast("int32")
