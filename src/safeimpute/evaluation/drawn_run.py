"""Draws of a run as typed data: how well they are calibrated, and how far off they may be before a conclusion turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypedDict

import numpy as np
import polars as pl

from safeimpute.evaluation.completions import Estimated, interval_of, mean_of, regressor_of, share_above, slope_of
from safeimpute.learning.roles import fold_of
from safeimpute.model.filling import FORMS, completed, draw_values, long_draws, predictive_of
from safeimpute.model.labs import FittedLab
from safeimpute.visits.arrays import FloatArray, IntArray
from safeimpute.visits.tables import to_polars

DELTAS = 9  # shifts tried where none is named
OPEN = "not settled"
Analysis = Callable[[FloatArray], Estimated]


@dataclass(frozen=True)
class DrawsAsked:
    """What `run` was asked for beside the release."""

    draws: int
    deltas: tuple[float, ...] = ()
    limit: float | None = None
    covariate: str = ""
    mice: bool = False  # also write the visits completed by every draw


class TippingRow(TypedDict):
    """What one shift of the unmeasured values gives."""

    delta: float
    estimate: float
    lower: float
    upper: float
    conclusion: str


class TippingQuantity(TypedDict):
    """One quantity over all shifts, what it is held against, and where its conclusion turns."""

    quantity: str
    reference: float | None  # a limit, or no association; None: there is nothing to conclude
    rows: list[TippingRow]
    turns_below: float | None  # the shift, at or below 0, at which the conclusion turns; None: none tried does
    turns_above: float | None
    words: str


class DrawsSummary(TypedDict):
    """What the draws rest on, and what they say."""

    draws: int
    seed: int
    missing: int
    outside: int  # missing values unlike any measured visit: their draws extrapolate
    coverage: dict[str, float]  # share of measured values inside central intervals made from other folds' errors
    correlation: dict[str, float]  # of two errors of a patient: steady, drifting, memory in days
    tipping: list[TippingQuantity]


@dataclass(frozen=True)
class DrawnRun:
    """Draws of one lab's missing values, as they are written."""

    target: str
    unit: str | None
    summary: DrawsSummary
    long: pl.DataFrame
    completed: dict[str, pl.DataFrame]  # by form, where they were asked for


def drawn_run(lab: FittedLab, table: Any, asked: DrawsAsked) -> DrawnRun:
    """The draws of a fitted lab, their summary, and the fitted table completed by them."""
    drawn, forms = draw_values(lab, asked.draws), FORMS if asked.mice else ()
    return DrawnRun(
        lab.settings.target,
        lab.unit.name,
        _summary(lab, drawn, asked),
        long_draws(lab, drawn),
        {form: completed(lab, to_polars(table), drawn, form) for form in forms},
    )


def _summary(lab: FittedLab, drawn: FloatArray, asked: DrawsAsked) -> DrawsSummary:
    predictive, settings = predictive_of(lab), lab.settings
    arrays, rows = lab.visits.arrays, lab.calibrated.candidates
    key = arrays.patient_key[np.searchsorted(arrays.patient, predictive.errors.patient)]
    fold = fold_of(key, settings.random_state, settings.best.folds)
    outside = np.zeros(len(rows), dtype=bool)
    for visits in lab.calibrated.outside.values():
        outside |= visits[rows]
    dependence, classes = predictive.dependence, bool(settings.allowed_error.levels)  # which no shift moves
    return {
        "draws": asked.draws,
        "seed": settings.random_state,
        "missing": len(rows),
        "outside": int(outside.sum()),
        "coverage": {} if classes else predictive.coverage(fold),  # classes have no intervals
        "correlation": {name: float(value) for name, value in vars(dependence).items()},
        "tipping": _tipping(lab, drawn, asked) if asked.deltas and len(rows) and not classes else [],
    }


def _tipping(lab: FittedLab, drawn: FloatArray, asked: DrawsAsked) -> list[TippingQuantity]:
    calibrated, settings = lab.calibrated, lab.settings
    arrays = lab.visits.arrays
    known = np.where(calibrated.question.candidate, np.nan, calibrated.truth)
    values = np.repeat(known[:, None], drawn.shape[1], axis=1)
    values[calibrated.candidates] = drawn
    numbers = ~arrays.target_censored  # known only by a limit, a visit has no number to analyse
    name, regressor = "", None
    if asked.covariate:
        name, regressor = regressor_of(arrays, asked.covariate, settings.target)
        regressor = regressor[numbers]
    standard, unit = predictive_of(lab).standard, lab.unit.name
    drawn_rows = np.flatnonzero(calibrated.question.candidate[numbers])
    filled = Drawn(values[numbers], drawn_rows, arrays.patient[numbers], standard.low, standard.high)
    suffix = {"%": " percentage points", None: ""}.get(unit, f" {unit}")
    return tipping_points(filled, asked.deltas, suffix, asked.limit, regressor, name)


def shifts_around(values: FloatArray, count: int = DELTAS) -> Sequence[float]:
    """Shifts from one standard deviation below to one above, rounded."""
    step = 2 * float(np.nanstd(values)) / (count - 1)
    digits = 1 - int(np.floor(np.log10(step))) if step > 0 else 0
    return [round(float(each), digits) for each in step * (np.arange(count) - count // 2)]


@dataclass(frozen=True)
class Drawn:
    """Completed visits: measured targets, and draws at the others."""

    values: FloatArray  # visits x draws
    candidates: IntArray  # rows that were drawn
    patient: IntArray
    low: float  # what the target can be
    high: float

    def shifted(self, delta: float) -> FloatArray:
        """The same with every drawn value moved, within what the target can be."""
        values = self.values.copy()
        values[self.candidates] = np.clip(values[self.candidates] + delta, self.low, self.high)
        return values


def tipping_points(
    drawn: Drawn,
    deltas: Sequence[float],
    unit: str,
    limit: float | None = None,
    regressor: FloatArray | None = None,
    regressor_name: str = "",
) -> list[TippingQuantity]:
    """The mean (against a limit), the share at or above the limit and the slope on a regressor, at every shift."""
    patient = drawn.patient
    analyses: list[tuple[str, float | None, Analysis]] = [("mean", limit, lambda values: mean_of(values, patient))]
    if limit is not None:
        analyses.append((f"share at or above {limit:g}", None, lambda values: share_above(values, limit, patient)))
    if regressor is not None:
        there = np.isfinite(regressor)
        x, who = regressor[there], patient[there]
        analyses.append((f"slope on {regressor_name}", 0.0, lambda values: slope_of(values[there], x, who)))
    steps = sorted({*deltas, 0.0})
    tables = {delta: drawn.shifted(delta) for delta in steps}
    return [_quantity(name, reference, analyse, tables, unit) for name, reference, analyse in analyses]


def _quantity(
    name: str, reference: float | None, analyse: Analysis, tables: dict[float, FloatArray], unit: str
) -> TippingQuantity:
    rows: list[TippingRow] = []
    for delta, values in tables.items():
        found = interval_of([analyse(np.ascontiguousarray(column)) for column in values.T])
        rows.append(
            {
                "delta": delta,
                "estimate": found.estimate,
                "lower": found.lower,
                "upper": found.upper,
                "conclusion": conclude(name, found.lower, found.upper, reference),
            }
        )
    below, above = turning(rows, reference, -1), turning(rows, reference, 1)
    words = _words(name, rows, reference, below, above, unit)
    return {
        "quantity": name,
        "reference": reference,
        "rows": rows,
        "turns_below": below,
        "turns_above": above,
        "words": words,
    }


def conclude(name: str, lower: float, upper: float, reference: float | None) -> str:
    if reference is None:
        return ""
    low, high = ("negative", "positive") if name.startswith("slope") else ("below", "above")
    if upper < reference:
        return low if reference == 0 else f"{low} {reference:g}"
    if lower > reference:
        return high if reference == 0 else f"{high} {reference:g}"
    return OPEN


def turning(rows: Sequence[TippingRow], reference: float | None, side: int) -> float | None:
    """The first shift away from 0, on one side, at which the conclusion is another; between steps, a straight line."""
    if reference is None:
        return None
    ordered = sorted((row for row in rows if side * row["delta"] >= 0), key=lambda row: abs(row["delta"]))
    for before, after in pairwise(ordered):
        if after["conclusion"] != before["conclusion"]:
            return _crossing(before, after, reference)
    return None


def _crossing(before: TippingRow, after: TippingRow, reference: float) -> float:
    """Where an end of the interval meets the reference."""
    found = []
    ends = [(before["lower"], after["lower"]), (before["upper"], after["upper"])]
    for start, stop in ends:
        if (start - reference) * (stop - reference) <= 0 and start != stop:
            share = (reference - start) / (stop - start)
            found.append(before["delta"] + share * (after["delta"] - before["delta"]))
    return min(found, key=abs) if found else after["delta"]


def _words(
    name: str, rows: Sequence[TippingRow], reference: float | None, below: float | None, above: float | None, unit: str
) -> str:
    now = next(row for row in rows if row["delta"] == 0)
    ends = f"{now['estimate']:.3g} ({now['lower']:.3g} to {now['upper']:.3g})"
    if reference is None:
        span = f"{min(r['estimate'] for r in rows):.3g} to {max(r['estimate'] for r in rows):.3g}"
        return f"The {name} is {ends} as drawn, and from {span} over the shifts tried."
    turns = [
        f"{abs(shift):.2g}{unit} {'lower' if shift < 0 else 'higher'}" for shift in (below, above) if shift is not None
    ]
    settled = now["conclusion"] != OPEN
    against = f" against {reference:g}" if reference else ""
    said = f"As drawn the {name} is {ends}: {now['conclusion'] if settled else OPEN + against}."
    if not turns:
        return f"{said} No shift tried changes that."
    verb = "That turns" if settled else "It would be settled"
    return f"{said} {verb} where unmeasured values are {' or '.join(turns)} than drawn."
