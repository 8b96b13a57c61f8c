"""Real tables, known values hidden at random and by covariates: what each way makes of a mean and of a share.

    python -m safeimpute_lab draws real export --out out/real            visits as arrays (needs SAFEIMPUTE_DATA)
    python -m safeimpute_lab draws real run --out out/real --splits 10 --jobs 16 [--minutes 9]
    python -m safeimpute_lab draws real table --out out/real --into docs/evidence.md

Draws of `best` stand beside draws of scikit-learn's chained equations (IterativeImputer, sample_posterior), on the same
hidden values: CRPS and coverage. `run` needs NumPy, SciPy, scikit-learn, torch and LightGBM only.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # cells run side by side, one thread each

import argparse
import json
import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

DRAWS = 19  # the range of 19 draws holds a further one with a chance of 18 / 20
SHARE, LEVEL = 0.3, 0.2
TABLES = (
    "PBC cholesterol",
    "PBC albumin",
    "NAFLD HDL, 3,000 patients",
    "MIMIC-III demo creatinine",
    "MIMIC-III demo haemoglobin",
    "MIMIC-IV demo creatinine",
    "MIMIC-IV demo haemoglobin",
)
CHAINED, LAGGED = "chained equations, pooled", "chained equations with own values, pooled"
OURS = "best, draws"


def export(folder: Path) -> None:
    """Every table as arrays in one file each."""
    from safeimpute.visits.columns import ColumnChoice
    from safeimpute.visits.visits import prepare_visits
    from safeimpute_lab.evidence.datasets import DATA_SETS

    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(TABLES):
        data = DATA_SETS[name]
        arrays = prepare_visits(data.load(), ColumnChoice(data.target, attributes=data.attributes)).arrays
        fields = {field: content for field, content in asdict(arrays).items() if content is not None}
        np.savez_compressed(folder / f"{number:02}.npz", name=name, unit=data.unit, **fields)
        print(f"{name}: {len(arrays):,} visits", flush=True)


def run_cell(path: Path, how: str, split: int) -> dict[str, Any]:
    """One table, one way of hiding, one split."""
    from safeimpute.draws.drawing import draws_of, learn_predictive
    from safeimpute.evaluation.completions import (
        Completed,
        complete,
        interval_of,
        mean_of,
        nothing_missing,
        share_above,
    )
    from safeimpute.model.fit import fit_question
    from safeimpute.selection.cutoff import rule_of
    from safeimpute.selection.questions import hide_some, question_of, roles_with_hidden
    from safeimpute.settings import make_settings
    from safeimpute_lab.evidence.results import load

    began = time.perf_counter()
    name, visits = load(path)
    measured = visits.target_values[~np.isnan(visits.target_values)]
    settings = make_settings(target="target", tolerance=0.5 * float(np.std(measured)), fdr=LEVEL, random_state=split)
    hidden = hide_some(visits, SHARE, how, np.random.default_rng([18, split]))  # type: ignore[arg-type]
    roles = roles_with_hidden(visits, hidden, split)
    question = question_of(visits, settings, roles)
    fitted, calibrated = fit_question(visits, question, settings)
    released = calibrated.release(settings.allowed_error, rule_of(settings)).released
    drawn = draws_of(learn_predictive(calibrated, fitted.frozen, None, split), DRAWS, split)
    ways = complete(calibrated, released, drawn, settings, np.random.default_rng(split))
    rows, chains = calibrated.candidates, {}
    for label, lags in ((CHAINED, False), (LAGGED, True)):
        chains[label] = chained_draws(question.visits, rows, lags, split)
        filled = np.repeat(ways[0].values, DRAWS, axis=1)
        filled[rows] = chains[label]
        ways.append(Completed(label, filled, np.ones(len(visits))))
    known, limit = ~np.isnan(visits.target_values), float(np.quantile(measured, 0.8))
    patient, found = visits.patient[known], {}
    for way in (nothing_missing(visits.target_values), *ways):
        there = way.at(known)
        some = there.available
        columns, who, weight = there.values[some].T, patient[some], there.weight[some]
        found[way.way] = {
            "mean": asdict(interval_of([mean_of(each, who, weight) for each in columns])),
            "share": asdict(interval_of([share_above(each, limit, who, weight) for each in columns])),
        }
    truth = visits.target_values[rows]
    return {
        "table": name,
        "how": how,
        "split": split,
        "seconds": round(time.perf_counter() - began, 1),
        "hidden": len(rows),
        "scale": float(np.std(measured)),
        "ways": found,
        "draws": {OURS: quality(drawn, truth), **{label: quality(each, truth) for label, each in chains.items()}},
    }


def chained_draws(visits: Any, rows: Any, lags: bool, seed: int) -> Any:
    """Draws of chained Bayesian regressions on the table tabular methods read; with lags, own other values too."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    from safeimpute.learning.roles import Task
    from safeimpute_lab.methods.table import FAR, TARGET, fit_units, read_table

    units = fit_units(Task(visits, np.full(len(visits), np.nan)))
    table = read_table(visits, units)
    if lags:
        table = np.column_stack([table, own_values(visits, table[:, TARGET])])
    drawn = np.empty((len(rows), DRAWS))
    for number in range(DRAWS):
        chain = IterativeImputer(sample_posterior=True, max_iter=10, random_state=1000 * seed + number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            z = chain.fit_transform(table)[rows, TARGET]
        drawn[:, number] = units.labs.in_unit(np.clip(z, -FAR, FAR), units.target)
    return drawn


def own_values(visits: Any, target: Any) -> Any:
    """The patient's nearest other visible values before and after, and their mean; NaN where there is none."""
    from safeimpute.visits.arrays import nearest_own_visits, take

    own = nearest_own_visits(visits.patient, ~np.isnan(target), 1, 1, None)
    near = take(target, own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.column_stack([near, np.nanmean(near, axis=1)])


def quality(drawn: Any, truth: Any) -> dict[str, float]:
    """Continuous ranked probability score (fair, for few draws), coverage of the draws' range, and errors."""
    off = np.abs(drawn - truth[:, None]).mean(axis=1)
    ordered, m = np.sort(drawn, axis=1), drawn.shape[1]
    apart = (ordered * (2 * np.arange(1, m + 1) - m - 1)).sum(axis=1) / (m * (m - 1))
    inside = (truth >= ordered[:, 0]) & (truth <= ordered[:, -1])
    return {
        "crps": float(np.mean(off - apart)),
        "covers": float(inside.mean()),
        "width": float(np.mean(ordered[:, -1] - ordered[:, 0])),
        "mae": float(np.mean(np.abs(np.median(drawn, axis=1) - truth))),
    }


def run(told: argparse.Namespace) -> None:
    """Cells that are not there yet, side by side."""
    path = told.out / "cells.jsonl"
    done = {(line["table"], line["how"], line["split"]) for line in read_lines(path)}
    files = {name: told.out / f"{number:02}.npz" for number, name in enumerate(TABLES)}
    asked = [
        (files[name], how, split)
        for split in range(told.splits)
        for name in (told.tables or TABLES)
        for how in ("random", "covariates")
        if (name, how, split) not in done and files[name].exists()
    ]
    asked.sort(key=lambda cell: -cell[0].stat().st_size if told.longest_first else 0)
    until = time.monotonic() + 60 * told.minutes
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(told.jobs, mp_context=context) as pool, path.open("a", encoding="utf-8") as out:
        futures = {pool.submit(run_cell, *cell): cell for cell in asked}
        for future in as_completed(futures):
            if time.monotonic() > until:
                for each in futures:
                    each.cancel()
            if future.cancelled():
                continue
            if future.exception() is not None:
                print(f"{futures[future]}: {future.exception()!r}", flush=True)
                continue
            line = future.result()
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(f"{line['table']}, {line['how']} #{line['split']}: {line['seconds']} s", flush=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Finished cells."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(lines: list[dict[str, Any]]) -> str:
    """Bias of mean and share by way (in standard deviations and percentage points), then CRPS and coverage."""
    said = []
    for how in ("random", "covariates"):
        there = [line for line in lines if line["how"] == how]
        if not there:
            continue
        names = [name for name in TABLES if any(line["table"] == name for line in there)]
        said += [f"\n### Hidden {'at random' if how == 'random' else 'by covariates'}", ""]
        said += [
            "Mean off by (hundredths of the target's standard deviation) / share above the limit off by (points)",
            "",
        ]
        said += ["| way | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for way in there[0]["ways"]:
            cells = [_bias([line for line in there if line["table"] == name], way) for name in names]
            said.append(f"| {way} | " + " | ".join(cells) + " |")
        said += ["", "CRPS (in standard deviations) / coverage of a 90 % range, on the same hidden values", ""]
        said += ["| draws | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for way in there[0]["draws"]:
            cells = [_quality([line for line in there if line["table"] == name], way) for name in names]
            said.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(said)


def _bias(lines: list[dict[str, Any]], way: str) -> str:
    cells = []
    for quantity in ("mean", "share"):
        scale = np.array([line["scale"] if quantity == "mean" else 1.0 for line in lines])
        off = np.array([_off(line, way, quantity) for line in lines]) / scale * 100
        cells.append(f"{off.mean():+.1f} ± {off.std(ddof=1) / np.sqrt(len(off)) if len(off) > 1 else 0:.1f}")
    return " / ".join(cells)


def _off(line: dict[str, Any], way: str, quantity: str) -> float:
    return float(line["ways"][way][quantity]["estimate"] - line["ways"]["nothing missing"][quantity]["estimate"])


def _quality(lines: list[dict[str, Any]], way: str) -> str:
    crps = np.array([line["draws"][way]["crps"] / line["scale"] for line in lines])
    covers = np.array([line["draws"][way]["covers"] for line in lines])
    se = crps.std(ddof=1) / np.sqrt(len(crps)) if len(crps) > 1 else 0.0
    return f"{crps.mean():.3f} ± {se:.3f} / {100 * covers.mean():.0f} %"


def main() -> None:
    """Export, run or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("export", "run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tables", nargs="+", choices=TABLES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no cell after so long")
    parser.add_argument("--longest-first", action="store_true")
    parser.add_argument("--into", type=Path, help="page to put the table into: docs/evidence.md")
    told = parser.parse_args()
    if told.what == "export":
        export(told.out)
    elif told.what == "run":
        run(told)
    if told.what != "export":
        text = table(read_lines(told.out / "cells.jsonl"))
        print(text)
        if told.into:
            from safeimpute_lab.studies.into_page import put_into

            put_into(told.into, "real tables", text)


if __name__ == "__main__":
    main()
