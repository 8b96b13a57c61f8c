"""What a fit and a release cost at scale: seconds per stage and peak memory, on visits made from a seed.

python -m safeimpute_lab scale million [--visits 1000000] [--labs 10] [--neighbours 16] [--device cuda] [--log F.jsonl]
python -m safeimpute_lab scale million --fit F.jsonl [--page F.md]   growth per stage, from logged runs

Needs NumPy, SciPy, torch and LightGBM. Stages are timed by wrapping the functions that do the work; `cpu` is processor
time of all threads, which a busy machine distorts less than the clock.
"""

import argparse
import importlib
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

STAGES = {
    "learn units, course, panel": ("systems.best.fold_model:learn_source",),
    "read evidence to learn from": ("systems.best.fold_model:read_evidence",),
    "fit trees": ("systems.best.fold_model:bin_rows", "systems.best.fold_model:fit_boosted"),
    "fit risk": ("systems.best.fold_model:fit_risk",),
    "estimate": ("systems.best.fold_model:FoldModel.estimate",),
    "weights": ("selection.calibrate:_weigh",),
    "release": ("selection.calibrate:decide",),
}
TOLERANCE, LEVEL = 0.5, 0.2


class Meter:
    """Seconds, processor seconds and peak memory per stage; a stage within a stage counts once."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self.inside = False

    def watch(self, stage: str, path: str) -> None:
        """Time every call of `module:name` or `module:Class.method`."""
        module, _, name = path.partition(":")
        owner: Any = importlib.import_module(f"safeimpute.{module}")
        *classes, function = name.split(".")
        for each in classes:
            owner = getattr(owner, each)
        setattr(owner, function, self.timed(stage, getattr(owner, function)))

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if self.inside:
                return function(*given, **named)
            self.inside, wall, cpu = True, time.perf_counter(), time.process_time()
            try:
                return function(*given, **named)
            finally:
                self.inside = False
                spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
                self.add(stage, spent)

        return call

    def add(self, stage: str, spent: dict[str, float]) -> None:
        entry = self.stages.setdefault(stage, {"wall": 0.0, "cpu": 0.0})
        for name, seconds in spent.items():
            entry[name] += seconds
        entry["peak_mib"] = peak_mib()


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One fit and release; everything the growth law needs."""
    from safeimpute.model.fit import fit_question
    from safeimpute.selection.cutoff import rule_of
    from safeimpute.selection.questions import question_for
    from safeimpute.settings import BestSettings, make_settings
    from safeimpute_lab.speed.big_cohort import big_cohort

    meter = Meter()
    for stage, paths in STAGES.items():
        for path in paths:
            meter.watch(stage, path)
    arrays, truth = big_cohort(given.visits, given.labs, given.seed)
    before, best = peak_mib(), BestSettings(analogues=given.neighbours)
    settings = make_settings(target="target", tolerance=TOLERANCE, fdr=LEVEL, random_state=given.seed, best=best)
    wall, cpu = time.perf_counter(), time.process_time()
    question = question_for(arrays, settings)
    _, calibrated = fit_question(arrays, question, settings, device=given.device)
    decision = calibrated.release(settings.allowed_error, rule_of(settings))
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    rest = {name: spent[name] - sum(each[name] for each in meter.stages.values()) for name in spent}
    meter.add("everything else", rest)
    rows, value = calibrated.candidates, calibrated.estimates.value
    error = np.abs(value[rows] - truth[rows])
    risky = settings.allowed_error.risky(value[rows], truth[rows])
    return {
        "visits": len(arrays),
        "labs": given.labs,
        "neighbours": given.neighbours,
        "device": given.device,
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "stages": meter.stages,
        "total": spent,
        "mib_before": before,
        "peak_mib": peak_mib(),
        "mae": float(error.mean()),
        "released": float(decision.released.mean()),
        "risky_among_released": float(risky[decision.released].mean()) if decision.released.any() else None,
    }


def show(found: dict[str, Any]) -> None:
    print(f"{found['visits']:,} visits, {found['labs']} labs, {found['device']}, {found['cores']} cores")
    for stage, spent in found["stages"].items():
        peak = f"{spent['peak_mib']:8,.0f} MiB"
        print(f"  {stage:<28}{spent['wall']:9.1f} s {spent['cpu']:9.1f} s cpu  peak {peak}")
    total = found["total"]
    print(f"  {'all':<28}{total['wall']:9.1f} s {total['cpu']:9.1f} s cpu", end="")
    print(f"  peak {found['peak_mib']:8,.0f} MiB ({found['mib_before']:,.0f} before the fit)")
    print(f"  MAE {found['mae']:.4f}, released {found['released']:.3f}", end="")
    print(f", of them off by {TOLERANCE} or more: {found['risky_among_released']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=1_000_000)
    parser.add_argument("--labs", type=int, default=10, help="beside the target")
    parser.add_argument("--neighbours", type=int, default=16, help="analogues per visit")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="append the result to this file")
    parser.add_argument("--fit", type=Path, help="fit growth laws to logged runs instead")
    parser.add_argument("--page", type=Path, help="page to put them into, between its marks")
    given = parser.parse_args()
    if given.fit:
        from safeimpute_lab.speed.growth import put_into, report

        text = report([json.loads(line) for line in given.fit.read_text().splitlines()])
        if given.page:
            put_into(given.page, text)
        else:
            print(text)
        return
    found = measure(given)
    show(found)
    if given.log:
        with given.log.open("a") as log:
            log.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
