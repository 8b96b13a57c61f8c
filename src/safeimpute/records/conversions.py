"""Columns of a table from another unit of the catalogue to the lab's own."""

from collections.abc import Mapping

import polars as pl

from safeimpute.errors import OptionError, VisitsError
from safeimpute.records.catalogue import load_catalogue, normal_unit


def converted(frame: pl.DataFrame, unit_of: Mapping[str, str]) -> pl.DataFrame:
    """The table with the named labs in the catalogue's units; result x times + plus, as the catalogue says."""
    columns = []
    for lab, unit in unit_of.items():
        known = load_catalogue().lab(lab)
        conversion = known.conversions.get(normal_unit(unit))
        if conversion is None:
            raise OptionError(
                f"unit_of (--unit-of): {unit!r} is no unit of {lab!r} in the catalogue. It knows {known.unit}"
                f"{''.join(f', {each}' for each in known.units)}."
            )
        if lab not in frame.columns:
            raise VisitsError(f"column {lab!r}, named in --unit-of, is not in the table.")
        if not (frame[lab].dtype.is_numeric() or frame[lab].dtype == pl.Null):
            raise VisitsError(f"column {lab!r}, named in --unit-of, does not hold numbers in every row.")
        columns.append((pl.col(lab).cast(pl.Float64) * conversion.times + conversion.plus).alias(lab))
    return frame.with_columns(columns)
