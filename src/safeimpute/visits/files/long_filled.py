"""Long tables given back: the results as they came, and a row for each value that was filled in."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.machine.options import TableFormat
from safeimpute.visits.catalogue import Catalogue, normal_unit
from safeimpute.visits.files.long_results import LongColumns, named_results

DIGITS = 4  # significant ones, of values brought back to the unit of a file


def with_imputed(
    frame: pl.DataFrame,
    where: LongColumns,
    catalogue: Catalogue,
    filled: pl.DataFrame,
    marks_of: Mapping[str, tuple[pl.Expr, pl.Expr]],
    *,
    read_as: TableFormat,
    subject: str = "subject_id",
    time: str = "time",
) -> pl.DataFrame:
    """A long table as it came, and below it a row for each value filled in, with two columns that say which is which.

    `filled` holds the visits made of the table; `marks_of` says of every lab where it was imputed, and where promised.
    A value is called as most results of its lab are, and in their unit.
    """
    flags = (f"{where.result}__measured", f"{where.result}__promised")
    rows = named_results(frame, where, catalogue, read_as)
    texts = [name for name in (where.result, where.number) if name and frame.schema[name] == pl.String]
    parts = [frame.with_columns(pl.lit(True).alias(flags[0]), pl.lit(False).alias(flags[1]))]
    elapsed = filled.schema[time].is_float() and frame.schema[where.time] == pl.String
    when = pl.format("{}:{}", *_clock(time)) if elapsed else pl.col(time)
    for lab, (imputed, promised) in marks_of.items():
        code, unit, value = _as_called(rows.filter(pl.col("lab") == lab), lab, catalogue, read_as.units)
        text = value.cast(pl.String).str.strip_suffix(".0").str.replace(".", read_as.decimal, literal=True)
        cells = {where.patient: pl.col(subject), where.time: when, where.code: pl.lit(code)}
        cells |= {name: text if name in texts else value for name in (where.result, where.number) if name}
        cells |= {where.unit: pl.lit(unit)} if where.unit else {}
        cells |= {name: pl.col(name) for name in frame.columns if name in filled.columns and name not in cells}
        cells |= {flags[0]: pl.lit(False), flags[1]: promised}
        parts.append(filled.filter(imputed & pl.col(lab).is_not_null()).select(**cells))
    kinds: Any = {name: frame.schema[name] for name in (where.patient, where.code)}
    return pl.concat([parts[0], *(part.cast(kinds) for part in parts[1:])], how="diagonal_relaxed")


def _clock(time: str) -> tuple[pl.Expr, pl.Expr]:
    """Hours and minutes of days since a start."""
    minutes = (pl.col(time) * 1440).round().cast(pl.Int64)
    return tuple(each.cast(pl.String).str.zfill(2) for each in (minutes // 60, minutes % 60))  # type: ignore[return-value]


def _as_called(
    results: pl.DataFrame, lab: str, catalogue: Catalogue, units: Mapping[str, str]
) -> tuple[str, str | None, pl.Expr]:
    """The code and unit most results of a lab have, and its column in that unit."""
    known = catalogue.labs.get(lab)
    spelled = pl.col("unit").replace("", None) if "unit" in results.columns else pl.lit(None, pl.String)
    met = results.group_by("code", spelled=spelled, meant=pl.coalesce(spelled, "said")).len()
    for code, unit, meant in met.sort("len", "code", "spelled", descending=True).drop("len").iter_rows():
        rule = known.conversions.get(normal_unit(units.get(lab, meant or known.unit))) if known else None
        if known is None or (rule and not rule.changes):
            return code, unit, pl.col(lab).cast(pl.Float64)
        if rule:
            return code, unit, ((pl.col(lab).cast(pl.Float64) - rule.plus) / rule.times).round_sig_figs(DIGITS)
    raise VisitsError(f"no result of {lab!r} has a unit the catalogue knows.")  # there would be no such lab
