"""Exact neighbours by k-d trees, one for each set of labs that two missingness patterns have in common.

Visits with the same labs observed form a pattern. Between two patterns the common labs V and trends D are
fixed, so the strength s of a pair is a norm of the difference between two points whose coordinates are
z / (value_radius sqrt|V|) and delta / (trend_radius sqrt|D|). A tree searches by a simpler norm
t <= stretch * s: what it has not returned is no stronger than (last t returned) / stretch, and a query is
finished once that exceeds the strength of its weakest neighbour.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from safeimpute.learning.neighbours.blocks import Limits, Neighbours, Pairs, Profiles, assemble, joined, strongest
from safeimpute.machine.resources import workers
from safeimpute.visits.arrays import FloatArray, IntArray

MAX_LABS = 31  # a pattern is the bits of one 64-bit integer
_QUERIES_AT_ONCE = 2048  # near one another, so that one bound serves all and their candidates stay in cache
_FIRST_UNCAPPED = 64  # places asked for at first when there is no cap to go by
_BYTES_PER_CANDIDATE = 160  # working arrays of `_look`, for each row and place
_SEVERAL = np.iinfo(np.int64).min  # no patient's number


class View(NamedTuple):
    """The references a query pattern sees through one set of common labs, named by their own patterns."""

    common: int  # bits of the common labs and, above them, of the common trends
    patterns: tuple[int, ...]


@dataclass(frozen=True)
class _Places:
    """The distinct points at which references of some patterns stand, seen through the common labs.

    Rounded values put many visits on one point. A place enters the tree once, however many visits it holds;
    otherwise each visit of a crowd would have to search through the whole crowd.
    """

    tree: cKDTree
    norm: float
    stretch: float
    labs: IntArray
    trends: IntArray
    point: FloatArray  # (labs, then trends) x places, not scaled
    visit: IntArray  # by place, then by index
    patient: IntArray  # of each visit
    start: IntArray  # of each place's visits
    crowd: IntArray  # number of each place's visits
    owner: IntArray  # the patient to whom all visits of a place belong, or _SEVERAL
    patients: IntArray  # distinct, ascending
    visits_each: IntArray

    def __len__(self) -> int:
        return len(self.start)

    def visits_of(self, patient: IntArray) -> IntArray:
        """How many of the visits here belong to each patient."""
        at = np.minimum(np.searchsorted(self.patients, patient), len(self.patients) - 1)
        return np.where(self.patients[at] == patient, self.visits_each[at], 0)


def pattern_codes(profiles: Profiles, by_trend: bool) -> IntArray:
    """One integer for what is observed at each visit: values in the low bits, trends above."""
    observed = ~np.isnan(np.hstack([profiles.values, profiles.trends]) if by_trend else profiles.values)
    codes: IntArray = observed @ (1 << np.arange(observed.shape[1], dtype=np.int64))
    return codes


def views_of(query_codes: IntArray, reference_codes: IntArray, n_labs: int, by_trend: bool) -> dict[int, list[View]]:
    """For each query pattern, its views of all references it can be compared with."""
    references = np.unique(reference_codes)
    plan = {}
    for pattern in np.unique(query_codes).tolist():
        common = pattern & references
        comparable = (common & ((1 << n_labs) - 1) != 0) & ((common >> n_labs != 0) | (not by_trend))
        plan[pattern] = [
            View(shared, tuple(references[common == shared].tolist()))
            for shared in np.unique(common[comparable]).tolist()
        ]
    return plan


def search_trees(query: Profiles, reference: Profiles, limits: Limits, memory_mib: int) -> Neighbours:
    """All pairs within the limits; made for few patterns and few labs."""
    by_trend = limits.trend_radius is not None
    query_codes, reference_codes = pattern_codes(query, by_trend), pattern_codes(reference, by_trend)
    plan = views_of(query_codes, reference_codes, query.values.shape[1], by_trend)
    threads = workers()
    room = max(1, memory_mib * 2**20 // (threads * _BYTES_PER_CANDIDATE))
    with ThreadPoolExecutor(threads) as pool:
        views = sorted({view for seen in plan.values() for view in seen})
        built = pool.map(lambda view: _places(reference, reference_codes, view, limits), views)
        places = dict(zip(views, built, strict=True))
        batches: list[Future[Neighbours]] = []
        for pattern, seen in plan.items():
            # Fewer labs in common make nearer neighbours: those first, so that bounds are tight early.
            in_turn = sorted((places[view] for view in seen), key=lambda p: (len(p.point), -len(p.visit)))
            regions = _regions(query, np.flatnonzero(query_codes == pattern), pattern, limits)
            batches += [pool.submit(_search_batch, query, rows, in_turn, limits, room) for rows in regions]
        return assemble(batch.result() for batch in batches)


def _columns(bits: int, n_labs: int) -> tuple[IntArray, IntArray]:
    """Labs and trends named by the bits of a pattern."""
    named = np.flatnonzero((bits >> np.arange(2 * n_labs)) & 1)
    return named[named < n_labs], named[named >= n_labs] - n_labs


def _points(profiles: Profiles, rows: IntArray, labs: IntArray, trends: IntArray) -> FloatArray:
    return np.hstack([profiles.values[np.ix_(rows, labs)], profiles.trends[np.ix_(rows, trends)]])


def _scaled(point: FloatArray, n_values: int, limits: Limits) -> FloatArray:
    """Coordinates in which s is the larger Euclidean norm of two: the values' and the trends' difference."""
    scale = np.full(point.shape[1], limits.value_radius * np.sqrt(n_values))
    if limits.trend_radius is not None:
        scale[n_values:] = limits.trend_radius * np.sqrt(point.shape[1] - n_values)
    return np.asarray(point / scale)


def _tree_norm(n_coordinates: int, by_trend: bool) -> tuple[float, float]:
    """The norm t a tree searches by, and the least c with t <= c s.

    By value alone s is the Euclidean norm itself. Otherwise the largest coordinate never exceeds s, and the
    Euclidean norm lies within [s, sqrt(2) s]; the first fits {s <= 1} more tightly, by volume, up to four
    coordinates and the second from five on.
    """
    if not by_trend:
        return 2.0, 1.0
    return (np.inf, 1.0) if n_coordinates <= 4 else (2.0, np.sqrt(2.0))


def _places(reference: Profiles, codes: IntArray, view: View, limits: Limits) -> _Places:
    labs, trends = _columns(view.common, reference.values.shape[1])
    visits = np.flatnonzero(np.isin(codes, view.patterns))
    point = _points(reference, visits, labs, trends)
    order = np.lexsort(point.T)  # stable: the visits of a place stay in ascending order
    point, visits = point[order], visits[order]
    start = np.flatnonzero(np.append(True, (point[1:] != point[:-1]).any(axis=1)))
    patient = reference.patient[visits]
    lowest, highest = np.minimum.reduceat(patient, start), np.maximum.reduceat(patient, start)
    norm, stretch = _tree_norm(point.shape[1], limits.trend_radius is not None)
    patients, visits_each = np.unique(patient, return_counts=True)
    return _Places(
        # Halving boxes rather than points makes the search a third faster: trends have long tails.
        tree=cKDTree(_scaled(point[start], len(labs), limits), balanced_tree=False),
        norm=norm,
        stretch=stretch,
        labs=labs,
        trends=trends,
        point=np.ascontiguousarray(point[start].T),
        visit=visits,
        patient=patient,
        start=start,
        crowd=np.diff(start, append=len(visits)),
        owner=np.where(lowest == highest, lowest, _SEVERAL),
        patients=patients,
        visits_each=visits_each,
    )


def _regions(query: Profiles, rows: IntArray, pattern: int, limits: Limits) -> Iterator[IntArray]:
    """The queries of a pattern in batches that lie close together: neighbouring leaves of a tree."""
    labs, trends = _columns(pattern, query.values.shape[1])
    scaled = _scaled(_points(query, rows, labs, trends), len(labs), limits)
    by_leaf = rows[cKDTree(scaled, balanced_tree=False).indices]
    for first in range(0, len(rows), _QUERIES_AT_ONCE):
        yield by_leaf[first : first + _QUERIES_AT_ONCE]


def _search_batch(query: Profiles, rows: IntArray, all_places: list[_Places], limits: Limits, room: int) -> Neighbours:
    batch = query.at(rows)
    bound = np.full(len(rows), limits.strength)  # nothing weaker can be among a row's neighbours
    near = [_nearest_places(places, batch, bound, limits, room) for places in all_places]
    found = [_visits_at(p, n, batch, bound, limits.cap) for p, n in zip(all_places, near, strict=True)]
    kept = strongest(joined(found), limits.cap)
    return Neighbours(rows[kept.row], *kept[1:4])


def _nearest_places(places: _Places, batch: Profiles, bound: FloatArray, limits: Limits, room: int) -> Pairs:
    """Every place that can hold a neighbour; lowers `bound` to what the visits there make certain."""
    pending = np.flatnonzero(places.visits_of(batch.patient) < len(places.visit))
    wanted = _FIRST_UNCAPPED if limits.cap is None else limits.cap + limits.cap // 2 + 4
    found = []
    while len(pending):
        wanted = min(wanted, len(places))
        step = max(1, room // wanted)
        looks = [
            _look(places, batch, pending[first : first + step], bound, limits, wanted)
            for first in range(0, len(pending), step)
        ]
        found += [pairs for pairs, _ in looks]
        pending = np.concatenate([unfinished for _, unfinished in looks])
        wanted *= 2
    return joined(found)


def _look(
    places: _Places, batch: Profiles, rows: IntArray, bound: FloatArray, limits: Limits, wanted: int
) -> tuple[Pairs, IntArray]:
    """The `wanted` nearest places: those that matter to the rows this finishes, and the unfinished rows."""
    point = _points(batch, rows, places.labs, places.trends)
    scaled = _scaled(point, len(places.labs), limits)
    rounding = _rounding(scaled, places.tree)
    reach = places.stretch * bound[rows].max() + rounding
    distance, place = places.tree.query(scaled, k=wanted, p=places.norm, distance_upper_bound=reach)
    distance, place = distance.reshape(len(rows), wanted), place.reshape(len(rows), wanted)
    value_distance, trend_distance = _distances(places, point, place)
    strength = limits.strengths(value_distance, trend_distance)
    patient = batch.patient[rows]
    strength[np.isinf(distance) | (places.owner.take(place, mode="clip") == patient[:, None])] = np.inf
    if limits.cap is not None:
        certain = _certain(places, place, strength, places.visits_of(patient), limits.cap)
        bound[rows] = np.minimum(bound[rows], certain)
    unseen = (distance[:, -1] - rounding) / places.stretch  # no place left out is stronger
    finished = (unseen > bound[rows]) | (wanted == len(places))
    kept = np.nonzero((strength <= bound[rows, None]) & (strength < np.inf) & finished[:, None])
    fields = place[kept], value_distance[kept], trend_distance[kept], strength[kept]
    return Pairs(rows[kept[0]], *fields), rows[~finished]


def _rounding(scaled: FloatArray, tree: cKDTree) -> float:
    """Bounds the error of a distance in a tree."""
    extent = np.abs(scaled).max() + np.abs(tree.mins).max() + np.abs(tree.maxes).max()
    return float(16 * scaled.shape[1] * np.finfo(float).eps * (1.0 + extent))


def _distances(places: _Places, point: FloatArray, place: IntArray) -> tuple[FloatArray, FloatArray]:
    """d_v and d_delta between rows and places, summed lab by lab; NaN by trend where none is compared."""
    n_labs, n_trends = len(places.labs), len(places.trends)
    squares = np.zeros((2, *place.shape))
    for i, coordinate in enumerate(places.point):
        difference = coordinate.take(place, mode="clip")
        difference -= point[:, i, None]
        difference *= difference
        squares[int(i >= n_labs)] += difference
    squares[0] /= n_labs
    squares[1] /= n_trends or np.nan
    value_distance, trend_distance = np.sqrt(squares, out=squares)
    return value_distance, trend_distance


def _certain(places: _Places, place: IntArray, strength: FloatArray, own: IntArray, cap: int) -> FloatArray:
    """A strength within which `cap` visits of other patients are sure to lie; inf where too few were met."""
    others = np.maximum(places.crowd.take(place, mode="clip") - own[:, None], 1)
    order = np.argsort(strength, axis=1)
    met = np.cumsum(np.take_along_axis(others, order, axis=1), axis=1)
    last = np.take_along_axis(order, np.argmax(met >= cap, axis=1)[:, None], axis=1)
    return np.where(met[:, -1] >= cap, np.take_along_axis(strength, last, axis=1)[:, 0], np.inf)


def _visits_at(places: _Places, near: Pairs, batch: Profiles, bound: FloatArray, cap: int | None) -> Pairs:
    """The visits of other patients at places within the bounds; of a crowd no more than could be kept."""
    near = near.within(bound)
    enough = places.crowd[near.other]
    if cap is not None:
        enough = np.minimum(enough, (cap + places.visits_of(batch.patient))[near.row])
    nth = np.arange(enough.sum()) - np.repeat(np.cumsum(enough) - enough, enough)
    pairs = near.at(np.repeat(np.arange(len(enough)), enough))
    member = places.start[pairs.other] + nth
    pairs = pairs._replace(other=places.visit[member])
    return pairs.at(places.patient[member] != batch.patient[pairs.row])
