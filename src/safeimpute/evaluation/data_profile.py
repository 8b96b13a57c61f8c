"""The data as it came, in plain figures and words: what was measured, how often, at whom; no identifier."""

from typing import Any, TypedDict

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.selection.measuring.diagnosis import CalibrationGroup, MeasuringDiagnosis
from safeimpute.settings import Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.visits.checks import numbers, require_columns
from safeimpute.visits.dates import days
from safeimpute.visits.tables import to_polars
from safeimpute.visits.visits import Visits

SEEN_ROWS = 1000  # so many rows of a heat map can still be seen
HEAT_MAP_ROWS = 240  # blocks of visits where there are more
SAMPLED_PATIENTS = 10
# Up to which area under the curve which words hold.
HOW_WELL = (
    (0.6, "Hardly: measured and unmeasured visits look alike."),
    (0.75, "Somewhat: measured and unmeasured visits differ a little."),
    (0.9, "Well: measured and unmeasured visits differ clearly."),
    (1.0, "Very well: measured and unmeasured visits differ so much that few of the former can stand for the latter."),
)


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
    high_cardinality: list[str]  # used only for who gets measured
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
        "high_cardinality": list(arrays.high_cardinality_names),
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
    several = np.flatnonzero(np.bincount(arrays.patient) >= 2)
    chosen = rng.choice(several, size=min(SAMPLED_PATIENTS, len(several)), replace=False)
    return [
        [
            {name: float(not seen) for name, seen in zip(arrays.lab_names, row, strict=True)}
            for row in observed[arrays.patient == patient]
        ]
        for patient in np.sort(chosen)
    ]


class CalibrationPoint(TypedDict):
    """Visits with a like chance of being unmeasured: the mean chance, and the share that is."""

    visits: int
    predicted: float
    observed: float


class MeasuringReason(TypedDict):
    """What tells measured from unmeasured visits, and its share of what the model learnt."""

    column: str
    share: float
    direction: str


class MeasuringSummary(TypedDict):
    """How good the model of who gets measured is, and what it leaves of the measured visits."""

    words: str  # how well it tells, in plain words
    effective_size: str  # what the weights leave, in plain words
    auc: float | None
    miscalibration: float  # mean distance between predicted and observed shares
    calibration: list[CalibrationPoint]
    measured: int  # visits inside the promise
    effective_visits: float
    effective_patients: float
    outside: int  # missing values no measured visit resembles
    reasons: list[MeasuringReason]
    columns: list[str]  # of the table, used by the model
    not_used: dict[str, str]  # columns of the table it did not see, and why


def summarise_measuring(diagnosis: MeasuringDiagnosis | None, visits: Visits, missing: int) -> MeasuringSummary | None:
    """The diagnosis of a run; None where its claim does not look at who gets measured."""
    if diagnosis is None:
        return None
    return {
        "words": how_well(diagnosis.auc),
        "effective_size": _effective_size(diagnosis, missing),
        "auc": diagnosis.auc,
        "miscalibration": _miscalibration(diagnosis.calibration),
        "calibration": [
            {"visits": each.visits, "predicted": each.predicted, "observed": each.observed}
            for each in diagnosis.calibration
        ],
        "measured": diagnosis.measured,
        "effective_visits": diagnosis.effective_visits,
        "effective_patients": diagnosis.effective_patients,
        "outside": diagnosis.outside,
        "reasons": [
            {"column": each.column, "share": each.share, "direction": each.direction} for each in diagnosis.reasons
        ],
        "columns": list(diagnosis.columns),
        "not_used": dict(visits.ignored),
    }


def how_well(auc: float | None) -> str:
    if auc is None:
        return "This cannot be said: all visits were measured, or none."
    words = next(words for most, words in HOW_WELL if auc <= most)
    return (
        f"{words} Of one measured and one unmeasured visit, the table tells which is which {100 * auc:.0f} times in "
        "100; 50 would be guessing."
    )


def _effective_size(diagnosis: MeasuringDiagnosis, missing: int) -> str:
    """What the weights leave of the measured visits, and whom they leave out."""
    said = (
        "Measured visits are weighted to stand for unmeasured ones; those in scope are then worth "
        f"{diagnosis.effective_visits:,.0f} visits, or {diagnosis.effective_patients:,.0f} patients, of equal weight."
    )
    if not diagnosis.outside:
        return said
    outside = f"{diagnosis.outside:,} of the {missing:,} missing values"
    return f"{said} {outside} resemble no measured visit and are withheld."


def _miscalibration(groups: tuple[CalibrationGroup, ...]) -> float:
    if not groups:
        return 0.0
    apart = [abs(each.predicted - each.observed) for each in groups]
    return float(np.average(apart, weights=[each.visits for each in groups]))


def align_truth(visits: Visits, table: Any, settings: Settings) -> FloatArray:
    """The true target of every visit, matched by subject and time."""
    frame = to_polars(table)
    keys = [settings.subject, settings.time]
    require_columns(frame, [*keys, settings.target], "needed in the truth table")
    asked = pl.DataFrame({"subject": visits.subject.cast(pl.String), "time": visits.arrays.time})
    offered = pl.DataFrame(
        {
            "subject": frame[settings.subject].cast(pl.String),
            "time": days(frame[settings.time]),
            "truth": numbers(frame[settings.target], "truth"),
        }
    )
    found = asked.join(offered, on=["subject", "time"], how="left", maintain_order="left")
    truth = found["truth"].fill_null(np.nan).to_numpy()
    absent = int(np.isnan(truth).sum())
    if len(truth) != len(visits) or absent:
        raise VisitsError(f"the truth table lacks {absent:,} of {len(visits):,} visits, or lists some twice.")
    return truth
