"""The data as it came, as plain numbers: what was measured, how often, how regularly; no identifier."""

from typing import Any

import numpy as np

from safeimpute.records.arrays import VisitArrays
from safeimpute.records.visits import Visits

HEAT_MAP_ROWS = 240
SAMPLED_PATIENTS = 10


def profile_data(visits: Visits, seed: int = 0) -> dict[str, Any]:
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
        "ignored": dict(visits.ignored),
        "observed_share": {name: float(observed[:, i].mean()) for i, name in enumerate(arrays.lab_names)},
        "heat_map": _heat_map(observed),
        "visits_per_patient": _histogram(per_patient, _visit_edges(per_patient)),
        "mean_visits_per_patient": float(per_patient.mean()),
        "gap_days": _histogram(gaps, _gap_edges(gaps)),
        "median_gap_days": float(np.median(gaps)) if len(gaps) else None,
        "visit_missingness": _visit_missingness(arrays, observed, np.random.default_rng(seed)),
    }


def _heat_map(observed: np.ndarray[Any, Any]) -> list[list[float]]:
    """Share observed per lab in consecutive blocks of visits, sorted by patient and time."""
    blocks = np.array_split(observed, min(HEAT_MAP_ROWS, len(observed)))
    return [[round(float(share), 3) for share in block.mean(axis=0)] for block in blocks]


def _histogram(values: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]) -> dict[str, list[float]]:
    counts, _ = np.histogram(values, bins=edges) if len(values) else (np.zeros(len(edges) - 1), edges)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def _visit_edges(per_patient: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One bin per number of visits up to the 99th percentile; a last one holds the rest."""
    most, largest = int(np.quantile(per_patient, 0.99)), int(per_patient.max())
    edges = np.arange(1, most + 2)
    return np.append(edges, largest + 1) if largest > most else edges


def _gap_edges(gaps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Forty bins up to the 99th percentile; a last one holds the rest."""
    if not len(gaps):
        return np.array([0.0, 1.0])
    most = float(np.quantile(gaps, 0.99))
    edges = np.linspace(0.0, most, 41)
    return np.append(edges, gaps.max()) if gaps.max() > most else edges


def _visit_missingness(
    arrays: VisitArrays, observed: np.ndarray[Any, Any], rng: np.random.Generator
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
