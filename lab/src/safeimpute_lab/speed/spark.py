"""Many millions of visits scored on Spark `local[2]`, with the most memory that driver and workers held.

    python -m safeimpute_lab scale spark [--millions 10] [--out out/spark_scale]

A model is fitted to a simulated cohort, then scores millions of simulated visits of other patients, written as parquet
files of a million each. In local mode one Java process is driver and executor; the Python workers beside it hold the
model. Prints one line of JSON: visits, wall seconds, and the largest resident size of the Java process, of the Python
process that drives it, and of all workers together, in MiB.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl

DRIVER_MEMORY = "1g"
MILLION = 1_000_000
FITTED_PATIENTS, PATIENTS_PER_FILE = 2_000, 202_000
MIB = 2**20


def visits_of(patients: int, seed: int, first_subject: int) -> pl.DataFrame:
    """Simulated visits whose patients are numbered from `first_subject` on."""
    from safeimpute.visits.examples import simulate

    table = simulate("mimic4", np.random.default_rng(seed), patients=patients).visits
    number = pl.col("subject_id").rank("dense").cast(pl.Int64) + first_subject
    return table.with_columns(number.alias("subject_id"))


def write_visits(folder: Path, files: int) -> None:
    """So many files of about a million visits; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = folder / f"part{number:03}.parquet"
        if not path.exists():
            visits_of(PATIENTS_PER_FILE, 100 + number, MILLION * (number + 1)).write_parquet(path)


class Watch(threading.Thread):
    """The largest resident sizes of this process's family, by kind, until stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = {"java": 0.0, "driver": 0.0, "workers": 0.0}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            for kind, size in _sizes().items():
                self.largest[kind] = max(self.largest[kind], size)


def _sizes() -> dict[str, float]:
    """Resident MiB of the Java process, of this one, and of every other descendant."""
    family, parents, found = {os.getpid()}, {}, {"java": 0.0, "driver": 0.0, "workers": 0.0}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for _ in range(6):  # driver, Java, daemon, workers
        family |= {pid for pid, parent in parents.items() if parent in family}
    for pid in family:
        try:
            size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        found["driver" if pid == os.getpid() else "java" if name == "java" else "workers"] += size
    return found


def main() -> None:
    """Fit, write, score, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out/spark_scale"))
    told = parser.parse_args()
    from pyspark.sql import SparkSession

    from safeimpute import SafeImputer
    from safeimpute.spark.scoring import score_files

    write_visits(told.out / "visits", told.millions)
    model = told.out / "model"
    if not model.exists():
        SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3, claim="patients,unmeasured").fit(
            visits_of(FITTED_PATIENTS, 1, 0)
        ).save(model)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder.config("spark.driver.memory", DRIVER_MEMORY).getOrCreate().sparkContext.setLogLevel("ERROR")
    watch, start = Watch(), time.perf_counter()
    watch.start()
    account = score_files(model, told.out / "visits", told.out / "scored", force=True)
    wall = time.perf_counter() - start
    watch.over.set()
    print(
        json.dumps({"visits": account.visits, "released": account.released, "wall": wall, **watch.largest}), flush=True
    )


if __name__ == "__main__":
    main()
