"""The benchmark as one picture: accuracy, what each method can release, and whether its level held."""

from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safeimpute.machine.files import plain_text
from safeimpute.report.figure_style import in_percent, save, styled
from safeimpute.report.palette import CATEGORIES, INK, MUTED, NEUTRAL, RELEASED
from safeimpute_lab.benchmark.result import BenchmarkResult
from safeimpute_lab.benchmark.tables import by_accuracy, heading, label_of

OURS = ("paper", "best")
MARKS = ("o", "s", "^", "D", "v")


def draw_benchmark(result: BenchmarkResult, folder: Path) -> list[Path]:
    """PNG and SVG; nothing where no method finished."""
    order = by_accuracy(result)
    if not order:
        return []
    with styled():
        figure = Figure(figsize=(11.5, 1.9 + 0.3 * len(order)))
        error, released, risky = figure.subplots(1, 3, sharey=True)
        _accuracy(error, result, order)
        _release(released, result, order, "acceptance")
        released.set(title="Values released", xlabel="Share of the test values (more is better)")
        _release(risky, result, order, "fdp")
        risky.set(title="Unacceptable errors among them", xlabel="Share of the released (dashed: level)")
        risky.legend(title="FDR level", loc="upper left", bbox_to_anchor=(1.0, 1.0))
        said = heading(result) + (f"\n{result['note']}" if result["note"] else "")
        figure.suptitle(said, x=0.01, ha="left", fontsize=10, color=MUTED)
        return save(figure, folder / "figures", "benchmark")


def _accuracy(axes: Axes, result: BenchmarkResult, order: list[str]) -> None:
    """Error bars from nought, most accurate on top; our presets in colour."""
    errors = [result["methods"][name]["imputation"]["mae"] for name in order]
    rows, unit = range(len(order)), plain_text(result["unit"] or "in the table’s unit", 16)
    axes.barh(
        rows,
        [each["mean"] or 0.0 for each in errors],
        xerr=[each["se"] or 0.0 for each in errors],
        color=[RELEASED if name in OURS else NEUTRAL for name in order],
        error_kw={"ecolor": INK, "elinewidth": 1},
        height=0.7,
    )
    axes.set_yticks(list(rows), [label_of(result, name) for name in order])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.set(title="Mean absolute error", xlabel=f"{unit} (less is better)")


def _release(axes: Axes, result: BenchmarkResult, order: list[str], what: Literal["acceptance", "fdp"]) -> None:
    """One mark per method and level; for risky values the level itself as a line not to be passed."""
    levels = [row["fdr"] for row in result["methods"][order[0]]["release"]]
    for position, level in enumerate(levels):
        colour, mark = CATEGORIES[position % len(CATEGORIES)], MARKS[position % len(MARKS)]
        shift = 0.22 * (position - (len(levels) - 1) / 2)
        figures = [result["methods"][name]["release"][position][what] for name in order]
        axes.errorbar(
            [each["mean"] or 0.0 for each in figures],
            [row + shift for row in range(len(order))],
            xerr=[each["se"] or 0.0 for each in figures],
            fmt=mark,
            color=colour,
            markersize=5,
            elinewidth=1,
            label=f"{100 * level:g} %",
        )
        if what == "fdp":
            axes.axvline(level, color=colour, linewidth=1, linestyle="--")
    axes.set_xlim(left=0.0)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    in_percent(axes, x=True)
