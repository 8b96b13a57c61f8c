"""A benchmark as files: JSON, markdown, LaTeX and a figure, all from one result."""

from pathlib import Path

from safeimpute.machine.files import finished_file
from safeimpute.report.run_folder import save_json
from safeimpute_lab.benchmark.result import BenchmarkResult
from safeimpute_lab.benchmark.tables import all_tables, as_latex, as_markdown, by_accuracy, heading, latex_text, reading
from safeimpute_lab.report.benchmark_figure import draw_benchmark


def write_benchmark(folder: Path, result: BenchmarkResult) -> None:
    """The figure and the tables first, then the JSON that says the benchmark is finished."""
    draw_benchmark(result, folder)
    _write(folder / "benchmark.md", markdown_page(result))
    _write(folder / "benchmark.tex", latex_page(result))
    save_json(result, folder / "benchmark.json")


def _write(path: Path, text: str) -> None:
    with finished_file(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def markdown_page(result: BenchmarkResult) -> str:
    """The reading, the picture and every table."""
    picture = "![Accuracy and release of every method](figures/benchmark.png)" if by_accuracy(result) else ""
    source = f"Published figures: {result['published']['source']}."
    said = "\n".join(f"- {sentence}" for sentence in reading(result))
    parts = [f"# Benchmark: {heading(result)}", said, picture, *map(as_markdown, all_tables(result)), source]
    return "\n\n".join(part for part in parts if part)


def latex_page(result: BenchmarkResult) -> str:
    """Every table, to be pasted into a paper."""
    head = [f"% {heading(result)}", "% Needs \\usepackage{booktabs}"]
    if result["note"]:
        head.append(rf"\noindent\textbf{{{latex_text(result['note'])}}}")
    source = rf"\noindent Published figures: {latex_text(result['published']['source'])}."
    return "\n\n".join(["\n".join(head), *map(as_latex, all_tables(result)), source])
