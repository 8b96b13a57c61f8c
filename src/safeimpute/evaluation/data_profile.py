"""The data as it came, as plain numbers: what was measured, how often, how regularly; no identifier."""

from typing import TypedDict

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.records.visits import Visits

SEEN_ROWS = 1000  # so many rows of a heat map can still be seen
HEAT_MAP_ROWS = 240  # blocks of visits where there are more
SAMPLED_PATIENTS = 10


class CountHistogram(TypedDict):
    """Counts between edges."""

    edges: list[float]
    counts: list[int]


class DataProfile(TypedDict):
    """A table of visits in figures."""

    rows: int
    merged_rows: int
    visits: int
    patients: int
    labs: list[str]
    attributes: list[str]
    fine: list[str]  # used only for who gets measured
    ignored: dict[str, str]  # columns nothing uses, and why
    observed_share: dict[str, float]  # per lab
    heat_map: list[list[float]]
    visits_per_patient: CountHistogram
    mean_visits_per_patient: float
    gap_days: CountHistogram
    median_gap_days: float | None
    visit_missingness: list[list[dict[str, float]]]  # of a few patients, per visit: 1 where a lab is missing


def profile_data(visits: Visits, seed: int = 0) -> DataProfile:
    """Counts, missingness, visits per patient, gaps, and the visit-wise missingness of a few patients."""
    arrays = visits.arrays
    observed = ~np.isnan(arrays.labs)
    per_patient = np.bincount(arrays.patient)
    gaps = np.diff(arrays.time)[arrays.patient[1:] == arrays.patient[:-1]]
    return {
        "rows": visits.rows,
        "merged_rows": visits.merged_rows,
        "visits": len(visits),
        "patients": visits.patients,
        "labs": list(visits.labs),
        "attributes": list(visits.attributes),
        "fine": list(arrays.fine_names),
        "ignored": dict(visits.ignored),
        "observed_share": {name: float(observed[:, i].mean()) for i, name in enumerate(arrays.lab_names)},
        "heat_map": _heat_map(observed),
        "visits_per_patient": _histogram(per_patient, _visit_edges(per_patient)),
        "mean_visits_per_patient": float(per_patient.mean()),
        "gap_days": _histogram(gaps, _gap_edges(gaps)),
        "median_gap_days": float(np.median(gaps)) if len(gaps) else None,
        "visit_missingness": _visit_missingness(arrays, observed, np.random.default_rng(seed)),
    }


def _heat_map(observed: BoolArray) -> list[list[float]]:
    """Whether each lab was observed, a row per visit, sorted by patient and time; its share in blocks of many."""
    blocks = np.array_split(observed, len(observed) if len(observed) <= SEEN_ROWS else HEAT_MAP_ROWS)
    return [[round(float(share), 3) for share in block.mean(axis=0)] for block in blocks]


def _histogram(values: FloatArray | IntArray, edges: FloatArray | IntArray) -> CountHistogram:
    counts, _ = np.histogram(values, bins=edges) if len(values) else (np.zeros(len(edges) - 1), edges)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def _visit_edges(per_patient: IntArray) -> IntArray:
    """One bin per number of visits up to the 99th percentile; a last one holds the rest."""
    most, largest = int(np.quantile(per_patient, 0.99)), int(per_patient.max())
    edges = np.arange(1, most + 2)
    return np.append(edges, largest + 1) if largest > most else edges


def _gap_edges(gaps: FloatArray) -> FloatArray:
    """Forty bins up to the 99th percentile; a last one holds the rest."""
    if not len(gaps):
        return np.array([0.0, 1.0])
    most = float(np.quantile(gaps, 0.99))
    edges = np.linspace(0.0, most, 41)
    return np.append(edges, gaps.max()) if gaps.max() > most else edges


def _visit_missingness(
    arrays: VisitArrays, observed: BoolArray, rng: np.random.Generator
) -> list[list[dict[str, float]]]:
    """For a few patients, per visit: which labs were missing."""
    several = np.flatnonzero(np.bincount(arrays.patient) >= 2)
    chosen = rng.choice(several, size=min(SAMPLED_PATIENTS, len(several)), replace=False)
    return [
        [
            {name: float(not seen) for name, seen in zip(arrays.lab_names, row, strict=True)}
            for row in observed[arrays.patient == patient]
        ]
        for patient in np.sort(chosen)
    ]
