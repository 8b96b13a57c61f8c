"""docs/benchmark.md from finished benchmarks: `python bench/benchmark_page.py [FOLDER]`."""

import json
import math
import shutil
import statistics
import sys
from pathlib import Path

from benchmark_data import STUDIES

from safeimpute.benchmark.result import BenchmarkResult
from safeimpute.benchmark.tables import (
    NONE,
    Table,
    accuracy_table,
    as_markdown,
    failure_table,
    heading,
    reading,
    release_table,
    shared_table,
)

INTRODUCTION = """# Benchmark: every method on the same hidden values

`make benchmark` runs all of it unattended and goes on where it was stopped (`bench/benchmark_data.py` names data,
tolerances and commands). For this page the cells were run in parts by `python bench/benchmark_cells.py WORK --methods …
--splits … [--device cuda] --time-limit …`, here and on a GPU machine, and the tables made from what was finished by the
same commands with `--finished-only`; `bench/benchmark_page.py` wrote the page. Splits by visits, seeds 0–4, 20 % of the
measured targets hidden as test. Every method gets the same visits and trains for its published number of rounds, where
there is one. Where a method has fewer splits than others it stands below them and is left out of the reading: its mean
speaks of other values, only its ratio to `best` on common splits compares.

**Two fits of every method.** *Accuracy:* all values but the test's are the method's own. One that stops by validation
values takes 15 % of them for it, and has these, too, as inputs once it has learnt (the paper's network cannot: it knows
only its own graph); any other learns from all of them. *Release:* the paper's hold-out, 70/15/15 training, validation
and calibration of what is not tested; a risk learnt from the method's own validation errors ranks its values, and
calibration decides under claim `visits`, with calibration and test drawn anew many times. `best` and `paper` stand
there twice: with that risk, and as shipped, which for `best` is cross-calibration with all values but the test's
visible.

**Where it ran.** Cells marked GPU ran on one H200 that ten to twenty cells shared, so their times say what a busy GPU
gives, not what the method needs alone; the others ran on two busy CPU cores or on a few of the GPU machine's sixteen.
Times of one row may come from both; they tell seconds from hours, no more. Memory on the GPU is left out where it was
measured together with the risk. On PBC every method has its five splits. On the two larger tables those have a result
that finished in the hours at hand: splits that are missing were not run for want of time, or were stopped at the limit
that the last table of a section names. Nothing was left out for its result. Between the states of the code that
the readings count, what changed since the first commit was the benchmark's own book-keeping and comments, not a
method; cells older than the count carry no mark of their code and count as one state.

**Settings that are ours.** Where a paper leaves a setting open, or its code could not be read, the choice stands in
a comment of the method's file under `benchmark/methods`: all of LSTM (in both directions), the batches of 32 of
Transformer and SAITS, dropout and rate of GRU-D, the share BRITS hides in training, CSDI's samples at visible targets,
DiffPuter's redraws and patience, MissForest's out-of-bag values at visible visits. Tabular methods see a visit's labs,
attributes and days since the first visit, and no other visit of the patient: that is what they are made for, and why
methods that look along the visits pass them. Splits in which a method failed to learn count like any other: ReMasker
on cholesterol with seed 2 is further off than the mean.

**Whose figures.** The columns headed *published* hold the paper's own figures, on cohorts nobody else has. They are
for reference and cannot be compared with ours line by line.
"""
TITLES = {
    "pbc_cholesterol": "Mayo PBC, cholesterol",
    "pbc_albumin": "Mayo PBC, albumin",
    "nafld_hdl": "Mayo NAFLD, HDL, the first 3,000 patients",
    "mimic3_shape": "Simulated HbA1c, MIMIC-III shape",
}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/benchmark")
    results: dict[str, BenchmarkResult] = {
        name: json.loads((folder / name / "benchmark.json").read_text())
        for name in STUDIES
        if (folder / name / "benchmark.json").exists()
    }
    parts = [
        INTRODUCTION,
        as_markdown(_at_a_glance(results)),
        "## Who wins where\n\n" + "\n\n".join(_won(name, each) for name, each in results.items()),
    ]
    for name, result in results.items():
        parts.append(_section(name, result))
        picture = Path("docs/images") / f"benchmark_{name}.png"
        shutil.copyfile(folder / name / "figures" / "benchmark.png", picture)
    Path("docs/benchmark.md").write_text("\n\n".join(part.strip() for part in parts) + "\n")
    Path("docs/benchmark.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")


def _at_a_glance(results: dict[str, BenchmarkResult]) -> Table:
    """Every method's error beside that of `best`, on the splits both finished."""

    def ratios(method: str) -> list[float]:
        found = [result["methods"][method]["against"].get("best") for result in results.values()]
        return [pair["ratio"] for pair in found if pair] or [math.inf]

    def cell(method: str, result: BenchmarkResult) -> str:
        if method == "best":
            return "1"
        pair = result["methods"][method]["against"].get("best")
        if not pair:
            return NONE
        fewer = "" if pair["splits"] == result["splits"] else f" ({pair['splits']})"
        return f"{pair['ratio']:.2f}{fewer}"

    methods = next(iter(results.values()))["methods"]
    order = sorted(methods, key=lambda name: 1.0 if name == "best" else statistics.fmean(ratios(name)[:2]))
    rows = tuple((name, *(cell(name, result) for result in results.values())) for name in order)
    note = (
        "MAE divided by that of `best` on the same splits, below 1 better than it; in brackets how many splits where "
        "fewer than five were run. In the order of the mean over the two PBC columns."
    )
    head = ("method", *(TITLES[name] for name in results))
    return Table("At a glance", note, head, rows, frozenset({order.index("best")}))


def _won(name: str, result: BenchmarkResult) -> str:
    return f"**{TITLES[name]}.**\n" + "\n".join(f"- {sentence}" for sentence in reading(result))


def _section(name: str, result: BenchmarkResult) -> str:
    tables = [accuracy_table(result), release_table(result)]
    tables += [shared_table(result, whose) for whose in ("best", "paper")]
    failed = failure_table(result)
    tables += [failed] if failed.rows else []
    head = f"## {TITLES[name]}\n\n{heading(result)}.\n\n![Accuracy and release](images/benchmark_{name}.png)"
    source = f"Published figures: {result['published']['source']}."
    return "\n\n".join([head, *(as_markdown(table).replace("## ", "### ", 1) for table in tables), source])


if __name__ == "__main__":
    main()
