"""Calibration on Spark: balances, cut-off and diagnosis from all patients of a cluster table, equal to one machine's.

Workers add up whole numbers over their patients; the driver receives one line of sums per batch, never a visit.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from safeimpute.model.whole_table import (
    Bets,
    Stakes,
    TableDiagnosis,
    TableSums,
    calibratable,
    save_with,
    summed,
    table_bets,
    table_sums,
)
from safeimpute.spark.cluster import (
    by_patient,
    plain_errors,
    read_parquet,
    refuse_known,
    session_here,
    warm_scorer,
    whole_patients,
)
from safeimpute.visits.new_visits import read_new_visits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA = "sums string"
SentStakes = dict[int, list[list[float]]]  # plain numbers


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
    sums = summed(TableSums.from_dict(each) for each in _collected(whole, archive, None))

    def bets(stakes: Stakes) -> Iterator[Bets]:
        sent = {number: [each.tolist() for each in several] for number, several in stakes.items()}
        return ({int(number): each for number, each in batch.items()} for batch in _collected(whole, archive, sent))

    return save_with(saved, frozen, sums, bets, out, force=force)


def _collected(whole: "DataFrame", archive: str, stakes: SentStakes | None) -> list[Any]:
    """One line per batch of patients."""
    lines = whole.mapInArrow(partial(_sums_of_batches, archive=archive, stakes=stakes), SCHEMA)
    return [json.loads(row["sums"]) for row in lines.collect()]


def _sums_of_batches(
    batches: "Iterator[pa.RecordBatch]", archive: str, stakes: SentStakes | None
) -> "Iterator[pa.RecordBatch]":
    """What a worker adds up: the sums of the first pass, or the bets of the second."""
    import pyarrow as pa

    scorer = warm_scorer(archive)
    for frame in whole_patients(batches, scorer.reading.subject):
        visits = read_new_visits(frame, scorer.reading).arrays
        if stakes is None:
            line = json.dumps(table_sums(visits, scorer.model, scorer.settings).to_dict())
        else:
            staked = {number: [np.array(each) for each in several] for number, several in stakes.items()}
            line = json.dumps(table_bets(visits, scorer.model, scorer.settings, staked))
        yield pa.RecordBatch.from_pydict({"sums": [line]})
