"""Calibration on Spark: balances, cut-off and diagnosis from all patients of a cluster table, equal to one machine's.

Workers add up whole numbers over their patients; the driver receives one line of sums per batch, never a visit.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from safeimpute.records.new_visits import columns_read, read_new_visits, require_readable
from safeimpute.scoring.calibrate_table import added, calibratable, save_with
from safeimpute.scoring.folder import SavedModel, load_model
from safeimpute.scoring.spark import (
    PARTITIONS_PER_CORE,
    _context,
    _on_the_wall,
    _plain_errors,
    _read,
    _session,
    _ship,
    _warm_scorer,
    _whole_patients,
)
from safeimpute.scoring.whole_table import (
    TableDiagnosis,
    TableSums,
    stakes_for,
    summed,
    table_sums,
    table_wealth,
)
from safeimpute.selection.release import rule_of
from safeimpute.selection.sums import Whole

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA = "sums string"
Stakes = tuple[list[float], list[float]]


def calibrate_files_on_spark(
    model: Path, visits: Path, out: Path, *, columns: Mapping[str, str] | None = None, force: bool = False
) -> TableDiagnosis:
    """As `calibrate_table.calibrate_files`, for a parquet file or folder that all workers reach."""
    table = _read(_session(), visits, columns or {})
    with _plain_errors():
        return calibrate(table, model, out, force=force)


def calibrate(
    visits: "DataFrame",
    model: str | Path,
    out: str | Path,
    *,
    partitions: int | None = None,
    force: bool = False,
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
    saved = load_model(Path(model))
    frozen = calibratable(saved)
    whole = _partitioned(visits, saved, partitions)
    archive = _ship(_context(visits), Path(model))
    sums = summed(TableSums.told_back(each) for each in _collected(whole, archive, None))
    wealth: list[Whole] | None = None
    rule = rule_of(saved.settings)
    if rule.promise == "confident":
        one, two = stakes_for(sums, rule)
        wealth = added(iter(_collected(whole, archive, (one.tolist(), two.tolist()))))
    return save_with(saved, frozen, sums, wealth, Path(out), force=force)


def _partitioned(visits: "DataFrame", saved: SavedModel, partitions: int | None) -> "DataFrame":
    reading = saved.reading
    require_readable(visits.columns, reading)
    read = _on_the_wall(visits.select(*columns_read(visits.columns, reading)))
    parts = partitions or PARTITIONS_PER_CORE * _context(read).defaultParallelism
    return read.repartition(parts, reading.subject).sortWithinPartitions(reading.subject, reading.time)


def _collected(whole: "DataFrame", archive: str, stakes: Stakes | None) -> list[Any]:
    """One line per batch of patients."""
    lines = whole.mapInArrow(partial(_sums_of_batches, archive=archive, stakes=stakes), SCHEMA)
    return [json.loads(row["sums"]) for row in lines.collect()]


def _sums_of_batches(
    batches: "Iterator[pa.RecordBatch]", archive: str, stakes: Stakes | None
) -> "Iterator[pa.RecordBatch]":
    """What a worker adds up: the sums of the first pass, or the bets of the second."""
    import pyarrow as pa

    scorer = _warm_scorer(archive)
    for frame in _whole_patients(batches, scorer.reading.subject):
        visits = read_new_visits(frame, scorer.reading).arrays
        if stakes is None:
            line = json.dumps(table_sums(visits, scorer.model, scorer.settings).told())
        else:
            both = np.array(stakes[0]), np.array(stakes[1])
            line = json.dumps(table_wealth(visits, scorer.model, scorer.settings, both))
        yield pa.RecordBatch.from_pydict({"sums": [line]})
