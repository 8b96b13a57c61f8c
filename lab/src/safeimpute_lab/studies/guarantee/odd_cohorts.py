"""Odd cohorts of 150 to 450 patients with known truth: who gets measured, and where errors gather, in thirteen ways.

In all but the last measuring depends on what the table shows and on other visits' measuring, never on the value itself,
so the promise covers it. NumPy only, so that it runs on a bare machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.visits.arrays import FloatArray, IntArray, VisitArrays, mix
from safeimpute_lab.studies.guarantee.cohorts import Cohort

SIZES = (150, 300, 450)
TOLERANCE = 0.9
TEN_YEARS = 3652.5
WARDS = 25


@dataclass(frozen=True)
class Seen:
    """Visits before anybody measured the target."""

    patient: IntArray
    time: FloatArray
    first: IntArray  # row of each visit's patient's first visit
    count: IntArray  # visits of the patient
    age: FloatArray
    volatility: FloatArray  # of the patient
    shape: FloatArray  # of the visit: what an episode or a drift does to it
    ward: IntArray
    moves: FloatArray  # what a lab tells of the target
    labs: FloatArray | None = None  # as the table has them, 0 where missing: what measuring may depend on


@dataclass(frozen=True)
class Kind:
    """One way a cohort is odd: how many visits, how wide values scatter, who is measured."""

    words: str
    counts: Callable[[np.random.Generator, int], IntArray]
    scatter: Callable[[Seen], FloatArray]  # log of the error's size
    logit: Callable[[Seen], FloatArray]  # log odds of being measured
    process: str = "visit"  # or "bursts", "clock", "panel": how measuring hangs together
    signal: float = 1.0  # of what tells the target and its volatility
    gap: float = 60.0  # days between visits
    high_cardinality: bool = False  # the table has the ward


def _few(rng: np.random.Generator, patients: int) -> IntArray:
    return np.asarray(2 + rng.poisson(5.0, patients))


def _single(rng: np.random.Generator, patients: int) -> IntArray:
    return np.asarray(np.where(rng.random(patients) < 0.6, 1, 2 + rng.poisson(2.0, patients)))


def _heavy(rng: np.random.Generator, patients: int) -> IntArray:
    return np.asarray(np.minimum(2 + np.floor(3 * rng.pareto(1.5, patients)), 120), dtype=np.int64)


def _many(rng: np.random.Generator, patients: int) -> IntArray:
    return np.asarray(4 + rng.poisson(9.0, patients))


def _usual(seen: Seen) -> FloatArray:
    return 0.6 * seen.volatility - 0.2


KINDS: dict[str, Kind] = {
    "bursts": Kind("visits are measured in bursts", _many, _usual, lambda s: np.zeros(len(s.age)), "bursts"),
    "counts": Kind(
        "patients with many visits err more and are measured less",
        _heavy,
        lambda s: _usual(s) + 0.25 * np.log(s.count / 6.0),
        lambda s: 0.6 - 0.5 * np.log(s.count / 6.0),
    ),
    "episodes": Kind(
        "in episodes values scatter and more is measured",
        _many,
        lambda s: _usual(s) + 0.8 * s.shape,
        lambda s: -0.4 + 0.8 * _lab(s, 3),
    ),
    "quiet episodes": Kind(
        "in episodes values scatter and less is measured",
        _many,
        lambda s: _usual(s) + 0.8 * s.shape,
        lambda s: 0.4 - 0.8 * _lab(s, 3),
    ),
    "frailty": Kind(
        "a few patients err at every visit", _few, lambda s: 1.3 * s.volatility - 0.6, lambda s: 0.3 - 0.7 * s.age
    ),
    "rare": Kind("one visit in eight is measured", _many, _usual, lambda s: -2.0 + 0.4 * s.age),
    "single visits": Kind("most patients come once", _single, _usual, lambda s: 0.2 - 0.7 * _lab(s, 0)),
    "calendar": Kind(
        "measuring falls and scatter grows with the years",
        _few,
        lambda s: _usual(s) + 0.9 * (s.time / TEN_YEARS - 0.4),
        lambda s: 1.2 - 2.4 * s.time / TEN_YEARS,
    ),
    "wards": Kind(
        "a column of 25 wards decides measuring and scatter",
        _few,
        lambda s: _usual(s) + 0.5 * _ward_effect(s.ward),
        lambda s: 0.2 - 1.1 * _ward_effect(s.ward),
        high_cardinality=True,
    ),
    "clock": Kind("a test is repeated after three months", _many, _usual, lambda s: -0.3 * s.age, "clock", gap=35.0),
    "panel": Kind("measured together with another lab", _few, _usual, lambda s: -0.8 * _lab(s, 0), "panel"),
    "weak": Kind("nothing tells much", _few, lambda s: 0.3 * s.volatility, lambda s: 0.2 - 0.6 * s.age, signal=0.3),
    "unrecorded episodes": Kind(
        "in episodes, which a lab shows only in part, values scatter and less is measured: not covered",
        _many,
        lambda s: _usual(s) + 0.8 * s.shape,
        lambda s: 0.6 - 1.6 * s.shape,
    ),
}


def _lab(seen: Seen, column: int) -> FloatArray:
    """A lab as the table has it."""
    assert seen.labs is not None
    return seen.labs[:, column]


def _ward_effect(ward: IntArray) -> FloatArray:
    return np.random.default_rng(25).permutation(np.linspace(-1.7, 1.7, WARDS))[ward]


def draw_odd_cohort(key: str, rng: np.random.Generator, patients: int, first_key: int = 0) -> Cohort:
    """A cohort of one kind; `first_key` keeps patients of several cohorts apart."""
    kind = KINDS[key]
    seen, deviation = _draw_seen(kind, rng, patients)
    truth = _draw_target(kind, seen, deviation, rng)
    others = _draw_labs(kind, seen, truth, rng)
    seen = replace(seen, labs=np.nan_to_num(others))
    measured = _PROCESSES[kind.process](seen, kind.logit(seen), rng)
    if kind.process == "panel":  # the other lab stands where the target was measured, and sometimes elsewhere
        others[:, 1] = np.where(measured | (rng.random(len(measured)) < 0.25), others[:, 1], np.nan)
    labs = np.column_stack([np.where(measured, truth, np.nan), others])
    return Cohort(_visit_arrays(kind, seen, labs, first_key), truth)


def _draw_seen(kind: Kind, rng: np.random.Generator, patients: int) -> tuple[Seen, FloatArray]:
    count = kind.counts(rng, patients)
    patient = np.repeat(np.arange(patients), count)
    first = (np.cumsum(count) - count)[patient]
    run = np.cumsum(
        np.where(np.arange(len(patient)) == first, 0.0, rng.lognormal(math.log(kind.gap), 0.8, len(patient)))
    )
    start = rng.uniform(0, TEN_YEARS / 2, patients)[patient]
    deviation = rng.standard_normal(len(patient))
    seen = Seen(
        patient,
        run - run[first] + start,
        first,
        count[patient],
        rng.standard_normal(patients)[patient],
        rng.standard_normal(patients)[patient],
        _episodes(first, rng),
        rng.integers(0, WARDS, patients)[patient],
        deviation,
    )
    return seen, deviation


def _episodes(first: IntArray, rng: np.random.Generator) -> FloatArray:
    """1 within an episode, which begins at one visit in eight and ends at one in three."""
    chance, found = rng.random(len(first)), np.zeros(len(first))
    for row in range(len(first)):
        before = row > first[row] and found[row - 1] > 0
        found[row] = chance[row] > 1 / 3 if before else chance[row] < 1 / 8
    return found


def _draw_target(kind: Kind, seen: Seen, deviation: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A level, a course that forgets in about half a year, what a lab tells, and noise, all as wide as the scatter."""
    level = 0.8 * rng.standard_normal(int(seen.patient[-1]) + 1)[seen.patient]
    step, course = rng.standard_normal(len(level)), np.empty(len(level))
    for row in range(len(course)):
        kept = math.exp(-(seen.time[row] - seen.time[row - 1]) / 180.0) if row > seen.first[row] else 0.0
        course[row] = kept * course[row - 1] + math.sqrt(1.0 - kept**2) * step[row] if row else step[row]
    noise = rng.standard_normal(len(level))
    size = np.exp(kind.scatter(seen))
    return np.asarray(
        10.0 + level + 0.3 * seen.age + size * (0.8 * course + 0.45 * kind.signal * deviation + 0.35 * noise)
    )


def _draw_labs(kind: Kind, seen: Seen, truth: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Four labs, a fifth of each missing: the moving one, a level, the volatility, the episode."""
    noise = rng.standard_normal((len(truth), 4))
    labs = np.column_stack(
        [
            kind.signal * seen.moves + 0.4 * noise[:, 0],
            0.5 * kind.signal * (truth - 10.0) + 0.9 * noise[:, 1],
            kind.signal * seen.volatility + 0.5 * noise[:, 2],
            1.5 * kind.signal * seen.shape + 0.5 * noise[:, 3],
        ]
    )
    labs[rng.random(labs.shape) < 0.2] = np.nan
    return labs


def _by_visit(_: Seen, logit: FloatArray, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.random(len(logit)) < 1.0 / (1.0 + np.exp(-np.clip(logit, -3.0, 3.0))))


def _in_bursts(seen: Seen, logit: FloatArray, rng: np.random.Generator) -> np.ndarray:
    """Measured while a burst lasts, some five visits long; as many go by between two bursts."""
    chance, on = rng.random(len(logit)), np.zeros(len(logit), dtype=bool)
    for row in range(len(logit)):
        if row == seen.first[row]:
            on[row] = chance[row] < 0.4
            continue
        stays = 0.55 + 0.35 * math.exp(-(seen.time[row] - seen.time[row - 1]) / 200.0)
        on[row] = on[row - 1] if chance[row] < stays else not on[row - 1]
    return on & (rng.random(len(logit)) < 0.95)


def _by_clock(seen: Seen, logit: FloatArray, rng: np.random.Generator) -> np.ndarray:
    """Rarely again within three months of the last measurement."""
    chance, measured, last = rng.random(len(logit)), np.zeros(len(logit), dtype=bool), -math.inf
    for row in range(len(logit)):
        last = -math.inf if row == seen.first[row] else last
        due = logit[row] + (1.5 if seen.time[row] - last > 90.0 else -2.0)
        measured[row] = chance[row] < 1.0 / (1.0 + math.exp(-due))
        last = float(seen.time[row]) if measured[row] else last
    return measured


_PROCESSES = {"visit": _by_visit, "bursts": _in_bursts, "clock": _by_clock, "panel": _by_visit}


def _visit_arrays(kind: Kind, seen: Seen, labs: FloatArray, first_key: int) -> VisitArrays:
    patient_key = mix((seen.patient + first_key).astype(np.uint64))
    high_cardinality = {"high_cardinality": seen.ward[:, None].astype(np.float64), "high_cardinality_names": ("ward",)}
    return VisitArrays(
        patient=seen.patient,
        time=seen.time,
        labs=labs,
        lab_names=("target", "moves", "level", "volatility", "episode"),
        target=0,
        attributes=seen.age[:, None],
        attribute_names=("age",),
        patient_key=patient_key,
        visit_key=mix(patient_key ^ mix(np.round(seen.time * 1000.0).astype(np.uint64))),
        **(high_cardinality if kind.high_cardinality else {}),  # type: ignore[arg-type]
    )
