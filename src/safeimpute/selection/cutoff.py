"""From balances to a cut-off: the largest risk that may be released, on average or with confidence.

Every promise but the paper's own is decided here, whoever made the sums: a fit, its groups and labs, a what-if, a
recalibration, a whole table or a cluster.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from safeimpute.selection.enough import EffectiveSize, enough, too_few
from safeimpute.selection.sums import Balances, Level, ratio
from safeimpute.settings import ClaimName, PromiseName, Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

DOUBT = 0.35  # standard errors that the average rule adds to what it expects
ROUNDING = 1e-9  # of the weight: balances of equal weights often come to exactly nothing
LARGEST_STAKE = 0.95  # of what one patient could cost
CLOSE = 1e-6  # to the wealth that is needed: looked at exactly
FIRST_WINDOW = 8  # thresholds looked at together; then twice as many


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
    excess, doubt = balances.curve.excess(rule.alpha, rule.gamma)
    expected = excess + DOUBT * np.sqrt(_clustering(balances)) * doubt <= 0.0
    safe = np.flatnonzero(tried & counted & expected)
    return int(safe[-1]) if len(safe) else None


def _clustering(balances: Balances) -> FloatArray:
    """Per threshold how many times as much the risky weight varies as that of independent visits; at least once."""
    weight, patient = balances.visit("weight"), balances.patient
    share = ratio(balances.visit("risky_weight"), weight)
    squares = patient("risky_square") - 2.0 * share * patient("size_risky") + share**2 * patient("size_square")
    alone = (1.0 - 2.0 * share) * balances.visit("risky_square") + share**2 * balances.visit("weight_square")
    return np.maximum(ratio(squares, alone), 1.0)


def _last_proved(balances: Balances, rule: Rule, tried: BoolArray) -> int | None:
    """The last of a sequence of thresholds, each shown with confidence to have a mean balance of at most zero.

    The sequence starts where the risks themselves predict the clearest proof and goes up; both are fixed before any
    error is read, so testing stops at the first failure and needs no correction for their number. A bettor's wealth
    has a mean of at most 1 if the mean balance is not below zero, so it exceeds 1 / error with a chance of at most
    `error`.
    """
    needed, stakes = -math.log(1.0 - rule.confidence), stakes_for(balances, rule)
    least, most = _wealth_between(balances, rule.level, stakes)
    sequence = _sequence(balances, rule, np.flatnonzero(tried))
    hopeless = np.flatnonzero(most[sequence] < needed - CLOSE)
    sequence = sequence[: hopeless[0]] if len(hopeless) else sequence
    open_ = sequence[least[sequence] < needed + CLOSE]  # the others are proved without looking closer
    for places in _upwards(open_):
        failed = places[balances.wealth(places, rule.level, stakes[places]) < needed]
        if len(failed):
            sequence = sequence[sequence < failed[0]]
            break
    return int(sequence[-1]) if len(sequence) else None


def _wealth_between(balances: Balances, level: Level, stakes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds of the log wealth at every threshold: -x - x^2 / (2 (1 - m)) <= log(1 - x) <= -x for x <= m."""
    weight, risky, read = balances.visit("weight"), balances.visit("risky_weight"), balances.patient
    both = level.risky + level.good
    mean = stakes * (both * risky - level.good * weight)
    square = both**2 * read("risky_square") - 2.0 * both * level.good * read("size_risky")
    square = np.square(stakes) * (square + level.good**2 * read("size_square"))
    largest = np.minimum(stakes * level.risky * read("largest_size"), LARGEST_STAKE)
    return -mean - square / (2.0 * (1.0 - largest)), -mean


def stakes_for(balances: Balances, rule: Rule) -> FloatArray:
    """Per threshold the stake that wins soonest at the boundary, from the spread that the risks alone predict.

    Were risks true chances, a patient's balance would vary between what independent and what fully dependent visits
    give; the stake takes the middle, and never more than a patient whose visits were all risky could cost.
    """
    alpha, read = rule.alpha, balances.patient
    drift = read("expected_square") - 2.0 * alpha * read("size_expected") + alpha**2 * read("size_square")
    spread = (balances.visit("square_doubt") + read("doubt_square")) / 2.0 + np.maximum(drift, 0.0)
    most = rule.level.risky * read("largest_size")
    with np.errstate(divide="ignore"):
        wanted = np.sqrt(-2.0 * math.log(1.0 - rule.confidence) / spread) / rule.gamma
        stake = np.minimum(wanted, LARGEST_STAKE / most)
    return np.where((most > 0.0) & (spread > 0.0), stake, 0.0)


def _sequence(balances: Balances, rule: Rule, places: IntArray) -> IntArray:
    """Thresholds upwards from the one whose proof the risks alone predict to be the clearest."""
    if not len(places):
        return places
    alpha = rule.alpha
    excess = balances.visit("expected") - alpha * balances.visit("weight")
    noise = (1.0 - 2.0 * alpha) * balances.visit("square_risk") + alpha**2 * balances.visit("weight_square")
    clear = -excess / np.sqrt(np.maximum(noise, 1e-12))
    return places[int(np.argmax(clear[places])) :]


def _upwards(places: IntArray) -> Iterator[IntArray]:
    start, size = 0, FIRST_WINDOW
    while start < len(places):
        yield places[start : start + size]
        start, size = start + size, 2 * size
