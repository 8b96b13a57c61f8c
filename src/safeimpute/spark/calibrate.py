"""Calibration on Spark: balances, cut-off and diagnosis from all patients of a cluster table, equal to one machine's.

Workers add up whole numbers over their patients; the driver receives one line of sums per batch, never a visit.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from safeimpute.model.whole_table import TableDiagnosis, TableSums, calibratable, save_with, summed, table_sums
from safeimpute.spark.cluster import by_patient, plain_errors, read_parquet, refuse_known, session_here, warm_scorer
from safeimpute.visits.new_visits import read_new_visits, whole_patients

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA = "sums string"


def calibrate_files_on_spark(
    model: Path, visits: Path, out: Path, *, columns: Mapping[str, str] | None = None, force: bool = False
) -> TableDiagnosis:
    """As `whole_table.calibrate_files`, for a parquet file or folder that all workers reach."""
    table = read_parquet(session_here(), visits, columns or {})
    with plain_errors():
        return _calibrated(table, model, out, None, (visits,), force=force)


def calibrate(
    visits: "DataFrame", model: str | Path, out: str | Path, *, partitions: int | None = None, force: bool = False
) -> TableDiagnosis:
    """Calibrate a saved model on all patients of a Spark table and save it anew on the driver.

    Parameters
    ----------
    visits : pyspark.sql.DataFrame
        The columns of the fitted table; each patient's record whole, in any order and partitioning.
    model : path
        A model folder on the driver, fitted to a sample of the patients.
    out : path
        Folder for the calibrated model.
    partitions : int, optional
        A few for each core by default.
    force : bool
        Replace an earlier model there.

    Returns
    -------
    TableDiagnosis
        How the model of measuring does on the whole table.
    """
    return _calibrated(visits, Path(model), Path(out), partitions, (), force=force)


def _calibrated(
    visits: "DataFrame", model: Path, out: Path, partitions: int | None, beside: Sequence[Path], *, force: bool
) -> TableDiagnosis:
    saved, frozen = calibratable(model)
    refuse_known(visits, model, saved.reading, (), (out, *beside, model, model.resolve().parent))
    whole, archive = by_patient(visits, model, saved.reading, (), partitions)
    lines = whole.mapInArrow(partial(_sums_of_batches, archive=archive), SCHEMA).collect()
    sums = summed(TableSums.from_dict(json.loads(row["sums"])) for row in lines)
    return save_with(saved, frozen, sums, out, force=force)


def _sums_of_batches(batches: "Iterator[pa.RecordBatch]", archive: str) -> "Iterator[pa.RecordBatch]":
    """What a worker adds up, one line per batch of patients."""
    import pyarrow as pa

    scorer = warm_scorer(archive)
    for frame in whole_patients(batches, scorer.reading.subject):
        visits = read_new_visits(frame, scorer.reading).arrays
        line = json.dumps(table_sums(visits, scorer.model, scorer.settings).to_dict())
        yield pa.RecordBatch.from_pydict({"sums": [line]})
