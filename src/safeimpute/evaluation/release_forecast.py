"""What a run may come to, guessed in seconds: main effects for who gets measured, the joint course, the real rule.

Nothing of it is used by a run, which adds boosted trees and a learned risk. Sizes read no error; the guess of a release
reads the course's errors at measured visits, by patients it was not fitted to.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from safeimpute.learning.best.evidence import learn_source, read_evidence
from safeimpute.learning.roles import fold_of
from safeimpute.selection.cutoff import Rule, find_cutoff
from safeimpute.selection.enough import EffectiveSize
from safeimpute.selection.ledger import Entries, Ledger, risk_grid
from safeimpute.selection.measuring.features import measuring_table
from safeimpute.selection.measuring.model import LARGEST_ODDS, fit_logistic
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Risky, Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, Stream, VisitArrays, generator

MOST_VISITS = 20_000  # looked at; of larger tables some patients stand for all
PANEL = 100  # analogous visits are not asked
HALVES = (0, 1)
AROUND = (0.75, 1.25)  # times the level: what luck makes of a release is about as much


@dataclass(frozen=True)
class Rough:
    """Visits weighed and imputed in a hurry, each half of the patients by the other."""

    visits: VisitArrays
    odds: FloatArray
    outside: BoolArray  # odds too large for any promise
    value: FloatArray
    spread: FloatArray  # standard deviation of its error, as the course has it
    share: float  # of the table's patients that were looked at

    @property
    def measured(self) -> BoolArray:
        return ~np.isnan(self.visits.target_values)

    @property
    def judged(self) -> BoolArray:
        """Those and results known by a limit, as a run judges them."""
        return self.visits.target_judges

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

    def released(self, tolerance: Tolerance, level: float) -> tuple[float, float]:
        """Between what shares of the unmeasured visits a run may release: the course's, a little off the level."""
        loss = tolerance.largest_loss(self.value, self.visits.target_values, self.visits.target_limits)
        if tolerance.limits or tolerance.by_size:
            risk = tolerance.chance(self.value, 0.8 * self.spread)  # of a normal error this is the mean size
        else:
            risk = 2.0 * ndtr(-tolerance.allowed(self.value) / self.spread)
        asked = np.isnan(self.visits.target_values) & ~self.visits.target_censored
        inside = asked & ~self.outside
        entries = self._entries(risk, loss)
        ledger = Ledger(entries, risk_grid(risk[~self.outside]), risk[inside])
        cutoffs = [find_cutoff(ledger, Rule("unmeasured", off * level)).risk for off in AROUND]
        least, most = (0 if each is None else np.sum(risk[inside] <= each) for each in cutoffs)
        return round(float(least / max(asked.sum(), 1)), 2), round(float(most / max(asked.sum(), 1)), 2)

    def risky_share(self, tolerance: Tolerance) -> float:
        """Share of the measured visits at which the linear imputer is off by the tolerance or more."""
        return float(tolerance.risky(self.value, self.visits.target_values)[self.measured].mean())

    def _entries(self, risk: FloatArray, risky: Risky) -> Entries:
        rows = self.judged & ~self.outside
        return Entries(self.visits.patient[rows], risk[rows], self.odds[rows], risky[rows])


def look_roughly(visits: VisitArrays, seed: int, *, past_only: bool, calendar: bool) -> Rough | None:
    """Weigh and impute in a hurry; None where one half of the patients has nothing to learn from."""
    few, share = _some_patients(visits, seed)
    table = measuring_table(few, past_only=past_only, calendar=calendar)
    half, measured = fold_of(few.patient_key, seed, 2), ~np.isnan(few.target_values)
    missing = ~measured & ~few.target_censored
    if any(measured[half == here].sum() < 2 or measured[half == here].all() for here in HALVES):
        return None
    odds, value, spread = (np.empty(len(few)) for _ in range(3))
    outside = np.empty(len(few), dtype=bool)
    for here in HALVES:
        there, rows = np.flatnonzero(half != here), half == here
        model = fit_logistic(table, missing.astype(np.float64), there, generator(seed, Stream.ROUGH))
        odds[rows] = np.exp(np.clip(model.logit(table.matrix[rows]), -20.0, 20.0))
        overall = missing[there].sum() / (~missing[there]).sum()
        outside[rows] = odds[rows] > LARGEST_ODDS * overall
        value[rows], spread[rows] = _by_course(few, rows, seed, past_only=past_only)
    return Rough(few, odds, outside, value, spread, share)


def _some_patients(visits: VisitArrays, seed: int) -> tuple[VisitArrays, float]:
    if len(visits) <= MOST_VISITS:
        return visits, 1.0
    parts = int(np.ceil(len(visits) / MOST_VISITS))
    return visits.take(fold_of(visits.patient_key, seed + 1, parts) == 0), 1.0 / parts


def _by_course(visits: VisitArrays, rows: BoolArray, seed: int, *, past_only: bool) -> tuple[FloatArray, FloatArray]:
    """Values of some patients by the joint course of the others, from what is visible beside each; and their spread."""
    rng, settings = generator(seed, Stream.ROUGH), BestSettings(panel_visits=PANEL, analogues=1)
    source = learn_source(visits.take(~rows), settings, rng, past_only=past_only)
    course = read_evidence(visits.take(rows), source, np.ones(int(rows.sum()), dtype=bool), settings.block_visits).joint
    value, above, below = (
        source.units.labs.in_unit(course[:, 0] + side * course[:, 1], source.target) for side in (0.0, 1.0, -1.0)
    )
    return value, np.maximum((above - below) / 2.0, 1e-12)
