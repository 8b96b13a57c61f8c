"""How fast a warm model scores new visits: visits per second, and the wait for one patient's record.

python bench/scoring.py [--patients N] [--new N] [--labs 3,10] [--spark]

Wall and processor time are both printed: on a busy machine only the second says what a quiet one would take.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from safeimpute import SafeImputer
from safeimpute.records.simulate import simulate
from safeimpute.scoring.scorer import Scorer

T = TypeVar("T")
SINGLE = 60  # patients scored one by one
NEW_SUBJECTS = 10_000_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--patients", type=int, default=6_000)
    options.add_argument("--new", type=int, default=4_000)
    options.add_argument("--labs", default="3,10", help="labs in the table, the target among them")
    options.add_argument("--spark", action="store_true", help="also on Spark, local[2]")
    chosen = options.parse_args()
    for labs in map(int, chosen.labs.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), chosen.patients, chosen.new, labs, chosen.spark)


def measure(folder: Path, patients: int, new: int, labs: int, spark: bool) -> None:
    model, visits = folder / "model", new_visits(new, labs)
    _, wall, _ = timed(lambda: fit(patients, labs, model))
    print(f"{labs} labs, fitted on {patients:,} patients in {wall:.0f} s", flush=True)
    scorer, wall, _ = timed(lambda: Scorer.load(model))
    panel = len(scorer.model.fitted.blend.source.panel.target)
    print(f"  model loaded in {wall:.2f} s, panel of {panel:,} visits")
    scorer.score(visits.head(500))
    _, wall, work = timed(lambda: scorer.score(visits))
    rate = f"{len(visits) / wall:,.0f} visits/s (one core busy for {work:.1f} s: {len(visits) / work:,.0f}/s)"
    print(f"  {len(visits):,} visits in {wall:.1f} s: {rate}")
    report_single(scorer, visits)
    if spark:
        report_spark(model, visits, folder)


def report_single(scorer: Scorer, visits: pl.DataFrame) -> None:
    """One patient's record at a time, as a service would ask."""
    records = visits.partition_by("subject_id", maintain_order=True)[: SINGLE + 5]
    waits = [timed(lambda record=record: scorer.score(record))[1:] for record in records][5:]
    wall, work = (1e3 * np.array(each) for each in zip(*waits, strict=True))
    print(
        f"  one record: median {np.median(wall):.1f} ms, 95 % within {np.quantile(wall, 0.95):.1f} ms", end=""
    )
    print(f" (processor: {np.median(work):.1f} ms, {np.quantile(work, 0.95):.1f} ms)", flush=True)


def report_spark(model: Path, visits: pl.DataFrame, folder: Path) -> None:
    from pyspark.sql import SparkSession

    from safeimpute.scoring.spark import score_files

    os.environ["PYSPARK_PYTHON"] = sys.executable
    visits.write_parquet(folder / "visits.parquet")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1g")  # more than it may need
    _, start, _ = timed(builder.getOrCreate)
    for rule in ("cutoff", "bh"):
        _, wall, _ = timed(
            lambda rule=rule: score_files(model, folder / "visits.parquet", folder / rule, rule)
        )
        print(
            f"  Spark local[2], rule {rule}: {wall:.1f} s, {len(visits) / wall:,.0f} visits/s (start {start:.1f} s)"
        )


def fit(patients: int, labs: int, model: Path) -> None:
    visits = simulate("mimic4", np.random.default_rng(1), patients=patients, labs=labs - 1).visits
    SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3, claim="patients,unmeasured").fit(visits).save(model)


def new_visits(patients: int, labs: int) -> pl.DataFrame:
    visits = simulate("mimic4", np.random.default_rng(2), patients=patients, labs=labs - 1).visits
    return visits.with_columns(pl.col("subject_id") + NEW_SUBJECTS)


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """A result, its wall seconds and its processor seconds."""
    wall, busy = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - busy


if __name__ == "__main__":
    main()
