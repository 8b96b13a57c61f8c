"""Who is found on which side of a limit, how patients are ranked, and the same figures over resampled patients."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import stats

from safeimpute.evaluation.completions import RESAMPLED, Completed, Interval
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

Sums = tuple[FloatArray, Callable[[FloatArray], FloatArray]]  # of every patient, and the figure their totals make


def decisions(way: Completed, patient: IntArray, truth: FloatArray, limits: Sequence[float]) -> dict[str, FloatArray]:
    """How patients are ranked, and who is found on which side of a limit: the figure, then over resampled patients.

    A visit without a value is not found. A patient crosses a limit who reaches it at a visit at least; of draws, who
    does so in half of them.
    """
    _, patient, visits = np.unique(patient, return_inverse=True, return_counts=True)
    rows, patients = way.available, len(visits)
    middle, count = way.values[rows].mean(axis=1), np.bincount(patient[rows], minlength=patients)
    own = np.bincount(patient[rows], middle, minlength=patients) / np.maximum(count, 1)
    own = np.where(count > 0, own, middle.mean() if len(middle) else 0.0)  # nothing known: in the middle
    ranks = (stats.rankdata(each) - (patients + 1) / 2 for each in (own, np.bincount(patient, truth) / visits))
    found: dict[str, Sums] = {"ranking of patients": (_products(*ranks), _correlation)}
    for limit in limits:
        reached, really = way.values[rows] >= limit, truth >= limit
        above = np.zeros(len(truth), dtype=bool)
        above[rows] = reached.mean(axis=1) >= 0.5
        crossing = np.zeros((patients, reached.shape[1]), dtype=bool)
        np.logical_or.at(crossing, patient[rows], reached)
        alarmed, crosses = crossing.mean(axis=1) >= 0.5, np.bincount(patient, really) > 0
        found |= {
            f"found at or above {limit:g}": (_pair(above & really, really, patient), _ratio),
            f"false alarms at {limit:g}": (_pair(above & ~really, above, patient), _ratio),
            f"patients found at or above {limit:g}": (np.column_stack([alarmed & crosses, crosses]), _ratio),
            f"patients falsely alarmed at {limit:g}": (np.column_stack([alarmed & ~crosses, ~crosses]), _ratio),
        }
    return _over_resampled(found, patients)


def _pair(part: BoolArray, whole: BoolArray, patient: IntArray) -> FloatArray:
    return np.column_stack([np.bincount(patient, part), np.bincount(patient, whole)])


def _products(one: FloatArray, other: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(one)), one, other, one * one, other * other, one * other])


def _ratio(totals: FloatArray) -> FloatArray:
    part, whole = totals.T
    found: FloatArray = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return found


def _correlation(totals: FloatArray) -> FloatArray:
    one, other, squares, others, products = (totals[:, 1:] / totals[:, :1]).T
    spread = np.sqrt(np.maximum((squares - one**2) * (others - other**2), 0.0))
    found: FloatArray = np.divide(products - one * other, spread, out=np.full(len(one), np.nan), where=spread > 0)
    return found


def _over_resampled(sums: Mapping[str, Sums], patients: int) -> dict[str, FloatArray]:
    """Each figure of all patients, then of as many drawn with replacement, again and again; always the same draws."""
    rng, columns = np.random.default_rng(20), np.hstack([each for each, _ in sums.values()]).astype(np.float64)
    drawn = (np.bincount(rng.integers(patients, size=patients), minlength=patients) for _ in range(RESAMPLED))
    totals = np.vstack([columns.sum(axis=0), *(counts @ columns for counts in drawn)])
    places = np.cumsum([each.shape[1] for each, _ in sums.values()])
    parts = np.split(totals, places[:-1], axis=1)
    return {name: figure(part) for (name, (_, figure)), part in zip(sums.items(), parts, strict=True)}


def resampled_interval(again: FloatArray) -> Interval | None:
    """The interval of a figure by what it is over resampled patients; None where that is mostly nothing."""
    others = again[1:][np.isfinite(again[1:])]
    if len(others) < RESAMPLED / 2:
        return None
    low, high = np.quantile(others, [0.025, 0.975])
    return Interval(float(again[0]), float(np.std(others, ddof=1)), float(low), float(high))
