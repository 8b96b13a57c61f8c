"""What a fit saw of each lab and of its own weights: what drift is measured against, kept with the frozen model."""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute.selection.betting import Purse, fit_chances, purse_of
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.ledger import risk_grid
from safeimpute.selection.release import Decision
from safeimpute.settings import Settings

PERCENTILES = np.arange(1, 100)
BEYOND = 1.15  # times the first and last percentile: farther values are strange
FEWEST_SEEN = 50  # values of a lab that tell its range
LONGEST_WAIT = 120.0  # days that a result is waited for, at most
WAITED_FOR = 0.99  # share of the fit's results that have come in by then


@dataclass(frozen=True)
class Reference:
    """Percentiles of every lab, what counts as strange, and how long results take."""

    percentiles: FloatArray  # labs x 99; NaN where a lab was seen too seldom
    low: FloatArray  # per lab; below it a value is strange
    high: FloatArray
    present: FloatArray  # share of visits with a value, per lab
    patients: int
    wait: float  # days after which a visit without a result counts as unmeasured
    purse: Purse
    errors: tuple[float, float]  # log odds of a risky value = first + second x those of the risk
    thresholds: FloatArray  # risks that a calibration may choose from

    def strange(self, values: FloatArray, lab: int) -> BoolArray:
        """Values far from nearly all that the fit saw of a lab."""
        with np.errstate(invalid="ignore"):
            return np.asarray((values < self.low[lab]) | (values > self.high[lab]))

    def ranks(self, values: FloatArray, lab: int) -> FloatArray:
        """Where values lie among those of the fit, 0 to 1; ties in the middle."""
        known = self.percentiles[lab]
        places = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
        return np.asarray(places / (2.0 * len(known)), dtype=np.float64)


def learn_reference(calibrated: Calibrated, decision: Decision, settings: Settings) -> Reference:
    """From the period a fit was calibrated on."""
    visits = calibrated.question.visits
    since = settings.since_days
    labs = visits.labs[visits.time >= since] if since is not None else visits.labs
    tables = [_percentiles(column) for column in labs.T]
    limits = np.array([_limits(each) for each in tables]).reshape(-1, 2)
    return Reference(
        percentiles=np.array(tables).reshape(len(tables), len(PERCENTILES)),
        low=limits[:, 0],
        high=limits[:, 1],
        present=np.mean(~np.isnan(labs), axis=0),
        patients=int(visits.patient.max(initial=-1)) + 1,
        wait=_wait(visits),
        purse=purse_below(calibrated, decision, settings),
        errors=_errors(calibrated, decision, settings),
        thresholds=_thresholds(calibrated, settings),
    )


def purse_below(calibrated: Calibrated, decision: Decision, settings: Settings) -> Purse:
    """Weights of the calibrating visits at or below the cut-off."""
    ground = calibrated.ground(settings.allowed_error)
    weight = ground.weight if calibrated.late is None else ground.weight + calibrated.late
    there = ground.judged & ground.inside & (ground.risk <= _highest(decision))
    return purse_of(weight[there], ground.risky[there])


def _errors(calibrated: Calibrated, decision: Decision, settings: Settings) -> tuple[float, float]:
    ground = calibrated.ground(settings.allowed_error)
    there = ground.judged & ground.inside & (ground.risk <= _highest(decision))
    return fit_chances(ground.risk[there], ground.risky[there])


def _highest(decision: Decision) -> float:
    """The largest cut-off of any group."""
    return max((each.risk for each in decision.cutoffs.values() if each.risk is not None), default=-np.inf)


def _thresholds(calibrated: Calibrated, settings: Settings) -> FloatArray:
    ground = calibrated.ground(settings.allowed_error)
    return risk_grid(ground.risk[ground.inside & (ground.judged | ground.candidate)])


def _percentiles(column: FloatArray) -> FloatArray:
    seen = column[~np.isnan(column)]
    if len(seen) < FEWEST_SEEN:
        return np.full(len(PERCENTILES), np.nan)
    return np.asarray(np.percentile(seen, PERCENTILES), dtype=np.float64)


def _limits(percentiles: FloatArray) -> tuple[float, float]:
    """Beyond the outer percentiles by a share of themselves; where a lab can be negative, of their distance."""
    first, last = float(percentiles[0]), float(percentiles[-1])
    if np.isnan(first):
        return -np.inf, np.inf
    if first > 0:
        return first / BEYOND, last * BEYOND
    return first - (BEYOND - 1) * (last - first), last + (BEYOND - 1) * (last - first)


def _wait(visits: VisitArrays) -> float:
    if visits.known is None:
        return 0.0
    delay = (visits.known[:, visits.target] - visits.time)[~np.isnan(visits.target_values)]
    delay = np.maximum(np.nan_to_num(delay), 0.0)
    return float(min(np.quantile(delay, WAITED_FOR), LONGEST_WAIT)) if len(delay) else 0.0
