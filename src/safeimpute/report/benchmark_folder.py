"""A benchmark on the terminal and as files: JSON, markdown, LaTeX and a figure, all from one result."""

from pathlib import Path
from typing import Any

import typer

from safeimpute.benchmark.tables import (
    accuracy_table,
    all_tables,
    as_latex,
    as_markdown,
    as_text,
    by_accuracy,
    failure_table,
    heading,
    latex_text,
    reading,
    release_table,
)
from safeimpute.report.benchmark_figure import draw_benchmark
from safeimpute.report.run_folder import save_json
from safeimpute.runtime.files import finished_file


def write_benchmark(folder: Path, result: dict[str, Any]) -> None:
    """The figure and the tables first, then the JSON that says the benchmark is finished."""
    draw_benchmark(result, folder)
    _write(folder / "benchmark.md", markdown_page(result))
    _write(folder / "benchmark.tex", latex_page(result))
    save_json(result, folder / "benchmark.json")


def _write(path: Path, text: str) -> None:
    with finished_file(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def markdown_page(result: dict[str, Any]) -> str:
    picture = "![Accuracy and release of every method](figures/benchmark.png)" if by_accuracy(result) else ""
    source = f"Published figures: {result['published']['source']}."
    said = "\n".join(f"- {sentence}" for sentence in reading(result))
    parts = [f"# Benchmark: {heading(result)}", said, picture, *map(as_markdown, all_tables(result)), source]
    return "\n\n".join(part for part in parts if part)


def latex_page(result: dict[str, Any]) -> str:
    head = [f"% {heading(result)}", "% Needs \\usepackage{booktabs}"]
    if result["note"]:
        head.append(rf"\noindent\textbf{{{latex_text(result['note'])}}}")
    source = rf"\noindent Published figures: {latex_text(result['published']['source'])}."
    return "\n\n".join(["\n".join(head), *map(as_latex, all_tables(result)), source])


def print_benchmark(result: dict[str, Any], folder: Path) -> None:
    """The answer first, then the tables it rests on."""
    typer.echo(f"\n{heading(result)}\n")
    for sentence in reading(result):
        typer.echo(f"  {sentence}")
    failed = failure_table(result)
    for table in (
        accuracy_table(result),
        release_table(result, brief=True),
        *([failed] if failed.rows else []),
    ):
        typer.echo(f"\n{as_text(table)}")
    typer.echo(f"\nPublished: {result['published']['source']}.")
    typer.echo(f"What each column means, and all methods on our releases: {folder / 'benchmark.md'}")
