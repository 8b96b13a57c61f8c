"""Accuracy and release on every data set, same splits for all methods; two tables of docs/evidence.md.

    python -m safeimpute_lab evidence results export    visits of every data set as arrays (needs SAFEIMPUTE_DATA)
    python -m safeimpute_lab evidence results run [--jobs N] [--minutes M]   fit and score; what is finished is kept
    python -m safeimpute_lab evidence results write     the tables of docs/evidence.md from what was run

`run` needs NumPy, SciPy, torch and LightGBM only, so it can be done on a bare GPU machine.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

SPLITS = 5
LEVELS = (0.05, 0.1, 0.2, 0.35)
REPARTITIONS = 200  # of calibration and test per fit of the preset paper, whose claim allows it
PILOT_SEED = 1000
RISKY_SHARE = 0.375  # of the paper's imputations, on a pilot split's validation visits, sets the tolerance
PRESETS = ("paper", "best")
GROUP_LEVELS = (0.1, 0.2)
METHODS = ("mean", "locf", "patient_mean", "lightgbm", *PRESETS)


def export(folder: Path) -> None:
    from safeimpute.visits.columns import ColumnChoice
    from safeimpute.visits.visits import prepare_visits
    from safeimpute_lab.evidence.datasets import DATA_SETS

    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, data) in enumerate(DATA_SETS.items()):
        arrays = prepare_visits(data.load(), ColumnChoice(data.target, attributes=data.attributes)).arrays
        fields = {field: content for field, content in asdict(arrays).items() if content is not None}
        np.savez_compressed(folder / f"{number:02}.npz", name=name, unit=data.unit, **fields)
        print(f"{name}: {len(arrays):,} visits", flush=True)


def load(path: Path) -> Any:
    from safeimpute.visits.arrays import VisitArrays

    stored = np.load(path)
    fields = {name: stored[name] for name in stored.files if name not in ("name", "unit")}
    for names in ("lab_names", "attribute_names", "high_cardinality_names"):
        fields[names] = tuple(str(each) for each in fields.get(names, ()))
    return str(stored["name"]), VisitArrays(**fields | {"target": int(fields["target"])})


def settings_for(preset: Any, tolerance: float, seed: int, **more: Any) -> Any:
    from safeimpute.settings import make_settings

    return make_settings(target="target", tolerance=tolerance, fdr=0.1, preset=preset, random_state=seed, **more)


def pilot(path: Path, device: str) -> dict[str, Any]:
    """The tolerance at which the wanted share of the paper's imputations is risky."""
    from safeimpute.learning.roles import Role
    from safeimpute.model.fit import fit_system
    from safeimpute.selection.questions import draw_roles, question_of

    name, visits = load(path)
    roles = draw_roles(visits, PILOT_SEED, 0.2)
    settings = settings_for("paper", 1.0, PILOT_SEED)
    estimates = fit_system(question_of(visits, settings, roles), settings, device).estimates
    rows = roles == Role.VALIDATION
    error = np.abs(estimates.value[rows] - visits.target_values[rows])
    return {"data": name, "tolerance": float(f"{np.quantile(error, 1 - RISKY_SHARE):.2g}")}


def one_split(path: Path, seed: int, tolerance: float, device: str, methods: tuple[str, ...]) -> dict[str, Any]:
    """Some methods on one split of one data set."""
    name, visits = load(path)
    found = {
        method: with_release(visits, method, tolerance, seed, device)
        if method in PRESETS
        else accuracy_alone(visits, method, seed)
        for method in methods
    }
    return {"data": name, "seed": seed, "tolerance": tolerance, "visits": len(visits), "methods": found}


def accuracy_alone(visits: Any, method: str, seed: int) -> dict[str, Any]:
    """A plain method with every value visible but the test's, of which it takes its validation."""
    from safeimpute.evaluation.metrics import mean_absolute_error, root_mean_squared_error
    from safeimpute_lab.benchmark.cell import impute_openly, task_for
    from safeimpute_lab.registry import METHODS

    start = time.process_time()
    _, rows = task_for(visits, seed, 0.2)
    chosen = METHODS[method]
    value = impute_openly(chosen.make(), visits, seed, 0.2, stops=chosen.stops)[rows]
    truth = visits.target_values[rows]
    return {
        "mae": mean_absolute_error(value, truth),
        "rmse": root_mean_squared_error(value, truth),
        "seconds": time.process_time() - start,
    }


def with_release(visits: Any, preset: Any, tolerance: float, seed: int, device: str) -> dict[str, Any]:
    """`paper` by its own protocol, its accuracy without fallback edges; `best` with all values but the test's."""
    from dataclasses import asdict, replace

    from safeimpute.evaluation.evaluate import outcome, release_at
    from safeimpute.evaluation.metrics import auc, mean_absolute_error, root_mean_squared_error
    from safeimpute.evaluation.trials import run_trials

    start = time.process_time()
    settings = settings_for(preset, tolerance, seed)
    trial = run_trials(visits, settings, 1, 0.2, device=device, alone=True)[0]
    error = settings.allowed_error
    risky = trial.risky(error)
    found: dict[str, Any] = {
        "mae": mean_absolute_error(*trial.errors_alone()),
        "rmse": root_mean_squared_error(*trial.errors_alone()),
        "auc": auc(trial.estimates.risk[trial.tested], risky),
        "risky": float(risky.mean()),
        "seconds": time.process_time() - start,
    }
    if preset == "paper":
        rows = {str(a): release_at([trial], error, a, REPARTITIONS) for a in LEVELS}
        means = {a: {name: row[name]["mean"] for name in ("fdp", "power", "acceptance")} for a, row in rows.items()}
        found["release"] = {a: means[a] | {"pooled": row["pooled"]} for a, row in rows.items()}
        return found | learned_risk(visits, trial, seed, device)
    sure = replace(trial, settings=replace(settings, promise="confident"))
    return found | {
        "release": {str(a): asdict(outcome(trial, error, a)) for a in LEVELS},
        "confident": {str(a): asdict(outcome(sure, error, a)) for a in LEVELS},
        "groups": {str(a): in_groups(trial, a) for a in GROUP_LEVELS},
    }


def in_groups(trial: Any, alpha: float) -> dict[str, Any]:
    """Released and risky values by value and history: one cut-off for all, and one for each crossed group."""
    from dataclasses import replace

    from safeimpute.selection.groups import make_grouping

    visits, value = trial.calibrated.question.visits, trial.estimates.value
    grouping = make_grouping(("value", "history"), visits, value, past_only=False)
    error, rows = trial.settings.allowed_error, trial.tested
    risky = trial.risky(error)
    own = replace(trial, calibrated=replace(trial.calibrated, grouping=grouping))
    found: dict[str, Any] = {"candidates": len(rows)}
    for kind, each in (("one", trial), ("own", own)):
        released = each.release(error, alpha).released
        found[kind] = {
            f"{dimension.name} {label}": [int(np.sum(released & risky & there)), int(np.sum(released & there))]
            for dimension, code in grouping.codes(visits, value)
            for place, label in enumerate(dimension.labels)
            if (there := code[rows] == place).any()
        }
        found[f"{kind}_all"] = [int(np.sum(released & risky)), int(released.sum())]
    return found


def learned_risk(visits: Any, trial: Any, seed: int, device: str) -> dict[str, Any]:
    """The paper's own imputations ranked by a risk learnt from their validation errors."""
    from dataclasses import replace

    from safeimpute.evaluation.metrics import auc
    from safeimpute.learning.protocol import Imputation
    from safeimpute.selection.questions import draw_roles
    from safeimpute_lab.benchmark.hold_out import hold_out_trial

    own = trial.estimates
    imputation = Imputation(own.value, own.signals)
    told = replace(trial.settings, preset="best", claim="visits")
    ranked = hold_out_trial(visits, imputation, draw_roles(visits, seed, 0.2), told, device=device)
    error = told.allowed_error
    return {"learned_auc": auc(ranked.estimates.risk[ranked.tested], ranked.risky(error))}


def run(
    folder: Path, out: Path, jobs: int, device: str, only: str, methods: tuple[str, ...], count: int, minutes: float
) -> None:
    """Every wanted (data set, split, method) that is not yet in `out`; a data set's pilot comes first.

    After `minutes` nothing new is taken in hand.
    """
    from safeimpute_lab.evidence.provenance import commit_of, made_by_this_code

    ends, commit = time.monotonic() + 60 * minutes, commit_of()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    files = {load(path)[0]: path for path in sorted(folder.glob("*.npz"))}
    files = {name: path for name, path in files.items() if any(part in name for part in only.split("|"))}
    done = list(read_lines(out))
    tolerances = {line["data"]: line["tolerance"] for line in done}
    same = {each: made_by_this_code("results", each) for each in {line["commit"] for line in done if "methods" in line}}
    cells = [line for line in done if "methods" in line and same[line["commit"]]]
    finished = {(line["data"], line["seed"], m) for line in cells for m in line["methods"]}
    with ProcessPoolExecutor(jobs) as pool, out.open("a") as log:

        def splits(name: str) -> dict[Any, str]:
            wanted = {seed: tuple(m for m in methods if (name, seed, m) not in finished) for seed in range(count)}
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
            name, line = waiting.pop(future), future.result() | {"commit": commit}
            log.write(json.dumps(line) + "\n")
            log.flush()
            print(name, line.get("seed", "pilot"), flush=True)
            if time.monotonic() > ends:
                waiting = {each: data for each, data in waiting.items() if not each.cancel()}
            elif "methods" not in line:
                tolerances[name] = line["tolerance"]
                waiting |= splits(name)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("export", "run", "write"))
    parser.add_argument("--data", type=Path, default=Path("out/results/data"))
    parser.add_argument("--out", type=Path, default=Path("lab/evidence/results.jsonl"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="parts of data sets' names, separated by |")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--minutes", type=float, default=1e6)
    given = parser.parse_args()
    if given.step == "export":
        export(given.data)
    elif given.step == "run":
        methods = tuple(given.methods.split(","))
        told = (given.jobs, given.device, given.only, methods, given.splits, given.minutes)
        run(given.data, given.out, *told)
    else:
        from safeimpute_lab.evidence.results_page import write_page

        write_page(list(read_lines(given.out)), Path("docs/evidence.md"))


if __name__ == "__main__":
    main()
