"""Scoring on Spark: new visits of any number, partitioned by patient, against a model shipped to every worker.

Each worker scores whole patients with the functions one machine uses, so the rows come out the same. One pass, and no
row travels to the driver: the counts of the account are observed on the workers while the table is written.
"""

import atexit
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from safeimpute.errors import MissingExtra, OptionError, SafeImputeError, VisitsError
from safeimpute.records.imputations import COLUMNS, SPARK_TYPES
from safeimpute.records.new_visits import NewVisits, Reading, columns_read, read_new_visits, require_readable
from safeimpute.records.unit_checks import unit_rules
from safeimpute.records.units import target_unit
from safeimpute.runtime.files import finished_folder, reserved
from safeimpute.runtime.leftovers import partial_prefix
from safeimpute.scoring.account import Account
from safeimpute.scoring.folder import verified_manifest
from safeimpute.scoring.frozen import score_visits
from safeimpute.scoring.scorer import Scorer
from safeimpute.scoring.standing import Standing, in_force
from safeimpute.selection.reasons import IN_WORDS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

PARTITIONS_PER_CORE = 4
# Beside the table's columns, of every visit: whether its target is missing, whether it is its patient's first, and
# per category the rows with a level never met at fit (on the first visit of a batch, of the whole batch).
CANDIDATE, FIRST, UNKNOWN = "candidate", "first", "unknown_{}"
ACCOUNT_FILE = "_score.json"  # names that begin with an underscore are no data to Spark


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
    _require_spark()
    scorer = Scorer.load_watched(model)
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

    _require_spark()
    scorer = Scorer.load(model)
    reading, since = scorer.reading, scorer.model.until if day is None else day
    read = _on_the_wall(visits.select(*columns_read(visits.columns, reading)))
    when = f.col(reading.time)
    if dict(read.dtypes)[reading.time] in ("date", "timestamp_ntz"):
        when = f.datediff(when.cast("date"), f.lit("1970-01-01").cast("date"))
    came = read.filter(when > since - 1).select(reading.subject).distinct()
    return pl.DataFrame(pl.from_arrow(read.join(came, on=reading.subject, how="left_semi").toArrow()))


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

    session, scorer = _session(), Scorer.load_watched(model, public_key=public_key)
    table = _read(session, visits, columns or {})
    _require_units(table, scorer)
    counts = Observation()
    with (
        reserved(out, force=force, inputs=(model, visits)),
        finished_folder(out, force=force) as partial_folder,
        _plain_errors(),
    ):
        scored = _every_visit(table, model, scorer, without, None)
        _listed(scored.observe(counts, *_counted(scorer.reading))).write.mode("overwrite").parquet(
            str(partial_folder)
        )
        account = _account(counts.get, scorer, without, table.columns)
        (partial_folder / ACCOUNT_FILE).write_text(json.dumps(asdict(account), indent=2) + "\n")
    return account


def _session() -> "SparkSession":
    _require_spark()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse = (
        Path(tempfile.gettempdir()) / "safeimpute-spark-warehouse"
    )  # else one appears where the user is
    builder = SparkSession.builder.appName("safeimpute score")
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _require_spark() -> None:
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        raise MissingExtra("Scoring on Spark", "spark")


def _read(session: "SparkSession", path: Path, columns: Mapping[str, str]) -> "DataFrame":
    if not path.exists() or (path.is_file() and path.suffix not in (".parquet", ".pq")):
        raise VisitsError(
            f"{path.name!r} is no parquet file or folder; Spark reads those. Save the visits as parquet."
        )
    table = session.read.parquet(str(path))
    for name in columns:
        if name not in table.columns:
            raise VisitsError(f"column mapping names {name!r}, which the table does not have.")
    return table.withColumnsRenamed(dict(columns))


def _require_units(visits: "DataFrame", scorer: Scorer) -> None:
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


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What a worker refused on purpose reaches the user as the same plain sentence."""
    try:
        yield
    except SafeImputeError:
        raise
    except Exception as error:
        mark = "safeimpute.errors."
        if mark not in str(error):
            raise
        said = str(error).rsplit(mark, 1)[1].splitlines()[0]
        raise VisitsError(said.partition(": ")[2]) from None


def _every_visit(
    visits: "DataFrame", model: Path, scorer: Scorer, without: Sequence[str], partitions: int | None
) -> "DataFrame":
    """The table's columns for every visit, measured or not, and what the account counts."""
    reading = scorer.reading
    require_readable(visits.columns, reading, without)
    read = _on_the_wall(visits.select(*columns_read(visits.columns, reading)))
    context = _context(read)
    archive = _ship(context, model)
    parts = partitions or PARTITIONS_PER_CORE * context.defaultParallelism
    whole = read.repartition(parts, reading.subject).sortWithinPartitions(reading.subject, reading.time)
    schema = _schema(read, reading)
    return whole.mapInArrow(
        partial(
            _score_batches, archive=archive, without=tuple(without), schema=schema, standing=scorer.standing
        ),
        schema,
    )


def _listed(scored: "DataFrame") -> "DataFrame":
    """The imputation table: visits whose target is missing."""
    return scored.filter(CANDIDATE).select(*COLUMNS)


def _on_the_wall(visits: "DataFrame") -> "DataFrame":
    """Timestamps as the session's clock on the wall shows them: a table on disk carries no zone, nor may this one."""
    zoned = [name for name, kind in visits.dtypes if kind == "timestamp"]
    return visits.withColumns({name: visits[name].cast("timestamp_ntz") for name in zoned})


def _schema(visits: "DataFrame", reading: Reading) -> "StructType":
    """The columns a worker returns; identifiers keep the types of the given table."""
    from pyspark.sql.types import StructType

    kinds = dict(visits.dtypes)
    wanted = {"subject_id": kinds[reading.subject], "time": kinds[reading.time], **SPARK_TYPES}
    wanted |= {CANDIDATE: "boolean", FIRST: "boolean"}
    wanted |= {UNKNOWN.format(place): "long" for place in range(len(reading.categories))}
    return StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in wanted.items()))  # type: ignore[return-value]


# ---- the account


def _counted(reading: Reading) -> "list[Column]":
    """What is counted on the way: visits, patients, released, withheld by reason, unknown levels."""
    from pyspark.sql import functions as f

    candidate, released = f.col(CANDIDATE), f.col("released")
    withheld = [f.count_if(candidate & ~released & (f.col("reason") == reason)) for reason in IN_WORDS]
    strange = [f.sum(UNKNOWN.format(place)) for place in range(len(reading.categories))]
    counts = [f.count(f.lit(1)), f.count_if(f.col(FIRST)), f.count_if(released), *withheld, *strange]
    return [count.alias(str(place)) for place, count in enumerate(counts)]


def _account(
    observed: Mapping[str, Any], scorer: Scorer, without: Sequence[str], columns: Sequence[str]
) -> Account:
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


# ---- the model on its way to the workers


def _context(visits: "DataFrame") -> "SparkContext":
    try:
        return visits.sparkSession.sparkContext
    except Exception as error:
        raise OptionError(
            f"scoring needs a classic Spark session, whose context ships files ({type(error).__name__}); Spark Connect "
            "has none."
        ) from None


def _ship(context: "SparkContext", model: Path) -> str:
    """Send the model folder to every worker, once per application; the name under which it arrives."""
    name = f"safeimpute-model-{verified_manifest(model)['checksum'][:16]}"
    if not any(path.endswith(f"#{name}") for path in context.listArchives):
        place = tempfile.mkdtemp(prefix=partial_prefix("spark-model"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)  # workers may ask for it until the very end
        context.addArchive(f"{shutil.make_archive(f'{place}/{name}', 'zip', model)}#{name}")
    return name


@lru_cache(maxsize=4)
def _warm_scorer(archive: str) -> Scorer:
    """The model of a worker, loaded once per process."""
    from pyspark import SparkFiles

    return Scorer.load(SparkFiles.get(archive))


# ---- what workers do


def _score_batches(
    batches: "Iterator[pa.RecordBatch]",
    archive: str,
    without: tuple[str, ...],
    schema: "StructType",
    standing: Standing | None,
) -> "Iterator[pa.RecordBatch]":
    """Score a partition, patient by patient as they stream by; `standing` is what an alarm or recalibration left."""
    scorer = _warm_scorer(archive)
    if standing is not None:
        scorer = replace(scorer, model=in_force(scorer.model, standing))
    for frame in _whole_patients(batches, scorer.reading.subject):
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


def _whole_patients(batches: "Iterator[pa.RecordBatch]", subject: str) -> Iterator[pl.DataFrame]:
    """Rows sorted by patient, cut between patients wherever Spark cut its batches."""
    waiting = pl.DataFrame()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        frame = pl.DataFrame(pl.from_arrow(batch))
        frame = pl.concat([waiting, frame]) if len(waiting) else frame
        start = frame[subject].eq_missing(frame[subject][-1]).arg_max() or 0
        if start:
            yield frame[:start]
        waiting = frame[start:]
    if len(waiting):
        yield waiting


def _arrow(table: pl.DataFrame, schema: "StructType") -> "Iterator[pa.RecordBatch]":
    """A table as Spark expects it: the schema's columns, in its order and types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema)
    yield from table.select(wanted.names).to_arrow().cast(wanted).to_batches()
