"""Coverage of pooled draws: simulated cohorts whose truth is known, every way to go on with missing values beside.

    python -m safeimpute_lab draws study --out out/draws --cohorts 500 --jobs 16
    python -m safeimpute_lab draws study --out out/draws --table --into docs/evidence.md

Values are missing by covariates the table shows (where intervals must cover), or by the value itself (where they must
fail; the shift `delta` that would mend it is found). Every cohort is one line of cells.jsonl; a rerun goes on.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # cohorts run side by side, one thread each

import argparse
import json
import multiprocessing
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

DRAWS = 20
LEVEL, TOLERANCE = 0.2, 0.8
DELTAS = (-1.2, -1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2)
MEASURING = ("covariates", "value")


@dataclass(frozen=True)
class Cell:
    """One cohort."""

    measuring: str
    patients: int
    cohort: int


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit one cohort, go on in every way, and note estimates, intervals and whether they cover the population's."""
    from safeimpute.draws.drawing import draws_of, learn_predictive
    from safeimpute.evaluation.completions import DRAWN, complete, nothing_missing
    from safeimpute.model.fit import fit_question
    from safeimpute.selection.cutoff import rule_of
    from safeimpute.selection.questions import question_for
    from safeimpute.settings import make_settings
    from safeimpute_lab.studies.draws.cohorts import MEAN, SLOPE, draw_cohort

    began = time.perf_counter()
    cohort = draw_cohort(cell.measuring, cell.patients, np.random.default_rng([2026, cell.cohort]))  # type: ignore[arg-type]
    settings = make_settings(target="target", tolerance=TOLERANCE, fdr=LEVEL, random_state=cell.cohort)
    question = question_for(cohort.visits, settings)
    fitted, calibrated = fit_question(cohort.visits, question, settings)
    released = calibrated.release(settings.allowed_error, rule_of(settings)).released
    predictive = learn_predictive(calibrated, fitted.frozen, None, cell.cohort)
    drawn = draws_of(predictive, DRAWS, cell.cohort)
    ways = [
        nothing_missing(cohort.truth),
        *complete(calibrated, released, drawn, settings, np.random.default_rng(cell.cohort)),
    ]
    truths, rows = {"mean": MEAN, "slope": SLOPE}, calibrated.candidates
    found = {way.way: {name: _judged(way, name, cohort, truth) for name, truth in truths.items()} for way in ways}
    shifted = {}
    for delta in DELTAS:
        moved = next(way for way in ways if way.way == DRAWN)
        values = moved.values.copy()
        values[rows] += delta
        there = type(moved)(DRAWN, values, moved.weight)
        shifted[f"{delta:g}"] = {name: _judged(there, name, cohort, truth) for name, truth in truths.items()}
    inside = np.mean(drawn < cohort.truth[rows][:, None], axis=1)
    return asdict(cell) | {
        "seconds": round(time.perf_counter() - began, 2),
        "released": float(released.mean()),
        "missing": float(question.candidate.mean()),
        "needed": float(np.mean(cohort.truth[rows]) - np.mean(drawn)),
        "value_coverage": {f"{c:g}": float(np.mean(np.abs(inside - 0.5) <= c / 2)) for c in (0.5, 0.8, 0.9)},
        "ways": found,
        "delta": shifted,
    }


def _judged(way: Any, name: str, cohort: Any, truth: float) -> dict[str, Any]:
    from safeimpute.evaluation.completions import interval_of, mean_of, slope_of

    rows, patient = way.available, cohort.visits.patient
    estimates = []
    for values in way.values[rows].T:
        if name == "mean":
            estimates.append(mean_of(values, patient[rows], way.weight[rows]))
        else:
            estimates.append(slope_of(values, cohort.age[rows], patient[rows], way.weight[rows]))
    found = interval_of(estimates)
    return {
        "estimate": found.estimate,
        "se": found.se,
        "covers": found.covers(truth),
        "width": found.width,
        "fmi": found.missing_information,
    }


def run_all(cells: list[Cell], path: Path, jobs: int, minutes: float) -> None:
    """Side by side, one line each as it ends; no cell is started after so many minutes."""
    until, queue = time.monotonic() + 60 * minutes, list(reversed(cells))
    running: dict[Future[dict[str, Any]], Cell] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool, path.open("a", encoding="utf-8") as out:
        while running or (queue and time.monotonic() < until):
            while queue and len(running) < jobs and time.monotonic() < until:
                cell = queue.pop()
                running[pool.submit(run_cell, cell)] = cell
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                if future.exception() is not None:
                    print(f"{cell}: {future.exception()!r}", flush=True)
                    continue
                out.write(json.dumps(future.result()) + "\n")
                out.flush()
    print("done", flush=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Finished cells."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def table(lines: list[dict[str, Any]]) -> str:
    """Bias, coverage and width by way; then what each delta gives where measuring follows the value."""
    from safeimpute_lab.studies.draws.cohorts import MEAN, SLOPE

    truths, said = {"mean": MEAN, "slope": SLOPE}, []
    for measuring in MEASURING:
        there = [line for line in lines if line["measuring"] == measuring]
        if not there:
            continue
        said += [f"\n### Missing by {measuring}: {len(there)} cohorts of {there[0]['patients']} patients\n"]
        said += [
            "| way | mean: bias | covers | width | slope: bias | covers | width |",
            "|---|---|---|---|---|---|---|",
        ]
        said += [_row(way, [line["ways"][way] for line in there], truths) for way in there[0]["ways"]]
        if measuring == "value":
            said += ["\nDraws shifted by delta (the shift that was needed: "]
            said[-1] += f"{np.mean([line['needed'] for line in there]):+.2f})\n"
            said += [
                "| delta | mean: bias | covers | width | slope: bias | covers | width |",
                "|---|---|---|---|---|---|---|",
            ]
            said += [_row(each, [line["delta"][each] for line in there], truths) for each in there[0]["delta"]]
        inside = {c: np.mean([line["value_coverage"][c] for line in there]) for c in ("0.5", "0.8", "0.9")}
        said += ["\nSingle values inside central intervals of the draws: "]
        said[-1] += ", ".join(f"{float(c):.0%}: {share:.1%}" for c, share in inside.items())
    return "\n".join(said)


def _row(name: str, found: list[dict[str, Any]], truths: dict[str, float]) -> str:
    cells = []
    for quantity, truth in truths.items():
        each = [one[quantity] for one in found]
        bias, count = np.array([one["estimate"] - truth for one in each]), len(each)
        share = float(np.mean([one["covers"] for one in each]))
        se = np.sqrt(share * (1 - share) / count)
        cells += [f"{bias.mean():+.3f} ± {bias.std() / np.sqrt(count):.3f}", f"{100 * share:.1f} ± {100 * se:.1f} %"]
        cells += [f"{np.mean([one['width'] for one in each]):.2f}"]
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    """Run what is not there yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cohorts", type=int, default=500)
    parser.add_argument("--patients", type=int, default=120)
    parser.add_argument("--measuring", nargs="+", choices=MEASURING, default=list(MEASURING))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no cohort after so long")
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    parser.add_argument("--into", type=Path, help="page to put the table into: docs/evidence.md")
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    path = told.out / "cells.jsonl"
    lines = read_lines(path)
    if not told.table:
        done = {Cell(line["measuring"], line["patients"], line["cohort"]) for line in lines}
        asked = [Cell(how, told.patients, n) for n in range(told.cohorts) for how in told.measuring]
        run_all([cell for cell in asked if cell not in done], path, told.jobs, told.minutes)
    text = table(read_lines(path))
    print(text)
    if told.into:
        from safeimpute_lab.studies.into_page import put_into

        put_into(told.into, "draws study", text)


if __name__ == "__main__":
    main()
