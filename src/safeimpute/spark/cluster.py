"""A cluster's table on its way to the workers: read, partitioned by patient, with the model shipped beside it."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from safeimpute.errors import MissingExtra, OptionError, SafeImputeError, VisitsError
from safeimpute.machine.places import partial_prefix
from safeimpute.model.manifest import verified_manifest
from safeimpute.model.open_model import Status
from safeimpute.model.scorer import LabScorer, Scorer
from safeimpute.visits.imputations import Hashes, known_counts, known_hashes, refuse_counted
from safeimpute.visits.new_visits import Reading, columns_read, read_new_visits, require_readable, whole_patients

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
PARTITIONS_PER_CORE = 4


def session_here() -> "SparkSession":
    """The session that runs, or a new one."""
    require_spark()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse = Path(tempfile.gettempdir()) / "safeimpute-spark-warehouse"  # else one appears where the user is
    builder = SparkSession.builder.appName("safeimpute score")
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def require_spark() -> None:
    """Name the extra where it is not installed."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        raise MissingExtra("Scoring on Spark", "spark")


def read_parquet(session: "SparkSession", path: Path, columns: Mapping[str, str]) -> "DataFrame":
    """A parquet file or folder that all workers reach, its columns named as the model knows them."""
    if not path.exists() or (path.is_file() and path.suffix not in (".parquet", ".pq")):
        raise VisitsError(f"{path.name!r} is no parquet file or folder; Spark reads those. Save the visits as parquet.")
    table = session.read.parquet(str(path))
    for name in columns:
        if name not in table.columns:
            raise VisitsError(f"column mapping names {name!r}, which the table does not have.")
    return table.withColumnsRenamed(dict(columns))


@contextmanager
def plain_errors() -> Iterator[None]:
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


def by_patient(
    visits: "DataFrame", model: Path, reading: Reading, without: Sequence[str], partitions: int | None
) -> "tuple[DataFrame, str]":
    """What the model reads, patients whole and in order, and the name under which the model arrives at workers."""
    require_readable(visits.columns, reading, without)
    read = on_the_wall(visits.select(*columns_read(visits.columns, reading)))
    context = _context(read)
    archive = _ship(context, model)
    parts = partitions or PARTITIONS_PER_CORE * context.defaultParallelism
    return read.repartition(parts, reading.subject).sortWithinPartitions(reading.subject, reading.time), archive


def on_the_wall(visits: "DataFrame") -> "DataFrame":
    """Timestamps as the session's clock on the wall shows them: a table on disk carries no zone, nor may this one."""
    zoned = [name for name, kind in visits.dtypes if kind == "timestamp"]
    return visits.withColumns({name: visits[name].cast("timestamp_ntz") for name in zoned})


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
def warm_scorer(archive: str) -> LabScorer:
    """The model of a worker, loaded once per process; the driver, which sees the night log, tells what stands."""
    from pyspark import SparkFiles

    return Scorer.load(SparkFiles.get(archive), status=Status()).one


def refuse_known(
    visits: "DataFrame", model: Path, reading: Reading, without: Sequence[str], beside: Sequence[Path]
) -> None:
    """As `refuse_known_values`, counted over the whole table in a pass of its own."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    if (known := known_hashes(*beside)) is None:
        return
    whole, archive = by_patient(visits, model, reading, without, None)
    count = partial(_known_in_batches, archive=archive, without=tuple(without), known=known)
    labs = reading.labs
    sums = [f.sum(f"lab{place}_{kind}") for place in range(len(labs)) for kind in ("same", "close")]
    schema = ", ".join(f"lab{place}_{kind} long" for place in range(len(labs)) for kind in ("same", "close"))
    seen = Observation()
    named = [each.alias(str(place)) for place, each in enumerate(sums)]
    whole.mapInArrow(count, schema).observe(seen, *named).write.format("noop").mode("overwrite").save()
    found = [int(seen.get[str(place)] or 0) for place in range(len(sums))]
    refuse_counted(dict(zip(labs, zip(found[::2], found[1::2], strict=True), strict=True)))


def _known_in_batches(
    batches: "Iterator[pa.RecordBatch]", archive: str, without: tuple[str, ...], known: Hashes
) -> "Iterator[pa.RecordBatch]":
    """Per batch and lab, the values that an earlier run released."""
    import pyarrow as pa

    reading = warm_scorer(archive).reading
    for frame in whole_patients(batches, reading.subject):
        counts = known_counts(read_new_visits(frame, reading, without).arrays, known)
        cells = {
            f"lab{place}_{kind}": [number]
            for place, lab in enumerate(reading.labs)
            for kind, number in zip(("same", "close"), counts[lab], strict=True)
        }
        yield pa.RecordBatch.from_pydict(cells)
