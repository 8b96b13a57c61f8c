"""From balances to a cut-off: the largest risk that may be released, on average or with confidence.

Every promise but the paper's own is decided here, whoever made the sums: a fit, its groups and labs, a what-if, a
recalibration, a whole table or a cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from scipy.special import gammaincc, ndtri

from safeimpute.selection.enough import EffectiveSize, enough, too_few
from safeimpute.selection.sums import Balances, Level, ratio
from safeimpute.settings import ClaimName, PromiseName, Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

DOUBT = 0.35  # standard errors that the average rule adds to what it expects
ROUNDING = 1e-9  # of the weight: balances of equal weights often come to exactly nothing
UNSEEN = 1.5  # times what the costliest patient seen costs: a patient not seen
PROVING_PATIENTS = 5.0  # risky ones that the level must stand for below a threshold before it is proved
LEAST_SKEW = 1e-3


@dataclass(frozen=True)
class Rule:
    """How a release is decided."""

    claim: ClaimName
    alpha: float
    promise: PromiseName = "average"
    confidence: float = 0.9
    published: bool = False  # the paper's own p-value, with nobody out of scope
    gamma: float = 1.0  # the odds may be off by this factor either way: an analysis

    @property
    def level(self) -> Level:
        """What balances are counted against."""
        return Level(self.alpha, self.gamma)

    def in_each_of(self, groups: int) -> "Rule":
        """The rule within one of several groups: confidence speaks for all of them together."""
        return replace(self, confidence=1.0 - (1.0 - self.confidence) / max(groups, 1))


def rule_of(settings: Settings) -> Rule:
    """How a release is decided under these settings."""
    return Rule(
        settings.claim, settings.fdr, settings.promise, settings.confidence, published=settings.preset == "paper"
    )


@dataclass(frozen=True)
class Cutoff:
    """The largest risk that is released; None where no threshold keeps the level."""

    risk: float | None
    share: float | None  # weighted share of risky values at or below it, as the balances have it
    visits: float  # of equal weight, worth the measured ones within the promise
    patients: float  # likewise

    @property
    def effective_size(self) -> EffectiveSize:
        """What it rests on."""
        return EffectiveSize(self.visits, self.patients)


def find_cutoffs(balances: Mapping[int, Sequence[Balances]], rule: Rule) -> tuple[dict[int, Cutoff], str]:
    """The cut-off of every group, and why nothing can be promised in any of them (empty where something can).

    A group may come with several balances that all must keep the level: the strictest cut-off counts.
    """
    each = rule.in_each_of(len(balances))
    found = {
        group: reduce(stricter, (find_cutoff(one, each) for one in several)) for group, several in balances.items()
    }
    sizes = [cutoff.effective_size for cutoff in found.values()] or [EffectiveSize(0.0, 0.0)]
    if any(enough(size, rule.alpha) for size in sizes):
        return found, ""
    return found, too_few(rule.alpha, max(sizes, key=lambda size: size.patients))


def find_cutoff(balances: Balances, rule: Rule) -> Cutoff:
    """The largest risk the rule releases; none where the level stands for too few risky values."""
    effective_size = balances.effective_size
    if not enough(effective_size, rule.alpha):
        return Cutoff(None, None, effective_size.visits, effective_size.patients)
    tried = balances.visit("weight") > 0.0
    search = _last_proved if rule.promise == "confident" else _last_safe
    place = search(balances, rule, tried)
    if place is None:
        return Cutoff(None, None, effective_size.visits, effective_size.patients)
    share = balances.visit("risky_weight")[place] / balances.visit("weight")[place]
    return Cutoff(float(balances.thresholds[place]), float(share), effective_size.visits, effective_size.patients)


def stricter(one: Cutoff, other: Cutoff) -> Cutoff:
    """The stricter of two cut-offs; none at all is the strictest."""
    if one.risk is None or other.risk is None:
        return one if one.risk is None else other
    return one if one.risk <= other.risk else other


def _last_safe(balances: Balances, rule: Rule, tried: BoolArray) -> int | None:
    """The last threshold up to which the level allows what was counted, and what is expected with a part of the doubt.

    The count alone is not enough: a threshold chosen for its count has the luckiest one (docs/guarantee.md).
    """
    level, weight, risky = rule.level, balances.visit("weight"), balances.visit("risky_weight")
    counted = level.risky * risky - level.good * (weight - risky) <= ROUNDING * weight
    safe = np.flatnonzero(tried & counted & _expected_safe(balances, rule, DOUBT))
    return int(safe[-1]) if len(safe) else None


def _expected_safe(balances: Balances, rule: Rule, doubts: float) -> BoolArray:
    """Per threshold whether the level allows what the curve expects, so many standard errors added."""
    excess, doubt = balances.curve.excess(rule.alpha, rule.gamma)
    return np.asarray(excess + doubts * np.sqrt(_clustering(balances)) * doubt <= 0.0)


def _clustering(balances: Balances) -> FloatArray:
    """Per threshold how many times as much the risky weight varies as that of independent visits; at least once."""
    weight, patient = balances.visit("weight"), balances.patient
    share = ratio(balances.visit("risky_weight"), weight)
    squares = patient("risky_square") - 2.0 * share * patient("size_risky") + share**2 * patient("size_square")
    alone = (1.0 - 2.0 * share) * balances.visit("risky_square") + share**2 * balances.visit("weight_square")
    return np.maximum(ratio(squares, alone), 1.0)


def _last_proved(balances: Balances, rule: Rule, tried: BoolArray) -> int | None:
    """The last of a sequence of thresholds, each shown with confidence to have a mean balance of at most zero.

    Which thresholds are looked at, and in what order, is fixed before any error is read, so testing stops at the first
    failure and needs no correction for their number. What the curve expects must keep the level as surely.
    """
    patients = ratio(np.square(balances.visit("weight")), balances.patient("size_square"))
    sequence = _sequence(balances, rule, np.flatnonzero(tried & (patients * rule.alpha >= PROVING_PATIENTS)))
    failed = np.flatnonzero(_chance_of_excess(balances, rule.level)[sequence] > 1.0 - rule.confidence)
    proved = sequence[: failed[0]] if len(failed) else sequence
    proved = proved[_expected_safe(balances, rule, float(ndtri(rule.confidence)))[proved]]
    return int(proved[-1]) if len(proved) else None


def _chance_of_excess(balances: Balances, level: Level) -> FloatArray:
    """Per threshold the chance that the mean balance lies above zero, as Gaffke's bound has it.

    Patients are given random proportions (exponential ones), and so is one who was not seen and costs more than any
    who was; the sum is taken for a gamma with its mean, variance and skewness.
    """
    both, good, read = level.risky + level.good, level.good, balances.patient
    unseen = UNSEEN * level.risky * np.maximum(read("largest_risky"), read("largest_visit"))
    mean = both * balances.visit("risky_weight") - good * balances.visit("weight") + unseen
    square = both**2 * read("risky_square") - 2.0 * both * good * read("size_risky") + good**2 * read("size_square")
    cube = both**3 * read("risky_cube") - good**3 * read("size_cube")
    cube += 3.0 * both * good * (good * read("square_size_risky") - both * read("size_risky_square"))
    return _gamma_above_zero(mean, square + unseen**2, 2.0 * (cube + unseen**3))


def _gamma_above_zero(mean: FloatArray, variance: FloatArray, third: FloatArray) -> FloatArray:
    """Chance that a shifted gamma with these cumulants exceeds zero; one with a left tail is taken for a normal."""
    deviation = np.sqrt(np.maximum(variance, 1e-60))
    lean = 2.0 / np.maximum(third / deviation**3, LEAST_SKEW)
    return np.asarray(gammaincc(lean**2, np.maximum(lean**2 - lean * mean / deviation, 0.0)))


def _sequence(balances: Balances, rule: Rule, places: IntArray) -> IntArray:
    """Thresholds upwards from the one whose proof the risks alone predict to be the clearest."""
    if not len(places):
        return places
    alpha = rule.alpha
    excess = balances.visit("expected") - alpha * balances.visit("weight")
    noise = (1.0 - 2.0 * alpha) * balances.visit("square_risk") + alpha**2 * balances.visit("weight_square")
    clear = -excess / np.sqrt(np.maximum(noise, 1e-12))
    return places[int(np.argmax(clear[places])) :]
