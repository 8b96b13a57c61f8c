"""What another tool filled in, laid beside the hidden visits: every way it can fail to fit has its own words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from safeimpute.errors import ImputedError
from safeimpute.foreign.hidden import Hidden
from safeimpute.learning.roles import Role
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.checks import numbers, require_columns
from safeimpute.visits.dates import days
from safeimpute.visits.limits import with_limits
from safeimpute.visits.tables import to_polars
from safeimpute.visits.visits import subject_names

SAME = 1e-4  # a visible value may come back changed by this share of itself: another tool's rounding
SCALE = 3.0  # a median further off than this factor is another unit
COPIED = 0.9  # so many hidden values met exactly cannot be imputations


@dataclass(frozen=True)
class Filled:
    """Per visit the value another tool gave (NaN where it gave none), and further columns of its own."""

    value: FloatArray
    columns: dict[str, FloatArray]


def read_filled(hidden: Hidden, imputed: Any, columns: Sequence[str] = ()) -> Filled:
    """The filled-in table in the order of the hidden visits, or an error that names what does not fit."""
    frame, choice = to_polars(imputed), hidden.facts.choice
    require_columns(frame, [choice.subject, choice.time, choice.target], "needed in the filled-in table")
    require_columns(frame, columns, "named as a column of the filled-in table")
    visit = _visit_of(hidden, frame)
    read = {name: _per_visit(frame[name], visit, len(hidden.prepared)) for name in (choice.target, *columns)}
    value = read.pop(choice.target)
    asked = ~np.isin(hidden.roles, (Role.TRAINING, Role.CENSORED))
    _require_rows(hidden, visit, asked)
    _refuse_changed(hidden, value, ~asked)
    if not np.isfinite(value[asked]).any():
        raise ImputedError(
            f"column {choice.target!r} of the filled-in table is as empty as it was: nothing was filled in."
        )
    known = hidden.validation_target
    both = np.isfinite(known) & np.isfinite(value)
    _refuse_answers(value[both], known[both], choice.target)
    _refuse_other_unit(value[both], known[both], choice.target, hidden.facts.unit)
    return Filled(value, read)


def _visit_of(hidden: Hidden, frame: pl.DataFrame) -> IntArray:
    """The visit of each row."""
    choice, prepared = hidden.facts.choice, hidden.prepared
    kept = pl.DataFrame(
        {
            "subject": subject_names(prepared.subject),
            "time": prepared.arrays.time.round(6),
            "visit": np.arange(len(prepared)),
        }
    )
    given = pl.DataFrame({"subject": subject_names(frame[choice.subject]), "time": days(frame[choice.time]).round(6)})
    found = given.join(kept, on=["subject", "time"], how="left", maintain_order="left")["visit"]
    if strange := found.null_count():
        raise ImputedError(
            f"{strange:,} of {len(found):,} rows of the filled-in table belong to no visit that hide wrote. Keep "
            f"{choice.subject!r} and {choice.time!r} as they are in hide's table."
        )
    return found.to_numpy()


def _per_visit(column: pl.Series, visit: IntArray, visits: int) -> FloatArray:
    """The mean over a visit's rows; text such as R's NA counts as empty."""
    if column.dtype == pl.String:
        column = column.str.strip_chars().replace({"NA": None, "NaN": None, "": None})
    given = numbers(with_limits(column.to_frame(), [column.name])[column.name], "filled in")
    there = ~np.isnan(given)
    count = np.bincount(visit[there], minlength=visits)
    total = np.bincount(visit[there], weights=given[there], minlength=visits)
    mean: FloatArray = np.divide(total, count, out=np.full(visits, np.nan), where=count > 0)
    return mean


def _require_rows(hidden: Hidden, visit: IntArray, asked: BoolArray) -> None:
    there = np.zeros(len(asked), dtype=bool)
    there[visit] = True
    missing, wanted = int(np.sum(asked & ~there)), int(asked.sum())
    if missing:
        raise ImputedError(
            f"the filled-in table lacks {missing:,} of the {wanted:,} visits whose {hidden.facts.choice.target!r} is "
            "empty in hide's table. Give a row for each; leave the value empty where the tool has none."
        )


def _refuse_changed(hidden: Hidden, value: FloatArray, visible: BoolArray) -> None:
    known = hidden.prepared.arrays.target_values
    given = visible & np.isfinite(value)
    off = np.abs(value[given] - known[given]) > SAME * np.maximum(np.abs(known[given]), 1e-12)
    if off.any():
        raise ImputedError(
            f"{int(off.sum()):,} values were filled in at visits that were not hidden: {hidden.facts.choice.target!r} "
            "is measured there and is another in the filled-in table. Leave measured values as they are; if the tool "
            "scales or smooths them, give only the rows whose value was empty."
        )


def _refuse_answers(value: FloatArray, truth: FloatArray, target: str) -> None:
    if len(value) >= 10 and np.mean(value == truth) > COPIED:
        raise ImputedError(
            f"the filled-in values of {target!r} are the hidden ones: the tool was given the original table. Let it "
            "fill in hide's table."
        )


def _refuse_other_unit(value: FloatArray, truth: FloatArray, target: str, unit: str | None) -> None:
    """Judged at validation visits: an error that a known conversion removes, or a median far off."""
    if not len(value):
        return
    known = load_catalogue().labs.get(target)
    off = np.median(np.abs(value - truth))
    if known is not None and unit == known.unit:
        for other, rule in known.conversions.items():
            converted = value * rule.times + rule.plus
            close = 2 / 3 < np.median(converted) / max(np.median(truth), 1e-12) < 3 / 2
            if rule.changes and close and np.median(np.abs(converted - truth)) < off / 3:
                raise ImputedError(
                    f"the filled-in values of {target!r} look like {other}, while hide's table is in {known.unit}. "
                    "Convert them."
                )
    medians = float(np.median(value)), float(np.median(truth))
    if min(medians) > 0 and not 1 / SCALE < medians[0] / medians[1] < SCALE:
        raise ImputedError(
            f"the filled-in values of {target!r} are on another scale than the measured ones (their median is "
            f"{medians[0] / medians[1]:.2g} times as large). Convert them to the unit of hide's table."
        )
