"""The Observations an imputation is derived from: the patient's own results that carried it, found in their source."""

import tempfile
from pathlib import Path

import polars as pl

from safeimpute.records.catalogue import Catalogue
from safeimpute.records.readers.fhir import flatten_results
from safeimpute.records.visits import subject_names
from safeimpute.records.writers.exported import Exported, in_utc, moments_of

OWN = "own visit"  # in why.parquet, beside other patients' visits
DAY = 86_400_000_000  # microseconds
LEAST_WEIGHT = 0.01  # a visit that carried less is not named


def observations_behind(
    export: Exported, why: pl.DataFrame, source: Path, catalogue: Catalogue
) -> pl.DataFrame:
    """Per row of the export (`row`) the `references` of results drawn on the days of the visits that carried it."""
    rows = export.rows.select(
        "row", "lab", subject=subject_names(export.rows["subject"]), moment=in_utc(export.rows["time"])
    )
    own = why.filter((pl.col("carried_by") == OWN) & (pl.col("weight") >= LEAST_WEIGHT))
    own = own.select(
        subject=subject_names(own["subject_id"]), moment=_moment(own["time"], rows), gap="gap_days"
    )
    carried = rows.join(own, on=["subject", "moment"])
    visit = pl.col("moment") + pl.duration(microseconds=(pl.col("gap") * DAY).round().cast(pl.Int64))
    carried = carried.with_columns(visit=visit).with_columns(day=pl.col("visit").dt.date())
    with tempfile.TemporaryDirectory(prefix="safeimpute-fhir-") as folder:
        results = flatten_results(source, Path(folder), catalogue)
    found = carried.join(_coded(results, export), on=["subject", "lab", "day"])
    found = found.filter(pl.col("drawn") <= pl.col("visit") + pl.duration(seconds=1))
    reference = pl.concat_str(pl.lit("Observation/"), "id").unique().sort()
    return found.group_by("row").agg(references=reference)


def _moment(time: pl.Series, rows: pl.DataFrame) -> pl.Series:
    """As the export reads times; both come from one table."""
    return in_utc(moments_of(time)).cast(rows.schema["moment"])


def _coded(results: pl.DataFrame, export: Exported) -> pl.DataFrame:
    labs = {str(code): name for name, each in export.labs.items() for code in each.lab.codes_in("loinc")}
    measured = results.filter(
        pl.col("code").is_in(list(labs)) & ~pl.col("imputed") & pl.col("id").is_not_null()
    )
    return measured.select(
        subject="subject_id",
        lab=pl.col("code").replace_strict(labs, return_dtype=pl.String),
        day=pl.col("drawn").dt.date(),
        drawn="drawn",
        id="id",
    )
