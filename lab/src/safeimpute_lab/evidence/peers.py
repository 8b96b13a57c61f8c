"""`best` beside the packages of others on the same splits; cells are kept as lines, the page is made of them.

    python -m safeimpute_lab evidence peers run [--data "PBC|MIMIC"] [--methods …] [--splits 3] [--budget-seconds 1800]
    python -m safeimpute_lab evidence peers write                                  docs/peers.md from the kept cells

A fifth of the measured values is hidden; a method sees all others and is judged there. `run` goes on where it stopped,
cheapest first. A method that has used its seconds is recorded as out of its budget, so that every run ends.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CELLS = Path(__file__).parents[3] / "evidence"
PEER_CELLS, SELECTION_CELLS = CELLS / "peers.jsonl", CELLS / "selections.jsonl"
TEST_FRACTION = 0.2
PACKAGES = {  # other people's, and our own writing of the same method
    "mice": None,
    "r-mice": "mice",
    "r-mice-2l": None,
    "miceforest": None,
    "r-missforest": "missforest",
    "pypots-brits": "brits",
    "pypots-saits": "saits",
    "pypots-helix": None,
    "hyperimpute": None,
    "pypots-csdi": "csdi",
}
METHODS = ("mean", "lightgbm", "best", *PACKAGES, "missforest", "brits", "saits", "csdi")
SMALL = ("PBC", "MIMIC", "simulated, Mayo")
Cell = dict[str, Any]


def read_cells(file: Path) -> Iterator[Cell]:
    """Finished cells, and those that ran out of their budget."""
    if file.exists():
        yield from (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())


def visits_of(name: str) -> Any:
    """A data set by name, as arrays."""
    from safeimpute.visits.columns import ColumnChoice
    from safeimpute.visits.visits import prepare_visits
    from safeimpute_lab.evidence.datasets import DATA_SETS

    data = DATA_SETS[name]
    return prepare_visits(data.load(), ColumnChoice(data.target, attributes=data.attributes)).arrays


def one_cell(name: str, method: str, seed: int) -> Cell:
    """Error, seconds and memory of one method on one split, with all it started."""
    import numpy as np

    from safeimpute.evaluation.metrics import mean_absolute_error, root_mean_squared_error
    from safeimpute_lab.benchmark.cell import impute_openly, task_for
    from safeimpute_lab.registry import METHODS as REGISTERED

    visits, chosen = visits_of(name), REGISTERED[method]
    _, rows = task_for(visits, seed, TEST_FRACTION)
    start, used = time.perf_counter(), _processor_seconds()
    stops = chosen.stops and method != "best"
    value = impute_openly(chosen.make(), visits, seed, TEST_FRACTION, stops=stops)
    pair = value[rows], visits.target_values[rows]
    found = {
        "mae": mean_absolute_error(*pair),
        "rmse": root_mean_squared_error(*pair),
        "seconds": time.perf_counter() - start,
        "processor": _processor_seconds() - used,
        "mib": sum(resource.getrusage(who).ru_maxrss for who in _FAMILY) / 1024,
    }
    return {"visits": len(visits), "hidden": len(rows)} | {n: float(np.round(v, 5)) for n, v in found.items()}


_FAMILY = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _processor_seconds() -> float:
    """User and system, children that ended included."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, _FAMILY))


def waiting_cells(data: Sequence[str], methods: Sequence[str], splits: int, done: Sequence[Cell]) -> list[Cell]:
    """What was not run yet: split by split, cheapest method first; what is not known to be cheap comes as listed."""
    finished = {(c["data"], c["method"], c["seed"]) for c in done if "mae" in c}
    spent: dict[str, list[float]] = {}
    for cell in done:
        if "mae" in cell:
            spent.setdefault(cell["method"], []).append(cell["processor"])
    usual = {method: sum(each) / len(each) for method, each in spent.items()}
    order = sorted(methods, key=lambda method: usual.get(method, 1e9))
    return [
        {"data": name, "method": method, "seed": seed}
        for seed in range(splits)
        for method in order
        for name in data
        if (name, method, seed) not in finished
    ]


def run(data: Sequence[str], methods: Sequence[str], splits: int, budget: float, minutes: float, file: Path) -> None:
    """Cells one after another, each a process of its own, until all are run or nothing is left to spend."""
    ends, left = time.monotonic() + 60 * minutes, dict.fromkeys(methods, budget)
    commit = _commit()
    file.parent.mkdir(parents=True, exist_ok=True)
    for cell in waiting_cells(data, methods, splits, list(read_cells(file))):
        method, start = cell["method"], time.monotonic()
        allowed = min(left[method], ends - start)
        if allowed <= 0:
            continue
        found = _in_process(cell, allowed)
        left[method] -= time.monotonic() - start
        if found is None:
            if time.monotonic() >= ends:
                return
            left[method] = 0.0
            found = {"over_budget": budget}
        print(cell | found, flush=True)
        with file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(cell | found | {"commit": commit}) + "\n")


def _in_process(cell: Cell, seconds: float) -> Cell | None:
    """A cell's figures, or why there are none; nothing where its time was up."""
    command = [sys.executable, "-m", "safeimpute_lab", "evidence", "peers", "one"]
    command += ["--data", cell["data"], "--methods", cell["method"], "--seed", str(cell["seed"])]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        printed = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    found: Cell = json.loads(printed.splitlines()[-1]) if process.returncode == 0 else {"failed": "ended with an error"}
    return found


def _commit() -> str:
    """Of the code that runs, where it is a checkout."""
    told = subprocess.run(
        ["git", "-C", str(CELLS.parent), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def _one(name: str, method: str, seed: int) -> None:
    """A cell in this process; what is wrong is said without a value of the table."""
    from safeimpute.errors import SafeImputeError
    from safeimpute_lab.registry import METHODS as REGISTERED

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a method's own process is ended too
    if missing := REGISTERED[method].missing():
        print(json.dumps({"failed": f"needs {', '.join(missing)}"}))
        return
    try:
        found = one_cell(name, method, seed)
    except SafeImputeError as error:
        found = {"failed": str(error)}
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("run", "write", "one"))
    parser.add_argument("--data", default="|".join(SMALL), help="parts of data sets' names, separated by |")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget-seconds", type=float, default=1800, help="one method may take in this run")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which nothing goes on")
    parser.add_argument("--cells", type=Path, default=PEER_CELLS)
    given = parser.parse_args()
    if given.step == "write":
        from safeimpute_lab.evidence.peers_page import page

        (CELLS.parents[1] / "docs" / "peers.md").write_text(page(given.cells, SELECTION_CELLS), encoding="utf-8")
        return
    if given.step == "one":
        _one(given.data, given.methods, given.seed)
        return
    from safeimpute_lab.evidence.datasets import DATA_SETS

    data = [name for name in DATA_SETS if any(part in name for part in given.data.split("|"))]
    run(data, given.methods.split(","), given.splits, given.budget_seconds, given.minutes, given.cells)


if __name__ == "__main__":
    main()
