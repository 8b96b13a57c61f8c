"""Draws of every missing value: the predictive distribution put together from a calibrated fit (arrays)."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from safeimpute.draws.predictive import (
    Classes,
    Dependence,
    Errors,
    Predictive,
    Said,
    Standard,
    band_edges,
    chances,
    fit_dependence,
    hide_together,
    learn_law,
)
from safeimpute.learning.protocol import Estimates, Frozen
from safeimpute.learning.scaling import fit_scaler
from safeimpute.selection.calibrated import Calibrated, Range
from safeimpute.visits.arrays import BoolArray, FloatArray, Stream, VisitArrays, first_visit, generator

MOST_ERRORS = 200_000  # more measured visits than this tell nothing more; whole patients are drawn
SMALLEST_SPREAD = 0.2  # of the median: no imputation is surer than that
FARTHEST = 4.0  # standard units beyond which a column says no more
NOT_A_DRAW = 2**31  # parts of the stream from here on belong to no draw's number


@dataclass(frozen=True)
class Reader:
    """How imputations and what the table shows beside them are read into standard units."""

    standard: Standard
    centre: FloatArray  # of each column shown
    scale: FloatArray  # infinite where a column does not vary
    least: float  # spread, in standard units

    def said(self, visits: VisitArrays, estimates: Estimates, rows: BoolArray) -> Said:
        """What is said about the visits at some rows."""
        value = estimates.value[rows]
        z, spread = self.standard.of(value), self.standard.spread(value, estimates.spread[rows])
        table = (shown(visits, rows, z) - self.centre) / self.scale
        table = np.clip(np.nan_to_num(table[:, np.isfinite(self.scale)]), -FARTHEST, FARTHEST)
        return Said(z, np.maximum(spread, self.least), np.column_stack([np.ones(len(z)), table]))


def shown(visits: VisitArrays, rows: BoolArray, z: FloatArray) -> FloatArray:
    """What the table shows about visits: the imputation, attributes, labs and which are missing, times."""
    labs = visits.labs[rows][:, visits.other_labs]
    since = (visits.time - visits.time[first_visit(visits.patient)])[rows]
    return np.column_stack([z, visits.attributes[rows], labs, np.isnan(labs), since, visits.time[rows]])


def learn_reader(
    visits: VisitArrays, estimates: Estimates, truth: FloatArray, rows: BoolArray, plausible: Range | None
) -> Reader:
    """Standard units from the measured visits at `rows`."""
    measured = truth[rows]
    scaler = fit_scaler(measured[:, None], ("",), np.ones(len(measured), dtype=bool))
    low, high = plausible or (0.0 if measured.min() >= 0 else -np.inf, np.inf)
    standard = Standard(scaler, low, high)
    value = estimates.value[rows]
    table = shown(visits, rows, standard.of(value))
    count = np.maximum(np.sum(~np.isnan(table), axis=0), 1)
    centre = np.nansum(table, axis=0) / count
    scale = np.sqrt(np.nansum((table - centre) ** 2, axis=0) / count)
    scale = np.where(scale > 1e-9 * (1 + np.abs(centre)), scale, np.inf)
    least = SMALLEST_SPREAD * float(np.median(standard.spread(value, estimates.spread[rows])))
    return Reader(standard, centre, scale, max(least, 1e-9))


def learn_predictive(
    calibrated: Calibrated, frozen: Frozen | None, plausible: Range | None, seed: int, device: str = "cpu"
) -> Predictive:
    """The predictive distribution of every candidate of a fit.

    Where measured visits were set aside (claim `visits`) their errors also tell how errors of a patient hang together:
    they were hidden from one another. Elsewhere the frozen system imputes some of them once more, hidden together.
    """
    question, estimates = calibrated.question, calibrated.estimates
    visits, candidate = question.visits, question.candidate
    rows = _measured(calibrated, generator(seed, Stream.DRAWS, NOT_A_DRAW))
    reader = learn_reader(visits, estimates, calibrated.truth, rows, plausible)
    errors = _errors(reader, visits, estimates, calibrated.truth, calibrated.weight, rows)
    own = np.bincount(visits.patient[question.visible], minlength=int(visits.patient.max()) + 1) > 0
    if frozen is None or not (question.judged & question.visible).any():
        together = errors, ~own[visits.patient[rows]], visits.time[rows]
    else:
        rng = generator(seed, Stream.DRAWS, NOT_A_DRAW + 1)
        together = _hidden_together(calibrated, frozen, reader, rng, device)
    alone, met = _dependences(errors, *together)
    return Predictive(
        reader.standard,
        errors,
        reader.said(visits, estimates, candidate),
        visits.patient[candidate],
        visits.time[candidate],
        ~own[visits.patient[candidate]],
        met,
        alone,
        _classes(calibrated, rows),
    )


def _classes(calibrated: Calibrated, rows: BoolArray) -> Classes | None:
    """Where the target is a class and its chances were learnt."""
    estimates, tolerance = calibrated.estimates, calibrated.estimates.learnt_for
    if tolerance is None or not tolerance.levels or estimates.above is None:
        return None
    band = tolerance.band(calibrated.truth[rows])
    happened = band[:, None] > np.arange(len(tolerance.limits))
    asked, known = estimates.above[calibrated.question.candidate], estimates.above[rows]
    return Classes(np.array(tolerance.levels), asked, known, happened.astype(np.float64))


def draws_of(predictive: Predictive, draws: int, seed: int, delta: float = 0.0) -> FloatArray:
    """Candidates x draws, in the target's unit; `delta` is added to every one, then the possible range kept.

    The first of many draws are those of few.
    """
    drawn = np.empty((len(predictive.patient), draws))
    for number in range(draws):
        drawn[:, number] = predictive.draw(generator(seed, Stream.DRAWS, number))
    if delta:
        drawn = np.clip(drawn + delta, predictive.standard.low, predictive.standard.high)
    return drawn


def _measured(calibrated: Calibrated, rng: np.random.Generator) -> BoolArray:
    """Judged visits inside the promise (all, where none is); of very many, those of patients drawn at random."""
    judged = calibrated.question.judged & np.isfinite(calibrated.estimates.value)
    inside = judged & np.isfinite(calibrated.weight)
    for outside in calibrated.outside.values():
        inside &= ~outside
    rows = inside if inside.any() else judged
    if int(rows.sum()) <= MOST_ERRORS:
        return rows
    patient = calibrated.question.visits.patient
    drawn: BoolArray = rng.random(int(patient.max()) + 1) < MOST_ERRORS / rows.sum()
    return rows & drawn[patient]


def _errors(
    reader: Reader, visits: VisitArrays, estimates: Estimates, truth: FloatArray, weight: FloatArray, rows: BoolArray
) -> Errors:
    said = reader.said(visits, estimates, rows)
    return Errors(said, reader.standard.of(truth[rows]), weight[rows], visits.patient[rows])


def _hidden_together(
    calibrated: Calibrated, frozen: Frozen, reader: Reader, rng: np.random.Generator, device: str
) -> tuple[Errors, BoolArray, FloatArray]:
    """Errors of visits hidden together, which of them are of patients with nothing left visible, and their times."""
    some, hidden, truth = hide_together(calibrated.question.visits, rng)
    estimates = frozen.estimate(some, device)
    errors = _errors(reader, some, estimates, truth, np.ones(len(some)), hidden)
    visible = np.bincount(some.patient[~np.isnan(some.target_values)], minlength=int(some.patient.max(initial=0)) + 1)
    return errors, visible[some.patient[hidden]] == 0, some.time[hidden]


def _dependences(learnt: Errors, together: Errors, alone: BoolArray, time: FloatArray) -> tuple[Dependence, Dependence]:
    """How errors hang together in patients with no visible target, and in the others.

    On normal scores by rank within each kind: only the order of the errors counts.
    """
    law = learn_law(learnt, band_edges(learnt))
    found = []
    for rows in (alone, ~alone):
        chance = chances(law, together.at(rows))
        rank = np.argsort(np.argsort(chance, kind="stable"), kind="stable")
        score = ndtri((rank + 0.5) / max(len(rank), 1))
        found.append(fit_dependence(score, together.patient[rows], time[rows]))
    return found[0], found[1]
