"""Seconds and peak memory of the exact value-neighbour search on made-up cohorts; run it as a script."""

import multiprocessing
import resource
import time

import numpy as np
import torch  # noqa: F401  here, so that its start-up is not counted as search

from safeimpute.learning.neighbours.blocks import Profiles
from safeimpute.learning.neighbours.search import comparable_by_trend, radius_for_degree, value_neighbours
from safeimpute.visits.arrays import FloatArray

MIMIC_IV_VISITS = 143_000
GLUCOSE_CHOLESTEROL = (0.85, 0.55)  # share of visits at which each is measured
TEN_LABS = tuple(np.linspace(0.3, 0.9, 10))
DEGREE, MAX_NEIGHBORS = 16, 32


def cohort(n_visits: int, measured: tuple[float, ...], seed: int = 0) -> Profiles:
    """Patients with about five visits some months apart, levels that drift slowly, labs missing at random."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n_visits), rng.geometric(1 / 4.95, n_visits))[:n_visits]
    visit_number = np.arange(n_visits) - np.searchsorted(patient, patient)
    time_days = np.cumsum(1.0 + rng.exponential(120.0, n_visits))
    shape = n_visits, len(measured)
    drift = rng.normal(size=shape)
    for number in range(1, visit_number.max() + 1):
        rows = np.flatnonzero(visit_number == number)
        drift[rows] = 0.7 * drift[rows - 1] + np.sqrt(1 - 0.7**2) * drift[rows]
    values = rng.normal(size=(n_visits, len(measured)))[patient] + 0.7 * drift
    values[rng.random(shape) >= measured] = np.nan
    trends = np.column_stack([_rates(lab, patient, time_days) for lab in values.T])
    return Profiles(_standardised(values), _standardised(trends), patient)


def _rates(lab: FloatArray, patient: np.ndarray, time_days: FloatArray) -> FloatArray:
    """Change per day since the patient's last observation of the lab."""
    seen = np.flatnonzero(~np.isnan(lab))
    before, now = seen[:-1], seen[1:]
    rate = np.full(len(lab), np.nan)
    rate[now] = (lab[now] - lab[before]) / (time_days[now] - time_days[before])
    rate[now[patient[now] != patient[before]]] = np.nan
    return rate


def _standardised(columns: FloatArray) -> FloatArray:
    standard: FloatArray = (columns - np.nanmean(columns, axis=0)) / np.nanstd(columns, axis=0)
    return standard


def measure(n_visits: int, measured: tuple[float, ...]) -> str:
    """One line: how long the radius and the search took, and what they needed."""
    profiles = cohort(n_visits, measured)
    start = time.perf_counter()
    radius = radius_for_degree(profiles, DEGREE, np.random.default_rng(0))
    middle = time.perf_counter()
    found = value_neighbours(profiles, profiles, value_radius=radius, trend_radius=radius, max_neighbors=MAX_NEIGHBORS)
    end = time.perf_counter()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    degree = np.median(np.bincount(found.query, minlength=n_visits)[comparable_by_trend(profiles, profiles)])
    return (
        f"{n_visits:>8,} {len(measured):>5} {radius:>8.4f} {len(found):>10,} {degree:>7.0f} "
        f"{middle - start:>9.2f} {end - middle:>9.2f} {end - start:>8.2f} {peak_mib:>9.0f}"
    )


def main() -> None:
    print(
        f"{'visits':>8} {'labs':>5} {'radius':>8} {'pairs':>10} {'degree':>7} "
        f"{'radius s':>9} {'search s':>9} {'total s':>8} {'peak MiB':>9}"
    )
    cases = [
        (MIMIC_IV_VISITS // 4, GLUCOSE_CHOLESTEROL),
        (MIMIC_IV_VISITS, GLUCOSE_CHOLESTEROL),
        (20_000, TEN_LABS),
        (40_000, TEN_LABS),
    ]
    fresh_process = multiprocessing.get_context("spawn")
    for case in cases:
        with fresh_process.Pool(1) as pool:
            print(pool.apply(measure, case), flush=True)


if __name__ == "__main__":
    main()
