"""Seconds and peak memory of `safeimpute export` on many imputations, to each format; a third withheld."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.report.run_folder import Manifest
from safeimpute.visits.imputations import imputation_table

PROMISE = (
    "Of the hba1c values released for visits where nobody measured it, of patients like those in the table, the "
    "expected share that is off by 0.5 % or more is at most 10 %."
)


def write_run(folder: Path, rows: int) -> None:
    """A run's folder as far as an export reads it."""
    chance = np.random.default_rng(0)
    released = chance.random(rows) < 2 / 3
    start = pl.Series(chance.integers(5_000_000, 6_000_000, rows) * 997_000_003).cast(pl.Datetime("us"))
    imputation_table(
        pl.Series(np.sort(chance.integers(10_000_000, 20_000_000, rows))),
        start,
        "hba1c",
        "%",
        chance.normal(7, 1, rows),
        chance.gamma(4, 0.2, rows),
        chance.uniform(0, 0.3, rows),
        np.full(rows, 0.2),
        np.full(rows, np.nan),
        released,
        np.where(released, "", "risk above cut-off"),
    ).write_parquet(folder / "imputations.parquet")
    summary: dict[str, Any] = dict.fromkeys(RunSummary.__required_keys__)
    summary |= {"target": "hba1c", "promise": PROMISE, "no_promise": ""}
    manifest: dict[str, Any] = dict.fromkeys(Manifest.__required_keys__)
    manifest |= {"safeimpute": "0", "config": {"interval": 0.9}}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "model").mkdir()
    (folder / "model" / "model.json").write_text(json.dumps({"checksum": "ab" * 32}))


def measure(run: Path, to: str, out: Path) -> tuple[float, float, float]:
    """Seconds, peak MiB of the process, and MiB written."""
    command = [sys.executable, "-m", "safeimpute", "export", str(run), "--to", to, "-o", str(out), "--quiet"]
    start = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{to}: exit status {status}")
    written = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return time.perf_counter() - start, used.ru_maxrss / 1024, written / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--to", default="fhir,omop,meds")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        run.mkdir()
        write_run(run, told.rows)
        print("| to | imputations | seconds | peak MiB | MiB written |\n|---|---|---|---|---|")
        for to in told.to.split(","):
            seconds, peak, written = measure(run, to, Path(name) / to)
            print(f"| {to} | {told.rows:,} | {seconds:.1f} | {peak:,.0f} | {written:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
