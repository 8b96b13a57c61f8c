"""The guarantee end to end: simulated cohorts through the whole program, judged where nobody measured.

    python -m safeimpute_lab guarantee study --out out/study --patients 300 --cohorts 40 --jobs 2

Every cohort is one line of out/study/cells.jsonl; a rerun goes on where it stopped. `guarantee page`
makes the tables.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # cohorts run side by side, one thread each

import argparse
import json
import multiprocessing
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from safeimpute_lab.studies.guarantee.cells import Cell, run_cell
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY


def main() -> None:
    """Run the cells that are not there yet."""
    told = _arguments()
    told.out.mkdir(parents=True, exist_ok=True)
    path = told.out / "cells.jsonl"
    done = {cell_of(line) for line in read_lines(path)}
    cells = [cell for cell in asked_cells(told) if cell not in done]
    print(f"{len(cells)} cohorts to go, {len(done)} there", flush=True)
    failed = run_all(cells, path, told.jobs, told.minutes)
    print(f"done; {failed} failed" if failed else "done", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cohorts", type=int, default=40)
    parser.add_argument("--patients", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--scenarios", nargs="+", choices=sorted(BY_KEY), default=list(BY_KEY))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no cohort after so long")
    return parser.parse_args()


def asked_cells(told: argparse.Namespace) -> list[Cell]:
    """Cohort by cohort over all scenarios, so that a study cut short is even."""
    return [
        Cell(scenario, patients, cohort)
        for patients in told.patients
        for cohort in range(told.cohorts)
        for scenario in told.scenarios
    ]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Finished cells; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def cell_of(line: dict[str, Any]) -> Cell:
    """The cell a line belongs to."""
    return Cell(line["scenario"], line["patients"], line["cohort"])


def run_all(cells: list[Cell], path: Path, jobs: int, minutes: float) -> int:
    """Run cells side by side, one line each as it ends; how many failed."""
    until, queue, failed = time.monotonic() + 60 * minutes, list(reversed(cells)), 0
    running: dict[Future[dict[str, Any]], Cell] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool, path.open("a", encoding="utf-8") as out:
        while running or (queue and time.monotonic() < until):
            while queue and len(running) < jobs and time.monotonic() < until:
                cell = queue.pop()
                running[pool.submit(run_cell, cell)] = cell
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                if future.exception() is not None:
                    failed += 1
                    print(f"{cell}: {future.exception()!r}", flush=True)
                    continue
                line = future.result()
                out.write(json.dumps(line) + "\n")
                out.flush()
                print(f"{cell.scenario} {cell.patients} #{cell.cohort}: {line['seconds']} s", flush=True)
    return failed


if __name__ == "__main__":
    main()
