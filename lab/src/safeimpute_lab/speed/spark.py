"""Many visits scored, and calibrated on, by Spark: seconds and memory of the driver and of every executor.

    python -m safeimpute_lab scale spark [--millions 10] [--master local-cluster[2,1,1024]] [--calibrate] [--out FOLDER]

A model is fitted to a simulated cohort, then scores simulated visits of other patients, written as parquet files of a
million each. In `local[2]` one Java process is driver and executor; in `local-cluster[2,1,1024]` two executors stand
beside the driver, each a Java process of one core with Python workers that hold the model. Prints one line of JSON for
each piece of work: visits, seconds by the clock and of processors, largest resident sizes in MiB.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
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


def write_visits(folder: Path, millions: float) -> None:
    """Files of about a million visits, or one smaller file; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    patients = round(PATIENTS_PER_FILE * min(millions, 1.0))
    for number in range(max(round(millions), 1)):
        path = folder / f"part{number:03}.parquet"
        if not path.exists():
            visits_of(patients, 100 + number, MILLION * (number + 1)).write_parquet(path)


class Watch(threading.Thread):
    """Largest resident sizes (MiB) of this process's family and its processor seconds, until stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest: dict[str, float] = {}  # by process: driver, driver's java, each executor's java and its workers
        self.seconds: dict[int, float] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            for kind, size in self.sizes().items():
                self.largest[kind] = max(self.largest.get(kind, 0.0), size)

    def sizes(self) -> dict[str, float]:
        """Resident MiB: this process, the first Java below it, and of every executor its Java and Python workers."""
        parents = {pid: int(each[1]) for pid in processes() if (each := stat_of(pid))}
        found: dict[str, float] = {}
        for pid in parents:
            line = ancestry(pid, parents)
            each = stat_of(pid)
            if os.getpid() not in line or not each:
                continue
            self.seconds[pid] = (int(each[11]) + int(each[12])) / os.sysconf("SC_CLK_TCK")
            javas = [above for above in reversed(line) if name_of(above) == "java"]
            kind = "driver" if pid == os.getpid() else "java" if name_of(pid) == "java" else "workers"
            owner = f" of executor {javas[1]}" if len(javas) > 1 else ""
            found[kind + owner] = found.get(kind + owner, 0.0) + int(each[21]) * os.sysconf("SC_PAGE_SIZE") / MIB
        return found


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def stat_of(pid: int) -> list[str]:
    """What /proc tells of a process behind its name; nothing where it ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def ancestry(pid: int, parents: dict[int, int]) -> list[int]:
    """A process and those above it."""
    line = [pid]
    while (above := parents.get(line[-1], 0)) > 0:
        line.append(above)
    return line


def main() -> None:
    """Fit, write, score, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, default=10, help="files of a million; a part of one below")
    parser.add_argument("--master", default="local[2]", help="local-cluster[2,1,1024]: two executors of one core each")
    parser.add_argument("--calibrate", action="store_true", help="calibrate on the same table too")
    parser.add_argument("--out", type=Path, default=Path("out/spark_scale"))
    told = parser.parse_args()
    from pyspark.sql import SparkSession

    from safeimpute import SafeImputer
    from safeimpute.spark.calibrate import calibrate_files_on_spark
    from safeimpute.spark.scoring import score_files

    write_visits(told.out / "visits", told.millions)
    model = told.out / "model"
    if not model.exists():
        SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3, claim="patients,unmeasured").fit(
            visits_of(FITTED_PATIENTS, 1, 0)
        ).save(model)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(spark_home(told.out / "spark"))
    builder = SparkSession.builder.master(told.master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.executor.memory", "1g").config("spark.driver.host", "127.0.0.1")
    builder.config("spark.driver.memory", DRIVER_MEMORY).getOrCreate().sparkContext.setLogLevel("ERROR")
    scored = measured(lambda: score_files(model, told.out / "visits", told.out / "scored", force=True).visits)
    say("score", told.master, scored, told.out / "visits")
    if told.calibrate:
        calibrated = told.out / "calibrated"
        found = measured(lambda: calibrate_files_on_spark(model, told.out / "visits", calibrated, force=True).visits)
        say("calibrate", told.master, found, told.out / "visits")


def measured(work: Callable[[], int]) -> dict[str, float]:
    """What a piece of work took: visits, seconds by the clock and of processors, memory of every kind of process."""
    watch, start = Watch(), time.perf_counter()
    watch.sizes()
    before = dict(watch.seconds)
    watch.start()
    visits = work()
    wall = time.perf_counter() - start
    watch.over.set()
    watch.sizes()
    used = sum(seconds - before.get(pid, 0.0) for pid, seconds in watch.seconds.items())
    return {"visits": visits, "wall": wall, "processor": used, **watch.largest}


def say(work: str, master: str, found: dict[str, float], visits: Path) -> None:
    """One line of JSON; `bytes` are those of the visits' files."""
    size = sum(path.stat().st_size for path in visits.glob("*.parquet"))
    rounded = {name: round(each, 1) for name, each in found.items()}
    print(json.dumps({"work": work, "master": master, "bytes": size, **rounded}), flush=True)


def spark_home(folder: Path) -> Path:
    """pip's Spark under a folder of its own: a worker of local-cluster keeps its files in its home."""
    import pyspark

    folder.mkdir(parents=True, exist_ok=True)
    for each in Path(pyspark.__file__).parent.iterdir():
        if not (folder / each.name).exists():
            (folder / each.name).symlink_to(each)
    return folder.resolve()


if __name__ == "__main__":
    main()
