"""Run cells of a prepared benchmark on a bare machine, then bring the work folder back.

    safeimpute benchmark VISITS … --methods mean --splits 1 --work WORK       prepares WORK, anywhere
    python -m safeimpute_lab evidence cells WORK --methods lstm,csdi --splits 0-4 --device cuda --jobs 4
    safeimpute benchmark VISITS … --methods all --work WORK                   picks up what was run

`safeimpute reproduce VISITS … --finished-only -o OUT` prepares OUT/work likewise; its cells `experiments` and `risks`
are named among the methods.

Needs NumPy, SciPy, torch, LightGBM and scikit-learn (and POT for `tdm`), no dataframe library; `src` and `lab/src`
of this repository stand on PYTHONPATH. Finished cells are kept, so it may be killed and repeated.
"""

import argparse
import sys
from pathlib import Path


def seeds(text: str) -> tuple[int, ...]:
    """`3`, `0-4` or `0,2,5-7`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="work folder, or one study in it")
    parser.add_argument("--methods", default="all")
    parser.add_argument("--splits", type=seeds, default=(0, 1, 2, 3, 4), help="seeds: 0-4 or 0,2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=14_400, help="seconds per cell")
    parser.add_argument("--memory", type=float, default=64, help="GiB per cell")
    given = parser.parse_args()

    from safeimpute_lab.benchmark.cells import studies_in
    from safeimpute_lab.benchmark.experiments import EXPERIMENTS
    from safeimpute_lab.benchmark.gather import Field, methods_asked_for
    from safeimpute_lab.benchmark.processes import Limits, Status, run_cells
    from safeimpute_lab.benchmark.risks import RISKS

    def show(now: Status) -> None:
        running = ", ".join(name.stem for name in now.running)
        left = "" if now.remaining is None else f", about {now.remaining:.0f} s left"
        print(f"{now.done}/{now.total} after {now.elapsed:.0f} s{left}: {running or 'done'}", flush=True)

    studies = studies_in(given.work)
    if not studies:
        sys.exit(f"{given.work} holds no prepared study; see --help.")
    asked = [name.strip() for name in given.methods.split(",")]
    plain = [name for name in asked if name not in (EXPERIMENTS, RISKS)]
    methods = methods_asked_for(",".join(plain)) if plain else ()
    field = Field((*methods, *(name for name in asked if name not in plain)), given.splits)
    for folder in studies:
        print(folder.name, flush=True)
        limits = Limits(given.time_limit, given.memory)
        run_cells(folder.resolve(), field.cells(), limits, given.device, given.jobs, show)


if __name__ == "__main__":
    main()
