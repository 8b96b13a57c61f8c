"""Which column of a user's table is what, why, and how to say otherwise; read before anything is learnt."""

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl

from safeimpute.records import checks
from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.records.fine import MOST_LEVELS, clean_text, why_not_fine

KNOWN, DRAWN = (
    "__known",
    "__drawn",
)  # LAB__known: when the value of LAB became known; LAB__drawn: when it was drawn
ATTRIBUTE_NAMES = re.compile(r"age(_.*)?|sex|gender|race|ethnicity", re.IGNORECASE)
CLOCKS = {
    KNOWN: "when a value became known; used where only the past counts",
    DRAWN: "when a value was drawn",
}

RoleName = Literal["target", "lab", "attribute", "fine", "clock", "ignored"]


@dataclass(frozen=True)
class ColumnChoice:
    """Which column is what; labs and attributes not named are told apart by name and data."""

    target: str
    subject: str = "subject_id"
    time: str = "time"
    labs: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnRole:
    """What a column was taken for.

    `fine`: text of many levels, used only for who gets measured. `clock`: when another column's values were drawn or
    known. `ignored`: used by nothing.
    """

    role: RoleName
    reason: str
    otherwise: str = ""  # how to say otherwise; empty where nothing else can be said


@dataclass
class Columns:
    """A table's columns by use, rows as in the table; names in alphabetical order."""

    numeric: dict[str, FloatArray] = field(default_factory=dict)  # labs and attributes that are numbers
    categories: dict[str, pl.Series] = field(default_factory=dict)  # attributes that are text
    fine: dict[str, pl.Series] = field(default_factory=dict)
    roles: dict[str, ColumnRole] = field(default_factory=dict)  # of every column but patient and time

    @property
    def labs(self) -> tuple[str, ...]:
        """The target among them."""
        return tuple(name for name in self.numeric if self.roles[name].role != "attribute")

    @property
    def numeric_attributes(self) -> tuple[str, ...]:
        return tuple(name for name in self.numeric if self.roles[name].role == "attribute")


def read_columns(frame: pl.DataFrame, choice: ColumnChoice, patient: IntArray, visit: IntArray) -> Columns:
    """Read every input column and say what it was taken for; `patient` and `visit` have one entry per row."""
    columns = Columns()
    checks.refuse_clock_uses(frame.columns, _clock_columns(frame), _uses(choice))
    for name in choice.exclude:
        columns.roles[name] = ColumnRole("ignored", "excluded by name", f"take {name} out of --exclude")
    columns.roles |= _clock_columns(frame)
    for name in sorted(frame.columns):
        if name not in (choice.subject, choice.time) and name not in columns.roles:
            _read(frame[name], choice, patient, columns)
    for name, values in columns.numeric.items():
        columns.roles[name] = _numeric_role(name, values, choice, patient, visit)
    return _without_unmeasured(columns, choice)


def _uses(choice: ColumnChoice) -> list[tuple[str, str]]:
    """Columns that were named, and as what."""
    named = [
        (choice.target, "the target"),
        (choice.subject, "the patients' column"),
        (choice.time, "the time"),
    ]
    named += [(name, "a lab") for name in choice.labs]
    return named + [(name, "an attribute") for name in choice.attributes]


def _clock_columns(frame: pl.DataFrame) -> dict[str, ColumnRole]:
    """Columns that only say when the value of another column was drawn or known."""
    return {
        f"{name}{ending}": ColumnRole("clock", reason, f"rename {name}{ending}")
        for name in frame.columns
        for ending, reason in CLOCKS.items()
        if f"{name}{ending}" in frame.columns
    }


def _read(column: pl.Series, choice: ColumnChoice, patient: IntArray, columns: Columns) -> None:
    """Enter a column among the numbers, categories or fine columns, or say why it is none of them."""
    name = column.name
    named_attribute = name in choice.attributes
    if name == choice.target or name in choice.labs:
        columns.numeric[name] = checks.numbers(column, "target" if name == choice.target else "lab")
    elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
        text = clean_text(column)
        if not named_attribute:
            checks.refuse_decimal_commas(text)
        if checks.mostly_numbers(text) and not named_attribute:
            columns.numeric[name] = checks.numbers(text, "read as a lab, because most rows are numbers")
        elif named_attribute or text.n_unique() <= MOST_LEVELS:
            columns.categories[name] = text
            columns.roles[name] = _category_role(text, named_attribute)
        else:
            _read_many_levels(text, patient, columns)
    elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null) or named_attribute:
        columns.numeric[name] = checks.numbers(
            column, "attribute" if named_attribute else "read as a lab or attribute"
        )
    else:
        kind = column.dtype.base_type().__name__
        reason = "a date" if column.dtype.is_temporal() else f"neither number nor category ({kind})"
        columns.roles[name] = ColumnRole("ignored", reason)


def _category_role(text: pl.Series, named: bool) -> ColumnRole:
    reason = "named as an attribute" if named else f"a category of {text.drop_nulls().n_unique()} levels"
    return ColumnRole("attribute", reason, f"--exclude {text.name}")


def _read_many_levels(text: pl.Series, patient: IntArray, columns: Columns) -> None:
    name = text.name
    if reason := why_not_fine(text, patient):
        as_category = f"--attributes {name} makes every entry a category"
        columns.roles[name] = ColumnRole("ignored", reason, as_category)
        return
    columns.fine[name] = text
    columns.roles[name] = ColumnRole(
        "fine",
        f"text with {text.drop_nulls().n_unique():,} different entries; used only for who gets measured",
        f"--attributes {name} makes every entry a category, --exclude {name} leaves it out",
    )


def _numeric_role(
    name: str, values: FloatArray, choice: ColumnChoice, patient: IntArray, visit: IntArray
) -> ColumnRole:
    """Named roles win, then telling names, then whether the values vary within a patient."""
    if name == choice.target:
        return ColumnRole("target", "named as the target", "--target")
    as_attribute, as_lab = f"--attributes {name}", f"--labs {name}"
    leave_out = f", --exclude {name} leaves it out"
    if name in choice.labs:
        return named_lab(name)
    if name in choice.attributes:
        return ColumnRole("attribute", "named as an attribute", as_lab + leave_out)
    if ATTRIBUTE_NAMES.fullmatch(name.strip()):
        return ColumnRole("attribute", "its name says so", as_lab + leave_out)
    if not _constant_within(values, patient):
        return ColumnRole("lab", "a number that varies within patients", as_attribute + leave_out)
    if _nobody_twice(values, patient, visit):
        return ColumnRole("lab", "a number that no patient has at two visits", as_attribute + leave_out)
    return ColumnRole("attribute", "a number that never varies within a patient", as_lab + leave_out)


def named_lab(name: str) -> ColumnRole:
    """What a column is that was named as a lab."""
    return ColumnRole("lab", "named as a lab", f"--attributes {name}, --exclude {name} leaves it out")


def _constant_within(values: FloatArray, patient: IntArray) -> bool:
    seen = ~np.isnan(values)
    patients = patient.max() + 1
    low, high = np.full(patients, np.inf), np.full(patients, -np.inf)
    np.minimum.at(low, patient[seen], values[seen])
    np.maximum.at(high, patient[seen], values[seen])
    return bool(np.all(high[high > -np.inf] == low[high > -np.inf]))


def _nobody_twice(values: FloatArray, patient: IntArray, visit: IntArray) -> bool:
    """Whether every patient has values at one visit at most; visits are numbered over all patients."""
    measured, first_row = np.unique(visit[~np.isnan(values)], return_index=True)
    return len(np.unique(patient[~np.isnan(values)][first_row])) == len(measured)


def _without_unmeasured(columns: Columns, choice: ColumnChoice) -> Columns:
    """Numeric columns without any value are used by nothing, unless named as a lab."""
    named = {choice.target, *choice.labs}
    for name in [name for name, values in columns.numeric.items() if np.isnan(values).all()]:
        if name not in named:
            del columns.numeric[name]
            columns.roles[name] = ColumnRole("ignored", "never measured")
    return columns
