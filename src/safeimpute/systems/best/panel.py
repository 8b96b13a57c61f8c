"""The panel: training visits kept with a fitted model, among which later visits find their analogues."""

from dataclasses import dataclass

import numpy as np

from safeimpute.neighbours.search import Profiles, radius_for_degree, value_neighbours
from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.records.history import NONE
from safeimpute.systems.best.record import Record


@dataclass(frozen=True)
class Panel:
    """Training visits of many patients: what they look like and what their target was, in standard units."""

    values: FloatArray
    trends: FloatArray
    patient: IntArray  # the patient's key, as a signed integer
    target: FloatArray
    regression: FloatArray  # what the labs alone predict
    radius: float

    @property
    def profiles(self) -> Profiles:
        return Profiles(self.values, self.trends, self.patient)


@dataclass(frozen=True)
class Analogues:
    """Per visit its closest panel visits of other patients, closest first; NONE pads."""

    panel: IntArray  # visits x analogues: place in the panel
    value_distance: FloatArray  # NaN where padded
    trend_distance: FloatArray  # NaN where padded or not comparable


def profiles(record: Record) -> Profiles:
    """What visits are compared by: the other labs' levels and trends, never the target."""
    return Profiles(record.now, record.trends, record.visits.patient_key.view(np.int64))


def fit_panel(
    record: Record, regression: FloatArray, size: int, degree: int, rng: np.random.Generator
) -> Panel:
    """Keep at most `size` training visits, and the radius within which a visit has `degree` analogues."""
    kept = np.flatnonzero(~np.isnan(record.target))
    if len(kept) > size:
        kept = np.sort(rng.choice(kept, size, replace=False))
    known = profiles(record).at(kept)
    radius = radius_for_degree(known, degree, rng)
    return Panel(known.values, known.trends, known.patient, record.target[kept], regression[kept], radius)


def find_analogues(record: Record, panel: Panel, count: int, rows: IntArray, device: str) -> Analogues:
    """The `count` closest panel visits of other patients within the panel's radius, for the visits at `rows`."""
    pairs = value_neighbours(
        profiles(record).at(rows),
        panel.profiles,
        value_radius=panel.radius,
        trend_radius=panel.radius,
        max_neighbors=count,
        device=device,
    )
    places = np.arange(len(pairs)) - np.searchsorted(pairs.query, pairs.query)
    shape = (len(rows), count)
    found, by_value, by_trend = np.full(shape, NONE, np.int64), np.full(shape, np.nan), np.full(shape, np.nan)
    found[pairs.query, places] = pairs.reference
    by_value[pairs.query, places] = pairs.value_distance
    by_trend[pairs.query, places] = pairs.trend_distance
    return Analogues(found, by_value, by_trend)
