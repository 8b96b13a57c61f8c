"""OMOP CDM 5.4: imputations as `measurement` rows of an algorithm, a `metadata` row, and two provenance tables."""

from datetime import date, datetime
from pathlib import Path
from typing import Literal

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.sources.writers.exported import REVIEW, CodedLab, Exported, in_utc, whole_ids
from safeimpute.visits import marks
from safeimpute.visits.catalogue import Catalogue, normal_unit

Form = Literal["parquet", "csv"]
PROVENANCE, RUNS = "safeimpute_provenance", "safeimpute_run"  # tables of our own, beside the model's
LARGEST = 2**31 - 1  # the model's integers have 32 bits; sites that need more widen them

# The columns of CDM 5.4 in their order; integers that a site has not widened fit 32 bits.
MEASUREMENT: dict[str, pl.DataType] = {
    "measurement_id": pl.Int32(),
    "person_id": pl.Int32(),
    "measurement_concept_id": pl.Int32(),
    "measurement_date": pl.Date(),
    "measurement_datetime": pl.Datetime("us"),
    "measurement_time": pl.String(),
    "measurement_type_concept_id": pl.Int32(),
    "operator_concept_id": pl.Int32(),
    "value_as_number": pl.Float64(),
    "value_as_concept_id": pl.Int32(),
    "unit_concept_id": pl.Int32(),
    "range_low": pl.Float64(),
    "range_high": pl.Float64(),
    "provider_id": pl.Int32(),
    "visit_occurrence_id": pl.Int32(),
    "visit_detail_id": pl.Int32(),
    "measurement_source_value": pl.String(),
    "measurement_source_concept_id": pl.Int32(),
    "unit_source_value": pl.String(),
    "unit_source_concept_id": pl.Int32(),
    "value_source_value": pl.String(),
    "measurement_event_id": pl.Int32(),
    "meas_event_field_concept_id": pl.Int32(),
}
METADATA: dict[str, pl.DataType] = {
    "metadata_id": pl.Int32(),
    "metadata_concept_id": pl.Int32(),
    "metadata_type_concept_id": pl.Int32(),
    "name": pl.String(),
    "value_as_string": pl.String(),
    "value_as_concept_id": pl.Int32(),
    "value_as_number": pl.Float64(),
    "metadata_date": pl.Date(),
    "metadata_datetime": pl.Datetime("us"),
}


def write_omop(
    folder: Path, export: Exported, catalogue: Catalogue, *, form: Form = "parquet", first_id: int = 1
) -> None:
    """Write the four tables into an unfinished folder; measurements are numbered from `first_id`."""
    for name, table in omop_tables(export, catalogue, first_id=first_id).items():
        path = folder / f"{name}.{form}"
        if form == "csv":
            table.write_csv(path, datetime_format="%Y-%m-%d %H:%M:%S%.6f")
        else:
            table.write_parquet(path)


def omop_tables(
    export: Exported, catalogue: Catalogue, *, first_id: int = 1, metadata_id: int = 1
) -> dict[str, pl.DataFrame]:
    """The tables by name; withheld values stand in the provenance only."""
    rows = export.rows.with_columns(person_id=_narrow(whole_ids(export.rows["subject"], "person_id")))
    number = pl.col("given").cum_sum() + (first_id - 1)
    rows = rows.with_columns(measurement_id=pl.when("given").then(number.cast(pl.Int64)))
    if len(rows) and (rows["measurement_id"].max() or 0) > LARGEST:  # type: ignore[operator]
        raise OptionError(f"measurements would be numbered beyond {LARGEST:,}. Give a smaller --first-id.")
    rows = rows.with_columns(pl.col("measurement_id").cast(pl.Int32))
    return {
        "measurement": _measurement(rows.filter("given"), export, catalogue),
        "metadata": _metadata(export, metadata_id),
        PROVENANCE: _provenance(rows, export),
        RUNS: _runs(export),
    }


def _narrow(ids: pl.Series) -> pl.Series:
    return ids if len(ids) and ids.abs().max() > LARGEST else ids.cast(pl.Int32)  # type: ignore[operator]


def _measurement(given: pl.DataFrame, export: Exported, catalogue: Catalogue) -> pl.DataFrame:
    labs = export.labs
    concept = {name: int(each.code("omop")) for name, each in labs.items()}
    numbers = {name: each for name, each in labs.items() if each.classes is None}
    unit = {name: unit_concept(each, catalogue) for name, each in numbers.items()}
    worded = [name for name, each in labs.items() if each.classes and each.classes.words]
    source = {name: marks.source_value(name, guaranteed=bool(each.promise.sentence)) for name, each in labs.items()}
    moment = in_utc(given["time"])
    only_days = given["time"].dtype == pl.Date
    table = given.select(
        "measurement_id",
        "person_id",
        measurement_concept_id=_by_lab(concept, pl.Int32),
        measurement_date=moment.dt.date(),
        measurement_datetime=pl.lit(None, pl.Datetime("us")) if only_days else moment,
        measurement_type_concept_id=pl.lit(marks.ALGORITHM_FROM_EHR, pl.Int32),
        value_as_number=pl.when(~pl.col("lab").is_in(worded)).then("value"),
        unit_concept_id=_by_lab(unit, pl.Int32),
        measurement_source_value=_by_lab(source, pl.String),
        measurement_source_concept_id=pl.lit(0, pl.Int32),
        unit_source_value=_by_lab({name: each.lab.unit for name, each in numbers.items()}, pl.String),
        value_source_value="band",
    )
    return _with_empty_columns(table, MEASUREMENT)


def _by_lab(values: dict[str, int] | dict[str, str], kind: type[pl.DataType]) -> pl.Expr:
    return pl.col("lab").replace_strict(values, default=None, return_dtype=kind)


def _with_empty_columns(table: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    empty = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in table.columns]
    return table.with_columns(empty).select(list(schema))


def unit_concept(coded: CodedLab, catalogue: Catalogue) -> int:
    """The standard concept of the lab's unit, or an error that names the unit."""
    spellings = {normal_unit(coded.lab.unit)}
    spellings |= {unit for unit, rule in coded.lab.conversions.items() if not rule.changes}
    for concept, unit in catalogue.omop_units.items():
        if normal_unit(unit) == normal_unit(coded.lab.unit):
            return concept
    for concept, unit in catalogue.omop_units.items():
        if normal_unit(unit) in spellings:
            return concept
    raise OptionError(f"unit {coded.lab.unit!r} of {coded.lab.name!r} has no OMOP concept in the catalogue.")


def _metadata(export: Exported, number: int) -> pl.DataFrame:
    origin, written = export.origin, datetime.fromisoformat(export.origin.written)
    counts = export.counts
    told = {
        "metadata_id": number,
        "metadata_concept_id": 0,
        "metadata_type_concept_id": marks.ALGORITHM_FROM_EHR,
        "name": f"safeimpute {origin.version} export",
        "value_as_string": f"run {origin.table}; model {origin.model}",
        "value_as_number": float(counts["values"]),
        "metadata_date": date(written.year, written.month, written.day),
        "metadata_datetime": written.replace(tzinfo=None),
    }
    return _with_empty_columns(pl.DataFrame([told], schema_overrides=METADATA), METADATA)


def _provenance(rows: pl.DataFrame, export: Exported) -> pl.DataFrame:
    """One row per imputation, withheld ones with their reason and without a value."""
    time = rows["time"]
    zoned = getattr(time.dtype, "time_zone", None)
    text = time.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f%:z") if zoned else time.cast(pl.String)
    return rows.select(
        *("measurement_id", "person_id", "lab"),
        text.alias("time_as_given"),
        *("value", "lower", "upper", "risk", "cutoff"),
        pl.col("given").alias("released"),
        *("reason", *REVIEW),
        run_sha256=pl.lit(export.origin.table),
    )


def _runs(export: Exported) -> pl.DataFrame:
    """What stands behind the values, one row per lab."""
    origin = export.origin
    return pl.DataFrame(
        [
            {
                "run_sha256": origin.table,
                "lab": name,
                "model_checksum": origin.model,
                "safeimpute": origin.version,
                "exported_at": origin.written,
                "coverage": origin.coverage,
                "guaranteed": bool(each.promise.sentence),
                "promise": each.promise.note,
            }
            for name, each in export.labs.items()
        ]
    )
