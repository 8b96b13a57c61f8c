"""Which column of a user's table is what, why, and how to say otherwise; text of many levels among them."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.visits import checks
from safeimpute.visits.arrays import FloatArray, IntArray
from safeimpute.visits.checks import Faults
from safeimpute.visits.limits import HIGH, LOW, limits_of_rows, mostly_numbers, with_limits, words_by_kind

MOST_LEVELS = 20  # a text column with more distinct entries is no category
ROWS_PER_LEVEL = 10  # on average; with fewer, a level says nothing about measuring
SHARED_ROWS = 0.5  # at least this share of rows must have an entry that another patient has too
DATE = r"^\d{4}-\d{2}-\d{2}([ T].*)?$"
KNOWN, DRAWN = "__known", "__drawn"  # LAB__known: when the value of LAB became known; LAB__drawn: when it was drawn
RoleName = Literal["target", "lab", "attribute", "high_cardinality", "clock", "limit", "ignored"]
ATTRIBUTE_NAMES = re.compile(r"age(_.*)?|sex|gender|race|ethnicity", re.IGNORECASE)
# Names by which tables call a patient, a stay, a sample: such a column holds text, however it looks.
IDENTIFIER_NAMES = re.compile(
    r"(.*[^a-z])?(id|ids|mrn|pid|patnr|usubjid|subjid|pseudonym|(patient|subject|person|record|pat|case|stay|visit|"
    r"encounter|admission|sample|specimen|fall|proben?)[^a-z]*(id|nr|no|num|number|nummer|key)?)",
    re.IGNORECASE,
)
LIMIT_REASON = "a limit of results that are no exact value; such a result is measured, never imputed"
COMPANIONS: dict[str, tuple[RoleName, str]] = {
    KNOWN: ("clock", "when a value became known; used where only the past counts"),
    DRAWN: ("clock", "when a value was drawn"),
    LOW: ("limit", LIMIT_REASON),
    HIGH: ("limit", LIMIT_REASON),
}


def names_an_identifier(name: str) -> bool:
    """Whether a column's name says that it identifies a patient, a stay, a sample (`MRN`, `hadm_id`, `RecordID`)."""
    return IDENTIFIER_NAMES.fullmatch(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())) is not None


def clean_text(column: pl.Series) -> pl.Series:
    """Entries as text without blanks around them; null where there is none."""
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        raise VisitsError(
            f"column {column.name!r} holds {column.dtype.base_type().__name__}, neither text nor numbers. Convert it."
        )
    return column.cast(pl.String).str.strip_chars().replace("", None)


def coded(frame: pl.DataFrame, target: str, words: Sequence[str]) -> pl.DataFrame:
    """The table with the classes of its target, where they are words, as their places in the order."""
    if not words or target not in frame.columns:
        return frame
    text = clean_text(frame[target])
    if strange := int((~text.drop_nulls().is_in(words)).sum()):
        raise VisitsError(
            f"column {target!r} (target) holds something else than its classes ({' < '.join(words)}) in {strange:,} of "
            f"{len(text):,} rows. Name every class in order, as the column writes it, or empty those cells."
        )
    place = dict(zip(words, map(float, range(len(words))), strict=True))
    return frame.with_columns(text.replace_strict(place, return_dtype=pl.Float64).alias(target))


def in_words(frame: pl.DataFrame, columns: Iterable[str], words: Sequence[str]) -> pl.DataFrame:
    """The words again in place of the codes of `coded`."""
    named = pl.Series(words, dtype=pl.String)
    return frame.with_columns(named.gather(frame[name].cast(pl.UInt32)).alias(name) for name in columns if len(words))


def why_not_high_cardinality(text: pl.Series, patient: IntArray) -> str:
    """Why a text of more than `MOST_LEVELS` levels is no high-cardinality column; empty where it is one."""
    rows = pl.DataFrame({"text": text, "patient": patient}).drop_nulls()
    if rows["text"].str.contains(DATE).all():
        return "a date"
    levels = rows.group_by("text").agg(pl.len().alias("rows"), pl.col("patient").n_unique().alias("patients"))
    if len(rows) < ROWS_PER_LEVEL * len(levels):
        return (
            f"text with more than {MOST_LEVELS} different entries, on average in fewer than {ROWS_PER_LEVEL} rows each"
        )
    if levels.filter(pl.col("patients") > 1)["rows"].sum() < SHARED_ROWS * len(rows):
        return "text that tells patients apart: most entries belong to one patient only"
    return ""


def high_cardinality_levels(text: pl.Series) -> tuple[str, ...]:
    """The levels of a table's column as 64-bit hashes, in order: what a model keeps of them."""
    return tuple(sorted(map(_level_key, text.drop_nulls().unique().to_list())))


def high_cardinality_codes(text: pl.Series, levels: tuple[str, ...]) -> FloatArray:
    """Per row the place of its entry among the levels, so that no two share one; NaN where empty.

    An entry that is none of them has the code after the last, which stands for no level.
    """
    place = {level: float(code) for code, level in enumerate(levels)}
    codes = {each: place.get(_level_key(each), float(len(levels))) for each in text.drop_nulls().unique().to_list()}
    if not codes:
        return np.full(len(text), np.nan)
    coded = text.replace_strict(codes, default=None, return_dtype=pl.Float64)
    return coded.fill_null(np.nan).to_numpy().astype(np.float64)


def _level_key(level: str) -> str:
    return hashlib.blake2b(level.encode(), digest_size=8).hexdigest()


def one_code_per_visit(columns: list[FloatArray], visit: IntArray, visits: int) -> FloatArray:
    """The smallest code among a visit's rows, so that the rows' order does not matter; NaN where all are empty."""
    merged = np.full((visits, len(columns)), np.nan)
    for position, codes in enumerate(columns):
        np.fmin.at(merged[:, position], visit, codes)
    return merged


@dataclass(frozen=True)
class ColumnChoice:
    """Which column is what; labs and attributes not named are told apart by name and data."""

    target: str
    subject: str = "subject_id"
    time: str = "time"
    labs: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # classes of the target in their order, where it holds words


@dataclass(frozen=True)
class ColumnRole:
    """What a column was taken for.

    `high_cardinality`: text of many levels, used only for who gets measured. `clock`: when another column's values were
    drawn or known. `limit`: what another column's results lie above or below. `ignored`: used by nothing.
    """

    role: RoleName
    reason: str
    otherwise: str = ""  # how to say otherwise; empty where nothing else can be said


@dataclass
class Columns:
    """A table's columns by use, rows as in the table; names in alphabetical order."""

    numeric: dict[str, FloatArray] = field(default_factory=dict)  # labs and attributes that are numbers
    categories: dict[str, pl.Series] = field(default_factory=dict)  # attributes that are text
    high_cardinality: dict[str, pl.Series] = field(default_factory=dict)
    roles: dict[str, ColumnRole] = field(default_factory=dict)  # of every column but patient and time
    limits: dict[str, FloatArray] = field(default_factory=dict)  # of every lab: between what each row's result lies
    words: dict[str, dict[str, int]] = field(default_factory=dict)  # of labs: rows with a word, by its kind

    @property
    def labs(self) -> tuple[str, ...]:
        """The target among them."""
        return tuple(name for name in self.numeric if self.roles[name].role != "attribute")

    @property
    def numeric_attributes(self) -> tuple[str, ...]:
        return tuple(name for name in self.numeric if self.roles[name].role == "attribute")


def note_unreadable(frame: pl.DataFrame, choice: ColumnChoice, faults: Faults) -> None:
    """Note columns that cannot be read, of a table whose patients or times cannot be told."""
    nobody = np.zeros(len(frame), np.int64)
    read_columns(frame, choice, nobody, nobody, faults)


def read_columns(
    frame: pl.DataFrame, choice: ColumnChoice, patient: IntArray, visit: IntArray, faults: Faults | None = None
) -> Columns:
    """Read every input column and say what it was taken for; `patient` and `visit` have one entry per row.

    Columns that cannot be read are noted and left out where `faults` are gathered, else refused.
    """
    columns, gathered = Columns(), Faults() if faults is None else faults
    frame = coded(frame, choice.target, choice.words)
    checks.refuse_companion_uses(frame.columns, _companion_columns(frame), _uses(choice))
    for name in choice.exclude:
        columns.roles[name] = ColumnRole("ignored", "excluded by name", f"take {name} out of --exclude")
    columns.roles |= _companion_columns(frame)
    exact = _without_limits(frame, choice)
    for name in sorted(frame.columns):
        if name not in (choice.subject, choice.time) and name not in columns.roles:
            with gathered.noted():
                _read(exact[name], choice, patient, columns)
    if faults is None:
        gathered.refuse()
    for name, values in columns.numeric.items():
        columns.roles[name] = _numeric_role(name, values, choice, patient, visit)
    columns = _without_unmeasured(columns, choice)
    columns.limits = {name: limits_of_rows(exact, name) for name in columns.labs}
    texts = [name for name in columns.labs if frame[name].dtype == pl.String]
    columns.words = {name: counts for name in texts if (counts := words_by_kind(frame[name]))}
    return columns


def _without_limits(frame: pl.DataFrame, choice: ColumnChoice) -> pl.DataFrame:
    """The table with limits ("<5") in columns of their own, for labs that are named or mostly numbers."""
    apart = {choice.subject, choice.time, *choice.attributes, *choice.exclude}
    named = {choice.target, *choice.labs}
    texts = [name for name, kind in frame.schema.items() if kind == pl.String and name not in apart]
    return with_limits(frame, [name for name in texts if name in named or mostly_numbers(clean_text(frame[name]))])


def _uses(choice: ColumnChoice) -> list[tuple[str, str]]:
    """Columns that were named, and as what."""
    named = [(choice.target, "the target"), (choice.subject, "the patients' column"), (choice.time, "the time")]
    named += [(name, "a lab") for name in choice.labs]
    return named + [(name, "an attribute") for name in choice.attributes]


def _companion_columns(frame: pl.DataFrame) -> dict[str, ColumnRole]:
    """Columns that only say when the value of another column was drawn or known, or what it lies above or below."""
    return {
        f"{name}{ending}": ColumnRole(role, reason, f"rename {name}{ending}")
        for name in frame.columns
        for ending, (role, reason) in COMPANIONS.items()
        if f"{name}{ending}" in frame.columns
    }


def _read(column: pl.Series, choice: ColumnChoice, patient: IntArray, columns: Columns) -> None:
    """Enter a column among the numbers, categories or high-cardinality columns, or say why it is none of them."""
    name = column.name
    named_attribute = name in choice.attributes
    if name == choice.target or name in choice.labs:
        columns.numeric[name] = checks.numbers(column, "target" if name == choice.target else "lab")
    elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
        text = clean_text(column)
        if not named_attribute:
            checks.refuse_decimal_commas(text)
        if mostly_numbers(text) and not named_attribute:
            columns.numeric[name] = checks.numbers(text, "read as a lab, because most rows are numbers")
        elif text.null_count() == len(text) and not named_attribute:
            columns.roles[name] = ColumnRole("ignored", "empty in every row")
        elif named_attribute or text.n_unique() <= MOST_LEVELS:
            columns.categories[name] = text
            columns.roles[name] = _category_role(text, named_attribute)
        else:
            _read_many_levels(text, patient, columns)
    elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null) or named_attribute:
        columns.numeric[name] = checks.numbers(column, "attribute" if named_attribute else "read as a lab or attribute")
    else:
        kind = column.dtype.base_type().__name__
        reason = "a date" if column.dtype.is_temporal() else f"neither number nor category ({kind})"
        columns.roles[name] = ColumnRole("ignored", reason)


def _category_role(text: pl.Series, named: bool) -> ColumnRole:
    reason = "named as an attribute" if named else f"a category of {text.drop_nulls().n_unique()} levels"
    return ColumnRole("attribute", reason, f"--exclude {text.name}")


def _read_many_levels(text: pl.Series, patient: IntArray, columns: Columns) -> None:
    name = text.name
    if reason := why_not_high_cardinality(text, patient):
        as_category = f"--attributes {name} makes every entry a category"
        columns.roles[name] = ColumnRole("ignored", reason, as_category)
        return
    columns.high_cardinality[name] = text
    columns.roles[name] = ColumnRole(
        "high_cardinality",
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
