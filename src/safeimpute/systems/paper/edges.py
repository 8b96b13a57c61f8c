"""Undirected edges between visits, and the temporal ones."""

from dataclasses import dataclass

import numpy as np

from safeimpute.neighbours.search import Neighbours
from safeimpute.records.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Edges:
    """Undirected edges, each listed once with `first` < `second`; margin 1 is the firmest support."""

    first: IntArray
    second: IntArray
    margin: FloatArray

    def __len__(self) -> int:
        return len(self.first)

    def degrees(self, visits: int) -> IntArray:
        ends = np.concatenate([self.first, self.second])
        return np.bincount(ends, minlength=visits).astype(np.int64)


NO_EDGES = Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def default_max_gap(patient: IntArray, time: FloatArray) -> float:
    """95th percentile of the gaps between consecutive visits; infinite where nobody came twice."""
    gaps = np.diff(time)[patient[1:] == patient[:-1]]
    return float(np.quantile(gaps, 0.95)) if len(gaps) else np.inf


def temporal_edges(patient: IntArray, time: FloatArray, max_gap: float) -> Edges:
    """Consecutive visits of a patient at most `max_gap` days apart; margin 1 - gap / max_gap. Equations 7 and 27."""
    gap = np.diff(time)
    first = np.flatnonzero((patient[1:] == patient[:-1]) & (gap > 0) & (gap <= max_gap))
    margin = np.ones(len(first)) if np.isinf(max_gap) else 1.0 - gap[first] / max_gap
    return Edges(first, first + 1, margin)


def value_edges(pairs: Neighbours, value_radius: float, trend_radius: float) -> Edges:
    """Undirected union of directed neighbour pairs; margin 1 - max(d_v / tau_v, d_delta / tau_delta), at least 0.

    Equations 13 and 28.
    """
    by_value = pairs.value_distance / value_radius
    by_trend = np.nan_to_num(pairs.trend_distance, nan=0.0) / trend_radius
    margin = 1.0 - np.minimum(np.maximum(by_value, by_trend), 1.0)
    low, high = np.minimum(pairs.query, pairs.reference), np.maximum(pairs.query, pairs.reference)
    order = np.lexsort((high, low))
    low, high, margin = low[order], high[order], margin[order]
    new = np.r_[True, (low[1:] != low[:-1]) | (high[1:] != high[:-1])] if len(low) else np.empty(0, bool)
    return Edges(low[new], high[new], margin[new])
