"""Scoring on Spark: new visits of any number, partitioned by patient, against a model shipped to every worker.

Each worker scores whole patients with the same frozen functions as one machine does, so the rows come out the same.
The stored cut-off needs one pass. The joint rule needs, of everybody else's visits, one count per threshold: the
driver adds those up, a second pass gives every candidate its size, the driver counts the sizes and finds how many may
be released. Rows never travel to the driver.
"""

import atexit
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from safeimpute.errors import GuaranteeRefused, MissingExtra, OptionError, SafeImputeError, VisitsError
from safeimpute.records.new_visits import columns_read, read_new_visits, require_readable
from safeimpute.runtime.files import finished_folder
from safeimpute.scoring.folder import verified_manifest
from safeimpute.scoring.frozen import (
    COVERED,
    NewScores,
    ScoringModel,
    explained,
    joint_part,
    require_joint_release,
    score_new,
    shared_uniform,
)
from safeimpute.scoring.scorer import Account, Rule, Scorer, check_rule
from safeimpute.selection.patients import RESERVE, Everyone, pool_calibration, unmeasured_sizes
from safeimpute.selection.release import OUT_OF_SCOPE
from safeimpute.selection.weighted import largest_release, least_release

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TABLE = (
    "subject_id",
    "time",
    "lab",
    "unit",
    "value",
    "lower",
    "upper",
    "risk",
    "p_value",
    "released",
    "reason",
)
PARTITIONS_PER_CORE = 4
# Beside the table's columns, what the joint rule and the account need of every visit.
FLAGS = ("candidate", "own_scored", "bad", "known", "inside")
SCORES = f"weight double, visit_key long, place int, {', '.join(f'{flag} boolean' for flag in FLAGS)}"


def score(
    visits: "DataFrame",
    model: str | Path,
    rule: Rule = "cutoff",
    without: Sequence[str] = (),
    partitions: int | None = None,
) -> "DataFrame":
    """The imputation table of new visits, as `Scorer.score` gives it, in no particular order.

    `model` is a model folder on the driver; it travels with Spark's own distribution of archives. Workers stream
    through their partitions, so that a few for each core (the default) serve a table of any length.
    """
    return _table(_scored_visits(visits, Path(model), check_rule(rule), without, partitions))


def score_files(
    model: Path,
    visits: Path,
    out: Path,
    rule: str = "cutoff",
    *,
    columns: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    force: bool = False,
) -> Account:
    """Score a parquet file or folder into a folder of parquet files, whole or not at all; returns the account."""
    chosen = check_rule(rule)
    scorer = Scorer.load(model)
    session = _session()
    table = _read(session, visits, columns or {})
    with finished_folder(out, force=force) as partial_folder, _plain_errors():
        scored = _scored_visits(table, model, chosen, without, None).persist(_on_disk())
        try:
            _table(scored).write.mode("overwrite").parquet(str(partial_folder))
            account = _account(scored, scorer, chosen, without, table.columns)
        finally:
            scored.unpersist()
        # Names that begin with an underscore are no data to Spark.
        (partial_folder / "_score.json").write_text(json.dumps(asdict(account), indent=2) + "\n")
    return account


def _session() -> "SparkSession":
    _require_spark()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse = (
        Path(tempfile.gettempdir()) / "safeimpute-spark-warehouse"
    )  # else one appears in the user's folder
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


class _plain_errors:  # noqa: N801 — a context manager, used as a verb
    """What a worker refused on purpose reaches the user as the same plain sentence."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        mark = "safeimpute.errors."
        if error is not None and not isinstance(error, SafeImputeError) and mark in str(error):
            said = str(error).rsplit(mark, 1)[1].splitlines()[0]
            raise VisitsError(said.partition(": ")[2]) from None


def _scored_visits(
    visits: "DataFrame", model: Path, rule: Rule, without: Sequence[str], partitions: int | None
) -> "DataFrame":
    """One row per visit: the table's columns and what the joint rule needs, decided."""
    _require_spark()
    scorer = Scorer.load(model)
    _refuse_claim(scorer.model, rule)
    require_readable(visits.columns, scorer.reading, without)
    read = _on_the_wall(visits.select(*columns_read(visits.columns, scorer.reading)))
    context = _context(read)
    archive = _ship(context, model)
    subject, time = scorer.reading.subject, scorer.reading.time
    parts = partitions or PARTITIONS_PER_CORE * context.defaultParallelism
    whole = read.repartition(parts, subject).sortWithinPartitions(subject, time)
    schema = _schema(read, subject, time)
    work = partial(_score_batches, archive=archive, rule=rule, without=tuple(without), schema=schema)
    scored = whole.mapInArrow(work, schema)
    return scored if rule == "cutoff" or without else _decided_jointly(scored, scorer.model, archive)


def _on_the_wall(visits: "DataFrame") -> "DataFrame":
    """Timestamps as the session's clock on the wall shows them: a table on disk carries no zone, nor may this one."""
    zoned = [name for name, kind in visits.dtypes if kind == "timestamp"]
    return visits.withColumns({name: visits[name].cast("timestamp_ntz") for name in zoned})


def _refuse_claim(model: ScoringModel, rule: Rule) -> None:
    if rule == "bh" and model.calibration is None:
        raise GuaranteeRefused(
            f"the joint rule on Spark serves models that promise something to new patients (claim {COVERED.name!r}): "
            f"{model.no_promise}. The rule 'cutoff' gives the values without a promise."
        )


def _schema(visits: "DataFrame", subject: str, time: str) -> "StructType":
    """The columns a worker returns; identifiers keep the types of the given table."""
    kinds = dict(visits.dtypes)
    from pyspark.sql.types import _parse_datatype_string

    columns = f"subject_id {kinds[subject]}, time {kinds[time]}, lab string, unit string, value double, lower double"
    rest = "upper double, risk double, p_value double, released boolean, reason string"
    schema: StructType = _parse_datatype_string(f"{columns}, {rest}, {SCORES}")  # type: ignore[assignment]
    return schema


def _table(scored: "DataFrame") -> "DataFrame":
    return scored.filter("candidate").select(*TABLE)


def _on_disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY


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
        place = tempfile.mkdtemp(prefix="safeimpute-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)  # workers may ask for it until the very end
        context.addArchive(f"{shutil.make_archive(f'{place}/{name}', 'zip', model)}#{name}")
    return name


@lru_cache(maxsize=4)
def _warm_scorer(archive: str) -> Scorer:
    """The model of a worker, loaded once per process."""
    from pyspark import SparkFiles

    return Scorer.load(SparkFiles.get(archive))


# ---- the joint rule, on the driver: counts alone


def _decided_jointly(scored: "DataFrame", model: ScoringModel, archive: str) -> "DataFrame":
    """Release over all partitions at once. The scored visits stay on the workers' disks for the second pass."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType, StructField, StructType

    assert model.calibration is not None  # refused before
    scored = scored.persist(_on_disk())
    with _plain_errors():
        everyone, candidates, key = _everyone(scored, len(model.calibration.thresholds()))
    require_joint_release(model.calibration, candidates, model.alpha)
    # Releases that keep a candidate in; null where it is not selected.
    schema = StructType([*scored.schema.fields, StructField("least", LongType())])
    xi = shared_uniform(model, key)
    sized = scored.mapInArrow(
        partial(_size_batches, archive=archive, everyone=everyone, xi=xi, schema=schema), schema
    )
    counts = sized.filter("least is not null").groupBy("least").count().toArrow()
    most = largest_release(counts["least"].to_numpy(), counts["count"].to_numpy())
    released = f.coalesce(f.col("least") <= most, f.lit(False))
    reason = f.when(released, "").otherwise(f.col("reason"))
    return sized.withColumn("reason", reason).withColumn("released", released).drop("least")


def _everyone(scored: "DataFrame", n_thresholds: int) -> tuple[Everyone, int, int]:
    """Candidates at or below each threshold, new patients, all candidates, and the candidates' keys as one."""
    from pyspark.sql import functions as f

    there = scored.filter("candidate and inside")
    counted = there.groupBy("place").agg(f.count("*"), f.bit_xor("visit_key")).collect()
    at = np.zeros(n_thresholds + 1)
    key = 0
    for place, count, keys in counted:
        at[place] = count
        key ^= keys
    patients = scored.filter("not known").agg(f.countDistinct("subject_id")).collect()[0][0]
    return Everyone(np.cumsum(at[:-1]), patients), int(at.sum()), key % 2**64


def _account(
    scored: "DataFrame", scorer: Scorer, rule: Rule, without: Sequence[str], columns: Sequence[str]
) -> Account:
    from pyspark.sql import functions as f

    met = f.countDistinct(f.when(f.col("known"), f.col("subject_id")))
    visits, patients, known = scored.agg(f.count("*"), f.countDistinct("subject_id"), met).collect()[0]
    outcomes = scored.filter("candidate").groupBy("released", "reason").count().collect()
    withheld = {row["reason"]: row["count"] for row in outcomes if not row["released"]}
    used = columns_read(columns, scorer.reading)
    return scorer.account(
        rule,
        without,
        visits=visits,
        patients=patients,
        known_patients=known,
        released=sum(row["count"] for row in outcomes if row["released"]),
        withheld=dict(sorted(withheld.items(), key=lambda each: -each[1])),
        ignored=tuple(name for name in columns if name not in used),
        unknown_levels={},
    )


# ---- what workers do


def _score_batches(
    batches: "Iterator[pa.RecordBatch]",
    archive: str,
    rule: Rule,
    without: tuple[str, ...],
    schema: "StructType",
) -> "Iterator[pa.RecordBatch]":
    """Score a partition; the cut-off decides at once, the joint rule later."""
    scorer = _warm_scorer(archive)
    for frame in _whole_patients(batches, scorer.reading.subject):
        new = read_new_visits(frame, scorer.reading, without)
        scores = score_new(new.arrays, scorer.model)
        undecided = explained(scores, np.zeros(len(scores.risk), dtype=bool))
        decision = undecided if rule == "bh" and not without else scorer.decide(scores, "cutoff", without)
        table = scorer.table(new, scores, decision, np.ones(len(scores.risk), dtype=bool))
        yield from _arrow(table.with_columns(**_extra(scores, scorer.model)), schema)


def _extra(scores: NewScores, model: ScoringModel) -> dict[str, pl.Series]:
    """What the joint rule and the account need of every visit."""
    thresholds = np.empty(0) if model.calibration is None else model.calibration.thresholds()
    flags = {name: getattr(scores, name) for name in FLAGS if name != "inside"} | {"inside": scores.inside()}
    return {
        "weight": pl.Series(scores.weight),
        "visit_key": pl.Series(scores.visit_key.view(np.int64)),
        "place": pl.Series(np.searchsorted(thresholds, scores.risk, side="left")),
        **{name: pl.Series(flag) for name, flag in flags.items()},
    }


def _size_batches(
    batches: "Iterator[pa.RecordBatch]", archive: str, everyone: Everyone, xi: float, schema: "StructType"
) -> "Iterator[pa.RecordBatch]":
    """Give every candidate its size under the joint rule, from its own patient and the counts of all."""
    model = _warm_scorer(archive).model
    assert model.calibration is not None  # refused before
    thresholds = model.calibration.thresholds()
    pooled = pool_calibration(model.calibration.labelled(), thresholds)
    for frame in _whole_patients(batches, "subject_id"):
        joint = joint_part(_scores_of(frame))
        size = unmeasured_sizes(joint.candidates, joint.own_scored, pooled, everyone, thresholds, model.alpha)
        selected = ~np.isnan(size)
        least: list[int | None] = [None] * len(frame)
        for row, needed in zip(
            joint.rows[selected], least_release(RESERVE * xi * size[selected]), strict=True
        ):
            least[row] = int(needed)
        yield from _arrow(frame.with_columns(least=pl.Series(least, dtype=pl.Int64)), schema)


def _scores_of(frame: pl.DataFrame) -> NewScores:
    """Scored visits as they were before they became rows, as far as the joint rule looks."""
    subject = frame["subject_id"]
    patient = np.cumsum((subject != subject.shift(1)).fill_null(False).to_numpy()).astype(np.int64)
    flags = {name: frame[name].to_numpy() for name in FLAGS}
    inside = flags.pop("inside")
    return NewScores(
        patient=patient,
        visit_key=frame["visit_key"].to_numpy().view(np.uint64),
        value=frame["value"].to_numpy(),
        risk=frame["risk"].to_numpy(),
        spread=np.ones(len(frame)),
        weight=frame["weight"].to_numpy(),
        outside={OUT_OF_SCOPE: ~inside},
        **flags,
    )


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
