"""Calibration on a whole table by a model fitted to a sample of it: balances, cut-off and diagnosis as exact sums.

Every patient, fitted on or not, is estimated by the model of its own fold, which never saw it. What is kept of a batch
of patients are whole numbers that add up alike in any order, so that one machine and a cluster find the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.errors import GuaranteeRefused, OptionError
from safeimpute.model.betting import BetCalibration, bets_from_sums
from safeimpute.model.folder import SavedModel, save_calibrated
from safeimpute.model.frozen import VISITS_AT_ONCE, FrozenModel, Scored, score_visits
from safeimpute.model.open_model import open_model
from safeimpute.selection.calibrated import IntervalErrors
from safeimpute.selection.claims import SECOND_LOOK
from safeimpute.selection.cutoff import Cutoff, find_cutoffs, rule_of
from safeimpute.selection.ledger import Entries, Ledger, sums_of
from safeimpute.selection.sums import UNIT, Sums, Whole, effective_size_of
from safeimpute.settings import Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays, on_its_way
from safeimpute.visits.imputations import refuse_known_values
from safeimpute.visits.new_visits import read_new_visits
from safeimpute.visits.tables import read_visits

BINS = 1_000  # of the chance of being unmeasured
RATIOS = np.r_[0.0, np.geomspace(1e-3, 1e3, 2_000)]  # of errors to their spread, for intervals
GROUPS = 10


@dataclass(frozen=True)
class TableSums:
    """What a batch of patients adds to the calibration."""

    groups: dict[int, tuple[Sums, ...]]  # measured visits weighed for unmeasured ones; late results among those too
    totals: Sequence[int]  # of all groups together: weight, its square, the square of the patients' weights
    visits: int
    patients: int
    outside: int  # unmeasured visits that no promise covers
    measured: Whole  # visits by chance of being unmeasured
    unmeasured: Whole
    chance: Whole  # its sum, in units of 2**-36
    ratios: Whole  # weight of measured visits by the size of their error

    def plus(self, other: "TableSums") -> "TableSums":
        """Both together."""
        return TableSums(
            groups={
                number: tuple(one.plus(two) for one, two in zip(each, other.groups[number], strict=True))
                for number, each in self.groups.items()
            },
            totals=_added(self.totals, other.totals),
            visits=self.visits + other.visits,
            patients=self.patients + other.patients,
            outside=self.outside + other.outside,
            measured=_added(self.measured, other.measured),
            unmeasured=_added(self.unmeasured, other.unmeasured),
            chance=_added(self.chance, other.chance),
            ratios=_added(self.ratios, other.ratios),
        )

    def to_dict(self) -> dict[str, object]:
        """As JSON carries it."""
        groups = {str(number): [each.to_dict() for each in several] for number, several in self.groups.items()}
        return vars(self) | {"groups": groups}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "TableSums":
        """What `to_dict` gave."""
        groups = {
            int(number): tuple(Sums.from_dict(each) for each in several) for number, several in stored["groups"].items()
        }
        return cls(**{**stored, "groups": groups})


@dataclass(frozen=True)
class TableDiagnosis:
    """How the model of measuring does on the whole table, and what the weights leave of it."""

    visits: int
    patients: int
    measured: int
    auc: float | None
    calibration: tuple[tuple[int, float, float], ...]  # visits, mean chance of being unmeasured, share that is
    effective_visits: float
    effective_patients: float
    outside: int


def table_sums(visits: VisitArrays, model: FrozenModel, settings: Settings) -> TableSums:
    """The sums of one batch of whole patients."""
    return sums_of_scored(visits, score_visits(visits, model, measured_too=True), model, settings)


def sums_of_scored(visits: VisitArrays, scored: Scored, model: FrozenModel, settings: Settings) -> TableSums:
    """The same of visits already scored, measured ones too."""
    late = late_visits(visits, settings)
    chance = scored.weight / (1.0 + scored.weight)
    bins = np.minimum((chance * BINS).astype(np.int64), BINS - 1)
    exact = ~np.isnan(visits.target_values) & scored.inside
    error = np.abs(scored.estimates.value - visits.target_values)[exact] / scored.estimates.spread[exact]
    whole = Ledger(_entries(visits, scored, settings, visits.target_judges & scored.inside, scored.weight), np.empty(0))
    return TableSums(
        groups={
            number: tuple(sums_of(each) for each in several)
            for number, several in _ledgers(visits, scored, model, settings).items()
        },
        totals=whole.totals,
        visits=len(visits),
        patients=int(visits.patient.max(initial=-1)) + 1,
        outside=int(np.sum(scored.candidate & ~scored.inside)),
        measured=_counts(bins[~scored.candidate]),
        unmeasured=_counts(bins[scored.candidate]),
        chance=_amounts(bins, chance, BINS),
        ratios=_amounts(np.searchsorted(RATIOS, error), (scored.weight + late)[exact], len(RATIOS) + 1),
    )


def late_visits(visits: VisitArrays, settings: Settings) -> BoolArray:
    return on_its_way(visits, visits.target) & (settings.claim == "later")


def _ledgers(
    visits: VisitArrays, scored: Scored, model: FrozenModel, settings: Settings
) -> dict[int, tuple[Ledger, ...]]:
    """Of every group of the fit, at its thresholds; under claim later also with late results counted once more."""
    weights, asked = [scored.weight], [scored.candidate]
    judged = visits.target_judges
    if settings.claim == "later":
        late = late_visits(visits, settings)
        weights, asked = [*weights, scored.weight + late], [*asked, scored.candidate | (judged & late)]
    found = {}
    for number in model.cutoffs:
        here, grid = scored.inside & (scored.group == number), model.reference.grid(number)
        found[number] = tuple(
            Ledger(_entries(visits, scored, settings, judged & here, weight), grid, scored.estimates.risk[there & here])
            for weight, there in zip(weights, asked, strict=True)
        )
    return found


def _entries(visits: VisitArrays, scored: Scored, settings: Settings, rows: BoolArray, weight: FloatArray) -> Entries:
    value, allowed = scored.estimates.value, settings.allowed_error
    risky = allowed.largest_loss(value, visits.target_values, visits.target_limits)
    return Entries(visits.patient[rows], scored.estimates.risk[rows], weight[rows], risky[rows])


def _counts(bins: np.ndarray) -> Whole:
    return [int(each) for each in np.bincount(bins, minlength=BINS).tolist()]


def _amounts(bins: np.ndarray, amount: FloatArray, count: int) -> Whole:
    whole = np.rint(amount * UNIT).astype(np.int64)
    total = np.zeros(count, np.int64)
    np.add.at(total, bins, whole)
    return [int(each) for each in total.tolist()]


def _added(one: Sequence[int], other: Sequence[int]) -> Whole:
    return [each + more for each, more in zip(one, other, strict=True)]


def summed(parts: Iterable[TableSums]) -> TableSums:
    """All batches together, in any order."""
    return reduce(TableSums.plus, parts)


def calibrated_anew(model: FrozenModel, settings: Settings, sums: TableSums) -> tuple[FrozenModel, TableDiagnosis]:
    """The model with the cut-offs that the whole table supports, and the diagnosis of its weights."""
    cutoffs, refused = find_cutoffs(sums.groups, rule_of(settings))
    ratios = np.cumsum([each / UNIT for each in sums.ratios])
    return replace(
        model,
        cutoffs=cutoffs,
        intervals=IntervalErrors(np.append(RATIOS, np.inf), ratios),
        reference=replace(model.reference, bet_calibration=_bet_calibration(sums.groups, cutoffs)),
        no_promise=refused,
        help="",
    ), diagnosis_of(sums)


def _bet_calibration(groups: Mapping[int, tuple[Sums, ...]], cutoffs: Mapping[int, Cutoff]) -> BetCalibration:
    """Of the visits at or below their group's cut-off, late results counted."""
    weight = square = visits = risky = risky_weight = largest = 0.0
    for number, several in groups.items():
        sums = several[-1]
        for place in np.flatnonzero(sums.thresholds == cutoffs[number].risk).tolist():
            weight += float(sums.visit("weight")[place])
            square += float(sums.visit("weight_square")[place])
            visits += float(sums.visit("visits")[place])
            risky += float(sums.visit("risky")[place])
            risky_weight += float(sums.visit("risky_weight")[place])
            largest = max(largest, float(sums.patient("largest_visit")[place]))
    return bets_from_sums(weight, square, visits, risky, largest, risky_weight / weight if weight > 0 else 0.0)


def diagnosis_of(sums: TableSums) -> TableDiagnosis:
    """Discrimination and calibration from counts by chance."""
    low, high = np.array(sums.measured, dtype=object), np.array(sums.unmeasured, dtype=object)
    below = np.cumsum(np.r_[[0], low])[:-1]
    pairs = int(low.sum()) * int(high.sum())
    twice = int((high * (2 * below + low)).sum())
    effective_size = effective_size_of(sums.totals)
    return TableDiagnosis(
        visits=sums.visits,
        patients=sums.patients,
        measured=int(low.sum()),
        auc=twice / (2 * pairs) if pairs else None,
        calibration=_calibration(low + high, high, sums.chance),
        effective_visits=effective_size.visits,
        effective_patients=effective_size.patients,
        outside=sums.outside,
    )


def _calibration(every: np.ndarray, unmeasured: np.ndarray, chance: Whole) -> tuple[tuple[int, float, float], ...]:
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


def calibrate_files(
    model: Path, visits: Path, out: Path, *, columns: Mapping[str, str] | None = None, force: bool = False
) -> TableDiagnosis:
    """Calibrate a saved model on a whole table and save it anew; nothing is learnt again.

    Parameters
    ----------
    model : Path
        The model folder, fitted to a sample of the table's patients.
    visits : Path
        All patients.
    out : Path
        Folder for the calibrated model.
    columns : mapping, optional
        Names in the file -> names the model knows.
    force : bool
        Replace an earlier model there.
    """
    saved, frozen = calibratable(model)
    arrays = read_new_visits(read_visits(visits, dict(columns or {})), saved.reading).arrays
    refuse_known_values(arrays, out, visits, model, model.resolve().parent)
    sums = summed(table_sums(part, frozen, saved.settings) for part in batches(arrays))
    return save_with(saved, frozen, sums, out, force=force)


def calibratable(model: Path) -> tuple[SavedModel, FrozenModel]:
    """A saved model and what it froze, unless its claim has no ledger or an alarm stands."""
    opened = open_model(model)
    if len(opened.labs) > 1:
        raise OptionError(f"{model.name!r} holds {len(opened.labs)} labs: calibrate the folder of one of them.")
    (lab,) = opened.labs.values()
    if lab.saved.settings.claim == "visits":
        raise GuaranteeRefused("the claim 'visits' speaks for the fitted table only: fit with another claim.")
    if lab.status.no_promise:
        raise GuaranteeRefused(f"nothing can be calibrated on a table: {lab.status.no_promise}.")
    frozen = lab.saved.frozen()
    if frozen.measuring is None or frozen.no_promise == SECOND_LOOK:
        raise GuaranteeRefused(f"nothing can be calibrated: {frozen.no_promise}.")
    return lab.saved, frozen


def save_with(saved: SavedModel, frozen: FrozenModel, sums: TableSums, out: Path, *, force: bool) -> TableDiagnosis:
    """Decide from the sums and write the model."""
    anew, diagnosis = calibrated_anew(frozen, saved.settings, sums)
    save_calibrated(out, saved, anew, asdict(diagnosis), force=force)
    return diagnosis


def batches(visits: VisitArrays) -> Iterator[VisitArrays]:
    """Whole patients, about so many visits at once."""
    starts = np.flatnonzero(np.r_[True, visits.patient[1:] != visits.patient[:-1]])
    group = starts // VISITS_AT_ONCE
    for number in np.unique(group):
        chosen = np.isin(visits.patient, visits.patient[starts[group == number]])
        yield visits.take(chosen)
