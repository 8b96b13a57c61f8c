"""The first five minutes of a newcomer, timed: clone to demo; a German csv to the first report; the same from Python.

    python -m safeimpute_lab speed first_minutes [--parts demo,csv,python] [--json F]

`demo` clones this repository, types `make demo` (environment, installation, run) and waits for the report. `csv` has a
German export and types what the messages ask for, one after the other, until there is a report: the script stops if a
message does not name the next flag. `python` does the same in a fresh interpreter, cell by cell, as a notebook would.
Parts `csv` and `python` use the environment this script runs in, so that installation counts once, under `demo`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "examples"))
BASE = ["run", "besuche.csv", "--target", "Cholesterin", "--tolerance", "20%", "--fdr", "0.2", "--out", "out"]
# What the message must name, and what a reader of it types next.
TRIES: tuple[tuple[str, list[str]], ...] = (
    ("--decimal", ["--separator", ";", "--decimal", ","]),  # one message names both
    ("--columns", ["--columns", "Patient=subject_id,Datum=time"]),
    ("--date-format", ["--date-format", "DD.MM.YYYY"]),
)
CELLS = (
    ("import", "import safeimpute as si"),
    (
        "read",
        "visits = si.read_visits('besuche.csv', {'Patient': 'subject_id', 'Datum': 'time'}, separator=';', "
        "decimal=',', date_format='DD.MM.YYYY')",
    ),
    ("make", "imputer = si.SafeImputer(target='Cholesterin', tolerance='20%', fdr=0.2)"),
    ("fit", "imputer.fit(visits)"),
    ("impute", "table = imputer.impute(visits)"),
    ("say", "print(imputer.promised().promise); print(int(table['released'].sum()), 'released of', len(table))"),
)
Row = dict[str, str | float]


def timed(part: str, step: str, work: Callable[[], str]) -> Row:
    """What a step took, and what it said last."""
    began = time.perf_counter()
    said = work()
    row: Row = {"part": part, "step": step, "seconds": round(time.perf_counter() - began, 1), "said": said}
    print(f"{part:8}{step:34}{row['seconds']:8.1f} s   {said[:90]}", flush=True)
    return row


def typed(command: list[str], place: Path, good: int = 0, environment: dict[str, str] | None = None) -> str:
    """One command; its last line. Another exit code than expected stops the script."""
    done = subprocess.run(
        command, cwd=place, env=environment or dict(os.environ), capture_output=True, text=True, check=False
    )
    if done.returncode != good:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    said = (done.stderr if good else done.stdout).strip()
    return said.splitlines()[-1] if said else ""


def demo(place: Path) -> list[Row]:
    """From nothing to the demo's report."""
    clone = place / "clone"
    fresh = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    fresh["PYTHON"] = sys.executable
    rows = [timed("demo", "git clone", lambda: typed(["git", "clone", "--quiet", str(ROOT), str(clone)], place))]
    install = ["make", "--quiet", ".venv/.demo", f"PYTHON={sys._base_executable}"]  # type: ignore[attr-defined]
    rows.append(timed("demo", "make demo: install", lambda: typed(install, clone, environment=fresh)))
    rows.append(timed("demo", "make demo: run", lambda: typed(["make", "--quiet", "demo"], clone, environment=fresh)))
    if not (clone / "out/demo/report.html").exists():
        sys.exit("make demo left no report")
    return rows


def german_table(place: Path) -> Path:
    """A German laboratory's export of the bundled visits."""
    from own_csv import german_csv

    place.mkdir(exist_ok=True)
    return german_csv(place / "besuche.csv")


def csv(place: Path) -> list[Row]:
    """What is typed until there is a report, each flag named by the message before it."""
    folder = german_table(place / "csv").parent
    program = [sys.executable, "-m", "safeimpute"]
    rows: list[Row] = []
    asked = list(BASE)
    for flag, typed_next in TRIES:
        command = [*program, *asked]
        row = timed("csv", f"{len(rows) + 1}. try", lambda command=command: typed(command, folder, good=2))  # type: ignore[misc]
        if flag not in str(row["said"]):
            sys.exit(f"the message does not name {flag}: {row['said']}")
        rows.append(row)
        asked += typed_next
    rows.append(timed("csv", f"{len(rows) + 1}. try: the report", lambda: typed([*program, *asked], folder)))
    if not (folder / "out/report.html").exists():
        sys.exit("run left no report")
    return rows


def python(place: Path) -> list[Row]:
    """The same cell by cell in one fresh interpreter."""
    folder = german_table(place / "python").parent
    timer = "import time, json, sys\nrows = []\nspace = {}\nfor name, cell in json.loads(sys.argv[1]):\n"
    timer += "    began = time.perf_counter(); exec(cell, space); rows.append((name, time.perf_counter() - began))\n"
    timer += "print(json.dumps(rows))"
    told = [sys.executable, "-c", timer, json.dumps(CELLS)]
    line = typed(told, folder)
    rows: list[Row] = []
    for name, seconds in json.loads(line):
        rows.append({"part": "python", "step": name, "seconds": round(seconds, 1), "said": ""})
        print(f"{'python':8}{name:34}{seconds:8.1f} s", flush=True)
    return rows


PARTS: dict[str, Callable[[Path], list[Row]]] = {"demo": demo, "csv": csv, "python": python}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="which of demo, csv, python")
    parser.add_argument("--json", type=Path, help="file for the figures")
    chosen = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        for part in chosen.parts.split(","):
            found = PARTS[part](Path(place))
            rows += found
            print(f"{part:8}{'together':34}{sum(float(row['seconds']) for row in found):8.1f} s\n", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
