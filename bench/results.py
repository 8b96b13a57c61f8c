"""Accuracy and release on every data set, same splits for all methods; writes docs/results.md.

    python bench/results.py export            visits of every data set as arrays (needs SAFEIMPUTE_DATA)
    python bench/results.py run [--jobs N]    fit and score; finished (data set, split) pairs are kept
    python bench/results.py write             docs/results.md and docs/results.json from what was run

`run` needs NumPy, SciPy, torch and LightGBM only, so it can be done on a bare GPU machine.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

SPLITS = 5
LEVELS = (0.1, 0.2, 0.35)
REPARTITIONS = 200
PILOT_SEED = 1000
RISKY_SHARE = 0.375  # of the paper's imputations, on a pilot split's validation visits, sets the tolerance
PRESETS = ("paper", "best")
METHODS = ("mean", "locf", "patient_mean", "lightgbm", *PRESETS)
LARGE = 20_000  # visits


def export(folder: Path) -> None:
    from datasets import DATA_SETS

    from safeimpute.records.visits import ColumnChoice, prepare_visits

    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, data) in enumerate(DATA_SETS.items()):
        arrays = prepare_visits(data.load(), ColumnChoice(data.target, attributes=data.attributes)).arrays
        fields = {field: content for field, content in asdict(arrays).items() if content is not None}
        np.savez_compressed(folder / f"{number:02}.npz", name=name, unit=data.unit, **fields)
        print(f"{name}: {len(arrays):,} visits", flush=True)


def load(path: Path) -> Any:
    from safeimpute.records.arrays import VisitArrays

    stored = np.load(path)
    fields = {name: stored[name] for name in stored.files if name not in ("name", "unit")}
    for names in ("lab_names", "attribute_names"):
        fields[names] = tuple(str(each) for each in fields[names])
    return str(stored["name"]), VisitArrays(**fields | {"target": int(fields["target"])})


def pilot(path: Path, device: str) -> dict[str, Any]:
    """The tolerance at which the wanted share of the paper's imputations is risky."""
    from safeimpute.selection.claims import Claim
    from safeimpute.selection.pipeline import score_split, split_for
    from safeimpute.splits.roles import Role
    from safeimpute.systems.presets import Plan
    from safeimpute.tolerance import Tolerance

    name, arrays = load(path)
    split = split_for(Claim(), arrays, PILOT_SEED, 0.2)
    scored = score_split(arrays, split, Claim(), Plan("paper", Tolerance(1.0), PILOT_SEED, device))
    rows = split.rows(Role.VALIDATION)
    error = np.abs(scored.scores.value[rows] - arrays.target_values[rows])
    return {"data": name, "tolerance": float(f"{np.quantile(error, 1 - RISKY_SHARE):.2g}")}


def one_split(
    path: Path, seed: int, tolerance: float, device: str, methods: tuple[str, ...]
) -> dict[str, Any]:
    """Some methods on one split of one data set."""
    import torch

    from safeimpute.selection.claims import Claim
    from safeimpute.selection.pipeline import split_for
    from safeimpute.tolerance import Tolerance

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    name, arrays = load(path)
    split = split_for(Claim(), arrays, seed, 0.2)
    found = {}
    for method in methods:
        if method in PRESETS:
            found[method] = with_release(arrays, split, method, Tolerance(tolerance), seed, device)
        else:
            found[method] = accuracy_alone(arrays, split, method, seed)
    return {"data": name, "seed": seed, "tolerance": tolerance, "visits": len(arrays), "methods": found}


def accuracy_alone(arrays: Any, split: Any, method: str, seed: int) -> dict[str, Any]:
    from safeimpute.benchmark.registry import make_imputer
    from safeimpute.evaluation.metrics import mean_absolute_error, root_mean_squared_error
    from safeimpute.splits.roles import Role, hide

    start, rows = time.perf_counter(), split.rows(Role.TEST)
    task, truth = hide(arrays, split.roles), arrays.target_values[rows]
    value = make_imputer(method).fit(task, np.random.default_rng(seed)).impute(task).value[rows]
    return {
        "mae": mean_absolute_error(value, truth),
        "rmse": root_mean_squared_error(value, truth),
        "seconds": time.perf_counter() - start,
    }


def with_release(
    arrays: Any, split: Any, preset: Any, tolerance: Any, seed: int, device: str
) -> dict[str, Any]:
    from safeimpute.evaluation.evaluate import release_scores, score_splits
    from safeimpute.evaluation.metrics import auc, mean_absolute_error, root_mean_squared_error
    from safeimpute.selection.claims import Claim
    from safeimpute.systems.presets import Plan

    result = score_splits(arrays, Plan(preset, tolerance, seed, device), Claim(), 1)[0]
    assert np.array_equal(result.scored.split.roles, split.roles)
    rows, bad = result.tested, result.bad(tolerance, result.tested)
    found = {
        "mae": mean_absolute_error(result.value[rows], result.truth[rows]),
        "rmse": root_mean_squared_error(result.value[rows], result.truth[rows]),
        "auc": auc(result.risk(tolerance)[rows], bad),
        "risky": float(bad.mean()),
        "release": {str(level): release_scores(result, tolerance, level, REPARTITIONS) for level in LEVELS},
        "seconds": result.seconds,
    }
    if preset == "paper":
        found["learned_auc"] = learned_auc(result, tolerance, seed, device)
    return found


def learned_auc(result: Any, tolerance: Any, seed: int, device: str) -> float | None:
    """AUC of the learned risk on the paper's own imputations.

    Its honest errors come from refits on parts of the training visits, and on a large table, where those would take
    hours, from the validation visits alone.
    """
    from dataclasses import replace

    from safeimpute.evaluation.metrics import auc
    from safeimpute.splits.roles import hide
    from safeimpute.systems.best.evidence import EvidenceSettings, fit_evidence, read_evidence
    from safeimpute.systems.best.risk import cross_fit, fit_risk, prepare_risk
    from safeimpute.systems.paper.gcn import GcnImputer
    from safeimpute.systems.protocol import Imputation

    rng = np.random.default_rng(seed)
    task = hide(result.scored.arrays, result.scored.split.roles)
    honest = imputation = Imputation(result.value, result.scored.scores.signals)
    evidence = read_evidence(task.visits, fit_evidence(task, EvidenceSettings(), rng), device)
    if len(task.visits) <= LARGE:
        honest = cross_fit(task, imputation, lambda part: GcnImputer().fit(part, rng, device), rng)
    else:
        task = replace(task, visits=task.visits.with_target(np.full(len(task.visits), np.nan)))
    risk = fit_risk(prepare_risk(task, evidence, honest, rng), tolerance, seed).score(evidence, imputation)
    return auc(risk[result.tested], result.bad(tolerance, result.tested))


def run(
    folder: Path, out: Path, jobs: int, device: str, only: str, methods: tuple[str, ...], count: int
) -> None:
    """Every wanted (data set, split, method) that is not yet in `out`; a data set's pilot comes first."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    files = {load(path)[0]: path for path in sorted(folder.glob("*.npz"))}
    files = {name: path for name, path in files.items() if any(part in name for part in only.split("|"))}
    done = list(read_lines(out))
    tolerances = {line["data"]: line["tolerance"] for line in done}
    finished = {
        (line["data"], line["seed"], m) for line in done if "methods" in line for m in line["methods"]
    }
    with ProcessPoolExecutor(jobs) as pool, out.open("a") as log:

        def splits(name: str) -> dict[Any, str]:
            wanted = {
                seed: tuple(m for m in methods if (name, seed, m) not in finished) for seed in range(count)
            }
            return {
                pool.submit(one_split, files[name], seed, tolerances[name], device, missing): name
                for seed, missing in wanted.items()
                if missing
            }

        waiting: dict[Any, str] = {}
        for name in files:
            waiting |= splits(name) if name in tolerances else {pool.submit(pilot, files[name], device): name}
        while waiting:
            future = next(as_completed(waiting))
            name, line = waiting.pop(future), future.result()
            log.write(json.dumps(line) + "\n")
            log.flush()
            print(name, line.get("seed", "pilot"), flush=True)
            if "methods" not in line:
                tolerances[name] = line["tolerance"]
                waiting |= splits(name)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("export", "run", "write"))
    parser.add_argument("--data", type=Path, default=Path("out/results/data"))
    parser.add_argument("--out", type=Path, default=Path("out/results/runs.jsonl"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="parts of data sets' names, separated by |")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--methods", default=",".join(METHODS))
    given = parser.parse_args()
    if given.step == "export":
        export(given.data)
    elif given.step == "run":
        methods = tuple(given.methods.split(","))
        run(given.data, given.out, given.jobs, given.device, given.only, methods, given.splits)
    else:
        from results_page import write_page

        write_page(list(read_lines(given.out)), Path("docs"))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
