"""The tables a fit gives: imputations, what carried them, and the visits with values filled in.

The fitted table is filled in by its release or by draws, any other by the frozen model.
"""

from typing import Literal

import numpy as np
import polars as pl

from safeimpute.draws.drawing import draws_of, learn_predictive
from safeimpute.draws.predictive import Predictive
from safeimpute.errors import GuaranteeRefused, NotFittedError, OptionError, VisitsError
from safeimpute.learning.protocol import Frozen
from safeimpute.machine.resources import resolve_device
from safeimpute.model.frozen import let_through, score_visits
from safeimpute.model.labs import FittedLab, Labs, decided
from safeimpute.model.scorer import LabScorer
from safeimpute.settings import Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray
from safeimpute.visits.checks import numbers
from safeimpute.visits.columns import ColumnChoice, coded, in_words
from safeimpute.visits.imputations import BAND, decimals_of, imputation_table, rounded
from safeimpute.visits.limits import with_limits
from safeimpute.visits.new_visits import read_new_visits
from safeimpute.visits.tables import fill_in
from safeimpute.visits.units import require_same_units
from safeimpute.visits.visits import row_keys

MOST_DRAWS = 1_000
Form = Literal["long", "wide"]
Fill = Literal["released", "all"]
FILLS: tuple[Fill, ...] = ("released", "all")
FORMS: tuple[Form, ...] = ("long", "wide")
IMP, ID = ".imp", ".id"  # what R's as.mids looks for


def imputed(lab: FittedLab) -> pl.DataFrame:
    """The imputation table of the fitted visits."""
    calibrated, decision = lab.calibrated, decided(lab)
    rows, estimates = calibrated.candidates, calibrated.estimates
    return imputation_table(
        lab.visits.subject[rows],
        lab.visits.time[rows],
        lab.settings.target,
        lab.unit.name,
        estimates.value[rows],
        calibrated.half_widths(lab.settings.interval),
        estimates.risk[rows],
        decision.cutoff,
        decision.p_value,
        decision.released,
        decision.reason,
        lab.settings.allowed_error,
        None if estimates.above is None else estimates.above[rows],
    )


def explained(lab: FittedLab) -> pl.DataFrame:
    """The visits that carried each imputation, with weights, values, gaps and distances."""
    support = None if lab.fitted is None else lab.fitted.explain(lab.calibrated.candidates)
    if support is None:
        raise NotFittedError("only a freshly fitted preset 'best' can explain its imputations: call fit first.")
    return pl.DataFrame(
        {
            "subject_id": lab.visits.subject[support.visit],
            "time": lab.visits.time[support.visit],
            "carried_by": np.where(support.own, "own visit", "another patient's visit"),
            "weight": support.weight,
            "value": support.target,
            "gap_days": pl.Series(support.gap_days).fill_nan(None),
            "value_distance": pl.Series(support.value_distance).fill_nan(None),
            "trend_distance": pl.Series(support.trend_distance).fill_nan(None),
        }
    )


def columns_added(settings: Settings) -> list[str]:
    """What filling in a lab adds to a table's columns."""
    target = settings.target
    return [f"{target}_released", *([f"{target}_not_promised"] if _beyond_claim(settings) else [])]


def _beyond_claim(settings: Settings) -> bool:
    """Whether new visits can be imputed that the claim does not cover; preset `paper` imputes only its own."""
    return settings.claim == "visits" and settings.preset == "best"


def fill_labs(labs: Labs, frame: pl.DataFrame, fill: Fill = "released") -> pl.DataFrame:
    """The rows of the fitted table with released values filled in, or all, and for each lab columns that say which."""
    for lab in labs.values():
        rows, asked = lab.visits.row_visit, lab.calibrated.candidates
        released = np.zeros(len(lab.visits), dtype=bool)
        released[asked[decided(lab).released]] = True
        value = np.full(len(lab.visits), np.nan)
        value[asked] = lab.calibrated.estimates.value[asked]
        frame = _flagged(frame, lab.settings, value[rows], released[rows], np.zeros(len(rows), dtype=bool), fill)
    return frame


def filled_new(scorer: LabScorer, frame: pl.DataFrame, into: pl.DataFrame, fill: Fill = "released") -> pl.DataFrame:
    """Rows of another table filled in by the frozen model, where other labs may be already."""
    settings, reading, model = scorer.settings, scorer.reading, scorer.tonight().model
    new = read_new_visits(frame, reading)
    require_same_units(settings, new.arrays, scorer.typical())
    scored = score_visits(new.arrays, model)
    unsure = _beyond_claim(settings)
    through = let_through(scored, new.arrays, model) if unsure else scored.released
    value = np.where(scored.candidate, scored.estimates.value, np.nan)
    rows = row_keys(frame, ColumnChoice(reading.target, reading.subject, reading.time)).visit
    return _flagged(into, settings, value[rows], through[rows], (through & unsure)[rows], fill)


def _flagged(
    frame: pl.DataFrame, settings: Settings, value: FloatArray, released: BoolArray, unsure: BoolArray, fill: Fill
) -> pl.DataFrame:
    if fill not in FILLS:
        raise OptionError(f"fill {fill!r} is not known: released, or all.")
    words = settings.allowed_error.words
    if fill == "all":
        everywhere = np.where(np.isfinite(value), value, np.nan)
        return fill_in(frame, settings.target, everywhere, released & ~unsure, words)
    marks = columns_added(settings)[1:]
    filled = fill_in(frame, settings.target, np.where(released, value, np.nan), words=words)
    return filled.with_columns(pl.Series(name, unsure) for name in marks)


def marks_in(filled: pl.DataFrame, lab: str) -> tuple[pl.Expr, pl.Expr]:
    """Where a filled table's lab was imputed, and where that is promised."""
    released, promised = pl.col(f"{lab}_released"), pl.col(f"{lab}__promised")
    return (released, released) if f"{lab}_released" in filled.columns else (~pl.col(f"{lab}__measured"), promised)


def as_reported(filled: pl.DataFrame, labs: Labs) -> pl.DataFrame:
    """A filled table whose imputed values have the digits the lab is reported with; measured ones stay."""
    for name, lab in labs.items():
        imputed, _ = marks_in(filled, name)
        value = rounded(pl.col(name).cast(pl.Float64, strict=False), decimals_of(name, lab.unit.name))
        value = value.cast(filled.schema[name])
        filled = filled.with_columns(pl.when(imputed & value.is_not_null()).then(value).otherwise(name).alias(name))
    return filled


def draw_values(lab: FittedLab, m: int, delta: float = 0.0) -> FloatArray:
    """Draws as an array: missing values in the order of `impute`, by draws; `delta` is added to each."""
    if not 1 <= m <= MOST_DRAWS:
        raise OptionError(f"{m:,} draws cannot be made: ask for 1 to {MOST_DRAWS:,}. Twenty are usual.")
    if delta and lab.settings.allowed_error.levels:
        raise OptionError("delta shifts amounts, and the target is a class. Draw it without delta.")
    drawn = draws_of(predictive_of(lab), m, lab.settings.random_state, delta)
    return lab.settings.allowed_error.settled(drawn)


def predictive_of(lab: FittedLab) -> Predictive:
    """What the draws come from, learnt once."""
    if lab.predictive is None:
        settings = lab.settings
        lab.predictive = learn_predictive(
            lab.calibrated, _system(lab), lab.unit.plausible, settings.random_state, resolve_device(settings.device)
        )
    return lab.predictive


def long_draws(lab: FittedLab, drawn: FloatArray) -> pl.DataFrame:
    """Draws as a table: one row for each missing value and draw."""
    rows, visits = lab.calibrated.candidates, lab.visits
    table = draws_table(visits.subject[rows], visits.time[rows], lab.settings.target, lab.unit.name, drawn)
    if not (words := lab.settings.allowed_error.words):
        return table
    return in_words(table.with_columns(pl.col("value").alias(BAND)), [BAND], words)


def completed(lab: FittedLab, frame: pl.DataFrame, drawn: FloatArray, form: Form) -> pl.DataFrame:
    """The fitted table completed by every draw, for R's mice (long) or beside one another (wide).

    A result beyond a limit was not missing: its cell stays empty, and the limit stands in LAB__low or LAB__high.
    """
    if form not in FORMS:
        raise OptionError(f"form {form!r} is not known: long, or wide.")
    target, words = lab.settings.target, lab.settings.allowed_error.words
    frame = with_limits(coded(frame, target, words), [target])
    per_row = spread_over_rows(drawn, lab.calibrated.candidates, lab.visits.row_visit)
    measured = pl.Series(numbers(frame[target], "target")).fill_nan(None)
    make = completed_long if form == "long" else completed_wide
    names = [target] if form == "long" else [target, *(f"{target}_{k}" for k in range(1, drawn.shape[1] + 1))]
    return in_words(make(frame, target, measured, per_row), names, words)


def _system(lab: FittedLab) -> Frozen | None:
    """What can impute visits once more, with more of them hidden; None for a preset that cannot."""
    if lab.fitted is not None:
        return lab.fitted.frozen
    try:
        return None if lab.opened is None else lab.opened.saved.frozen().system
    except GuaranteeRefused:
        return None


def draws_table(subject: pl.Series, time: pl.Series, lab: str, unit: str | None, drawn: FloatArray) -> pl.DataFrame:
    """The long table: draw 1 of every missing value, then draw 2, and so on; `drawn` is values x draws."""
    values, draws = drawn.shape
    rows = pl.Series(np.tile(np.arange(values), draws))
    return pl.DataFrame(
        {
            "subject_id": subject.gather(rows),
            "time": time.gather(rows),
            "lab": pl.repeat(lab, values * draws, dtype=pl.String, eager=True),
            "unit": pl.repeat(unit, values * draws, dtype=pl.String, eager=True),
            "draw": pl.Series(np.repeat(np.arange(1, draws + 1), values), dtype=pl.Int32),
            "value": drawn.T.ravel(),
        }
    )


def completed_long(frame: pl.DataFrame, target: str, measured: pl.Series, row_draws: FloatArray) -> pl.DataFrame:
    """The table as it came (`.imp` 0) and completed by every draw below it, as R's `as.mids` expects.

    `row_draws` is rows x draws, NaN where a row needs none; `measured` holds the target as numbers.
    """
    _require_free(frame, (IMP, ID))
    parts = [measured, *(measured.fill_null(_column(each)) for each in row_draws.T)]
    number = pl.Series(ID, np.arange(1, len(frame) + 1), dtype=pl.Int64)
    return pl.concat(
        frame.with_columns(part.alias(target)).select(
            pl.lit(place, pl.Int32).alias(IMP), number, pl.all().exclude(IMP, ID)
        )
        for place, part in enumerate(parts)
    )


def completed_wide(frame: pl.DataFrame, target: str, measured: pl.Series, row_draws: FloatArray) -> pl.DataFrame:
    """The table with one more column per draw, `TARGET_1` and so on, in which the target is complete."""
    names = [f"{target}_{number}" for number in range(1, row_draws.shape[1] + 1)]
    _require_free(frame, tuple(names))
    filled = [measured.fill_null(_column(each)).alias(name) for name, each in zip(names, row_draws.T, strict=True)]
    return frame.with_columns(filled)


def spread_over_rows(drawn: FloatArray, candidates: IntArray, row_visit: IntArray) -> FloatArray:
    """Draws of candidates at every row of the user's table; NaN at rows of other visits."""
    place = np.full(int(row_visit.max(initial=-1)) + 1, -1)
    place[candidates] = np.arange(len(candidates))
    at = place[row_visit]
    return np.where((at >= 0)[:, None], drawn[at], np.nan) if len(drawn) else np.full((len(at), drawn.shape[1]), np.nan)


def _column(values: FloatArray) -> pl.Series:
    return pl.Series(np.ascontiguousarray(values)).fill_nan(None)


def _require_free(frame: pl.DataFrame, names: tuple[str, ...]) -> None:
    taken = [name for name in names if name in frame.columns]
    if taken:
        raise VisitsError(f"the table already has a column {taken[0]!r}, which the draws need. Rename it.")
