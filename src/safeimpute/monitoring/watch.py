"""What the night log says about the promise: shares by month and group, bets against it, drift, changed units."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from safeimpute.model.betting import (
    Evidence,
    errors_evidence,
    log_odds,
    measuring_evidence,
    rank_evidence,
    share_evidence,
)
from safeimpute.model.frozen import FrozenModel, Reference
from safeimpute.model.night_log import Entered
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays, mix

TestName = Literal["share", "errors", "measuring", "inputs"]
ERROR: dict[str, float] = {"share": 0.02, "errors": 0.015, "measuring": 0.015, "inputs": 0.01}  # false alarms, ever
STRANGE = 0.03  # share of values so far out that is taken for no change of unit
UNIT_ERROR = 3e-5  # of one night and lab
LOOKED_BACK = 20  # values of a lab looked at for a change of unit
MARGIN = 0.05  # of the mean rank of an input that is taken for no drift


@dataclass(frozen=True)
class Bet:
    """One test: the bettor's wealth after every entry, and where it passed the line."""

    name: TestName
    evidence: Evidence
    day: FloatArray  # of every entry
    error: float  # chance of ever passing while nothing changed
    about: str = ""  # the input

    @property
    def log_wealth(self) -> FloatArray:
        return self.evidence.wealth

    @property
    def line(self) -> float:
        return -math.log(self.error)

    @property
    def found(self) -> bool:
        return bool(len(self.log_wealth)) and float(self.log_wealth.max()) >= self.line

    @property
    def entries_until(self) -> int | None:
        """How many entries it took."""
        return int(np.argmax(self.log_wealth >= self.line)) + 1 if self.found else None

    @property
    def began(self) -> float | None:
        """Day from which on the evidence grew."""
        if not self.found:
            return None
        return float(self.day[min(self.evidence.began, len(self.day) - 1)])


@dataclass(frozen=True)
class Strange:
    """A lab whose latest values lie where hardly any did at the fit."""

    lab: str
    values: int
    strange: int


@dataclass(frozen=True)
class Watched:
    """All that was found."""

    share: Bet
    errors: Bet
    measuring: Bet
    inputs: tuple[Bet, ...] = ()
    units: tuple[Strange, ...] = ()
    found: tuple[str, ...] = field(default=())  # alarms in plain words
    warnings: tuple[str, ...] = ()


def watch(
    entered: Entered,
    model: FrozenModel,
    alpha: float,
    target: str,
    since: int = 0,
    inputs: Sequence[Bet] = (),
    units: Sequence[Strange] = (),
) -> Watched:
    """Judge the entries made after the one numbered `since`."""
    late = entered.at(entered.number > since)
    share, errors = share_bet(late, model.reference, alpha), errors_bet(late, model.reference)
    measuring = measuring_bet(late, model.reference)
    units = units or _latest_strange(target, late.strange[late.judged])
    found = [_words(each, alpha) for each in (share, errors, measuring) if each.found]
    found += [_unit_words(each) for each in units]
    warnings = [_words(each, alpha) for each in inputs if each.found]
    return Watched(share, errors, measuring, tuple(inputs), tuple(units), tuple(found), tuple(warnings))


def below_cutoff(entered: Entered) -> BoolArray:
    """Measured values that would have been released had they been missing."""
    with np.errstate(invalid="ignore"):
        return np.asarray(entered.judged & entered.inside & (entered.risk <= entered.cutoff))


def share_bet(entered: Entered, reference: Reference, alpha: float) -> Bet:
    """Against "still at most alpha" among values below the cut-off."""
    rows = below_cutoff(entered)
    some = entered.at(rows)
    path = share_evidence(
        of_a_year(some.patient, some.day), some.odds + some.late, some.risky, alpha, reference.bet_calibration
    )
    return Bet("share", path, some.day, ERROR["share"])


def errors_bet(entered: Entered, reference: Reference) -> Bet:
    """Against "errors are as frequent as they were", given the risk: values below the cut-off."""
    some = entered.at(below_cutoff(entered))
    line = reference.errors[0] + reference.errors[1] * log_odds(some.risk)
    path = errors_evidence(of_a_year(some.patient, some.day), 1 / (1 + np.exp(-line)), some.risky)
    return Bet("errors", path, some.day, ERROR["errors"])


def of_a_year(patient: NDArray[np.uint64], day: FloatArray) -> NDArray[np.uint64]:
    """Keys of patients, another one in every year."""
    return patient ^ mix(np.floor(day / 365.25).astype(np.int64).view(np.uint64))


def measuring_bet(entered: Entered, reference: Reference) -> Bet:
    """Against "measuring is what it was": visits of which it is known by now whether they were measured."""
    now = float(entered.day.max(initial=-np.inf))
    some = entered.at(entered.inside & (entered.day <= now - reference.wait))
    order = np.lexsort((some.visit, some.day))
    some = some.at(order)
    return Bet("measuring", measuring_evidence(some.odds, ~some.measured), some.day, ERROR["measuring"])


def input_bets(visits: VisitArrays, since: float, reference: Reference) -> tuple[Bet, ...]:
    """Against "labs look as they did": all visits after a day, lab by lab; errors are shared out evenly."""
    bets = []
    labs = [lab for lab in visits.other_labs.tolist() if np.isfinite(reference.percentiles[lab]).all()]
    for lab in labs:
        rows = np.flatnonzero((visits.time > since) & ~np.isnan(visits.labs[:, lab]))
        rows = rows[np.lexsort((visits.visit_key[rows], visits.time[rows]))]
        margin = MARGIN + 2 * 0.29 / math.sqrt(max(reference.patients, 1))
        path = rank_evidence(
            of_a_year(visits.patient_key[rows], visits.time[rows]),
            reference.ranks(visits.labs[rows, lab], lab),
            min(margin, 0.4),
        )
        bets.append(Bet("inputs", path, visits.time[rows], ERROR["inputs"] / len(labs), visits.lab_names[lab]))
    return tuple(bets)


def strange_labs(visits: VisitArrays, rows: BoolArray, reference: Reference) -> tuple[Strange, ...]:
    """Labs whose values at some visits, one night's, can hardly be in the fit's unit."""
    found = []
    places = np.flatnonzero(rows)
    places = places[np.lexsort((visits.visit_key[places], visits.time[places]))]
    for lab, name in enumerate(visits.lab_names):
        values = visits.labs[places, lab]
        found += _latest_strange(name, reference.strange(values[~np.isnan(values)], lab))
    return tuple(found)


def _latest_strange(lab: str, strange: BoolArray) -> list[Strange]:
    """Of values in order, the latest ones, as many as make it clearest."""
    latest = strange[-LOOKED_BACK:][::-1]
    for values in range(3, len(latest) + 1):
        far = int(latest[:values].sum())
        if hardly_chance(far, values):
            return [Strange(lab, values, far)]
    return []


def hardly_chance(strange: int, values: int) -> bool:
    """Whether so many strange values are most of them, and a rare coincidence."""
    if strange < 3 or 2 * strange < values:
        return False
    from scipy.special import bdtrc

    return float(bdtrc(strange - 1, values, STRANGE)) <= UNIT_ERROR


def _words(bet: Bet, alpha: float) -> str:
    if bet.name == "share":
        return f"more than {100 * alpha:g} % of the values below the cut-off are off by the tolerance or more"
    if bet.name == "errors":
        return "unacceptable errors are clearly more frequent than at the fit"
    if bet.name == "measuring":
        return "visits are measured more or less often than the fit learnt"
    return f"{bet.about} has moved since the fit"


def _unit_words(strange: Strange) -> str:
    return (
        f"{strange.strange} of the last {strange.values} values of {strange.lab} lie where hardly any did at the fit: "
        "another unit?"
    )
