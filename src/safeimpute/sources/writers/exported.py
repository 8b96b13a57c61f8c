"""An imputation table made ready to be written back: labs coded, identifiers and times as they were, origin told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from safeimpute.errors import OptionError, VisitsError
from safeimpute.tolerance import Tolerance
from safeimpute.visits import checks
from safeimpute.visits.catalogue import Catalogue, Lab, Vocabulary, normal_unit
from safeimpute.visits.imputations import COLUMNS, rounded
from safeimpute.visits.visits import subject_names

ACCEPTED, REJECTED = "accepted", "rejected"
REJECTED_REASON = "rejected by a reviewer"
REVIEW = {"review": pl.String, "reviewed_by": pl.String, "reviewed_at": pl.String, "comments": pl.String}
NAMES: dict[Vocabulary, str] = {"loinc": "LOINC code", "omop": "OMOP concept"}


@dataclass(frozen=True)
class Promise:
    """What stands behind the released values of one lab."""

    sentence: str  # empty: no guarantee
    why_none: str = ""

    @property
    def note(self) -> str:
        """The sentence that goes with every value."""
        return self.sentence or f"No guarantee: {self.why_none or 'nothing was promised'}."


@dataclass(frozen=True)
class Origin:
    """Where the values come from; told in every export."""

    version: str  # of safeimpute
    table: str  # SHA-256 of the imputation table
    model: str  # checksum of the fitted model
    written: str  # when, ISO 8601 in UTC
    coverage: float  # of the interval from lower to upper
    promises: Mapping[str, Promise]  # by the lab's name in the table
    classes: Mapping[str, Tolerance] = field(default_factory=dict)  # likewise, of labs whose values are classes


@dataclass(frozen=True)
class CodedLab:
    """A lab of the table as the catalogue knows it."""

    lab: Lab
    promise: Promise
    classes: Tolerance | None = None  # where its values are classes, which have no unit

    def code(self, vocabulary: Vocabulary) -> str:
        """Its first code, or an error that says how to add one."""
        codes = self.lab.codes_in(vocabulary)
        if not codes:
            raise OptionError(
                f"lab {self.lab.name!r} has no {NAMES.get(vocabulary, vocabulary)} in the catalogue. Add it in a TOML "
                "file: --catalogue FILE.toml."
            )
        return str(codes[0])


@dataclass(frozen=True)
class Exported:
    """One row per imputation, with the columns of `export_table`."""

    rows: pl.DataFrame
    labs: dict[str, CodedLab]
    origin: Origin

    @property
    def counts(self) -> dict[str, int]:
        """Values and withheld ones, and how many a reviewer accepted."""
        given = self.rows["given"]
        accepted = self.rows.select((pl.col("given") & (pl.col("review") == ACCEPTED)).sum()).item()
        return {"values": int(given.sum()), "withheld": int((~given).sum()), "accepted": int(accepted)}


def export_table(
    table: pl.DataFrame,
    origin: Origin,
    catalogue: Catalogue,
    *,
    names: Mapping[str, str] | None = None,
    review: pl.DataFrame | None = None,
    only_accepted: bool = False,
) -> Exported:
    """Check a table and make it ready.

    The rows hold `row` (in the table), `subject` (identifiers as they were), `time` (a date, or a timestamp with or
    without zone), `lab` (the catalogue's name), `value`, `lower`, `upper` in the catalogue's unit, empty unless
    `given`, the `band` of those that are classes, `risk`, `cutoff`, `reason`, and what reviewers said. `names` maps
    the table's labs to the catalogue's, `review` has one row per row of the table.

    Raises OptionError where a lab has no entry, unit or promise, and VisitsError where identifiers or times are lost.
    """
    _require_table(table)
    said = pl.DataFrame(schema=REVIEW).clear(len(table)) if review is None else review
    rows = table.with_row_index("row").hstack(said.select(list(REVIEW))).with_columns(pl.col("review").fill_null(""))
    if only_accepted:
        rows = rows.filter(pl.col("review") == ACCEPTED)
        if rows.is_empty():
            raise OptionError("no value of this run is accepted. Review it first: safeimpute serve RUN.")
    labs = _coded_labs(rows, origin, catalogue, names or {})
    return Exported(_finished(rows, labs, names or {}), labs, origin)


def _require_table(table: pl.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in table.columns and name not in ("p_value", "cutoff")]
    if missing:
        raise VisitsError(f"the table has no column {missing[0]!r}: it is no imputation table of this version.")
    if table.is_empty():
        raise VisitsError("the imputation table has no rows: there is nothing to export.")
    for name in ("subject_id", "time", "lab"):
        checks.require_complete(table[name], "needed to write a value back")


def _coded_labs(
    rows: pl.DataFrame, origin: Origin, catalogue: Catalogue, names: Mapping[str, str]
) -> dict[str, CodedLab]:
    labs = {}
    units: dict[str, set[str | None]] = {}
    for name, unit in rows.select("lab", "unit").unique(maintain_order=True).iter_rows():
        units.setdefault(name, set()).add(unit)
    for name, found in units.items():
        lab = catalogue.lab(names.get(name, name))
        classes = origin.classes.get(name)
        if classes is None:
            _require_unit(name, found, lab)
        if name not in origin.promises:
            raise OptionError(f"nothing is known of what was promised for {name!r}. Give the run it comes from.")
        labs[lab.name] = CodedLab(lab, origin.promises[name], classes)
    return labs


def _require_unit(name: str, found: set[str | None], lab: Lab) -> None:
    if None in found or len(found) > 1:
        raise OptionError(
            f"the unit of {name!r} is {'not known' if None in found else 'not the same in every row'}. Run again "
            "with --unit: a value without unit is never written back."
        )
    if normal_unit(str(next(iter(found)))) not in lab.conversions:
        raise OptionError(
            f"{name!r} is in {next(iter(found))!r}, from which the catalogue knows no way to {lab.unit}. Add it "
            "in a TOML file, or run in a unit it knows."
        )


def _finished(rows: pl.DataFrame, labs: dict[str, CodedLab], names: Mapping[str, str]) -> pl.DataFrame:
    given = pl.col("released") & (pl.col("review") != REJECTED) & pl.col("value").is_not_null()
    rejected = pl.col("released") & (pl.col("review") == REJECTED)
    reason = pl.when(rejected).then(pl.lit(REJECTED_REASON)).otherwise(pl.col("reason").fill_null(""))
    missing = [name for name in ("risk", "cutoff") if name not in rows.columns]
    lab = pl.col("lab").replace(dict(names))
    rows = rows.with_columns(*(pl.lit(None, pl.Float64).alias(name) for name in missing), lab=lab)
    numbers = {name: each for name, each in labs.items() if each.classes is None}
    scale = {name: _scale(rows, name, each.lab) for name, each in numbers.items()}
    return rows.select(
        "row",
        subject="subject_id",
        time=moments_of(rows["time"]),
        lab="lab",
        given=given,
        **{each: _reported(_converted(each, given, scale), numbers) for each in ("value", "lower", "upper")},
        band=_classes(labs, given),
        risk="risk",
        cutoff="cutoff",
        reason=reason,
        **{name: pl.col(name).fill_null("") for name in REVIEW},
    )


def _classes(labs: dict[str, CodedLab], given: pl.Expr) -> pl.Expr:
    """The class of each value that is one, by name."""
    named: pl.Expr = pl.lit(None, pl.String)
    for name, coded in labs.items():
        if coded.classes is not None:
            names = dict(zip(coded.classes.levels, coded.classes.bands, strict=True))
            place = pl.col("value").replace_strict(names, default=None, return_dtype=pl.String)
            named = pl.when(given & (pl.col("lab") == name)).then(place).otherwise(named)
    return named


def _scale(rows: pl.DataFrame, name: str, lab: Lab) -> tuple[float, float]:
    unit = rows.filter(pl.col("lab") == name)["unit"][0]
    rule = lab.conversions[normal_unit(unit)]
    return rule.times, rule.plus


def _converted(column: str, given: pl.Expr, scale: dict[str, tuple[float, float]]) -> pl.Expr:
    """In the catalogue's unit; empty where no value is given."""
    result: Any = pl.when(given).then(pl.col(column))
    for name, (times, plus) in scale.items():
        if (times, plus) != (1.0, 0.0):
            changed = pl.col(column) * times + plus
            result = pl.when(given & (pl.col("lab") == name)).then(changed).otherwise(result)
    expression: pl.Expr = pl.when(given).then(result)
    return expression


def _reported(value: pl.Expr, labs: dict[str, CodedLab]) -> pl.Expr:
    """With as many digits as the lab is reported with."""
    result = value
    for name, coded in labs.items():
        result = pl.when(pl.col("lab") == name).then(rounded(value, coded.lab.decimals)).otherwise(result)
    return result


def moments_of(time: pl.Series) -> pl.Series:
    """Dates stay dates, timestamps keep their zone; a number of days cannot be written back."""
    if time.dtype.is_numeric():
        raise VisitsError(
            "the run's times are numbers of days: a clinical record needs dates. Run on a table with dates or "
            "timestamps, as the source has them."
        )
    if time.dtype in (pl.String, pl.Categorical, pl.Enum):
        return _read(time.cast(pl.String).str.strip_chars())
    if time.dtype == pl.Datetime:
        micro = time.cast(pl.Datetime("us", getattr(time.dtype, "time_zone", None)))
        if getattr(time.dtype, "time_unit", "us") == "ns" and not (micro.cast(time.dtype) == time).all():
            raise VisitsError("times are finer than a microsecond, which no clinical format keeps. Round them.")
        return micro
    if time.dtype != pl.Date:
        raise VisitsError(f"column 'time' holds {time.dtype}: dates or timestamps are needed to write values back.")
    return time


def _read(text: pl.Series) -> pl.Series:
    """Times written as text, year first; with a zone in every row or in none, as the run read them."""
    if text.str.contains(r"^\d{4}-\d{2}-\d{2}$").all():
        return text.str.to_date("%Y-%m-%d", strict=False).alias("time")
    if text.cast(pl.Float64, strict=False).null_count() == 0:
        return moments_of(text.cast(pl.Float64))
    plain = text.str.replace("[zZ]$", "+00:00").str.replace(" ", "T")
    zoned = plain.str.contains(r"\d[+-]\d{2}:?\d{2}$").all()
    zone, ending = ("UTC", "%z") if zoned else (None, "")
    read = pl.Series("time", [None] * len(text), dtype=pl.Datetime("us", zone))
    for style in ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        moment = plain.str.to_datetime(style + ending, strict=False, time_unit="us", time_zone=zone)
        read = read.fill_null(moment)
    if unread := read.null_count():
        raise VisitsError(
            f"column 'time' cannot be read as a moment in {unread:,} of {len(text):,} rows. Run on a table whose times "
            "are dates or timestamps, year first."
        )
    return read


def in_utc(time: pl.Series) -> pl.Series:
    """Timestamps without zone: zoned ones as in UTC, others as they are; dates at their start."""
    if time.dtype == pl.Date:
        return time.cast(pl.Datetime("us"))
    if getattr(time.dtype, "time_zone", None):
        return time.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return time


def whole_ids(subject: pl.Series, column: str) -> pl.Series:
    """Identifiers as whole numbers, or an error where one would not come back as it was."""
    names = subject_names(subject)
    numbers = names.cast(pl.Int64, strict=False)
    lost = int((numbers.cast(pl.String) != names).fill_null(True).sum())
    if lost:
        raise VisitsError(
            f"{lost:,} of {len(subject):,} rows have identifiers that are no whole numbers, which {column} must be: "
            "they would be lost. Run on a table with the source's own identifiers."
        )
    return numbers
