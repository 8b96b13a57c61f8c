"""Two runs at once against one alone: how much longer each takes, by threads and by size of the table.

`python -m safeimpute_lab speed two_at_once` measures 1 and 2 threads, 750 and 40,000 visits; it needs a quiet machine.
Every figure is the median of `--repeats`. Two ratios are told: to one run alone with as many threads, and to one alone
with one thread. Where a run uses two cores well, two of them on two cores take twice as long each, whatever is done;
what is promised is that neither takes 1.5 times as long as it would alone on one core, and that more threads are never
slower than one. Exit code 1 says that one of these is not kept.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PER_PATIENT = 5.3  # visits, as the cohort is simulated
PROMISED = 1.5
NOISE = 1.15  # of a timing: what is no slower may look so


def simulate(folder: Path, visits: int) -> Path:
    path = folder / f"visits{visits}.parquet"
    patients = max(60, round(visits / PER_PATIENT))
    told = ["simulate", "mimic4", "--patients", str(patients), "--labs", "4", "-o", str(path), "--quiet"]
    subprocess.run([sys.executable, "-m", "safeimpute", *told], check=True)
    return path


def start(table: Path, out: Path, threads: int) -> "subprocess.Popen[bytes]":
    told = ["run", str(table), "--target", "hba1c", "--tolerance", "0.8", "--fdr", "0.2", "--quiet"]
    told += ["--threads", str(threads), "--out", str(out)]
    return subprocess.Popen([sys.executable, "-m", "safeimpute", *told], env=os.environ | {"MPLBACKEND": "Agg"})


def seconds(table: Path, folder: Path, threads: int, at_once: int) -> float:
    """Wall seconds of the slower of so many runs started together."""
    outs = [Path(tempfile.mkdtemp(dir=folder)) / "run" for _ in range(at_once)]
    begun = time.perf_counter()
    runs = [start(table, out, threads) for out in outs]
    if any(run.wait() for run in runs):
        raise SystemExit("a run failed")
    return time.perf_counter() - begun


def measure(visits: list[int], threads: list[int], repeats: int) -> list[dict[str, float]]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in visits:
            table = simulate(folder, size)

            def median(count: int, at_once: int, table: Path = table) -> float:
                return statistics.median(seconds(table, folder, count, at_once) for _ in range(repeats))

            on_one = median(1, 1)
            for count in threads:
                alone, both = on_one if count == 1 else median(count, 1), median(count, 2)
                ratios = {"to_alone": both / alone, "to_one_thread": both / on_one, "alone_to_one": alone / on_one}
                rows.append({"visits": size, "threads": count, "alone": alone, "at_once": both, **ratios})
                print(
                    f"{size:>7,} visits, {count} threads: alone {alone:6.1f} s, two at once {both:6.1f} s each, "
                    f"{both / alone:.2f} times, {both / on_one:.2f} times one alone on one core",
                    flush=True,
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, nargs="+", default=[750, 40_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    rows = measure(told.visits, told.threads, told.repeats)
    if told.json:
        told.json.write_text(json.dumps(rows, indent=2) + "\n")
    if any(row["to_one_thread"] >= PROMISED or row["alone_to_one"] >= NOISE for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
