"""What a patient's record says about a visit's target, its own value left out: one table for values and risks.

`learn_source` learns units, the patients' typical course and a panel of visits once; `read_evidence` then reads any
table of visits with these frozen. No row ever sees its own target, so a visit's evidence is the same whether or not
it was measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safeimpute.learning.best.course import Course, Predicted, fit_course, predict_course
from safeimpute.learning.best.joint import Joint, Table, predict_joint
from safeimpute.learning.best.joint_fit import fit_joint
from safeimpute.learning.best.partners import choose_partners
from safeimpute.learning.best.record import (
    Analogues,
    Panel,
    Record,
    Units,
    between,
    find_analogues,
    fit_panel,
    fit_units,
    read_record,
)
from safeimpute.settings import BestSettings
from safeimpute.visits.arrays import (
    NONE,
    BoolArray,
    FloatArray,
    IntArray,
    VisitArrays,
    first_visit,
    last_visit,
    nearest_own_visits,
    take,
)

Columns = dict[str, FloatArray]
EvidenceTable = NDArray[np.float32]  # seven digits are more than any laboratory prints, in half the memory
VISITS_TO_LEARN = 250_000  # units, course and panel need no more
FIXED_POINT = 2.0**24


@dataclass(frozen=True)
class Source:
    """Everything learnt from other patients that reading evidence needs."""

    units: Units
    course: Course
    joint: Joint
    partners: IntArray  # places, among the labs other than the target, of those the joint course is told of
    panel: Panel
    target: int  # column of the labs
    own_each_way: int  # visible targets of the patient looked at before the visit, and after it
    analogues: int
    past_only: bool  # of the patient's own record, only what was known by the visit's time


@dataclass(frozen=True)
class Evidence:
    """One row per visit read; NaN where there is nothing to say."""

    matrix: EvidenceTable
    names: tuple[str, ...]
    target: FloatArray  # the visit's own visible target in standard units, to learn from; in no column
    course: FloatArray  # what the patient's course predicts, in standard units
    joint: FloatArray  # visits x 3: what the joint course predicts, its standard deviation, and with one scale for all
    time: FloatArray  # absolute, in days
    nothing_known: BoolArray  # the record holds neither a visible target nor any lab: a value is a mere average

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, name: str) -> EvidenceTable:
        return self.matrix[:, self.names.index(name)]


@dataclass(frozen=True)
class Carried:
    """What stands behind the evidence of some visits: own visits with their weights, and analogous visits."""

    rows: IntArray
    own: IntArray  # visits x own visits with a visible target, earlier ones first; NONE pads
    predicted: Predicted
    joint: FloatArray  # visits x 3: what the joint course predicts, its standard deviation, and with one scale for all
    analogues: Analogues


def learn_source(visits: VisitArrays, settings: BestSettings, rng: np.random.Generator, *, past_only: bool) -> Source:
    """Learn from the visible targets all that reading evidence needs; of a large table, from some patients."""
    visits = _at_most(visits, max(VISITS_TO_LEARN, 5 * settings.panel_visits), rng)
    units = fit_units(visits, settings.log_labs)
    record = read_record(visits, units, past_only=past_only)
    design, own = _design(record, units), _own(record, settings.own_each_way, past_only=past_only)
    course = fit_course(design, record.target, visits.time, own, rng)
    regression = (design * course.coefficients).sum(axis=1)
    panel = fit_panel(record, regression, settings.panel_visits, settings.analogues, rng)
    partners = choose_partners(course, design, record.target, visits.time, own, len(visits.other_labs))
    joint = fit_joint(_table(record, design, own, partners), rng.spawn(1)[0])
    return Source(
        units,
        course,
        joint,
        partners,
        panel,
        visits.target,
        settings.own_each_way,
        settings.analogues,
        past_only=past_only,
    )


def _at_most(visits: VisitArrays, most: int, rng: np.random.Generator) -> VisitArrays:
    """The visits, or about `most` of them: those of patients drawn at random."""
    if len(visits) <= most:
        return visits
    drawn: BoolArray = rng.random(int(visits.patient[-1]) + 1) < most / len(visits)
    return visits.take(drawn[visits.patient])


def read_evidence(
    visits: VisitArrays, source: Source, wanted: BoolArray, block_visits: int, device: str = "cpu"
) -> Evidence:
    """The evidence at the wanted visits of a table whose target column holds visible targets only."""
    names: tuple[str, ...] = ()
    room: list[NDArray[np.generic]] = []
    done, total = 0, int(wanted.sum())
    for start, stop in patient_blocks(visits.patient, block_visits):
        there = np.zeros(len(visits), dtype=bool)
        there[start:stop] = True
        names, parts = _read_block(visits.take(there), source, np.flatnonzero(wanted[start:stop]), device)
        room = room or [np.empty((total, *each.shape[1:]), each.dtype) for each in parts]
        for whole, part in zip(room, parts, strict=True):
            whole[done : done + len(part)] = part
        done += len(parts[0])
    matrix, target, course, joint, time, nothing = room
    return Evidence(matrix, names, target, course, joint, time, nothing)  # type: ignore[arg-type]


def patient_blocks(patient: IntArray, block_visits: int) -> Iterator[tuple[int, int]]:
    """Spans of rows with about `block_visits` each; no patient is cut in two. An empty table is one empty span."""
    start = 0
    while start < len(patient) or start == 0:
        stop = min(start + block_visits, len(patient))
        stop = int(np.searchsorted(patient, patient[stop - 1], side="right")) if stop else 0
        yield start, stop
        if stop == start:
            return
        start = stop


def _read_block(
    visits: VisitArrays, source: Source, rows: IntArray, device: str
) -> tuple[tuple[str, ...], list[NDArray[np.generic]]]:
    record = read_record(visits, source.units, past_only=source.past_only)
    carried = _carried(record, source, rows, device)
    of_every_visit = _visit_columns(record) | _own_summary(record) | _lab_columns(record, past_only=source.past_only)
    of_visits_read = (
        _target_columns(record, carried, source)
        | _course_columns(carried.predicted)
        | _analogue_columns(carried.analogues, source.panel)
    )
    columns = {name: column[rows] for name, column in of_every_visit.items()} | of_visits_read
    matrix = np.empty((len(rows), len(columns)), np.float32)
    for place, column in enumerate(columns.values()):
        matrix[:, place] = column
    nothing = (carried.own == NONE).all(axis=1) & np.isnan(record.filled[rows]).all(axis=1)
    parts = [matrix, record.target[rows], carried.predicted.mean, carried.joint, visits.time[rows], nothing]
    return tuple(columns), parts


def read_carried(visits: VisitArrays, source: Source, rows: IntArray, device: str = "cpu") -> Carried:
    """The visits that stand behind the evidence at some rows, for explanations."""
    return _carried(read_record(visits, source.units, past_only=source.past_only), source, rows, device)


def _carried(record: Record, source: Source, rows: IntArray, device: str) -> Carried:
    own = _own(record, source.own_each_way, past_only=source.past_only)
    design = _design(record, source.units)
    predicted = predict_course(source.course, design, record.target, record.visits.time, own, rows)
    joint = predict_joint(source.joint, _table(record, design, own, source.partners), rows)
    analogues = find_analogues(record, source.panel, source.analogues, rows, device)
    return Carried(rows, own[rows], predicted, joint, analogues)


def _own(record: Record, each_way: int, *, past_only: bool) -> IntArray:
    """The one place that says which visible targets of a patient were known at a visit."""
    visible, known_from = ~np.isnan(record.target), record.target_known_from
    after = 0 if past_only else each_way
    return nearest_own_visits(record.visits.patient, visible, each_way, after, known_from)


def _table(record: Record, design: FloatArray, own: IntArray, partners: IntArray) -> Table:
    """What the joint course is told: its labs at all visits, and around each visit every partner's nearest values."""
    visits = record.visits
    target = int(np.searchsorted(visits.other_labs[partners], visits.target))
    labs = np.delete(np.arange(len(partners) + 1), target)
    now, last, following = (each[:, partners] for each in (record.now, record.previous, record.following))
    since, until = record.previous_gap[:, partners], record.following_gap[:, partners]
    gaps = [np.zeros_like(now), -since, until, take(visits.time, own) - visits.time[:, None]]
    return Table(
        values=np.insert(now, target, record.target, axis=1),
        person=np.column_stack([np.ones(len(record)), record.attributes]),
        design=design,
        patient=visits.patient,
        time=visits.time,
        target=target,
        lab=np.r_[labs, labs, labs, np.full(own.shape[1], target)],
        told=np.hstack([now, last, following]),
        away=np.hstack(gaps),
        own=own,
    )


def _design(record: Record, units: Units) -> FloatArray:
    """Regressors of the patient's course: labs, which of them were measured, attributes, follow-up."""
    follow_up = record.follow_up / units.follow_up_days
    return np.column_stack(
        [
            np.ones(len(record)),
            np.nan_to_num(record.filled),
            np.isnan(record.now),
            record.attributes,
            follow_up,
            np.log1p(follow_up),
        ]
    )


def _visit_columns(record: Record) -> Columns:
    visits = record.visits
    rows = np.arange(len(visits))
    start = first_visit(visits.patient)
    since = np.where(rows > start, visits.time - np.roll(visits.time, 1), np.nan) if len(rows) else np.empty(0)
    columns = {
        "days since first visit": record.follow_up,
        "days since last visit": since,
        "visit number": (rows - start).astype(np.float64),
        "labs measured": (~np.isnan(record.now)).sum(axis=1).astype(np.float64),
    }
    return columns | dict(zip(visits.attribute_names, record.attributes.T, strict=True))


def _target_columns(record: Record, carried: Carried, source: Source) -> Columns:
    """Visible targets of the same patient nearest to each visit read, with their gaps."""
    known, time = take(record.target, carried.own), record.visits.time
    gaps = np.abs(take(time, carried.own) - time[carried.rows, None])
    places = {"previous": 0, "second previous": 1}
    if not source.past_only:
        places |= {"next": source.own_each_way, "second next": source.own_each_way + 1}
    columns = {f"target {name}": known[:, place] for name, place in places.items()}
    columns |= {f"target {name} gap": gaps[:, place] for name, place in places.items()}
    if not source.past_only:
        ends = known[:, 0], gaps[:, 0], known[:, places["next"]], gaps[:, places["next"]]
        columns["target between"] = between(*ends)
    return columns


def _own_summary(record: Record) -> Columns:
    """Count, mean and spread of the patient's visible targets other than the visit's own."""
    visible = ~np.isnan(record.target)
    powers = np.stack([visible, np.nan_to_num(record.target), np.nan_to_num(record.target) ** 2], axis=1)
    patient, known_from = record.visits.patient, record.target_known_from
    count, total, squares = _sum_others(powers.astype(np.float64), patient, known_from).T
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    square = np.divide(squares, count, out=np.full(len(total), np.nan), where=count > 1)
    return {"own targets": count, "own mean": mean, "own spread": np.sqrt(np.maximum(square - mean**2, 0.0))}


def _sum_others(table: FloatArray, patient: IntArray, known_from: IntArray | None) -> FloatArray:
    """Per row the sum over the patient's other visits, or over those known by then.

    Running sums in fixed point are exact, so a patient's figures do not depend on the rest of the table.
    """
    fixed = np.rint(table * FIXED_POINT).astype(np.int64)
    if known_from is None:
        others = _running(fixed, patient)[last_visit(patient)] - fixed
    else:
        arrived, ever = np.zeros_like(fixed), known_from <= last_visit(patient)
        np.add.at(arrived, known_from[ever], fixed[ever])
        others = _running(arrived, patient)
    total: FloatArray = others / FIXED_POINT
    return total


def _running(table: IntArray, patient: IntArray) -> IntArray:
    """Sums over each patient's visits up to and with each row."""
    running = np.vstack([np.zeros((1, table.shape[1]), np.int64), np.cumsum(table, axis=0)])
    return running[1:] - running[first_visit(patient)]


def _course_columns(predicted: Predicted) -> Columns:
    return {
        "course": predicted.mean,
        "course deviation": predicted.deviation,
        "regression": predicted.regression,
        "course beyond regression": predicted.mean - predicted.regression,
    }


def _lab_columns(record: Record, *, past_only: bool) -> Columns:
    """Every other lab now, before and after, its change and its trend."""
    tables = {
        "now": record.now,
        "previous": record.previous,
        "previous gap": record.previous_gap,
        "change": record.now - record.previous,
        "trend": record.trends,
        "filled": record.filled,
    }
    if not past_only:
        tables |= {"next": record.following, "next gap": record.following_gap}
    names = [record.visits.lab_names[lab] for lab in record.visits.other_labs]
    return {f"{name} {what}": table[:, k] for what, table in tables.items() for k, name in enumerate(names)}


def _analogue_columns(analogues: Analogues, panel: Panel) -> Columns:
    """What the target was at the most similar visits of other patients, nearer ones counting more."""
    target = take(panel.target, analogues.panel)
    surprise = take(panel.target - panel.regression, analogues.panel)
    weight = 1.0 / (analogues.value_distance + panel.radius / 4)
    weight = np.where(analogues.panel == NONE, 0.0, weight)
    mean = _weighted_mean(target, weight)
    return {
        "analogues": (analogues.panel != NONE).sum(axis=1).astype(np.float64),
        "analogue distance": analogues.value_distance[:, 0],
        "analogue trend distance": analogues.trend_distance[:, 0],
        "analogue mean": mean,
        "analogue spread": np.sqrt(_weighted_mean((target - mean[:, None]) ** 2, weight)),
        "analogue surprise": _weighted_mean(surprise, weight),
    }


def _weighted_mean(values: FloatArray, weight: FloatArray) -> FloatArray:
    total = weight.sum(axis=1)
    mass = (np.nan_to_num(values) * weight).sum(axis=1)
    mean: FloatArray = np.divide(mass, total, out=np.full(len(total), np.nan), where=total > 0)
    return mean
