"""Visits to try things on: those that ship with the package, and simulated ones whose truth is known."""

from dataclasses import dataclass
from importlib import resources
from typing import Literal, NamedTuple, get_args
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from safeimpute.errors import OptionError
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, uniform_per_visit

PBC_UNITS = {
    "bilirubin": "mg/dL",
    "cholesterol": "mg/dL",
    "albumin": "g/dL",
    "alkaline_phosphatase": "U/L",
    "ast": "U/mL",
    "platelets": "10^3/uL",
    "protime": "s",
}

PBC_SCHEMA = {
    "subject_id": pl.Int64,
    "time": pl.Float64,
    **dict.fromkeys(PBC_UNITS, pl.Float64),
    "age": pl.Float64,
    "sex": pl.String,
    "treatment": pl.String,
}


def load_pbc() -> pl.DataFrame:
    """Mayo Clinic PBC follow-up: 1,945 visits of 312 patients, cholesterol missing at 42 % of them.

    Time is in days since enrolment; age, sex and treatment are those at entry. Source, licence (LGPL-2 or
    later) and changes stand in `data/NOTICE-pbc.md`.
    """
    packed = resources.files("safeimpute.visits") / "data" / "pbc_visits.csv.gz"
    return pl.read_csv(packed.read_bytes(), schema=PBC_SCHEMA)


Shape = Literal["mayo", "mimic3", "mimic4"]
Shift = Literal["none", "covariate", "value", "patients"]

PATIENTS_AND_MEAN_VISITS: dict[Shape, tuple[int, float]] = {
    "mayo": (84, 7.40),
    "mimic3": (4_243, 2.20),
    "mimic4": (28_880, 4.95),
}
TARGET_UNMEASURED = 0.35  # share of visits, under every shift
GAP_MEDIAN_DAYS, GAP_LOG_SD = 105.0, 0.9
ENROLMENT_DAYS = 1_800
HBA1C_FLOOR, HBA1C_CEILING, HBA1C_ASSAY_SD = 4.0, 16.0, 0.12
MEMORY_DAYS = 450.0  # time constant of a lab's slow drift around the patient's level
COUNT_VOLATILITY = 0.8  # correlation, nearly, of count rank and volatility under shift "patients"


class Simulated(NamedTuple):
    """A cohort as a hospital would see it, and the target at every visit."""

    visits: pl.DataFrame  # subject_id, time (days), hba1c and the other labs (null = not measured), sex, age
    truth: pl.DataFrame  # subject_id, time, hba1c: what the laboratory would have reported


@dataclass(frozen=True)
class Lab:
    """How one lab arises, as standard deviations around its centre; on a log scale where `skewed`."""

    unit: str
    panel: str  # labs of a panel are measured together
    centre: float
    level_sd: float  # between patients
    drift_sd: float  # slow change within a patient
    visit_sd: float  # acute state and assay
    glycaemia: float  # change per unit of glycaemia
    renal: float  # change per unit of renal impairment
    skewed: bool
    decimals: int  # as the laboratory prints it
    limits: tuple[float, float]


# fmt: off
LABS = {
    #                    unit       panel        centre level drift visit glyc.  renal
    "glucose":       Lab("mg/dL",   "glucose",   148,  0.06, 0.06, 0.43,  0.255, 0.00, True,  0, (40, 900)),
    "cholesterol":   Lab("mg/dL",   "lipids",    178,  34.0, 18.0, 16.0,  6.00,  0.00, False, 0, (60, 450)),
    "creatinine":    Lab("mg/dL",   "chemistry", 1.05, 0.18, 0.12, 0.08,  0.01,  0.32, True,  2, (0.3, 15)),
    "potassium":     Lab("mmol/L",  "chemistry", 4.3,  0.22, 0.15, 0.28,  0.03,  0.16, False, 1, (2.5, 7.5)),
    "sodium":        Lab("mmol/L",  "chemistry", 139,  1.40, 1.00, 2.20, -0.50, -0.30, False, 0, (115, 160)),
    "urea_nitrogen": Lab("mg/dL",   "chemistry", 18,   0.18, 0.14, 0.20,  0.02,  0.34, True,  0, (3, 150)),
    "hemoglobin":    Lab("g/dL",    "blood",     12.8, 1.00, 0.70, 0.50,  0.05, -0.80, False, 1, (5, 20)),
    "platelets":     Lab("10^3/uL", "blood",     232,  0.24, 0.12, 0.10,  0.01, -0.03, True,  0, (20, 900)),
    "albumin":       Lab("g/dL",    "liver",     4.0,  0.28, 0.20, 0.15, -0.03, -0.14, False, 1, (1.5, 5.5)),
    "alt":           Lab("U/L",     "liver",     25,   0.38, 0.22, 0.25,  0.05, -0.06, True,  0, (4, 900)),
    "triglycerides": Lab("mg/dL",   "lipids",    145,  0.40, 0.20, 0.22,  0.12,  0.04, True,  0, (25, 2000)),
    "hdl":           Lab("mg/dL",   "lipids",    45,   0.23, 0.09, 0.08, -0.05, -0.03, True,  0, (10, 130)),
}
# fmt: on
PANEL_UNMEASURED = {"glucose": 0.25, "lipids": 0.45, "chemistry": 0.12, "blood": 0.18, "liver": 0.35}


@dataclass(frozen=True)
class _Draws:
    """Independent random columns, one number per row, each stream named after what it is for."""

    seed: int
    key: NDArray[np.uint64]

    def uniform(self, stream: str) -> FloatArray:
        return uniform_per_visit(self.key, self.seed, crc32(stream.encode()))

    def normal(self, stream: str) -> FloatArray:
        return np.asarray(ndtri(np.maximum(self.uniform(stream), 2.0**-53)))


@dataclass(frozen=True)
class _Patients:
    draws: _Draws
    age: FloatArray  # standardised
    female: BoolArray
    level: FloatArray  # standardised long-run glycaemia
    log_volatility: FloatArray  # standardised
    renal: FloatArray  # standardised impairment


@dataclass(frozen=True)
class _Visits:
    draws: _Draws
    patient: IntArray
    number: IntArray  # 0, 1, … within a patient
    gap: FloatArray  # days since the previous visit; the median gap at a first visit
    time: FloatArray  # days

    def drift(self, stream: str) -> FloatArray:
        """Stationary Ornstein–Uhlenbeck path of unit variance per patient, read at the visits."""
        path = self.draws.normal(stream)
        kept = np.exp(-self.gap / MEMORY_DAYS)
        fresh = np.sqrt(1.0 - kept**2)
        by_number = np.argsort(self.number, kind="stable")
        for rows in np.split(by_number, np.cumsum(np.bincount(self.number))[:-1])[1:]:
            path[rows] = kept[rows] * path[rows - 1] + fresh[rows] * path[rows]
        return path


def simulate(
    shape: Shape, rng: np.random.Generator, *, patients: int | None = None, labs: int = 2, shift: Shift = "none"
) -> Simulated:
    """A cohort of one of the published shapes: HbA1c as the target beside `labs` other labs.

    `shift` says what decides whether the target is measured: chance alone ("none", "patients"), what the
    table shows ("covariate"), or the hidden value itself ("value"). Under "patients" volatile patients come
    more often.
    """
    _check(shape, patients, labs, shift)
    usual_patients, mean_visits = PATIENTS_AND_MEAN_VISITS[shape]
    seed = int(rng.integers(2**62))
    people = _draw_patients(patients or usual_patients, seed)
    visits = _draw_visits(people, _visit_counts(people, mean_visits, informative=shift == "patients"))
    glycaemia = _glycaemia(people, visits)
    truth = _reported_hba1c(glycaemia, visits)
    columns = _measured_labs(people, visits, glycaemia, tuple(LABS)[:labs])
    skipped = _skipped(_tendency_to_skip(shift, people, visits, truth, columns["glucose"]), visits)
    return _tables(people, visits, truth, skipped, columns)


def _check(shape: str, patients: int | None, labs: int, shift: str) -> None:
    if shape not in PATIENTS_AND_MEAN_VISITS:
        raise OptionError(f"unknown shape {shape!r}: choose one of {', '.join(PATIENTS_AND_MEAN_VISITS)}")
    if shift not in get_args(Shift):
        raise OptionError(f"unknown shift {shift!r}: choose one of {', '.join(get_args(Shift))}")
    if patients is not None and patients < 1:
        raise OptionError(f"patients must be at least 1, got {patients}")
    if not 2 <= labs <= len(LABS):
        raise OptionError(f"labs beside the target must number 2 (glucose and cholesterol) to {len(LABS)}, got {labs}")


def _draw_patients(n: int, seed: int) -> _Patients:
    draws = _Draws(seed, np.arange(n, dtype=np.uint64))
    age = np.clip(draws.normal("age"), -3.2, 2.2)
    level = _mix((draws.normal("level"), 1.0), (age, -0.2))
    # Poorly controlled and younger patients swing more; most of the volatility is their own.
    volatility = _mix((draws.normal("volatility"), 0.85), (level, 0.45), (age, -0.25))
    return _Patients(
        draws=draws,
        age=age,
        female=draws.uniform("sex") < 0.48,
        level=level,
        log_volatility=volatility,
        renal=_mix((draws.normal("renal"), 0.9), (age, 0.4)),
    )


def _mix(*parts: tuple[FloatArray, float]) -> FloatArray:
    """Weighted sum of standardised columns, scaled to unit variance as if they were independent."""
    norm = np.sqrt(sum(weight**2 for _, weight in parts))
    return np.asarray(sum(weight * column for column, weight in parts) / norm)


def _visit_counts(people: _Patients, mean: float, *, informative: bool) -> IntArray:
    """Geometric visit counts, dealt out by rank.

    Ranks instead of independent draws keep the mean at the published one even for 84 patients, and give every
    shift the same counts in another order.
    """
    own = people.draws.normal("visit count")
    weight = COUNT_VOLATILITY if informative else 0.0
    rank = np.argsort(np.argsort(weight * people.log_volatility + np.sqrt(1 - weight**2) * own))
    share = (rank + 0.5) / len(rank)
    return np.asarray(1 + np.floor(np.log1p(-share) / np.log1p(-1.0 / mean)), dtype=np.int64)


def _draw_visits(people: _Patients, counts: IntArray) -> _Visits:
    patient = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    number = np.arange(len(patient)) - first[patient]
    draws = _Draws(people.draws.seed, (patient.astype(np.uint64) << np.uint64(20)) + number.astype(np.uint64))
    gap = np.maximum(1.0, np.rint(GAP_MEDIAN_DAYS * np.exp(GAP_LOG_SD * draws.normal("gap"))))
    gap[number == 0] = GAP_MEDIAN_DAYS
    elapsed = np.cumsum(gap)
    start = np.floor(ENROLMENT_DAYS * people.draws.uniform("enrolment"))
    return _Visits(draws, patient, number, gap, start[patient] + elapsed - elapsed[first][patient])


def _glycaemia(people: _Patients, visits: _Visits) -> FloatArray:
    """Latent glycaemic state: the patient's level plus a drift as wide as the patient is volatile."""
    width = 0.58 * np.exp(0.5 * people.log_volatility)
    return (0.67 * people.level)[visits.patient] + width[visits.patient] * visits.drift("hba1c drift")


def _reported_hba1c(glycaemia: FloatArray, visits: _Visits) -> FloatArray:
    """Right-skewed HbA1c between floor and ceiling, with the assay's error, as the laboratory prints it."""
    share = expit(-1.05 + 0.72 * glycaemia)
    value = HBA1C_FLOOR + (HBA1C_CEILING - HBA1C_FLOOR) * share
    value += HBA1C_ASSAY_SD * visits.draws.normal("hba1c assay")
    return np.asarray(np.clip(value, HBA1C_FLOOR, HBA1C_CEILING).round(1))


def _measured_labs(
    people: _Patients, visits: _Visits, glycaemia: FloatArray, names: tuple[str, ...]
) -> dict[str, FloatArray]:
    """The labs beside the target, NaN where their panel was not ordered; every visit has at least one."""
    draws = visits.draws
    panels = dict.fromkeys(LABS[name].panel for name in names)
    ordered = {p: draws.uniform(f"{p} ordered") >= PANEL_UNMEASURED[p] for p in panels}
    ordered["glucose"] |= ~np.logical_or.reduce(list(ordered.values()))
    return {
        name: np.where(ordered[LABS[name].panel], _reported(name, people, visits, glycaemia), np.nan) for name in names
    }


def _reported(name: str, people: _Patients, visits: _Visits, glycaemia: FloatArray) -> FloatArray:
    lab = LABS[name]
    of_patient = lab.level_sd * people.draws.normal(f"{name} level") + lab.renal * people.renal
    change = of_patient[visits.patient] + lab.glycaemia * glycaemia
    change += lab.drift_sd * visits.drift(f"{name} drift")
    change += lab.visit_sd * visits.draws.normal(f"{name} visit")
    value = lab.centre * np.exp(change) if lab.skewed else lab.centre + change
    return np.clip(value, *lab.limits).round(lab.decimals)


def _tendency_to_skip(
    shift: Shift, people: _Patients, visits: _Visits, hba1c: FloatArray, glucose: FloatArray
) -> FloatArray:
    """Log odds, up to a constant, that a visit's target is not measured."""
    if shift == "value":
        return -(hba1c - 7.5)
    if shift == "covariate":
        # The test is ordered where one worries or knows least, so the unmeasured visits are the easy ones;
        # ranked among the harder measured ones, they get unweighted p-values that are too small.
        high_glucose = np.nan_to_num(np.clip(np.log(glucose / 150.0) / 0.5, -1.8, 1.8))
        long_gap = np.clip(np.log(visits.gap / GAP_MEDIAN_DAYS) / GAP_LOG_SD, -1.8, 1.8)
        newness = 1.0 / (1.0 + visits.number)
        return -(1.2 * high_glucose + 0.8 * long_gap + 1.8 * newness - 0.5 * people.age[visits.patient])
    return np.zeros(len(hba1c))


def _skipped(log_odds: FloatArray, visits: _Visits) -> BoolArray:
    """A logistic choice per visit; the intercept is the one that fixes the overall share."""
    noisy = log_odds + logit(np.maximum(visits.draws.uniform("hba1c ordered"), 2.0**-53))
    return np.asarray(noisy > np.quantile(noisy, 1.0 - TARGET_UNMEASURED))


def _tables(
    people: _Patients, visits: _Visits, hba1c: FloatArray, skipped: BoolArray, labs: dict[str, FloatArray]
) -> Simulated:
    key = {"subject_id": visits.patient + 1, "time": visits.time}
    measured = {"hba1c": np.where(skipped, np.nan, hba1c)} | labs
    attributes = {
        "sex": np.where(people.female, "F", "M")[visits.patient],
        "age": np.rint(62.0 + 12.0 * people.age)[visits.patient],
    }
    return Simulated(
        visits=pl.DataFrame(key | measured | attributes).with_columns(pl.col(*measured).fill_nan(None)),
        truth=pl.DataFrame(key | {"hba1c": hba1c}),
    )
