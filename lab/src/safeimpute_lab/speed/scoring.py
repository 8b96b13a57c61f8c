"""How fast a warm model scores new visits: visits per second on one core, and the wait for one patient's record.

    python -m safeimpute_lab speed scoring [--patients N] [--new N] [--labs 3,10] [--spark] [--against CHECKOUT]

Wall and processor time are both printed: on a busy machine only the second says what a quiet one would take. With
`--against`, another checkout does the same work in a process of its own, with its own `src` first on the path; the
two take turns, and ratios of processor time are printed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

T = TypeVar("T")
HERE = Path(__file__).resolve().parents[4]
SINGLE, WARM_UP = 60, 5  # patients scored one by one, and those not counted
NEW_SUBJECTS = 10_000_000


@dataclass(frozen=True)
class Figures:
    """Of one model; seconds are processor seconds unless they say wall."""

    fit: float
    load_wall: float
    visits: int
    score: float
    score_wall: float
    record: float  # median over patients, in milliseconds
    record_95: float
    record_wall: float
    record_wall_95: float
    spark_wall: float | None = None


def main() -> None:
    chosen = options().parse_args()
    if chosen.child:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(asdict(measure(Path(folder), chosen))))
        return
    checkouts = [HERE] + ([Path(chosen.against)] if chosen.against else [])
    for labs in chosen.labs.split(","):
        found = [in_process_of(checkout, labs, chosen) for checkout in checkouts]
        for checkout, figures in zip(checkouts, found, strict=True):
            tell(checkout.name, int(labs), chosen.patients, figures)
        if len(found) == 2:
            here, there = found
            print(
                f"  {checkouts[0].name} / {checkouts[1].name}, processor time: scoring "
                f"{here.score / there.score:.2f}, one record {here.record / there.record:.2f}, fit "
                f"{here.fit / there.fit:.2f}",
                flush=True,
            )


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=6_000)
    parser.add_argument("--new", type=int, default=4_000)
    parser.add_argument("--labs", default="3,10", help="labs in the table, the target among them")
    parser.add_argument("--spark", action="store_true", help="also on Spark, local[2]")
    parser.add_argument("--against", help="another checkout to compare with")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def in_process_of(checkout: Path, labs: str, chosen: argparse.Namespace) -> Figures:
    """The work done by one checkout's code, on one thread."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", "--labs", labs]
    command += ["--patients", str(chosen.patients), "--new", str(chosen.new)]
    command += ["--spark"] if chosen.spark and checkout == HERE else []
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def tell(name: str, labs: int, patients: int, figures: Figures) -> None:
    print(f"{name}, {labs} labs, fitted on {patients:,} patients in {figures.fit:.0f} s")
    rate, wall_rate = figures.visits / figures.score, figures.visits / figures.score_wall
    print(f"  {figures.visits:,} visits: {rate:,.0f} visits/s of one core (wall: {wall_rate:,.0f}/s)")
    print(
        f"  one record: median {figures.record:.1f} ms, 95 % within {figures.record_95:.1f} ms (wall: "
        f"{figures.record_wall:.1f}, {figures.record_wall_95:.1f} ms); loaded in {figures.load_wall:.2f} s"
    )
    if figures.spark_wall is not None:
        print(f"  Spark local[2]: {figures.visits / figures.spark_wall:,.0f} visits/s, wall")
    sys.stdout.flush()


def measure(folder: Path, chosen: argparse.Namespace) -> Figures:
    """Fit, save, load and score; only names that earlier checkouts have too."""
    from safeimpute import SafeImputer

    labs, model = int(chosen.labs), folder / "model"
    fitted, new = visits_of(chosen.patients, labs, 1), visits_of(chosen.new, labs, 2)
    new = new.with_columns(pl.col("subject_id") + NEW_SUBJECTS)
    told = {"target": "hba1c", "tolerance": 0.8, "fdr": 0.3, "claim": "patients,unmeasured"}
    _, _, fit = timed(lambda: SafeImputer(**told).fit(fitted).save(model))
    scorer, load_wall, _ = timed(lambda: SafeImputer.load(model).scorer())
    scorer.score(new.head(500))
    _, score_wall, score = timed(lambda: scorer.score(new))
    wall, work = one_by_one(scorer.score, new)
    return Figures(
        fit=fit,
        load_wall=load_wall,
        visits=len(new),
        score=score,
        score_wall=score_wall,
        record=float(np.median(work)),
        record_95=float(np.quantile(work, 0.95)),
        record_wall=float(np.median(wall)),
        record_wall_95=float(np.quantile(wall, 0.95)),
        spark_wall=on_spark(model, new, folder) if chosen.spark else None,
    )


def one_by_one(score: Callable[[pl.DataFrame], object], visits: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """One patient's record at a time, as a service would ask: wall and processor milliseconds."""
    records = visits.partition_by("subject_id", maintain_order=True)[: SINGLE + WARM_UP]
    waits = []
    for record in records:
        _, wall, work = timed(lambda record=record: score(record))  # type: ignore[misc]
        waits.append((1e3 * wall, 1e3 * work))
    table = np.array(waits[WARM_UP:])
    return table[:, 0], table[:, 1]


def on_spark(model: Path, visits: pl.DataFrame, folder: Path) -> float:
    """Wall seconds, the session's start not counted."""
    from pyspark.sql import SparkSession

    from safeimpute.spark.scoring import score_files

    os.environ["PYSPARK_PYTHON"] = sys.executable
    visits.write_parquet(folder / "visits.parquet")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder.config("spark.driver.memory", "1g").getOrCreate()  # more than it may need
    return timed(lambda: score_files(model, folder / "visits.parquet", folder / "scored"))[1]


def visits_of(patients: int, labs: int, seed: int) -> pl.DataFrame:
    from safeimpute.visits.examples import simulate

    return simulate("mimic4", np.random.default_rng(seed), patients=patients, labs=labs - 1).visits


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """A result, its wall seconds and its processor seconds."""
    wall, busy = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - busy


if __name__ == "__main__":
    main()
