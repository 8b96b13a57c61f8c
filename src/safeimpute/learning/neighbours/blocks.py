"""Exact neighbours by matrix products, for many labs and missingness patterns, on the processor or a GPU.

With masks m, m' of what is observed, the sum over common labs

    sum m m' [(z - z')^2 - r^2]  =  (m z^2 - r^2 m) . m'  +  m . (m' z'^2)  -  2 (m z) . (m' z')

is negative just where two visits share a lab and differ by less than r in root mean square, and exactly 0
where they share none. One product for values and one for trends thus single out the few pairs worth an exact
look; r shrinks to a query's weakest neighbour as soon as that query has as many as it may keep.

The same lines run on NumPy's arrays and on a GPU's tensors, by names that NumPy and torch share; torch takes seconds to
load and is loaded for a GPU only.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safeimpute.machine.resources import steady_sums, workers
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray


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


_ROUNDING = 32 * np.finfo(float).eps  # times the number of labs: a product's relative error, and some room
_BYTES_PER_PAIR = 128  # two products, a mask, and the working arrays if every pair needs an exact look
_PAIRS_IN_CACHE, _PAIRS_ON_GPU = 2**19, 2**26  # in a block; larger ones gain nothing
_ROWS_AT_ONCE, _ROWS_ON_GPU = 512, 8192
_FIRST_SPAN = 64  # references seen before bounds are first tightened
_UNCAPPED_HITS = 256  # hits of a row, on average, before they are measured, where no cap says when

_Array = Any  # of NumPy, or a tensor on a GPU
_Hits = tuple[_Array, _Array]  # rows of a block and references


@dataclass(frozen=True)
class _Machine:
    """Where the products are made, and the library that makes them."""

    device: str
    maths: Any

    def sent(self, array: Any) -> _Array:
        """An array there."""
        return array if self.device == "cpu" else self.maths.from_numpy(array).to(self.device)

    def home(self, array: _Array) -> Any:
        """An array back here."""
        return array if self.device == "cpu" else array.cpu().numpy()


def _machine(device: str) -> _Machine:
    if device == "cpu":
        return _Machine(device, np)
    import torch

    return _Machine(device, torch)


@dataclass(frozen=True)
class _Relation:
    """Values, or trends, of queries and references on the machine."""

    machine: _Machine
    query: _Array  # labs x queries
    reference: _Array  # labs x references
    right: _Array  # the references' side of the product
    radius: float

    def left(self, rows: slice, bound: _Array) -> _Array:
        """The queries' side of the product, r = bound x radius."""
        mask, z = _mask_and_value(self.query[:, rows], self.machine.maths)
        square_radius = (bound * self.radius) ** 2
        threshold = square_radius * (1.0 + _ROUNDING * len(z)) + _slack(z, self.machine.maths)
        return self.machine.maths.concatenate([z * z - threshold * mask, mask, -2.0 * z]).T

    def largest(self) -> float:
        """The coordinate farthest from 0."""
        maths = self.machine.maths
        return max(float(abs(maths.nan_to_num(z, nan=0.0)).max()) for z in (self.query, self.reference))

    def distance(self, query: _Array, reference: _Array) -> FloatArray:
        """Root mean square difference over common labs, summed lab by lab; NaN where there is none."""
        maths = self.machine.maths
        total, count = 0.0, 0.0
        for ours, theirs in zip(self.query, self.reference, strict=True):
            difference = ours[query] - theirs[reference]
            total = total + maths.nan_to_num(difference * difference, nan=0.0)
            count = count + ~maths.isnan(difference)
        with np.errstate(invalid="ignore"):
            mean_square: FloatArray = self.machine.home(total / count)
        return np.sqrt(mean_square)  # torch's own root may be off in the last bit


def _relation(query: FloatArray, reference: FloatArray, radius: float, machine: _Machine) -> _Relation:
    ours, theirs = (machine.sent(np.ascontiguousarray(z.T)) for z in (query, reference))
    mask, z = _mask_and_value(theirs, machine.maths)
    right = machine.maths.concatenate([mask, z * z - _slack(z, machine.maths) * mask, z])
    return _Relation(machine, ours, theirs, right, radius)


def _mask_and_value(z: _Array, maths: Any) -> tuple[_Array, _Array]:
    return maths.nan_to_num(z - z + 1.0, nan=0.0), maths.nan_to_num(z, nan=0.0)


def _slack(z: _Array, maths: Any) -> _Array:
    """What a visit adds to r^2, for every lab in common, so that rounding can hide no neighbour."""
    return _ROUNDING * len(z) * maths.amax(z * z, axis=0) + np.finfo(float).tiny


@dataclass(frozen=True)
class _Problem:
    """Both sides on the machine, references in random order."""

    machine: _Machine
    relations: tuple[_Relation, ...]  # values, then trends unless visits are compared by value alone
    query_patient: _Array
    reference_patient: _Array
    reference_index: IntArray
    limits: Limits
    weakest: float  # the first bound on strengths, always finite
    block_pairs: int


def search_blocks(query: Profiles, reference: Profiles, limits: Limits, memory_mib: int, device: str) -> Neighbours:
    """All pairs within the limits: every query against every reference, block by block."""
    machine = _machine(device)
    threads, n_rows, block_pairs = _block_size(memory_mib, machine)
    problem = _problem(query, reference, limits, machine, block_pairs)
    blocks = [slice(i, min(i + n_rows, len(query))) for i in range(0, len(query), n_rows)]
    search = partial(_search_rows, problem)
    if min(threads, len(blocks)) == 1:  # one patient's visits are not worth a thread
        with steady_sums():
            return assemble(map(search, blocks))
    # One thread per block of rows: threads that share a product wait for one another on a busy machine.
    with steady_sums(), ThreadPoolExecutor(threads) as pool:
        return assemble(pool.map(search, blocks))


def _block_size(memory_mib: int, machine: _Machine) -> tuple[int, int, int]:
    """Threads, rows of a block and pairs of a block; on a GPU a quarter of its free memory."""
    if machine.device == "cpu":
        threads, n_rows, most = workers(), _ROWS_AT_ONCE, _PAIRS_IN_CACHE
        room = memory_mib * 2**20 // threads
    else:
        threads, n_rows, most = 1, _ROWS_ON_GPU, _PAIRS_ON_GPU
        room = machine.maths.cuda.mem_get_info(machine.device)[0] // 4
    return threads, n_rows, max(n_rows, min(room // _BYTES_PER_PAIR, most))


def _problem(query: Profiles, reference: Profiles, limits: Limits, machine: _Machine, block_pairs: int) -> _Problem:
    # In random order no block of references is nearer than the others, so bounds tighten early.
    index = np.random.default_rng(0).permutation(len(reference))
    relations = [_relation(query.values, reference.values[index], limits.value_radius, machine)]
    if limits.trend_radius is not None:
        relations.append(_relation(query.trends, reference.trends[index], limits.trend_radius, machine))
    farthest = 2.0 * max(relation.largest() / relation.radius for relation in relations)
    return _Problem(
        machine=machine,
        relations=tuple(relations),
        query_patient=machine.sent(query.patient),
        reference_patient=machine.sent(reference.patient[index]),
        reference_index=index,
        limits=limits,
        weakest=min(limits.strength, 1.5 * farthest),
        block_pairs=block_pairs,
    )


def _search_rows(problem: _Problem, rows: slice) -> Neighbours:
    """The neighbours of a block of queries, never holding many more pairs than may be kept."""
    n_rows, cap = rows.stop - rows.start, problem.limits.cap
    bound = np.full(n_rows, problem.weakest)
    left = _left_sides(problem, rows, bound)
    fresh = np.empty((len(left), problem.block_pairs))  # once: making it anew for every span is slow
    products = problem.machine.sent(fresh)
    kept, hits = NO_PAIRS, []
    for span in _spans(len(problem.reference_index), problem.block_pairs // n_rows):
        hits.append(_hits(problem, rows, span, left, products))
        if sum(len(row) for row, _ in hits) > (cap or _UNCAPPED_HITS) * n_rows:
            kept = joined([kept, _measured(problem, rows, hits).within(bound)])
            hits = []
            if cap is not None:
                kept = strongest(kept, cap)
                _tighten(bound, kept, cap)
                left = _left_sides(problem, rows, bound)
    kept = strongest(joined([kept, _measured(problem, rows, hits).within(bound)]), cap)
    return Neighbours(rows.start + kept.row, *kept[1:4])


def _spans(n_references: int, longest: int) -> Iterator[slice]:
    """Consecutive blocks of references, each doubling what has been seen until memory forbids."""
    start = 0
    while start < n_references:
        stop = min(start + min(max(start, _FIRST_SPAN), longest), n_references)
        yield slice(start, stop)
        start = stop


def _left_sides(problem: _Problem, rows: slice, bound: FloatArray) -> list[_Array]:
    there = problem.machine.sent(bound)
    return [relation.left(rows, there) for relation in problem.relations]


def _hits(problem: _Problem, rows: slice, span: slice, left: list[_Array], products: _Array) -> _Hits:
    """Pairs of a block that may lie within the bounds: those with negative products."""
    maths = problem.machine.maths
    shape = rows.stop - rows.start, span.stop - span.start
    excess = [area[: shape[0] * shape[1]].reshape(shape) for area in products]
    for side, relation, product in zip(left, problem.relations, excess, strict=True):
        maths.matmul(side, relation.right[:, span], out=product)
    worst = reduce(lambda one, other: maths.maximum(one, other, out=one), excess)
    (place,) = maths.where(worst.reshape(-1) < 0)  # in one dimension: NumPy is faster so
    return place // shape[1], place % shape[1] + span.start


def _measured(problem: _Problem, rows: slice, hits: list[_Hits]) -> Pairs:
    """Hits between different patients with their exact distances."""
    if not hits:
        return NO_PAIRS
    maths, home = problem.machine.maths, problem.machine.home
    row, reference = (maths.concatenate(part) for part in zip(*hits, strict=True))
    query = row + rows.start
    other = problem.query_patient[query] != problem.reference_patient[reference]
    row, query, reference = row[other], query[other], reference[other]
    distances = [relation.distance(query, reference) for relation in problem.relations]
    by_value, by_trend = distances[0], distances[1] if len(distances) > 1 else np.full(len(row), np.nan)
    strength = problem.limits.strengths(by_value, by_trend)
    index = problem.reference_index[home(reference)]
    return Pairs(home(row), index, by_value, by_trend, strength)


def _tighten(bound: FloatArray, kept: Pairs, cap: int) -> None:
    """A row that has all it may keep needs nothing weaker than its weakest."""
    full = np.flatnonzero(np.bincount(kept.row, minlength=len(bound)) == cap)
    last = np.searchsorted(kept.row, full, side="right") - 1
    bound[full] = kept.strength[last]
