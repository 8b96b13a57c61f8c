"""Cohorts with known truth for the study of the guarantee: one generator, a switch for everything that may go wrong.

NumPy only, so that it runs on a bare machine.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays, mix

Measuring = Literal["random", "covariate", "clock", "site", "minority"]
Counts = Literal["even", "heavy", "rare heavy"]
FIVE_YEARS = 5 * 365.25
SITES = 40
WITHIN = 1.0  # standard deviation of the target within a patient, before a scenario widens it
TOLERANCE = 0.8 * WITHIN


@dataclass(frozen=True)
class Scenario:
    """How patients come, how their values move, and who gets measured."""

    key: str
    words: str
    measuring: Measuring = "covariate"
    counts: Counts = "even"
    icc: float = 0.5  # share of the target's variance that lies between patients
    twice: bool = False  # every patient stands in the table under two keys, a copy of itself
    two_keys: bool = False  # every patient's visits are spread over two keys
    whole_numbers: bool = False
    column_left_out: bool = False  # the site decides measuring, and the table does not have it

    @property
    def promised(self) -> bool:
        """Whether the claim covers it: nothing decides measuring that the table lacks, and no patient is copied.

        Copies let a visit see its own value; a table with them is refused before the fit, which this study passes by.
        """
        return not (self.column_left_out or self.twice)

    @property
    def tolerance(self) -> float:
        """Error that counts as unacceptable; whole numbers can reach it exactly."""
        return 2.0 if self.whole_numbers else TOLERANCE


SCENARIOS = (
    Scenario("none", "no shift", measuring="random"),
    Scenario("covariate", "covariate shift"),
    Scenario("clock", "time since the last measurement, calendar time, noise triples", measuring="clock"),
    Scenario("site", "a column of 40 sites decides measuring and error size", measuring="site"),
    Scenario("minority", "rarely measured minority with large errors", measuring="minority"),
    Scenario("rare heavy", "1 % of patients with 60 to 100 visits and large errors", counts="rare heavy"),
    Scenario("heavy", "informative, heavy-tailed visit counts", counts="heavy"),
    Scenario("icc 0.1", "covariate shift, ICC 0.1", icc=0.1),
    Scenario("icc 0.9", "covariate shift, ICC 0.9", icc=0.9),
    Scenario("whole numbers", "whole-number target, tolerance reached exactly", whole_numbers=True),
    Scenario("twice", "every patient twice under another key", twice=True),
    Scenario("left out", "the site left out of the table", measuring="site", column_left_out=True),
    Scenario("two keys", "every patient's visits spread over two keys", two_keys=True),
)
BY_KEY = {scenario.key: scenario for scenario in SCENARIOS}


@dataclass(frozen=True)
class Cohort:
    """Visits as a program sees them, and the truth at every one."""

    visits: VisitArrays
    truth: FloatArray

    @property
    def unmeasured(self) -> BoolArray:
        """Visits where nobody measured the target."""
        return np.isnan(self.visits.target_values)


@dataclass(frozen=True)
class _Patients:
    """What belongs to a patient, spread over its visits."""

    number: IntArray
    time: FloatArray
    count: IntArray  # visits of the patient
    age: FloatArray
    group: FloatArray
    level: FloatArray
    volatility: FloatArray
    site: IntArray


def draw_cohort(scenario: Scenario, rng: np.random.Generator, patients: int, first_key: int = 0) -> Cohort:
    """A cohort of so many patients; `first_key` keeps patients of several cohorts apart."""
    drawn = patients // 2 if scenario.twice or scenario.two_keys else patients
    who = _draw_patients(scenario, rng, drawn)
    visible, deviation = _draw_labs(who, rng)
    truth = _draw_target(scenario, who, deviation, rng)
    measured = _draw_measuring(scenario, who, visible, rng)
    labs = np.column_stack([np.where(measured, truth, np.nan), visible])
    rows, number = np.arange(len(truth)), who.number
    if scenario.twice:
        rows, number = np.r_[rows, rows], np.r_[number, number + drawn]
    if scenario.two_keys:
        rows, number = _two_keys(number, rng)
    return Cohort(_visit_arrays(scenario, who, labs, rows, number, first_key), truth[rows])


def _two_keys(number: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Rows by new patient, and the new patients, numbered without gaps."""
    key = 2 * number + rng.integers(0, 2, len(number))
    rows = np.argsort(key, kind="stable")
    return rows, np.unique(key[rows], return_inverse=True)[1]


def _draw_patients(scenario: Scenario, rng: np.random.Generator, patients: int) -> _Patients:
    count = _draw_counts(scenario.counts, rng, patients)
    number = np.repeat(np.arange(patients), count)
    gaps = rng.lognormal(math.log(60.0), 0.7, len(number))
    first = np.r_[True, number[1:] != number[:-1]]
    run = np.cumsum(np.where(first, 0.0, gaps))
    time = run - run[first][number] + rng.uniform(0, 2.0 * FIVE_YEARS - 600, patients)[number]
    minority = 0.1 if scenario.measuring == "minority" else 0.4
    between = WITHIN * math.sqrt(scenario.icc / (1.0 - scenario.icc))
    return _Patients(
        number,
        time,
        count[number],
        rng.standard_normal(patients)[number],
        (rng.random(patients) < minority).astype(np.float64)[number],
        between * rng.standard_normal(patients)[number],
        rng.standard_normal(patients)[number],
        rng.integers(0, SITES, patients)[number],
    )


def _draw_counts(counts: Counts, rng: np.random.Generator, patients: int) -> IntArray:
    if counts == "heavy":
        return np.asarray(np.minimum(2 + np.floor(3 * rng.pareto(1.5, patients)), 150), dtype=np.int64)
    even: IntArray = 2 + rng.poisson(5.0, patients)
    if counts == "rare heavy":
        return np.asarray(np.where(rng.random(patients) < 0.01, rng.integers(60, 101, patients), even))
    return even


def _draw_labs(who: _Patients, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Three labs, a quarter of each missing: one moves with the target, one tells its level, one its volatility."""
    visits = len(who.number)
    noise = rng.standard_normal((visits, 3))
    deviation = rng.standard_normal(visits)
    moves = 0.9 * deviation + 0.45 * noise[:, 0]
    level = 0.7 * who.level / max(float(who.level.std()), 1e-9) + 0.7 * noise[:, 1]
    volatility = 0.9 * who.volatility + 0.45 * noise[:, 2]
    labs = np.column_stack([moves, level, volatility])
    labs[rng.random(labs.shape) < 0.25] = np.nan
    return labs, deviation


def _draw_target(scenario: Scenario, who: _Patients, deviation: FloatArray, rng: np.random.Generator) -> FloatArray:
    course = _course(who, rng)
    noise = rng.standard_normal(len(who.number))
    within = error_size(scenario, who) * (0.55 * course + 0.5 * deviation + 0.67 * noise)
    truth = 20.0 + who.level + 0.3 * who.age + WITHIN * within
    return np.asarray(np.round(20.0 + 2.5 * (truth - 20.0)) if scenario.whole_numbers else truth)


def _course(who: _Patients, rng: np.random.Generator) -> FloatArray:
    """A standard normal course per patient that forgets in about 200 days."""
    step, course = rng.standard_normal(len(who.number)), np.empty(len(who.number))
    for row in range(len(course)):
        if row == 0 or who.number[row] != who.number[row - 1]:
            course[row] = step[row]
            continue
        kept = math.exp(-(who.time[row] - who.time[row - 1]) / 200.0)
        course[row] = kept * course[row - 1] + math.sqrt(1.0 - kept**2) * step[row]
    return course


def error_size(scenario: Scenario, who: _Patients) -> FloatArray:
    """How widely values scatter: by the patient's volatility, and by what the scenario makes worse."""
    size = np.exp(0.9 * who.volatility - 0.3)
    if scenario.measuring == "clock":
        size = size * np.where(who.time > FIVE_YEARS, 3.0, 0.7)
    if scenario.measuring == "site":
        size = size * np.exp(0.6 * site_effect(who.site) - 0.1)
    if scenario.measuring == "minority":
        size = size * np.where(who.group > 0, 2.5, 0.9)
    if scenario.counts == "rare heavy":
        size = size * np.where(who.count >= 60, 3.0, 1.0)
    if scenario.counts == "heavy":
        size = size * (0.7 + 0.2 * np.log(who.count))
    return np.asarray(size)


def site_effect(site: IntArray) -> FloatArray:
    """Standard normal quantiles, one per site, in an order that the codes do not tell."""
    order = np.random.default_rng(40).permutation(SITES)
    return np.asarray(1.1 * np.sqrt(3.0) * (2.0 * (order[site] + 0.5) / SITES - 1.0))


def _draw_measuring(scenario: Scenario, who: _Patients, labs: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Who gets measured, from what the table shows (and the site, where the scenario leaves it out)."""
    chance = rng.random(len(who.number))
    seen = np.nan_to_num(labs)
    if scenario.measuring == "random":
        return chance < 0.5
    if scenario.measuring == "clock":
        return _measured_by_clock(who, chance)
    if scenario.measuring == "site":
        logit = 0.2 - 1.3 * site_effect(who.site)
    elif scenario.measuring == "minority":
        logit = np.where(who.group > 0, -1.8, 0.6)
    else:
        logit = 0.1 - 0.9 * seen[:, 2] - 0.5 * who.age - 0.4 * seen[:, 0]
    return np.asarray(chance < _sigmoid(np.clip(logit, -2.5, 2.5)))


def _measured_by_clock(who: _Patients, chance: FloatArray) -> BoolArray:
    """A test is repeated after some three months, and less often after year five."""
    measured = np.zeros(len(chance), dtype=bool)
    last = -math.inf
    for row in range(len(chance)):
        if row == 0 or who.number[row] != who.number[row - 1]:
            last = -math.inf
        logit = (0.9 if who.time[row] - last > 90.0 else -1.3) - (1.2 if who.time[row] > FIVE_YEARS else 0.0)
        measured[row] = chance[row] < 1.0 / (1.0 + math.exp(-logit))
        last = float(who.time[row]) if measured[row] else last
    return measured


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _visit_arrays(
    scenario: Scenario, who: _Patients, labs: FloatArray, rows: IntArray, number: IntArray, first_key: int
) -> VisitArrays:
    patient_key = mix((number + first_key).astype(np.uint64))
    visit_key = mix(patient_key ^ mix(np.round(who.time[rows] * 1000.0).astype(np.uint64)))
    high_cardinality: dict[str, Any] = {}
    if scenario.measuring == "site" and not scenario.column_left_out:
        high_cardinality = {
            "high_cardinality": who.site[rows, None].astype(np.float64),
            "high_cardinality_names": ("site",),
        }
    return VisitArrays(
        patient=number,
        time=who.time[rows],
        labs=labs[rows],
        lab_names=("target", "moves", "level", "volatility"),
        target=0,
        attributes=np.column_stack([who.age, who.group])[rows],
        attribute_names=("age", "group"),
        patient_key=patient_key,
        visit_key=visit_key,
        **high_cardinality,
    )
