"""Scoring on Spark: new visits of any number, partitioned by patient, as a table or as parquet files.

Each worker scores whole patients with the functions one machine uses, so the rows come out the same. One pass, and no
visit travels to the driver: the counts of the account are observed on the workers while the table is written. Of what
was released, the driver keeps hashes, by which it is known again.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from safeimpute.machine.files import finished_folder, reserved, sha256_of
from safeimpute.machine.places import partial_prefix
from safeimpute.model.account import Account
from safeimpute.model.frozen import score_visits
from safeimpute.model.open_model import Status
from safeimpute.model.scorer import LabScorer, Scorer
from safeimpute.selection.reasons import IN_WORDS
from safeimpute.spark.cluster import (
    by_patient,
    on_the_wall,
    plain_errors,
    read_parquet,
    refuse_known,
    require_spark,
    session_here,
    warm_scorer,
)
from safeimpute.tolerance import MOST_LIMITS
from safeimpute.visits.imputations import COLUMNS, SPARK_TYPES, band_types, record_released
from safeimpute.visits.new_visits import NewVisits, Reading, columns_read, read_new_visits, whole_patients
from safeimpute.visits.units import target_unit, unit_rules

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ACCOUNT_FILE = "_score.json"  # names that begin with an underscore are no data to Spark
# Beside the table's columns, of every visit: whether its target is missing, whether it is its patient's first, and
# per category the rows with a level never met at fit (on the first visit of a batch, of the whole batch).
CANDIDATE, FIRST, UNKNOWN = "candidate", "first", "unknown_{}"


def score(
    visits: "DataFrame", model: str | Path, without: Sequence[str] = (), partitions: int | None = None
) -> "DataFrame":
    """The imputation table of new visits, as `Scorer.score` gives it, in no particular order.

    Parameters
    ----------
    visits : pyspark.sql.DataFrame
        The columns of the fitted table; each patient's record whole, in any order and partitioning.
    model : path
        A model folder on the driver; it travels to the workers with Spark's own distribution of archives.
    without : sequence of str
        Labs or attributes the table lacks; nothing is promised then.
    partitions : int, optional
        Workers stream through their partitions, so that a few for each core (the default) serve any length.

    Returns
    -------
    pyspark.sql.DataFrame
        One row per visit whose target is missing, not computed yet.

    Raises
    ------
    VisitsError
        The table lacks a column, or a worker met a value it cannot read.
    ModelFolderError
        The model folder is damaged or foreign.
    """
    require_spark()
    scorer = Scorer.load(model).one
    _require_units(visits, scorer)
    return _listed(_every_visit(visits, Path(model), scorer, without, partitions))


def records_since(visits: "DataFrame", model: str | Path, day: float | None = None) -> pl.DataFrame:
    """The whole records of the patients who came after a day, on the driver: what a night's monitor and score take.

    Parameters
    ----------
    visits : pyspark.sql.DataFrame
        The cluster's table; time is a number of days or a date.
    model : path
        A model folder; its last fitted day is the default.
    day : float, optional
        Days as the model counts them; from 1970 on for dates.
    """
    from pyspark.sql import functions as f

    require_spark()
    scorer = Scorer.load(model).one
    reading, since = scorer.reading, scorer.model.until if day is None else day
    read = on_the_wall(visits.select(*columns_read(visits.columns, reading)))
    when = f.col(reading.time)
    if dict(read.dtypes)[reading.time] in ("date", "timestamp_ntz"):
        when = f.datediff(when.cast("date"), f.lit("1970-01-01").cast("date"))
    came = read.filter(when > since - 1).select(reading.subject).distinct()
    return pl.DataFrame(pl.from_arrow(read.join(came, on=reading.subject, how="left_semi").toArrow()))


def _require_units(visits: "DataFrame", scorer: LabScorer) -> None:
    """Refuse labs in another unit than the fit had, counted over the whole table before anything is scored."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    rules = [
        rule
        for rule in unit_rules(scorer.typical(), {scorer.settings.target: target_unit(scorer.settings)})
        if rule.lab.name in visits.columns
    ]
    counts = []
    for place, rule in enumerate(rules):
        value = f.col(rule.lab.name).try_cast("double")
        ours, theirs = (value * each.times + each.plus for each in (rule.own, rule.other))
        strange = ~ours.between(rule.lab.flag.low, rule.lab.flag.high) & theirs.between(rule.low, rule.high)
        counts += [f.count_if(strange).alias(f"rows{place}"), f.count(value).alias(f"measured{place}")]
    if counts:
        seen = Observation()  # counts only: no row reaches the driver
        visits.observe(seen, *counts).write.format("noop").mode("overwrite").save()
        for place, rule in enumerate(rules):
            rule.require_few(int(seen.get[f"rows{place}"]), int(seen.get[f"measured{place}"]))


def _every_visit(
    visits: "DataFrame", model: Path, scorer: LabScorer, without: Sequence[str], partitions: int | None
) -> "DataFrame":
    """The table's columns for every visit, measured or not, and what the account counts."""
    whole, archive = by_patient(visits, model, scorer.reading, without, partitions)
    schema = _schema(whole, scorer)
    return whole.mapInArrow(
        partial(_score_batches, archive=archive, without=tuple(without), schema=schema, status=scorer.status), schema
    )


def _listed(scored: "DataFrame") -> "DataFrame":
    """The imputation table: visits whose target is missing."""
    bands = [name for name in scored.columns if name in band_types(MOST_LIMITS)]
    return scored.filter(CANDIDATE).select(*COLUMNS, *bands)


def _schema(visits: "DataFrame", scorer: LabScorer) -> "StructType":
    """The columns a worker returns; identifiers keep the types of the given table."""
    from pyspark.sql.types import StructType

    kinds, reading = dict(visits.dtypes), scorer.reading
    wanted = {"subject_id": kinds[reading.subject], "time": kinds[reading.time], **SPARK_TYPES}
    wanted |= band_types(len(scorer.settings.allowed_error.limits))
    wanted |= {CANDIDATE: "boolean", FIRST: "boolean"}
    wanted |= {UNKNOWN.format(place): "long" for place in range(len(reading.categories))}
    return StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in wanted.items()))  # type: ignore[return-value]


def _score_batches(
    batches: "Iterator[pa.RecordBatch]", archive: str, without: tuple[str, ...], schema: "StructType", status: Status
) -> "Iterator[pa.RecordBatch]":
    """Score a partition, patient by patient as they stream by; `status` is what an alarm or recalibration left."""
    scorer = replace(warm_scorer(archive), status=status)
    for frame in whole_patients(batches, scorer.reading.subject):
        new = read_new_visits(frame, scorer.reading, without)
        scored = score_visits(new.arrays, scorer.model, promised=not without)
        table = scorer.table(new, scored, np.ones(len(new.arrays), dtype=bool))
        to_count = {CANDIDATE: pl.Series(scored.candidate)} | _to_count(new, scorer.reading)
        yield from _arrow(table.with_columns(**to_count), schema)


def _to_count(new: NewVisits, reading: Reading) -> dict[str, pl.Series]:
    """Each patient's first visit, and the rows of a batch with unknown levels, once."""
    patient = new.arrays.patient
    columns = {FIRST: pl.Series(np.r_[True, patient[1:] != patient[:-1]])}
    for place, name in enumerate(reading.categories):
        strange = np.zeros(len(patient), np.int64)
        strange[0] = new.unknown_levels.get(name, 0)
        columns[UNKNOWN.format(place)] = pl.Series(strange)
    return columns


def _arrow(table: pl.DataFrame, schema: "StructType") -> "Iterator[pa.RecordBatch]":
    """A table as Spark expects it: the schema's columns, in its order and types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema)
    yield from table.select(wanted.names).to_arrow().cast(wanted).to_batches()


def score_files(
    model: Path,
    visits: Path,
    out: Path,
    *,
    columns: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    force: bool = False,
    public_key: Path | None = None,
) -> Account:
    """Score a parquet file or folder into a folder of parquet files, whole or not at all.

    Parameters
    ----------
    model : Path
        The model folder.
    visits : Path
        The new visits.
    out : Path
        Folder to write; the account stands beside the table, in `_score.json`.
    columns : mapping, optional
        Names in the file -> names the model knows.
    without : sequence of str
        Labs or attributes the table lacks; nothing is promised then.
    force : bool
        Replace an earlier result.
    public_key : Path, optional
        PEM file of the Ed25519 key by whose owner the model must be signed.

    Returns
    -------
    Account
        What it came to and what it promises.
    """
    from pyspark.sql import Observation

    session, scorer = session_here(), Scorer.load(model, public_key=public_key).one
    table = read_parquet(session, visits, columns or {})
    _require_units(table, scorer)
    with plain_errors():
        refuse_known(table, model, scorer.reading, without, (out, visits, model, model.resolve().parent))
    counts = Observation()
    with (
        reserved(out, force=force, inputs=(model, visits)),
        finished_folder(out, force=force) as partial_folder,
        plain_errors(),
    ):
        scored = _every_visit(table, model, scorer, without, None)
        _listed(scored.observe(counts, *_counted(scorer.reading))).write.mode("overwrite").parquet(str(partial_folder))
        account = _account(counts.get, scorer, without, table.columns)
        (partial_folder / ACCOUNT_FILE).write_text(json.dumps(asdict(account), indent=2) + "\n")
    released = _released_anew(session, out, table, scorer.reading)
    if warning := record_released(out, sha256_of(out / ACCOUNT_FILE), released):
        sys.stderr.write(f"safeimpute: {warning}\n")
    return account


def _released_anew(session: "SparkSession", out: Path, visits: "DataFrame", reading: Reading) -> pl.DataFrame:
    """The released values of a written table but those that a patient's own measurements repeat."""
    from pyspark.sql import functions as f

    written = session.read.parquet(str(out)).filter("released").select("subject_id", "lab", "value", "released")
    value = f.col(reading.target).try_cast("double")
    own = visits.select(f.col(reading.subject).alias("subject_id"), value.cast("float").alias("single")).dropna()
    anew = written.withColumn("single", f.col("value").cast("float")).join(own, ["subject_id", "single"], "left_anti")
    with tempfile.TemporaryDirectory(prefix=partial_prefix("spark-released")) as scratch:
        anew.drop("single").write.mode("overwrite").parquet(scratch)
        return pl.read_parquet(f"{scratch}/*.parquet")


def _counted(reading: Reading) -> "list[Column]":
    """What is counted on the way: visits, patients, released, withheld by reason, unknown levels."""
    from pyspark.sql import functions as f

    candidate, released = f.col(CANDIDATE), f.col("released")
    withheld = [f.count_if(candidate & ~released & (f.col("reason") == reason)) for reason in IN_WORDS]
    strange = [f.sum(UNKNOWN.format(place)) for place in range(len(reading.categories))]
    counts = [f.count(f.lit(1)), f.count_if(f.col(FIRST)), f.count_if(released), *withheld, *strange]
    return [count.alias(str(place)) for place, count in enumerate(counts)]


def _account(observed: Mapping[str, Any], scorer: LabScorer, without: Sequence[str], columns: Sequence[str]) -> Account:
    counts = [int(observed[str(place)] or 0) for place in range(len(observed))]
    visits, patients, released = counts[:3]
    withheld = dict(zip(IN_WORDS, counts[3:], strict=False))
    unknown = dict(zip(scorer.reading.categories, counts[3 + len(IN_WORDS) :], strict=True))
    used = columns_read(columns, scorer.reading)
    most_first = sorted(withheld.items(), key=lambda each: -each[1])
    return scorer.account(
        without,
        visits=visits,
        patients=patients,
        released=released,
        withheld={reason: count for reason, count in most_first if count},
        ignored=tuple(name for name in columns if name not in used),
        unknown_levels={name: rows for name, rows in unknown.items() if rows},
    )
