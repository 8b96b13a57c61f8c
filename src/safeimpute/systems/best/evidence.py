"""What a record says about a visit's hidden target: one table for imputers, risks and explanations.

`fit_evidence` learns units, the patients' typical course and a panel of training visits once; `read_evidence`
then reads any table of visits with these frozen. No row ever sees its own target.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.records.history import NONE, first_visit, last_visit
from safeimpute.records.own_visits import nearest_own_visits, take
from safeimpute.splits.roles import Task
from safeimpute.systems.best.course import Kriged, Kriging, fit_kriging, krige
from safeimpute.systems.best.panel import Analogues, Panel, find_analogues, fit_panel
from safeimpute.systems.best.record import Record, Units, between, fit_units, read_record
from safeimpute.systems.scaling import LogLabs

Columns = dict[str, FloatArray]
EvidenceTable = NDArray[np.float32]  # seven digits are more than any laboratory prints, in half the memory
VISITS_TO_LEARN = 250_000  # units, course and panel need no more
BLOCK_VISITS = 65_536  # read at once: bounds the working memory, changes no byte
FIXED_POINT = 2.0**24


@dataclass(frozen=True)
class EvidenceSettings:
    """What counts as evidence."""

    past_only: bool = False  # of the patient's own record, only what was known by the visit's time
    own_each_way: int = 6  # visible targets of the patient looked at before the visit, and after it
    analogues: int = 16  # visits of other patients most like this one
    panel_visits: int = 50_000  # training visits kept for comparison
    log_labs: LogLabs = "auto"


@dataclass(frozen=True)
class EvidenceSource:
    """Everything learnt from the training visits that reading evidence needs."""

    settings: EvidenceSettings
    units: Units
    kriging: Kriging
    panel: Panel


@dataclass(frozen=True)
class Evidence:
    """One row per visit; NaN where there is nothing to say."""

    matrix: EvidenceTable
    names: tuple[str, ...]
    visits: VisitArrays
    target: FloatArray  # visible targets in standard units; NaN elsewhere
    own: IntArray  # visits x own visits with a visible target, earlier ones first; NONE pads
    kriged: Kriged
    analogues: Analogues
    source: EvidenceSource

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def nothing_known(self) -> BoolArray:
        """Visits about which the record holds neither a visible target nor any lab: a value is a mere average."""
        nothing: BoolArray = (self.own == NONE).all(axis=1) & np.isnan(self.labs("filled")).all(axis=1)
        return nothing

    @property
    def attributes(self) -> EvidenceTable:
        return self.matrix[:, [self.names.index(name) for name in self.visits.attribute_names]]

    def labs(self, what: str) -> EvidenceTable:
        """What the evidence says of every other lab: its columns "now", "trend", "filled" and so on."""
        others = [self.visits.lab_names[lab] for lab in self.visits.other_labs]
        first = self.names.index(f"{others[0]} {what}") if others else 0
        return self.matrix[:, first : first + len(others)]

    def __getitem__(self, name: str) -> EvidenceTable:
        return self.matrix[:, self.names.index(name)]


def fit_evidence(task: Task, settings: EvidenceSettings, rng: np.random.Generator) -> EvidenceSource:
    """Learn from the training visits all that reading evidence needs; of a large table, from some patients'."""
    task = _at_most(task, max(VISITS_TO_LEARN, 5 * settings.panel_visits), rng)
    units = fit_units(task, settings.log_labs)
    record = read_record(task.visits, units, past_only=settings.past_only)
    design, own = _design(record, units), _own(record, settings)
    kriging = fit_kriging(design, record.target, task.visits.time, own, rng)
    regression = (design * kriging.coefficients).sum(axis=1)
    panel = fit_panel(record, regression, settings.panel_visits, settings.analogues, rng)
    return EvidenceSource(settings, units, kriging, panel)


def _at_most(task: Task, visits: int, rng: np.random.Generator) -> Task:
    """The task, or about `visits` of its visits: those of patients drawn at random."""
    if len(task.visits) <= visits:
        return task
    patient = task.visits.patient
    drawn: BoolArray = rng.random(int(patient[-1]) + 1) < visits / len(patient)
    return task.of_patients(drawn[patient])


def read_evidence(
    visits: VisitArrays, source: EvidenceSource, device: str = "cpu", block_visits: int = BLOCK_VISITS
) -> Evidence:
    """The evidence at every visit of a table whose target column holds visible targets only."""
    if len(visits) <= block_visits:
        return _read_block(visits, source, device)
    room: list[NDArray[Any]] = []
    names: tuple[str, ...] = ()
    for start, stop in _patient_blocks(visits.patient, block_visits):
        there = np.zeros(len(visits), dtype=bool)
        there[start:stop] = True
        block = _read_block(visits.take(there), source, device)
        block.own[block.own != NONE] += start
        room = room or [np.empty((len(visits), *each.shape[1:]), each.dtype) for each in _per_visit(block)]
        names = block.names
        for whole, part in zip(room, _per_visit(block), strict=True):
            whole[start:stop] = part
    matrix, target, own, *rest = room
    kriged, analogues = Kriged(*rest[:4]), Analogues(*rest[4:])
    return Evidence(matrix, names, visits, target, own, kriged, analogues, source)


def _patient_blocks(patient: IntArray, block_visits: int) -> Iterator[tuple[int, int]]:
    """Spans of rows with about `block_visits` each; no patient is cut in two."""
    start = 0
    while start < len(patient):
        stop = min(start + block_visits, len(patient))
        stop = int(np.searchsorted(patient, patient[stop - 1], side="right"))
        yield start, stop
        start = stop


def _per_visit(part: Evidence) -> list[NDArray[Any]]:
    return [part.matrix, part.target, part.own, *vars(part.kriged).values(), *vars(part.analogues).values()]


def _read_block(visits: VisitArrays, source: EvidenceSource, device: str) -> Evidence:
    record = read_record(visits, source.units, past_only=source.settings.past_only)
    own = _own(record, source.settings)
    kriged = krige(source.kriging, _design(record, source.units), record.target, visits.time, own)
    analogues = find_analogues(record, source.panel, source.settings.analogues, device)
    columns = (
        _visit_columns(record)
        | _target_columns(record, own, source.settings)
        | _kriged_columns(kriged)
        | _lab_columns(record, past_only=source.settings.past_only)
        | _analogue_columns(analogues, source.panel)
    )
    matrix = np.empty((len(visits), len(columns)), np.float32)
    for place, column in enumerate(columns.values()):
        matrix[:, place] = column
    return Evidence(matrix, tuple(columns), visits, record.target, own, kriged, analogues, source)


def _own(record: Record, settings: EvidenceSettings) -> IntArray:
    """The one place that says which visible targets of a patient were known at a visit."""
    after = 0 if settings.past_only else settings.own_each_way
    visible, known_from = ~np.isnan(record.target), record.target_known_from
    return nearest_own_visits(record.visits.patient, visible, settings.own_each_way, after, known_from)


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
    since = (
        np.where(rows > start, visits.time - np.roll(visits.time, 1), np.nan) if len(rows) else np.empty(0)
    )
    columns = {
        "days since first visit": record.follow_up,
        "days since last visit": since,
        "visit number": (rows - start).astype(np.float64),
        "labs measured": (~np.isnan(record.now)).sum(axis=1).astype(np.float64),
    }
    return columns | dict(zip(visits.attribute_names, record.attributes.T, strict=True))


def _target_columns(record: Record, own: IntArray, settings: EvidenceSettings) -> Columns:
    """Visible targets of the same patient: the nearest ones with gaps, and their summary."""
    known = take(record.target, own)
    gaps = np.abs(take(record.visits.time, own) - record.visits.time[:, None])
    places = {"previous": 0, "second previous": 1}
    if not settings.past_only:
        places |= {"next": settings.own_each_way, "second next": settings.own_each_way + 1}
    columns = {f"target {name}": known[:, place] for name, place in places.items()}
    columns |= {f"target {name} gap": gaps[:, place] for name, place in places.items()}
    if not settings.past_only:
        ends = known[:, 0], gaps[:, 0], known[:, places["next"]], gaps[:, places["next"]]
        columns["target between"] = between(*ends)
    return columns | _own_summary(record)


def _own_summary(record: Record) -> Columns:
    """Count, mean and spread of the patient's visible targets other than the visit's own."""
    visible = ~np.isnan(record.target)
    powers = np.stack([visible, np.nan_to_num(record.target), np.nan_to_num(record.target) ** 2], axis=1)
    patient, known_from = record.visits.patient, record.target_known_from
    count, total, squares = _sum_others(powers.astype(np.float64), patient, known_from).T
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    square = np.divide(squares, count, out=np.full(len(total), np.nan), where=count > 1)
    return {
        "own targets": count,
        "own mean": mean,
        "own spread": np.sqrt(np.maximum(square - mean**2, 0.0)),
    }


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


def _kriged_columns(kriged: Kriged) -> Columns:
    return {
        "course": kriged.mean,
        "course deviation": kriged.deviation,
        "regression": kriged.regression,
        "course beyond regression": kriged.mean - kriged.regression,
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
