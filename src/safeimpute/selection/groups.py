"""Groups within which the level holds: how a visit's group is told, and which small ones stand together.

A group is told by what is visible of a visit without its own target (its imputed value, its patient's other values,
attributes), so measured visits and candidates are told apart by the same rule; merging reads weights and no error.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from safeimpute.selection.enough import EffectiveSize, attribute_groups, enough, require_groups
from safeimpute.selection.sums import kish_size
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays

Kind = Literal["value", "history", "number", "category"]
MOST_SHOWN = 4  # attributes beside value and history that are looked at without being asked for
HISTORY = (1.0, 3.0)  # own values from which a band of `history` begins
FIFTHS = (0.2, 0.8)  # low, middle, top
AGE_BANDS = (50.0, 65.0)
THIRDS = (1 / 3, 2 / 3)
FEW_VALUES = 5  # an attribute with so many distinct values is grouped by each of them
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Dimension:
    """One way to tell visits apart: bands of an amount, or levels of a category."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    edges: tuple[float, ...] = ()  # of bands
    columns: tuple[int, ...] = ()  # of the attributes

    def code(self, value: FloatArray, history: IntArray, attributes: FloatArray) -> IntArray:
        """Each visit's place among the labels."""
        if self.kind == "category":
            flags = np.nan_to_num(attributes[:, list(self.columns)])
            return np.where(flags.any(axis=1), flags.argmax(axis=1), len(self.columns)).astype(np.int64)
        if self.kind == "number":
            amount = attributes[:, self.columns[0]]
        else:
            amount = value if self.kind == "value" else history.astype(np.float64)
        band = np.digitize(amount, self.edges)
        return np.where(np.isnan(amount), len(self.labels) - 1, band).astype(np.int64)


@dataclass(frozen=True)
class Grouping:
    """All dimensions crossed: every combination is a cell."""

    dimensions: tuple[Dimension, ...]
    past_only: bool

    def cells(self, visits: VisitArrays, value: FloatArray) -> IntArray:
        """Each visit's cell; `value` are imputed values, targets not visible are NaN in `visits`."""
        cell = np.zeros(len(visits), dtype=np.int64)
        for dimension, code in self.codes(visits, value):
            cell = cell * len(dimension.labels) + code
        return cell

    def codes(self, visits: VisitArrays, value: FloatArray) -> Iterator[tuple[Dimension, IntArray]]:
        """Every dimension with each visit's place among its labels."""
        history = own_values(visits, past_only=self.past_only)
        for dimension in self.dimensions:
            yield dimension, dimension.code(value, history, visits.attributes)

    def alone(self) -> Iterator["Grouping"]:
        """Each dimension as a grouping of its own."""
        return (Grouping((dimension,), self.past_only) for dimension in self.dimensions)

    def label(self, cell: int) -> str:
        """A cell in words."""
        words = []
        for dimension in reversed(self.dimensions):
            cell, place = divmod(cell, len(dimension.labels))
            words.append(f"{dimension.name} {dimension.labels[place]}")
        return ", ".join(reversed(words))

    def state(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, stored: Mapping[str, Any]) -> "Grouping":
        """What `state` wrote."""
        dimensions = tuple(
            Dimension(each["name"], each["kind"], *(tuple(each[name]) for name in ("labels", "edges", "columns")))
            for each in stored["dimensions"]
        )
        return cls(dimensions, bool(stored["past_only"]))


def make_grouping(
    names: Sequence[str], visits: VisitArrays, value: FloatArray, limits: Sequence[float] = (), *, past_only: bool
) -> Grouping:
    """Dimensions by name; bands of the value at the lab's decision limits, else fifths of the imputed values."""
    require_groups(names, visits)
    return Grouping(tuple(_dimension(name, visits, value, limits) for name in names), past_only)


def shown_grouping(
    visits: VisitArrays, value: FloatArray, limits: Sequence[float] = (), *, past_only: bool
) -> Grouping:
    """What is looked at one by one whatever was asked for: bands of the value, own history, a few attributes."""
    names = ("value", "history", *attribute_groups(visits)[:MOST_SHOWN])
    return make_grouping(names, visits, value, limits, past_only=past_only)


def _dimension(name: str, visits: VisitArrays, value: FloatArray, limits: Sequence[float]) -> Dimension:
    if name == "history":
        return Dimension(name, "history", ("of no own value", "of 1 to 2 own values", "of 3 or more"), HISTORY)
    if name == "value":
        return _value_bands(value, limits)
    if name in visits.attribute_names:
        return _number_bands(name, visits)
    columns = tuple(k for k, each in enumerate(visits.attribute_names) if each.startswith(f"{name}="))
    labels = tuple(visits.attribute_names[k][len(name) + 1 :] for k in columns)
    return Dimension(name, "category", (*labels, UNKNOWN), columns=columns)


def _value_bands(value: FloatArray, limits: Sequence[float]) -> Dimension:
    there = value[np.isfinite(value)]
    edges = tuple(float(each) for each in limits)
    if not edges:
        edges = tuple(np.unique(np.quantile(there, FIFTHS)).tolist()) if len(there) else (0.0,)
        names = ("low", "middle", "top") if len(edges) == len(FIFTHS) else ("low", "top")
        return Dimension("value", "value", (*names, UNKNOWN), edges)
    return Dimension("value", "value", (*_band_names(edges), UNKNOWN), edges)


def _number_bands(name: str, visits: VisitArrays) -> Dimension:
    column = visits.attribute_names.index(name)
    amount = visits.attributes[:, column]
    distinct = np.unique(amount[~np.isnan(amount)])
    if len(distinct) <= FEW_VALUES:
        edges = tuple(distinct[1:].tolist())
        labels = tuple(f"{each:g}" for each in distinct) or ("any",)
        return Dimension(name, "number", (*labels, UNKNOWN), edges, (column,))
    bands = AGE_BANDS if name.lower() == "age" else np.quantile(amount[~np.isnan(amount)], THIRDS)
    edges = tuple(np.unique(np.asarray(bands, dtype=np.float64)).tolist())
    return Dimension(name, "number", (*_band_names(edges), UNKNOWN), edges, (column,))


def _band_names(edges: Sequence[float]) -> tuple[str, ...]:
    between = [f"{low:.4g} to under {high:.4g}" for low, high in pairwise(edges)]
    return (f"under {edges[0]:.4g}", *between, f"{edges[-1]:.4g} or more")


def own_values(visits: VisitArrays, *, past_only: bool) -> IntArray:
    """How many other visible target values the visit's patient has; with past-only those known by its time."""
    there = ~np.isnan(visits.target_values)
    if not past_only:
        per_patient = np.bincount(visits.patient, there, minlength=1)
        return (per_patient[visits.patient] - there).astype(np.int64)
    since = visits.time if visits.known is None else np.fmax(visits.time, visits.known[:, visits.target])
    order = np.lexsort((since[there], visits.patient[there]))
    patient, known = visits.patient[there][order], since[there][order]
    number = np.arange(len(patient))
    first = np.searchsorted(patient, visits.patient, side="left")
    place = np.lexsort(
        (np.r_[np.zeros(len(known)), np.ones(len(visits))], np.r_[known, visits.time], np.r_[patient, visits.patient])
    )
    seen = np.empty(len(place), dtype=np.int64)
    seen[place] = np.cumsum(place < len(number))
    own = there & (since <= visits.time)
    return (seen[len(number) :] - first - own).astype(np.int64)


@dataclass(frozen=True)
class Merged:
    """Cells that stand together so that each group's level stands for a countable number of risky values."""

    group: dict[int, int]  # of every cell met
    cells: dict[int, tuple[int, ...]]  # of every group

    def of(self, cell: IntArray) -> IntArray:
        """Each visit's group; -1 for a cell never met."""
        known = np.array(sorted(self.group), dtype=np.int64)
        groups = np.array([self.group[each] for each in known.tolist()], dtype=np.int64)
        place = np.minimum(np.searchsorted(known, cell), max(len(known) - 1, 0))
        found = known[place] == cell if len(known) else np.zeros(len(cell), dtype=bool)
        return np.where(found, groups[place] if len(known) else -1, -1)


def merge_cells(cell: IntArray, patient: IntArray, weight: FloatArray, alpha: float, every: IntArray) -> Merged:
    """Merge the smallest group with its smaller neighbour until every group is large enough for the level.

    Parameters are the cells, patients and weights of the measured visits within the promise; `every` cell met.
    """
    groups: list[tuple[int, ...]] = [(each,) for each in np.unique(every).tolist()]
    effective_size = [_effective_size(np.isin(cell, members), patient, weight) for members in groups]
    while len(groups) > 1:
        small = [k for k, each in enumerate(effective_size) if not enough(each, alpha)]
        if not small:
            break
        k = min(small, key=lambda place: (effective_size[place].patients, place))
        beside = [n for n in (k - 1, k + 1) if 0 <= n < len(groups)]
        other = min(beside, key=lambda place: (effective_size[place].patients, place))
        low, high = min(k, other), max(k, other)
        groups[low : high + 1] = [groups[low] + groups[high]]
        effective_size[low : high + 1] = [_effective_size(np.isin(cell, groups[low]), patient, weight)]
    return Merged({each: number for number, members in enumerate(groups) for each in members}, dict(enumerate(groups)))


def _effective_size(rows: BoolArray, patient: IntArray, weight: FloatArray) -> EffectiveSize:
    per_patient = np.bincount(patient[rows], weight[rows]) if rows.any() else np.empty(0)
    return EffectiveSize(kish_size(weight[rows]), kish_size(per_patient.astype(np.float64)))
