"""Calibration on a whole table by a model fitted to a sample of it: balances, cut-off and diagnosis as exact sums.

Every patient, fitted on or not, is estimated by the model of its own fold, which never saw it. What is kept of a batch
of patients are whole numbers that add up alike in any order, so that one machine and a cluster find the same.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute.records.clocks import on_its_way
from safeimpute.scoring.frozen import FrozenModel, Scored, score_visits
from safeimpute.selection.betting import Purse, purse_from
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.intervals import IntervalGround
from safeimpute.selection.late import smaller
from safeimpute.selection.ledger import Entries
from safeimpute.selection.release import Rule, rule_of
from safeimpute.selection.sums import (
    UNIT,
    LedgerSums,
    Whole,
    average_from,
    confident_from,
    ledger_sums,
    log_wealth_sums,
    stakes_of,
    worth_enough,
)
from safeimpute.settings import Settings
from safeimpute.splits.enough import too_few

BINS = 1_000  # of the chance of being unmeasured
RATIOS = np.r_[0.0, np.geomspace(1e-3, 1e3, 2_000)]  # of errors to their spread, for intervals
GROUPS = 10


@dataclass(frozen=True)
class TableSums:
    """What a batch of patients adds to the calibration."""

    alone: LedgerSums  # measured visits weighed for unmeasured ones
    together: LedgerSums  # late results counted among those
    visits: int
    patients: int
    outside: int  # unmeasured visits that no promise covers
    measured: Whole  # visits by chance of being unmeasured
    unmeasured: Whole
    chance: Whole  # its sum, in units of 2**-32
    ratios: Whole  # weight of measured visits by the size of their error

    def plus(self, other: "TableSums") -> "TableSums":
        """Both together."""
        sums = {name: getattr(self, name).plus(getattr(other, name)) for name in ("alone", "together")}
        counts = {
            name: getattr(self, name) + getattr(other, name) for name in ("visits", "patients", "outside")
        }
        lists = {
            name: [one + two for one, two in zip(getattr(self, name), getattr(other, name), strict=True)]
            for name in ("measured", "unmeasured", "chance", "ratios")
        }
        joined: dict[str, Any] = {**sums, **counts, **lists}
        return TableSums(**joined)

    def told(self) -> dict[str, Any]:
        """As JSON carries it."""
        return asdict(self)

    @classmethod
    def told_back(cls, told: dict[str, Any]) -> "TableSums":
        """What `told` wrote."""
        return cls(
            **told | {name: LedgerSums(**told[name]) for name in ("alone", "together")},
        )


@dataclass(frozen=True)
class TableDiagnosis:
    """How the model of measuring does on the whole table, and what the weights leave of it."""

    visits: int
    patients: int
    measured: int
    auc: float | None
    calibration: tuple[
        tuple[int, float, float], ...
    ]  # visits, mean chance of being unmeasured, share that is
    effective_visits: float
    effective_patients: float
    outside: int


def thresholds_of(model: FrozenModel) -> FloatArray:
    """Those of the fit, which read no error, and one beyond all."""
    return np.append(model.reference.thresholds, np.inf)


def table_sums(visits: VisitArrays, model: FrozenModel, settings: Settings) -> TableSums:
    """The sums of one batch of whole patients."""
    scored = score_visits(visits, model, measured_too=True)
    measured = ~scored.candidate
    late = on_its_way(visits, visits.target) & (settings.claim == "later")
    thresholds = thresholds_of(model)
    alone, together = (
        ledger_sums(_entries(visits, scored, settings, extra), thresholds, settings.fdr)
        for extra in (np.zeros(len(visits)), late.astype(np.float64))
    )
    chance = scored.weight / (1.0 + scored.weight)
    bins = np.minimum((chance * BINS).astype(np.int64), BINS - 1)
    inside = measured & scored.inside
    error = np.abs(scored.estimates.value - visits.target_values)[inside] / scored.estimates.spread[inside]
    return TableSums(
        alone=alone,
        together=together,
        visits=len(visits),
        patients=int(visits.patient.max(initial=-1)) + 1,
        outside=int(np.sum(scored.candidate & ~scored.inside)),
        measured=_counts(bins[measured]),
        unmeasured=_counts(bins[scored.candidate]),
        chance=_amounts(bins, chance, BINS),
        ratios=_amounts(np.searchsorted(RATIOS, error), (scored.weight + late)[inside], len(RATIOS) + 1),
    )


def table_wealth(
    visits: VisitArrays, model: FrozenModel, settings: Settings, stakes: tuple[FloatArray, FloatArray]
) -> list[Whole]:
    """Second pass of the confident rule: the bets of one batch at every threshold, without and with late results."""
    scored = score_visits(visits, model, measured_too=True)
    late = on_its_way(visits, visits.target) & (settings.claim == "later")
    return [
        log_wealth_sums(_entries(visits, scored, settings, extra), thresholds_of(model), settings.fdr, stake)
        for extra, stake in zip((np.zeros(len(visits)), late.astype(np.float64)), stakes, strict=True)
    ]


def _entries(visits: VisitArrays, scored: Scored, settings: Settings, extra: FloatArray) -> Entries:
    rows = ~scored.candidate & scored.inside
    risky = settings.allowed_error.risky(scored.estimates.value, visits.target_values)
    return Entries(
        visits.patient[rows],
        scored.estimates.risk[rows],
        (scored.weight + extra)[rows],
        risky[rows],
        int(visits.patient.max(initial=-1)) + 1,
    )


def _counts(bins: np.ndarray) -> Whole:
    return [int(each) for each in np.bincount(bins, minlength=BINS).tolist()]


def _amounts(bins: np.ndarray, amount: FloatArray, count: int) -> Whole:
    whole = np.rint(amount * UNIT).astype(np.int64)
    total = np.zeros(count, np.int64)
    np.add.at(total, bins, whole)
    return [int(each) for each in total.tolist()]


def summed(parts: Iterable[TableSums]) -> TableSums:
    """All batches together, in any order."""
    total: TableSums | None = None
    for part in parts:
        total = part if total is None else total.plus(part)
    if total is None:
        raise ValueError("a table without visits was not refused")
    return total


def stakes_for(sums: TableSums, rule: Rule) -> tuple[FloatArray, FloatArray]:
    """What the second pass bets."""
    one, two = (stakes_of(each, rule.alpha, rule.confidence) for each in (sums.alone, sums.together))
    return one, two


def calibrated_anew(
    model: FrozenModel, settings: Settings, sums: TableSums, wealth: list[Whole] | None
) -> tuple[FrozenModel, TableDiagnosis]:
    """The model with the cut-off that the whole table supports, and the diagnosis of its weights."""
    rule, thresholds = rule_of(settings), thresholds_of(model)
    found = []
    for place, each in enumerate((sums.alone, sums.together)):
        if not worth_enough(each.worth, rule.alpha):
            cutoff = Cutoff(None, None, each.worth.visits, each.worth.patients)
        elif wealth is None:
            cutoff = average_from(each, thresholds, rule.alpha)
        else:
            cutoff = confident_from(each, wealth[place], thresholds, rule.alpha, rule.confidence)
        found.append(cutoff)
    cutoff = smaller(*found)
    enough = worth_enough(sums.alone.worth, rule.alpha)
    ratios = np.cumsum([each / UNIT for each in sums.ratios])
    return replace(
        model,
        cutoffs={0: cutoff},
        intervals=IntervalGround(np.append(RATIOS, np.inf), ratios),
        reference=replace(model.reference, purse=_purse(sums.together, thresholds, cutoff)),
        no_promise="" if enough else too_few(rule.alpha, sums.alone.worth),
        help="",
    ), diagnosis_of(sums)


def _purse(sums: LedgerSums, thresholds: FloatArray, cutoff: Cutoff) -> Purse:
    place = np.flatnonzero(thresholds == cutoff.risk)
    if not len(place):
        return Purse(0.0, 0.0, 0.0)
    here = int(place[0])
    named = {
        name: getattr(sums, name)[here] / UNIT
        for name in ("weight", "weight_square", "visits", "risky", "largest_visit")
    }
    return purse_from(**named, weighted_share=cutoff.share or 0.0)


def diagnosis_of(sums: TableSums) -> TableDiagnosis:
    """Discrimination and calibration from counts by chance."""
    low, high = np.array(sums.measured, dtype=object), np.array(sums.unmeasured, dtype=object)
    below = np.cumsum(np.r_[[0], low])[:-1]
    pairs = int(low.sum()) * int(high.sum())
    twice = int((high * (2 * below + low)).sum())
    return TableDiagnosis(
        visits=sums.visits,
        patients=sums.patients,
        measured=int(low.sum()),
        auc=twice / (2 * pairs) if pairs else None,
        calibration=_calibration(low + high, high, sums.chance),
        effective_visits=sums.alone.worth.visits,
        effective_patients=sums.alone.worth.patients,
        outside=sums.outside,
    )


def _calibration(
    every: np.ndarray, unmeasured: np.ndarray, chance: Whole
) -> tuple[tuple[int, float, float], ...]:
    """Ten groups of about as many visits, cut between bins."""
    total, reached = int(every.sum()), np.cumsum(every)
    group = np.minimum((GROUPS * (reached - every)) // max(total, 1), GROUPS - 1)
    rows = []
    for number in range(GROUPS):
        there: BoolArray = np.array(group == number, dtype=bool)
        visits = int(every[there].sum())
        if visits:
            predicted = sum(each for each, here in zip(chance, there, strict=True) if here) / UNIT / visits
            rows.append((visits, predicted, int(unmeasured[there].sum()) / visits))
    return tuple(rows)
