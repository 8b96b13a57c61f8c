"""What the two exact neighbour searches share: profiles in, limits on a pair, ordered pairs out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Profiles:
    """What makes visits comparable across patients."""

    values: FloatArray  # visits x labs, standardised, NaN missing; the target is not among them
    trends: FloatArray  # visits x labs, standardised, NaN missing; a trend exists only where the value does
    patient: IntArray

    def __len__(self) -> int:
        return len(self.patient)

    def at(self, visits: IntArray) -> "Profiles":
        """The profiles of some visits."""
        return Profiles(self.values[visits], self.trends[visits], self.patient[visits])


@dataclass(frozen=True)
class Neighbours:
    """Directed pairs query -> reference: by query, ascending; within a query the strongest first."""

    query: IntArray
    reference: IntArray
    value_distance: FloatArray
    trend_distance: FloatArray  # NaN where the pair was compared by value alone

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True)
class Limits:
    """Which pairs are kept, judged by s = max(d_v / value_radius, d_delta / trend_radius): small is strong.

    d <= radius and d / radius <= 1 agree in floating point too: division rounds monotonically, and the
    distance one step above the radius gives a quotient above 1.
    """

    value_radius: float
    trend_radius: float | None  # None compares by value alone
    strength: float  # weakest pair kept: 1 for the radii themselves, inf for no threshold
    cap: int | None  # strongest references kept for each query

    def strengths(self, value_distance: FloatArray, trend_distance: FloatArray) -> FloatArray:
        """s of each pair."""
        by_value = value_distance / self.value_radius
        if self.trend_radius is None:
            return by_value
        return np.maximum(by_value, trend_distance / self.trend_radius)


class Pairs(NamedTuple):
    """Rows of a batch of queries, each with something near it: a reference or, inside trees, a place."""

    row: IntArray
    other: IntArray
    value_distance: FloatArray
    trend_distance: FloatArray
    strength: FloatArray

    def at(self, chosen: IntArray | BoolArray) -> "Pairs":
        """Some of the pairs."""
        return Pairs._make(field[chosen] for field in self)

    def within(self, bound: FloatArray) -> "Pairs":
        """The pairs no weaker than their row's bound."""
        return self.at(self.strength <= bound[self.row])


NO_PAIRS = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0))


def joined(parts: Iterable[Pairs]) -> Pairs:
    """The pairs of all parts."""
    return Pairs._make(np.concatenate(fields) for fields in zip(NO_PAIRS, *parts, strict=True))


def strongest(pairs: Pairs, cap: int | None) -> Pairs:
    """The pairs by row, strength and reference, at most `cap` of a row."""
    # A stable sort of 16-bit rows is a radix sort; after a vectorised sort by strength it beats one lexsort.
    narrow = pairs.row.astype(np.uint16) if pairs.row.max(initial=0) < 2**16 else pairs.row
    order = np.argsort(pairs.strength)
    order = order[np.argsort(narrow[order], kind="stable")]
    ordered = pairs.at(_with_ties_settled(order, pairs))
    return ordered if cap is None else ordered.at(_rank_in_run(ordered.row) < cap)


def _with_ties_settled(order: IntArray, pairs: Pairs) -> IntArray:
    """Equally strong pairs of a row by reference; such ties are rare unless values are rounded."""
    row, strength = pairs.row[order], pairs.strength[order]
    tied = (row[1:] == row[:-1]) & (strength[1:] == strength[:-1])
    in_tie = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
    by_reference = np.lexsort((pairs.other[order[in_tie]], strength[in_tie], row[in_tie]))
    order[in_tie] = order[in_tie[by_reference]]
    return order


def _rank_in_run(row: IntArray) -> IntArray:
    """0, 1, 2 … within each run of equal rows."""
    first = np.flatnonzero(np.diff(row, prepend=-1))
    return np.arange(len(row)) - np.repeat(first, np.diff(first, append=len(row)))


def assemble(parts: Iterable[Neighbours]) -> Neighbours:
    """One result from parts about different queries, the pairs of each query in order already."""
    parts = [Neighbours(*NO_PAIRS[:4]), *parts]
    query = np.concatenate([part.query for part in parts])
    in_query = np.bincount(query, minlength=1)
    rank = np.concatenate([_rank_in_run(part.query) for part in parts])
    position = (np.cumsum(in_query) - in_query)[query] + rank
    return Neighbours(
        _moved(query, position),
        _moved(np.concatenate([part.reference for part in parts]), position),
        _moved(np.concatenate([part.value_distance for part in parts]), position),
        _moved(np.concatenate([part.trend_distance for part in parts]), position),
    )


def _moved(array: NDArray[Any], position: IntArray) -> NDArray[Any]:
    moved = np.empty_like(array)
    moved[position] = array
    return moved
