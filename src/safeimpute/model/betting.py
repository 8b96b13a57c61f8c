"""Bets against a promise: evidence that grows only if it stopped being true, valid whenever one looks.

Each function gives, after every entry, the logarithm of a bettor's wealth, who starts with 1 and cannot expect to gain
while the hypothesis holds; so the chance that it ever reaches 1 / error is at most `error` (Ville). A part of the money
waits and enters every hundred entries, so that a change is found soon also after a long calm. What a patient's entries
of a year gain is added up before it is multiplied with others', because one patient's values resemble each other. What
is exact about this and what is not stands in docs/scoring.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safeimpute.selection.logistic import newton
from safeimpute.tolerance import Risky
from safeimpute.visits.arrays import BoolArray, FloatArray

TIMES_ALPHA = (1.25, 1.5, 2.0)  # shares of risky values, in units of alpha, that the bets are made for
LARGEST_STAKE = 0.95  # of what an entry can cost
TIMES_ODDS, WITHIN_ODDS = 2.0, 1.25  # factors on the odds of measuring: bet for, and taken for no change
TIMES_ERRORS, WITHIN_ERRORS = (2.0, 3.0), 1.2  # the same for the odds of a risky value
NO_CHANGE = (0.0, 1.0)
RIDGE = 2.0
FEW = 4  # typical entries of a patient and year that count
RANK_STAKE = 0.4
EVERY = 100  # entries between two starts
PLAIN_MARGIN = 1.1  # that share is itself an estimate

Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class BetCalibration:
    """What the calibration says about weights below the cut-off; it sets the stakes."""

    mean: float  # weight of an entry
    square: float  # mean squared weight
    most: float  # weight up to which a patient counts in a year; the stakes can bear it
    plain: float = 1.0  # share of risky values, each counted once, that goes with a weighted share of 1

    def stake(self, alpha: float, times: float) -> float:
        """The best stake for a share of `times` alpha, never more than can be lost."""
        share = min(times * alpha, 0.95)
        spread = self.square * (share * (1 - alpha) ** 2 + (1 - share) * alpha**2)
        if spread <= 0 or self.most <= 0:
            return 0.0
        return min(self.mean * (share - alpha) / spread, LARGEST_STAKE / (alpha * self.most))


def calibrate_bets(weight: FloatArray, risky: Risky) -> BetCalibration:
    """From the entries a cut-off was calibrated on, those at or below it."""
    total = float(weight.sum())
    share = float((weight * risky).sum()) / total if total > 0 else 0.0
    square, largest = float(np.square(weight).sum()), float(weight.max(initial=0.0))
    return bets_from_sums(total, square, float(len(weight)), float(risky.sum()), largest, share)


def bets_from_sums(
    weight: float, weight_square: float, visits: float, risky: float, largest_visit: float, weighted_share: float
) -> BetCalibration:
    """The same from sums over the entries."""
    if visits <= 0 or weight <= 0:
        return BetCalibration(0.0, 0.0, 0.0)
    plain = PLAIN_MARGIN * risky / visits / weighted_share if weighted_share > 0 else 1.0
    most = max(FEW * weight_square / weight, largest_visit)
    return BetCalibration(weight / visits, weight_square / visits, most, min(max(plain, 0.5), 2.0))


@dataclass(frozen=True)
class Evidence:
    """Logarithms of wealth after every entry."""

    wealth: FloatArray
    from_start: FloatArray  # of the bettors who were there from the first entry on

    @property
    def began(self) -> int:
        """Where the rise that ends at the peak began: the entry after the lowest wealth before it."""
        if not len(self.wealth):
            return 0
        path = np.r_[0.0, self.from_start[: int(np.argmax(self.wealth)) + 1]]
        return int(np.flatnonzero(path == path.min())[-1])


def share_evidence(
    patient: Keys, weight: FloatArray, risky: BoolArray, alpha: float, bet_calibration: BetCalibration
) -> Evidence:
    """Against "the weighted share of risky values is at most alpha": entries at or below the cut-off, in order.

    Half of the money bets on weighted entries. Heavy weights make that slow; the other half counts every entry once,
    against the share that alpha stood for at the calibration. `patient` tells patients and years apart; beyond what
    the stakes can bear, a patient does not count.
    """
    paths, once = [], BetCalibration(1.0, 1.0, float(FEW))
    for size, each, level in (
        (weight, bet_calibration, alpha),
        (np.ones(len(risky)), once, alpha * bet_calibration.plain),
    ):
        _, until = _running(patient, size)
        counted = until <= each.most * (1 + 1e-9)
        gain = np.where(counted, size * (risky - level), 0.0)
        paths += [_betted(patient, gain, each.stake(level, times)) for times in TIMES_ALPHA]
    return _mixture(paths)


def errors_evidence(patient: Keys, chance: FloatArray, risky: BoolArray) -> Evidence:
    """Against "the odds of a risky value are within a fifth of those at the calibration": measured values in order.

    `chance` is what the risk came to there. The bets are for odds twice and three times as high.
    """
    odds = chance / (1 - chance)
    bound = WITHIN_ERRORS * odds / (1 + WITHIN_ERRORS * odds)
    _, until = _running(patient, np.ones(len(chance)))
    paths = []
    for times in TIMES_ERRORS:
        raised = times * odds / (1 + times * odds)
        stake = np.minimum((raised - bound) / (bound * (1 - bound)), LARGEST_STAKE / FEW / bound)
        gain = np.where(until <= FEW, stake * (risky - bound), 0.0)
        paths.append(_betted(patient, gain, 1.0))
    return _mixture(paths)


def fit_chances(risk: FloatArray, risky: Risky) -> tuple[float, float]:
    """Log odds of a risky value as a line in those that the risk says; pulled to the risk itself."""
    return fit_line(log_odds(risk), risky)


def log_odds(chance: FloatArray) -> FloatArray:
    """Of chances, kept off 0 and 1."""
    clipped = np.clip(chance, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(clipped / (1 - clipped)), dtype=np.float64)


def fit_line(logit: FloatArray, happened: Risky) -> tuple[float, float]:
    """Intercept and slope under which `happened` is likeliest, a little pulled to 0 and 1: no change."""
    if not len(logit) or happened.all() or not happened.any():
        return NO_CHANGE
    design = np.column_stack([np.ones(len(logit)), logit])
    found = newton(design, happened.astype(np.float64), np.full(2, RIDGE), np.array(NO_CHANGE))
    return float(found[0]), float(found[1])


def measuring_evidence(odds: FloatArray, unmeasured: BoolArray) -> Evidence:
    """Against "the odds of measuring are within a quarter of the modelled ones": visits in order.

    Likelihood ratios of doubled against slightly raised odds, and of halved against slightly lowered ones.
    """
    raised = _likelihood(TIMES_ODDS * odds, unmeasured) - _likelihood(WITHIN_ODDS * odds, unmeasured)
    lowered = _likelihood(odds / TIMES_ODDS, unmeasured) - _likelihood(odds / WITHIN_ODDS, unmeasured)
    return _mixture([np.cumsum(raised), np.cumsum(lowered)])


def rank_evidence(patient: Keys, rank: FloatArray, margin: float) -> Evidence:
    """Against "ranks among the fit's values average one half, give or take `margin`": visits in order."""
    _, until = _running(patient, np.ones(len(rank)))
    counted = until <= FEW
    stake = min(RANK_STAKE, LARGEST_STAKE / (FEW * (0.5 + margin)))
    moved = (rank - 0.5 - margin, 0.5 - rank - margin)
    return _mixture([_betted(patient, np.where(counted, each, 0.0), stake) for each in moved])


def _betted(patient: Keys, gain: FloatArray, stake: float) -> FloatArray:
    """sum over patients of log(1 + stake x what the patient's entries gained), after every entry."""
    before, until = _running(patient, gain)
    return np.asarray(np.cumsum(np.log1p(stake * until) - np.log1p(stake * before)), dtype=np.float64)


def _running(patient: Keys, amount: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Per entry what its patient's entries came to before it, and with it."""
    order = np.argsort(patient, kind="stable")
    total = np.cumsum(amount[order])
    first = np.r_[True, patient[order][1:] != patient[order][:-1]] if len(order) else np.empty(0, bool)
    start = (total - amount[order])[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    until = np.empty(len(order))
    until[order] = total - start
    return until - amount, until


def _likelihood(odds: FloatArray, unmeasured: BoolArray) -> FloatArray:
    return np.asarray(np.where(unmeasured, np.log(odds / (1 + odds)), -np.log1p(odds)), dtype=np.float64)


def _mixture(paths: list[FloatArray]) -> Evidence:
    """The mean wealth of several bettors, each with money that enters later."""
    return Evidence(_mean([_with_late_money(each) for each in paths]), _mean(paths))


def _mean(paths: list[FloatArray]) -> FloatArray:
    return np.asarray(np.logaddexp.reduce(np.stack(paths), axis=0) - np.log(len(paths)), dtype=np.float64)


def _with_late_money(path: FloatArray) -> FloatArray:
    """The wealth of 1 / ((m + 1) (m + 2)) entering before entry 100 m, m = 0, 1, …; what has not entered is kept."""
    if not len(path):
        return path
    starts = np.arange(0, len(path), EVERY)
    number = np.arange(len(starts))
    shares = -np.log((number + 1.0) * (number + 2.0)) - np.r_[0.0, path][starts]
    entered = np.logaddexp.accumulate(shares)[np.arange(len(path)) // EVERY]
    waiting = -np.log(number + 2.0)[np.arange(len(path)) // EVERY]
    return np.asarray(np.logaddexp(path + entered, waiting), dtype=np.float64)
