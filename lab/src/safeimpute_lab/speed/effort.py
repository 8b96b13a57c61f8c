"""What a light fit costs and loses against a full one, on every data set of docs/evidence.md, same splits.

    python -m safeimpute_lab evidence results export
    python -m safeimpute_lab speed effort run [--jobs N] [--minutes M] [--only PARTS] [--splits 3]
    python -m safeimpute_lab speed effort table

Per data set: processor seconds of a whole trial (fit, weights, release) light over full, the ratio of mean absolute
errors, AUC of the risk, and power at each level. Needs what `evidence results run` needs; tolerances are its pilots'.
"""

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute_lab.evidence.results import LEVELS, load, read_lines, settings_for

EFFORTS = ("full", "light")


def one(path: Path, seed: int, tolerance: float, effort: str) -> dict[str, Any]:
    """One trial of preset `best` at one effort."""
    from safeimpute.evaluation.evaluate import outcome
    from safeimpute.evaluation.metrics import auc, mean_absolute_error
    from safeimpute.evaluation.trials import run_trials

    name, visits = load(path)
    settings = settings_for("best", tolerance, seed, best={"effort": effort})
    start = time.process_time()
    trial = run_trials(visits, settings, 1, 0.2)[0]
    seconds = time.process_time() - start
    error = settings.allowed_error
    released = {str(level): asdict(outcome(trial, error, level)) for level in LEVELS}
    return {
        "data": name,
        "seed": seed,
        "effort": effort,
        "visits": len(visits),
        "seconds": seconds,
        "mae": mean_absolute_error(*trial.errors_alone()),
        "auc": auc(trial.estimates.risk[trial.tested], trial.risky(error)),
        "power": {level: each["power"] for level, each in released.items()},
        "fdp": {level: each["fdp"] for level, each in released.items()},
    }


def run(told: argparse.Namespace) -> None:
    """Every cell that is not there yet; after so many minutes nothing new is taken in hand."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ends = time.monotonic() + 60 * told.minutes
    tolerances = {line["data"]: line["tolerance"] for line in read_lines(told.tolerances)}
    done = {(line["data"], line["seed"], line["effort"]) for line in read_lines(told.out)}
    told.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(told.jobs) as pool, told.out.open("a") as log:
        waiting = set()
        for path in sorted(told.data.glob("*.npz")):
            name = str(np.load(path)["name"])
            if any(part in name for part in told.only.split("|")):
                for seed in range(told.splits):
                    for effort in EFFORTS:
                        if (name, seed, effort) not in done:
                            waiting.add(pool.submit(one, path, seed, tolerances[name], effort))
        for future in as_completed(set(waiting)):
            if future.cancelled():
                continue
            line = future.result()
            log.write(json.dumps(line) + "\n")
            log.flush()
            print(line["data"], line["seed"], line["effort"], flush=True)
            if time.monotonic() > ends:
                for each in waiting:
                    each.cancel()


def table(path: Path) -> str:
    """One row per data set for which both efforts were run, and the mean."""
    cells = {(line["data"], line["seed"], line["effort"]): line for line in read_lines(path)}
    names = list(dict.fromkeys(name for name, _, _ in cells))
    lines = [
        "| data set | visits | splits | seconds, light / full | MAE, light / full | AUC, full, light | power at "
        + ", ".join(f"{level:g}" for level in LEVELS)
        + ": full, light |",
        "|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name in names:
        seeds = [s for n, s, e in cells if n == name and e == "full" and (n, s, "light") in cells]
        if not seeds:
            continue
        full, light = ([cells[name, seed, effort] for seed in seeds] for effort in EFFORTS)
        cost = sum(each["seconds"] for each in light) / sum(each["seconds"] for each in full)
        worse = np.array([a["mae"] / b["mae"] for a, b in zip(light, full, strict=True)])
        ratios.append((cost, worse.mean()))
        se = f" ± {worse.std(ddof=1) / np.sqrt(len(worse)):.3f}" if len(worse) > 1 else ""
        ranked = ", ".join(f"{np.mean([each['auc'] for each in part]):.3f}" for part in (full, light))
        power = "; ".join(
            ", ".join(f"{np.mean([each['power'][str(level)] for each in part]):.2f}" for part in (full, light))
            for level in LEVELS
        )
        lines.append(
            f"| {name} | {full[0]['visits']:,} | {len(seeds)} | {cost:.2f} | {worse.mean():.3f}{se} | {ranked} | "
            f"{power} |"
        )
    cost, worse = np.mean(ratios, axis=0)
    lines.append(f"| **mean of {len(ratios)}** | | | {cost:.2f} | {worse:.4f} | | |")
    return "\n".join(lines)


def main() -> None:
    """Run cells, or print them as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--data", type=Path, default=Path("out/results/data"))
    parser.add_argument("--tolerances", type=Path, default=Path("out/results/runs.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("out/effort/cells.jsonl"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--only", default="", help="parts of data sets' names, separated by |")
    told = parser.parse_args()
    if told.what == "run":
        run(told)
    else:
        print(table(told.out))


if __name__ == "__main__":
    main()
