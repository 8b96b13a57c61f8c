"""All methods of our own on the Mayo visits by one command, killed half-way and taken up again."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from safeimpute.visits.examples import load_pbc
from safeimpute_lab.registry import METHODS

OWN = [name for name, method in METHODS.items() if not method.module.endswith(".peers")]  # those: test_peers.py
LIMIT = 1500  # seconds; every method is fitted twice
EFFORT = "0.002"  # of the published rounds: the run is about the command, not about the methods


@pytest.mark.full
def test_the_whole_pbc_benchmark_survives_kill_9(tmp_path: Path) -> None:
    load_pbc().write_parquet(tmp_path / "pbc.parquet")
    out = tmp_path / "out"
    told = (
        f"benchmark {tmp_path / 'pbc.parquet'} --target cholesterol --tolerance 20% --fdr 0.2 --methods {','.join(OWN)}"
    )
    told += f" --splits 1 --repartitions 5 --epochs-scale {EFFORT} --jobs 2 --out {out}"
    command = [sys.executable, "-m", "safeimpute", *told.split()]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT
    while len(finished(out)) < len(OWN) // 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = finished(out)
    assert not (out / "benchmark.json").exists()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=LIMIT)
    after = finished(out)
    assert {name: after[name] for name in before} == before  # nothing finished is run again
    rows = json.loads((out / "benchmark.json").read_text())["methods"]
    failed = {name: row["error"] for name, row in rows.items() if row["error"] is not None}
    assert failed == {name: f"needs {', '.join(lacking)}" for name in OWN if (lacking := METHODS[name].missing())}
    assert {name for name, row in rows.items() if row["splits_done"]} | set(failed) == set(OWN)


def finished(out: Path) -> dict[str, int]:
    """When each method's result was written; a method that cannot run here is looked for again each time."""
    cells = [path for path in out.glob("work/*/cells/*.json") if not json.loads(path.read_text())["error"]]
    return {path.stem: path.stat().st_mtime_ns for path in cells}
