"""What a run may come to, guessed in seconds: main effects for who gets measured, a linear imputer, the real ledger.

Nothing of it is used by a run. Sizes read no error; the guess of a release reads errors of the linear imputer at
measured visits, by patients it was not fitted to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safeimpute.evaluation.completions import plain_values
from safeimpute.learning.roles import fold_of
from safeimpute.selection.cutoff import Rule, find_cutoff
from safeimpute.selection.enough import EffectiveSize
from safeimpute.selection.ledger import Entries, Ledger, risk_grid
from safeimpute.selection.measuring.features import MeasuringTable, measuring_table
from safeimpute.selection.measuring.model import LARGEST_ODDS, MOST_ROWS, RIDGE, Logistic, fit_logistic
from safeimpute.tolerance import Risky, Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, Stream, VisitArrays, generator

MOST_VISITS = 60_000  # looked at; of larger tables some patients stand for all
HALVES = (0, 1)


@dataclass(frozen=True)
class Rough:
    """Visits weighed and imputed in a hurry, each half of the patients by the other."""

    visits: VisitArrays
    table: MeasuringTable
    half: IntArray
    odds: FloatArray
    outside: BoolArray  # odds too large for any promise
    value: FloatArray
    share: float  # of the table's patients that were looked at
    seed: int

    @property
    def measured(self) -> BoolArray:
        return ~np.isnan(self.visits.target_values)

    @property
    def effective_size(self) -> EffectiveSize:
        """How many equally weighted visits and patients the table's measured ones are worth."""
        nobody = np.zeros(len(self.visits), dtype=bool)
        found = Ledger(self._entries(np.zeros(len(nobody)), nobody), np.empty(0)).effective_size
        return EffectiveSize(found.visits / self.share, found.patients / self.share)

    @property
    def out_of_scope(self) -> float:
        """Share of the unmeasured visits that no promise could cover."""
        unmeasured = ~self.measured
        return float(self.outside[unmeasured].mean()) if unmeasured.any() else 0.0

    def released(self, tolerance: Tolerance, levels: Sequence[float]) -> list[float]:
        """Share of the unmeasured visits that the linear imputer would release at each level."""
        risky = tolerance.loss(self.value, self.visits.target_values)
        risk = self._risk(risky)
        asked = ~self.measured
        inside = asked & ~self.outside
        ledger = Ledger(self._entries(risk, risky), risk_grid(risk[~self.outside]), risk[inside])
        cutoffs = [find_cutoff(ledger, Rule("unmeasured", level)).risk for level in levels]
        return [0.0 if each is None else float(np.sum(risk[inside] <= each) / max(asked.sum(), 1)) for each in cutoffs]

    def risky_share(self, tolerance: Tolerance) -> float:
        """Share of the measured visits at which the linear imputer is off by the tolerance or more."""
        return float(tolerance.risky(self.value, self.visits.target_values)[self.measured].mean())

    def _entries(self, risk: FloatArray, risky: Risky) -> Entries:
        rows = self.measured & ~self.outside
        return Entries(self.visits.patient[rows], risk[rows], self.odds[rows], risky[rows])

    def _risk(self, risky: Risky) -> FloatArray:
        risk = np.zeros(len(risky))
        for here in HALVES:
            rows = np.flatnonzero(self.measured & (self.half != here))
            model = fit_logistic(self.table, risky.astype(np.float64), rows, generator(self.seed, Stream.ROUGH))
            risk[self.half == here] = model.logit(self.table.matrix[self.half == here])
        return 1.0 / (1.0 + np.exp(-np.clip(risk, -30.0, 30.0)))


def look_roughly(visits: VisitArrays, seed: int, *, past_only: bool, calendar: bool) -> Rough | None:
    """Weigh and impute in a hurry; None where one half of the patients has nothing to learn from."""
    few, share = _some_patients(visits, seed)
    table = measuring_table(few, past_only=past_only, calendar=calendar)
    half, measured = fold_of(few.patient_key, seed, 2), ~np.isnan(few.target_values)
    if any(measured[half == here].sum() < 2 or measured[half == here].all() for here in HALVES):
        return None
    odds, linear, outside = np.empty(len(few)), np.empty(len(few)), np.empty(len(few), dtype=bool)
    for here in HALVES:
        there, rows = np.flatnonzero(half != here), half == here
        model = fit_logistic(table, (~measured).astype(np.float64), there, generator(seed, Stream.ROUGH))
        odds[rows] = np.exp(np.clip(model.logit(table.matrix[rows]), -20.0, 20.0))
        overall = (~measured[there]).sum() / measured[there].sum()
        outside[rows] = odds[rows] > LARGEST_ODDS * overall
        linear[rows] = _ridge(model, table, few.target_values, there[measured[there]], rows)
    value = _better(few, linear, past_only=past_only)
    return Rough(few, table, half, odds, outside, value, share, seed)


def _some_patients(visits: VisitArrays, seed: int) -> tuple[VisitArrays, float]:
    if len(visits) <= MOST_VISITS:
        return visits, 1.0
    parts = int(np.ceil(len(visits) / MOST_VISITS))
    return visits.take(fold_of(visits.patient_key, seed + 1, parts) == 0), 1.0 / parts


def _ridge(model: Logistic, table: MeasuringTable, target: FloatArray, rows: IntArray, asked: BoolArray) -> FloatArray:
    """A linear imputation from the regressors of the model of measuring, learnt at some rows."""
    rows = rows[:: max(len(rows) // MOST_ROWS, 1)]
    known = model.regressors(table.matrix[rows])
    centre = target[rows].mean()
    penalty = RIDGE * np.eye(known.shape[1])
    found = np.linalg.solve(known.T @ known + penalty, known.T @ (target[rows] - centre))
    return np.asarray(model.regressors(table.matrix[asked]) @ found + centre, dtype=np.float64)


def _better(visits: VisitArrays, linear: FloatArray, *, past_only: bool) -> FloatArray:
    """The linear imputation, or a plain way of filling in where that is closer at measured visits."""
    target = visits.target_values
    ways = {"linear": linear, **plain_values(visits, past_only=past_only)}
    return min(ways.values(), key=lambda value: float(np.nanmean(np.abs(value - target))))
