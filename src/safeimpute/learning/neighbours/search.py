"""Which visits of other patients look like a given visit: the exact search behind the graph's value edges.

Two visits are compared over the labs observed at both: d_v is the root mean square difference of values,
d_delta that of trends. Two searches give the same pairs, and the cheaper one is taken.
"""

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.learning.neighbours.blocks import Limits, Neighbours, Profiles, assemble, search_blocks
from safeimpute.learning.neighbours.kd_trees import MAX_LABS, pattern_codes, search_trees, views_of
from safeimpute.visits.arrays import BoolArray, IntArray

__all__ = ["Neighbours", "Profiles", "comparable_by_trend", "nearest_by_value", "radius_for_degree", "value_neighbours"]

# The cost rule, in units of one pair compared by matrix products (about 5 ns on one core).
_POINT_COST_CPU, _POINT_COST_GPU = 4, 40  # a point visited in a tree
_VIEW_COST = 200_000  # a tree and the calls that search it
_UNCAPPED = 64  # neighbours expected where their number has no limit
_MAX_PATTERNS = 256  # beyond this the plan alone would take long


def value_neighbours(
    query: Profiles,
    reference: Profiles,
    *,
    value_radius: float,
    trend_radius: float,
    max_neighbors: int | None,
    device: str = "cpu",
    memory_mib: int = 512,
) -> Neighbours:
    """References of other patients within both radii of each query: the `max_neighbors` strongest, or all.

    A pair needs a lab and a trend in common. Its strength is max(d_v / value_radius, d_delta / trend_radius);
    equal strengths go by reference index. `memory_mib` bounds the working arrays in main memory, not the result;
    a GPU is used only where many labs or patterns make it the faster way.

    Equations 9 to 12.
    """
    for name, radius in (("value_radius", value_radius), ("trend_radius", trend_radius)):
        if not 0 < radius < np.inf:
            raise OptionError(f"{name} is {radius}: give a positive, finite number of standard deviations.")
    if max_neighbors is not None and max_neighbors < 1:
        raise OptionError(f"max_neighbors is {max_neighbors}: give at least 1, or None to keep every neighbour.")
    limits = Limits(value_radius, trend_radius, strength=1.0, cap=max_neighbors)
    return _search(query, reference, limits, device, memory_mib)


def nearest_by_value(query: Profiles, reference: Profiles, *, device: str = "cpu", memory_mib: int = 512) -> Neighbours:
    """The reference of another patient nearest by value, however far; none where no lab is in common."""
    limits = Limits(value_radius=1.0, trend_radius=None, strength=np.inf, cap=1)
    return _search(query, reference, limits, device, memory_mib)


def comparable_by_trend(query: Profiles, reference: Profiles) -> BoolArray:
    """Whether some reference of another patient has a trend, and so a value, in common with each query."""
    comparable = np.zeros(len(query), dtype=bool)
    for ours, theirs in zip(query.trends.T, reference.trends.T, strict=True):
        patients = reference.patient[~np.isnan(theirs)]
        if len(patients):
            another = (query.patient != patients.min()) | (query.patient != patients.max())
            comparable |= another & ~np.isnan(ours)
    return comparable


def radius_for_degree(profiles: Profiles, degree: int, rng: np.random.Generator, sample: int = 1000) -> float:
    """The radius, for values and trends alike, at which the median comparable visit has `degree` neighbours.

    It is the median, over a sample of visits with a comparable partner, of the `degree`-th smallest
    max(d_v, d_delta). Where half of them have fewer partners, it is the largest distance met, which joins them
    all; where rounded values make it 0, the smallest above 0; without any pair, one standard deviation.
    """
    if degree < 1:
        raise OptionError(f"The median degree is {degree}: give at least 1.")
    comparable = np.flatnonzero(comparable_by_trend(profiles, profiles))
    chosen = rng.choice(comparable, min(sample, len(comparable)), replace=False)
    limits = Limits(value_radius=1.0, trend_radius=1.0, strength=np.inf, cap=degree)
    pairs = _search(profiles.at(chosen), profiles, limits, "cpu", memory_mib=512)
    if not len(pairs):
        return 1.0
    distance = np.maximum(pairs.value_distance, pairs.trend_distance)
    partners = np.bincount(pairs.query, minlength=len(chosen))
    farthest = distance[np.cumsum(partners) - 1]
    radius = float(np.median(np.where(partners == degree, farthest, np.inf)))
    if np.isinf(radius):
        radius = float(distance.max())
    return radius if radius > 0 else float(distance.min(where=distance > 0, initial=1.0))


def _search(query: Profiles, reference: Profiles, limits: Limits, device: str, memory_mib: int) -> Neighbours:
    compared = "values" if limits.trend_radius is None else "trends"
    ours, theirs = (np.flatnonzero(~np.isnan(getattr(p, compared)).all(axis=1)) for p in (query, reference))
    if not len(ours) or not len(theirs):
        return assemble([])
    query, reference = query.at(ours), reference.at(theirs)
    if _trees_are_cheaper(query, reference, limits, device):
        pairs = search_trees(query, reference, limits, memory_mib)
    else:
        pairs = search_blocks(query, reference, limits, memory_mib, device)
    return Neighbours(ours[pairs.query], theirs[pairs.reference], pairs.value_distance, pairs.trend_distance)


def _trees_are_cheaper(query: Profiles, reference: Profiles, limits: Limits, device: str) -> bool:
    """Compare the points that trees would visit with the pairs that products would compare.

    Finding k neighbours in c coordinates visits about k 2^c points, at most all of them.
    """
    n_labs, by_trend = query.values.shape[1], limits.trend_radius is not None
    if n_labs > MAX_LABS:
        return False
    ours = _counts(pattern_codes(query, by_trend))
    theirs = _counts(pattern_codes(reference, by_trend))
    if max(len(ours), len(theirs)) > _MAX_PATTERNS:
        return False
    point_cost = _POINT_COST_CPU if device == "cpu" else _POINT_COST_GPU
    cost = 0
    for pattern, views in views_of(np.array(list(ours)), np.array(list(theirs)), n_labs, by_trend).items():
        for view in views:
            size = sum(theirs[reference_pattern] for reference_pattern in view.patterns)
            visited = min(size, (limits.cap or _UNCAPPED) << view.common.bit_count())
            cost += _VIEW_COST + point_cost * ours[pattern] * visited
    return cost < len(query) * len(reference)


def _counts(codes: IntArray) -> dict[int, int]:
    """How often each pattern occurs."""
    return dict(zip(*(array.tolist() for array in np.unique(codes, return_counts=True)), strict=True))
