"""Run every example, each in a process of its own, and time it.

    python tools/run_examples.py [--figures FOLDER] [NAME …]

Examples on clinical data need the folder named by SAFEIMPUTE_DATA; without it they are passed over, which is said.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Example:
    """A script, what it is told, and the open data it needs (a folder below SAFEIMPUTE_DATA)."""

    script: str
    told: tuple[str, ...] = ()
    data: str | None = None
    figure: str | None = None  # of docs/images/examples; the nightly one's stands in docs/images


EXAMPLES = {
    "own_csv": Example("own_csv.py", figure="own_csv.png"),
    "mimic4": Example("mimic4.py", data="mimic4_demo", figure="mimic4.png"),
    "omop": Example("omop.py", data="omop_synthea27nj", figure="omop.png"),
    "nightly": Example("nightly/run.py", ("--quick", "--patients", "1500")),
    "groups": Example("groups.py", figure="groups.png"),
    "decisions": Example("decisions.py", figure="decisions.png"),
    "draws_pooling": Example("draws_pooling.py", figure="draws_pooling.png"),
    "r": Example("r/write_for_r.py", figure="r.png"),
    "is_my_promise_valid": Example("is_my_promise_valid.py", figure="is_my_promise_valid.png"),
}


def missing_data(example: Example) -> str | None:
    """Why it cannot run here, if it cannot."""
    if example.data is None:
        return None
    folder = os.environ.get("SAFEIMPUTE_DATA")
    if not folder:
        return "SAFEIMPUTE_DATA names no folder"
    return None if (Path(folder) / example.data).is_dir() else f"SAFEIMPUTE_DATA has no {example.data}"


def run_example(name: str, out: Path, figures: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Its script from the repository's root, as documented."""
    example = EXAMPLES[name]
    told = [*example.told, "--out", str(out)]
    if figures is not None and example.figure:
        told += ["--figures", str(figures)]
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    script = ROOT / "examples" / example.script
    return subprocess.run(
        [sys.executable, str(script), *told],
        cwd=out.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(EXAMPLES)}")
    parser.add_argument("--out", type=Path, default=Path("out/examples"))
    parser.add_argument("--figures", type=Path, help="folder for the figures of the site")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    figures = chosen.figures.resolve() if chosen.figures else None
    failed = []
    for name in chosen.names or EXAMPLES:
        if why := missing_data(EXAMPLES[name]):
            print(f"{name:20} passed over: {why}", flush=True)
            continue
        began = time.perf_counter()
        done = run_example(name, (chosen.out / name).resolve(), figures)
        print(f"{name:20} {time.perf_counter() - began:5.0f} s, exit code {done.returncode}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout[-2000:], done.stderr[-2000:])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
