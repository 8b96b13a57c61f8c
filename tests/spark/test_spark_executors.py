"""Two executors, each a process of its own (`local-cluster`), give the bytes of one process: scores and calibration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from helpers.scored_cohorts import KEYS, cohort_of, new_visits, returning, saved_model
from safeimpute.model.scorer import Scorer
from safeimpute.model.whole_table import calibrate_files

pytestmark = pytest.mark.full
pyspark = pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'safeimpute[spark]'")

DRIVER = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
session = (SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
           .config("spark.executor.memory", "1g").config("spark.driver.host", "127.0.0.1")
           .config("spark.scheduler.minRegisteredResourcesRatio", "1.0").getOrCreate())
from safeimpute.spark.calibrate import calibrate_files_on_spark
from safeimpute.spark.scoring import score_files
model, visits, out, calibrated, tasks = map(Path, sys.argv[1:])
score_files(model, visits, out)
calibrate_files_on_spark(model, visits, calibrated)
executors = session.sparkContext._jsc.sc().statusStore().executorList(True)
done = {each.id(): each.completedTasks() for each in map(executors.apply, range(executors.size()))}
tasks.write_text(json.dumps(done))
session.stop()
"""


def spark_home(folder: Path) -> Path:
    """pip's Spark under a folder of its own: a worker keeps its files in its home."""
    folder.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (folder / each.name).symlink_to(each)
    return folder


def as_text(table: pl.DataFrame) -> str:
    """Numbers by the shortest text that gives them back, so that equal text is equal bytes."""
    return table.sort(KEYS).write_csv()


def test_two_executors_give_the_bytes_of_one_process(tmp_path: Path) -> None:
    model, visits, driver = saved_model(tmp_path), tmp_path / "visits", tmp_path / "driver.py"
    table = pl.concat([new_visits(), returning(cohort_of(250), range(1, 61))])
    visits.mkdir()
    for part in range(4):
        table.filter(pl.col("subject_id") % 4 == part).write_parquet(visits / f"{part}.parquet")
    driver.write_text(DRIVER)
    ours = {name: str(tmp_path / name) for name in ("out", "calibrated", "tasks.json")}
    environment = os.environ | {"SPARK_HOME": str(spark_home(tmp_path / "spark")), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(driver), str(model), str(visits), *ours.values()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len([name for name, completed in tasks.items() if name != "driver" and completed]) == 2, tasks
    assert tasks.get("driver", 0) == 0
    local = Scorer.load(model).score(table)
    assert 0 < local["released"].sum() < len(local)
    assert as_text(pl.read_parquet(tmp_path / "out" / "*.parquet")) == as_text(local)
    calibrate_files(model, visits, tmp_path / "one")
    for name in ("arrays.safetensors", "state.json"):
        assert (tmp_path / "calibrated" / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name
    told = [json.loads((tmp_path / folder / "model.json").read_text()) for folder in ("calibrated", "one")]
    assert told[0]["scoring"] == told[1]["scoring"]
