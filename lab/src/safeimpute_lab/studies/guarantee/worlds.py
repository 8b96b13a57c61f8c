"""Worlds for the rules alone: risks, errors and known odds of measuring, drawn patient by patient.

The scenarios are those of cohorts.py, without a fit: judged is the rule that turns a ledger into a cut-off.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr
from scipy.stats import norm

from safeimpute.selection.ledger import Entries, risk_grid
from safeimpute.tolerance import BY_SIZE, Risky, chances_of_bands, parse_tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray
from safeimpute_lab.studies.guarantee.cohorts import SITES, Scenario, site_effect

SIGNAL = 2.0  # of the risk, in standard deviations of what it cannot see
OFFSET = 1.1  # the larger, the fewer visits are risky
LARGEST_ODDS = 10.0  # times the overall odds: the scope that a fit would leave, on both sides
FARTHEST = 2  # times the most visits of one patient, likewise
CLOCK_VISITS = 10  # most visits of one patient where measuring follows a clock


@dataclass(frozen=True)
class World:
    """Visits of so many patients with everything known about them."""

    patient: IntArray
    risk: FloatArray
    risky: Risky
    measured: BoolArray
    weight: FloatArray  # odds of being unmeasured, as the ledger is told
    n_patients: int
    count: IntArray  # visits of the patient

    @property
    def inside(self) -> BoolArray:
        """Visits within the promise by their odds."""
        overall = np.sum(~self.measured) / max(int(self.measured.sum()), 1)
        return np.asarray(self.weight <= LARGEST_ODDS * overall)

    @property
    def longest(self) -> int:
        """Records longer than this are outside the promise made from this world."""
        return FARTHEST * int(self.count.max())

    @property
    def candidate(self) -> BoolArray:
        """Unmeasured visits within the promise."""
        return ~self.measured & self.inside

    def entries(self) -> Entries:
        """What the ledger is kept from."""
        m = self.measured & self.inside
        return Entries(self.patient[m], self.risk[m], self.weight[m], self.risky[m])

    def grid(self) -> FloatArray:
        """Thresholds, as a release takes them."""
        return risk_grid(self.risk[self.inside])


@dataclass(frozen=True)
class _Seen:
    """Visits before anybody measured: what the risk sees, and what makes errors worse beside it."""

    patient: IntArray
    count: IntArray
    x: FloatArray
    worse: FloatArray
    logit: FloatArray  # of being measured


def draw_world(scenario: Scenario, rng: np.random.Generator, patients: int) -> World:
    """Patients of a scenario; risks are chances given what the risk sees, as a good risk model would have them."""
    if scenario.twice:
        return _twice(draw_world(replace(scenario, twice=False), rng, patients // 2))
    if scenario.two_keys:
        return _two_keys(draw_world(replace(scenario, two_keys=False), rng, patients // 2), rng)
    seen = _draw_seen(scenario, rng, patients)
    error = _draw_errors(scenario, seen, rng, patients)
    risky = SIGNAL * seen.x + seen.worse + error > OFFSET
    risk = _chance(SIGNAL * seen.x - OFFSET)
    if scenario.whole_numbers:
        risk = np.ceil(25.0 * risk) / 25.0
    measured, weight = _measure(scenario, seen, rng)
    return World(seen.patient, risk, np.asarray(risky), measured, weight, patients, seen.count[seen.patient])


def _draw_errors(scenario: Scenario, seen: _Seen, rng: np.random.Generator, patients: int) -> FloatArray:
    shared, own = rng.standard_normal(patients)[seen.patient], rng.standard_normal(len(seen.x))
    return math.sqrt(scenario.icc) * shared + math.sqrt(1.0 - scenario.icc) * own


DECIDED = {
    "limits": "limits -1 1",
    "binary": "class -1<1",
    "ordinal": "class -2<0<2",
    "cost": "limits -1 1 cost 0 1 3; 2 0 1; 5 2 0",
    "size": f"{BY_SIZE}5",
}


def draw_decided(kind: str, scenario: Scenario, rng: np.random.Generator, patients: int) -> World:
    """Patients of a scenario whose value is decided with; the risk is made of the chances of bands."""
    tolerance, seen = parse_tolerance(DECIDED[kind]), _draw_seen(scenario, rng, patients)
    middle, error = SIGNAL * seen.x, seen.worse + _draw_errors(scenario, seen, rng, patients)
    value = middle
    if tolerance.by_size:
        spread = np.exp(0.6 * seen.x)  # of errors, which the risk sees
        error, edge = spread * error, tolerance.absolute / spread
        risk = 2 * ((norm.pdf(0.0) - norm.pdf(edge)) / edge + ndtr(-edge))
    else:
        chances = chances_of_bands(ndtr(middle[:, None] - np.array(tolerance.limits)))
        expected = chances @ tolerance.costs  # by the band that is imputed
        if tolerance.levels:
            value = np.array(tolerance.levels)[expected.argmin(axis=1)]
        risk = np.take_along_axis(expected, tolerance.band(value)[:, None], axis=1)[:, 0]
    measured, weight = _measure(scenario, seen, rng)
    loss = tolerance.loss(value, middle + error)
    return World(seen.patient, risk, loss, measured, weight, patients, seen.count[seen.patient])


def _draw_seen(scenario: Scenario, rng: np.random.Generator, patients: int) -> _Seen:
    count = _counts(scenario, rng, patients)
    patient = np.repeat(np.arange(patients), count)
    own, shared = rng.standard_normal(len(patient)), rng.standard_normal(patients)[patient]
    x = math.sqrt(0.5) * (own + shared)
    u = rng.standard_normal(len(patient))
    worse: FloatArray
    logit: FloatArray
    if scenario.measuring == "random":
        worse, logit = 0.0 * u, 0.0 * u
    elif scenario.measuring == "site":
        effect = site_effect(rng.integers(0, SITES, patients))[patient]
        worse, logit = 0.8 * effect, 0.2 - 1.2 * effect
    elif scenario.measuring == "minority":
        group = (rng.random(patients) < 0.1)[patient]
        worse, logit = np.where(group, 1.5, 0.0), np.where(group, -1.8, 0.6)
    elif scenario.measuring == "clock":
        late = (rng.random(patients) < 0.5)[patient]
        worse, logit = np.where(late, 1.2, 0.0), np.where(late, -1.2, 0.0)
    else:
        worse, logit = 0.6 * u, -0.6 * x - 0.8 * u
    if scenario.counts == "rare heavy":
        worse = worse + 1.5 * (count[patient] >= 60)
    if scenario.counts == "heavy":
        worse = worse + 0.25 * np.log(count[patient])
    return _Seen(patient, count, x, np.asarray(worse), np.clip(logit, -2.5, 2.5))


def _counts(scenario: Scenario, rng: np.random.Generator, patients: int) -> IntArray:
    if scenario.counts == "heavy":
        return np.asarray(np.minimum(1 + np.floor(2 * rng.pareto(1.3, patients)), 200), dtype=np.int64)
    even: IntArray = 1 + rng.poisson(5.0, patients)
    if scenario.counts == "rare heavy":
        return np.asarray(np.where(rng.random(patients) < 0.01, rng.integers(60, 101, patients), even))
    return np.asarray(np.minimum(even, CLOCK_VISITS)) if scenario.measuring == "clock" else even


def _measure(scenario: Scenario, seen: _Seen, rng: np.random.Generator) -> tuple[BoolArray, FloatArray]:
    if scenario.measuring == "clock":
        return _measured_by_clock(seen, rng)
    chance = 1.0 / (1.0 + np.exp(-seen.logit))
    measured = rng.random(len(chance)) < chance
    if scenario.column_left_out:  # without the column, everybody seems to be measured alike
        chance = np.full(len(chance), measured.mean())
    return measured, (1.0 - chance) / chance


def _measured_by_clock(seen: _Seen, rng: np.random.Generator) -> tuple[BoolArray, FloatArray]:
    """A visit is less likely to be measured right after one that was; odds given all other visits, exactly."""
    patients = len(seen.count)
    start = np.cumsum(seen.count) - seen.count
    place = np.arange(len(seen.patient)) - start[seen.patient]
    there = np.zeros((patients, CLOCK_VISITS), dtype=bool)
    there[seen.patient, place] = True
    base = np.zeros((patients, CLOCK_VISITS))
    base[seen.patient, place] = seen.logit
    chance = rng.random((patients, CLOCK_VISITS))
    measured = np.zeros_like(there)
    for k in range(CLOCK_VISITS):
        measured[:, k] = there[:, k] & (chance[:, k] < _chance_by_clock(base, measured, k))
    odds = np.empty((patients, CLOCK_VISITS))
    for k in range(CLOCK_VISITS):
        odds[:, k] = np.exp(_log_chance(base, there, measured, k, False) - _log_chance(base, there, measured, k, True))
    return measured[seen.patient, place], odds[seen.patient, place]


def _chance_by_clock(base: FloatArray, measured: BoolArray, k: int) -> FloatArray:
    recent = measured[:, k - 1] if k else np.zeros(len(measured), dtype=bool)
    return np.asarray(1.0 / (1.0 + np.exp(-(base[:, k] + np.where(recent, -1.3, 0.9)))))


def _log_chance(base: FloatArray, there: BoolArray, measured: BoolArray, k: int, value: bool) -> FloatArray:
    """Of the whole record had visit k been measured or not; only k itself and the next visit hang on it."""
    changed = measured.copy()
    changed[:, k] = value
    total = np.zeros(len(base))
    for each in range(k, min(k + 2, CLOCK_VISITS)):
        chance = _chance_by_clock(base, changed, each)
        total += np.where(there[:, each], np.log(np.where(changed[:, each], chance, 1.0 - chance)), 0.0)
    return total


def _twice(world: World) -> World:
    """Every patient once more, as if another."""
    return World(
        np.r_[world.patient, world.patient + world.n_patients],
        np.r_[world.risk, world.risk],
        np.r_[world.risky, world.risky],
        np.r_[world.measured, world.measured],
        np.r_[world.weight, world.weight],
        2 * world.n_patients,
        np.r_[world.count, world.count],
    )


def _two_keys(world: World, rng: np.random.Generator) -> World:
    """Every patient's visits spread over two, who resemble each other more than others do."""
    key = 2 * world.patient + rng.integers(0, 2, len(world.patient))
    count = np.bincount(key, minlength=2 * world.n_patients)
    return replace(world, patient=key, n_patients=2 * world.n_patients, count=count[key])


def _chance(x: FloatArray) -> FloatArray:
    return np.asarray(ndtr(x))
