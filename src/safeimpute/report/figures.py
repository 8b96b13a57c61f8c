"""The figures of a run or an evaluation folder as PNG and SVG, each from its JSON alone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from shutil import copy
from typing import TypedDict, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safeimpute.errors import OptionError
from safeimpute.evaluation.data_profile import DataProfile
from safeimpute.evaluation.drawn_run import TippingQuantity
from safeimpute.evaluation.evaluate import Accuracy, Curve, ReleaseSummary
from safeimpute.evaluation.evaluate import RiskGroup as TestedGroup
from safeimpute.evaluation.release_profile import LevelOutcome
from safeimpute.evaluation.run_summary import Histogram, RiskGroup, RunSummary
from safeimpute.machine.files import plain_text
from safeimpute.report import data_figures
from safeimpute.report.figure_style import count_axis, in_percent, one_panel, save, styled, thousands
from safeimpute.report.palette import (
    ERROR,
    INK,
    MUTED,
    NEUTRAL,
    RELEASED,
    WITHHELD,
    number,
    percent,
    quantity,
    with_unit,
)
from safeimpute.report.run_folder import read_summary
from safeimpute.tolerance import Tolerance

Draw = Callable[[], Figure | None]


@dataclass(frozen=True)
class Error:
    """One bar of the accuracy figure."""

    name: str
    mae: float
    se: float | None
    ours: bool


class EvaluationContent(TypedDict):
    """What evaluation.json holds for the figures."""

    unit: str | None
    splits: int
    imputation: Accuracy
    release: list[ReleaseSummary]
    curves: list[Curve]
    alignment: list[TestedGroup]
    data: DataProfile


def draw_figures(folder: Path, beside: Path | None = None) -> list[Path]:
    """Draw what `summary.json` and `evaluation.json` of a folder hold into `figures/`; returns the files.

    Where both are there, errors of an evaluation's test visits are shown rather than the run's own. `beside` is a
    folder drawn before, of another lab of the same run: figures of the same data are copied from there.
    """
    figures: dict[str, Draw] = {}
    copied: set[str] = set()
    if (folder / "summary.json").is_file():
        summary = read_summary(folder)
        figures |= _run_figures(summary)
        if beside is not None and read_summary(beside)["data"] == summary["data"]:
            copied = set(data_figures.draw_all(summary["data"]))
    if (folder / "draws.json").is_file():
        figures["tipping_points"] = lambda: tipping_figure(folder)
    if (folder / "evaluation.json").is_file():
        text = (folder / "evaluation.json").read_text(encoding="utf-8")
        figures |= _evaluation_figures(cast("EvaluationContent", json.loads(text)))
        copied = set()  # an evaluation shows its own data
    if not figures:
        raise OptionError(
            f"{folder} holds neither summary.json nor evaluation.json. Give the folder of a finished run or evaluation."
        )
    paths = []
    for name, draw in figures.items():
        if beside is not None and name in copied:
            there = sorted((beside / "figures").glob(f"{name}.*"))
            paths += [Path(copy(path, folder / "figures" / path.name)) for path in there]
            continue
        with styled():
            figure = draw()
        if figure is not None:
            paths += save(figure, folder / "figures", name)
    return paths


def _run_figures(summary: RunSummary) -> dict[str, Draw]:
    target, unit, judged = plain_text(summary["target"], 32), summary["unit"], summary["accuracy"]
    preset, values = summary["preset"], f"{judged['visits']:,} measured values"
    errors = [
        Error(f"this run ({name})" if name == preset else name, mae, None, name == preset)
        for name, mae in judged["mae"].items()
    ]
    return {
        "released_by_value": lambda: released_histogram(summary["by_value"], with_unit(f"Imputed {target}", unit)),
        "released_by_gap": lambda: released_histogram(summary["by_gap"], f"Days since {target} was last measured"),
        "released_by_risk": lambda: released_histogram(
            summary["by_risk"], "Risk", [each["risk"] for each in summary["cutoffs"]]
        ),
        "fdr_power": lambda: level_curve(summary["curve"], summary["fdr"]),
        "risk_alignment": lambda: risk_alignment(summary["alignment"], unit, values),
        "accuracy": lambda: accuracy(errors, unit, values),
        **data_figures.draw_all(summary["data"]),
    }


def _evaluation_figures(evaluation: EvaluationContent) -> dict[str, Draw]:
    unit, splits = evaluation["unit"], f"test values, {evaluation['splits']} splits"
    overall = evaluation["imputation"]["mae"]
    named = [("all imputed", overall, False)]
    named += [(f"released at FDR {percent(row['fdr'])}", row["mae"], True) for row in evaluation["release"]]
    errors = [Error(name, mae["mean"], mae["se"], ours) for name, mae, ours in named if mae["mean"] is not None]
    return {
        "fdr_power": lambda: evaluation_curves(evaluation["curves"], unit),
        "risk_alignment": lambda: score_alignment(evaluation["alignment"], unit, splits),
        "accuracy": lambda: accuracy(errors, unit, splits),
        **data_figures.draw_all(evaluation["data"]),
    }


def released_histogram(histogram: Histogram, label: str, limits: Sequence[float | None] = ()) -> Figure | None:
    """Stacked bars over a risk, an imputed value or a gap, with a line at every cut-off among `limits`."""
    edges, released, withheld = histogram["edges"], histogram["released"], histogram["withheld"]
    if not edges:
        return None
    figure, axes = one_panel()
    widths = [0.94 * (high - low) for low, high in pairwise(edges)]
    axes.bar(edges[:-1], released, widths, align="edge", color=RELEASED, label=f"released ({sum(released):,})")
    axes.bar(
        edges[:-1], withheld, widths, released, align="edge", color=WITHHELD, label=f"withheld ({sum(withheld):,})"
    )
    for limit in limits:
        if limit is not None:
            axes.axvline(limit, color=INK, linewidth=1.4, label=f"cut-off {number(limit)}")
    axes.set(xlabel=label, ylabel="Missing values")
    axes.margins(x=0.01)
    count_axis(axes)
    thousands(axes, x=True)
    axes.legend()
    return figure


def level_curve(curve: Sequence[LevelOutcome], chosen: float) -> Figure:
    """What other levels would have given, by the errors that decided the run: exploration, not a promise."""
    figure, axes = one_panel()
    levels = [point["fdr"] for point in curve]
    axes.plot([0, max(levels)], [0, max(levels)], color=NEUTRAL, linestyle="--", label="level asked for")
    axes.plot(levels, [p["power"] for p in curve], "o-", color=RELEASED, label="power")
    released = [point for point in curve if point["released"]]
    errors = [point["risky"] for point in released]
    axes.plot([point["fdr"] for point in released], errors, "s--", color=ERROR, label="unacceptable among released")
    axes.axvline(chosen, color=INK, linewidth=1.2, label=f"chosen level ({percent(chosen)})")
    axes.set(xlabel="FDR level asked for", ylabel="Share of measured values", xlim=(0, None), ylim=(-0.02, 1.04))
    axes.set_title("Exploration, not a promise")
    in_percent(axes, x=True, y=True)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def evaluation_curves(curves: Sequence[Curve], unit: str | None) -> Figure:
    """Achieved FDR and power on test values against the level, one panel per tolerance, bands of one SE."""
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(3.8 * columns, 3.0 * rows + 0.6))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    for axes, curve in zip(panels, curves, strict=False):
        level_panel(axes, curve["points"])
        tolerance = Tolerance(curve["absolute"], curve["share"], tuple(curve.get("limits", ()))).describe(
            plain_text(unit, 16) if unit else None
        )
        axes.set_title(f"unacceptable from {tolerance}", fontsize=8)
    figure.supxlabel("FDR level asked for", fontsize=11)
    figure.supylabel("Share of test values", fontsize=11)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def level_panel(axes: Axes, points: Sequence[ReleaseSummary]) -> None:
    levels = [point["fdr"] for point in points]
    axes.plot([0, max(levels)], [0, max(levels)], color=NEUTRAL, linestyle="--", label="achieved = asked for")
    for figures, colour, style, label in (
        ([point["power"] for point in points], RELEASED, "o-", "power"),
        ([point["fdp"] for point in points], ERROR, "s-", "achieved FDR"),
    ):
        mean, se = [each["mean"] or 0.0 for each in figures], [each["se"] or 0.0 for each in figures]
        low, high = ([m - s for m, s in zip(mean, se, strict=True)], [m + s for m, s in zip(mean, se, strict=True)])
        axes.plot(levels, mean, style, color=colour, markersize=4.5, label=f"{label} (band: 1 SE)")
        axes.fill_between(levels, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlim=(0, None), ylim=(-0.02, 1.04))
    in_percent(axes, x=True, y=True)


def score_alignment(groups: Sequence[TestedGroup], unit: str | None, what: str) -> Figure | None:
    """The paper's form: each group's error, and its share of unacceptable errors, against its mean risk."""
    if not groups:
        return None
    figure = Figure(figsize=(8.6, 3.7))
    scores = [group["score"]["mean"] or 0.0 for group in groups]
    label = with_unit("Mean absolute error", unit)
    panels = (("mae", label, RELEASED), ("risky", "Share of unacceptable errors", ERROR))
    for axes, (name, words, colour) in zip(figure.subplots(1, 2), panels, strict=True):
        found = [group["mae"] if name == "mae" else group["risky"] for group in groups]
        mean, error = [each["mean"] or 0.0 for each in found], [each["se"] or 0.0 for each in found]
        axes.errorbar(scores, mean, error, fmt="o-", color=colour, capsize=3, ecolor=INK)
        axes.set(xlabel=f"Mean risk of the group ({len(groups)} groups)", ylabel=words, ylim=(0, None))
    in_percent(figure.axes[1], y=True)
    figure.suptitle(f"Error against risk, groups of equal size: {what}", fontsize=11)
    return figure


def risk_alignment(groups: Sequence[RiskGroup], unit: str | None, what: str) -> Figure | None:
    """Error and share of unacceptable errors in groups of equal size by risk."""
    if not groups:
        return None
    figure = Figure(figsize=(8.6, 3.7))
    label = with_unit("Mean absolute error", unit)
    errors, shares = [group["mae"] for group in groups], [group["risky"] for group in groups]
    panels = ((errors, label, RELEASED), (shares, "Share of unacceptable errors", ERROR))
    place = [group["group"] for group in groups]
    for axes, (heights, words, colour) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.bar(place, heights, 0.82, color=colour)
        axes.set(xlabel="Risk group (1 = lowest risk)", ylabel=words, xticks=place, ylim=(0, None))
    in_percent(figure.axes[1], y=True)
    figure.suptitle(f"By risk, groups of equal size: {what}", fontsize=11)
    return figure


def accuracy(errors: Sequence[Error], unit: str | None, what: str) -> Figure:
    figure, axes = one_panel(height=1.3 + 0.45 * len(errors))
    ends = [error.mae + (error.se or 0.0) for error in errors]
    axes.barh(
        [plain_text(error.name, 32) for error in errors],
        [error.mae for error in errors],
        0.66,
        color=[RELEASED if error.ours else NEUTRAL for error in errors],
        xerr=[error.se or 0.0 for error in errors] if any(error.se for error in errors) else None,
        capsize=3,
        ecolor=INK,
    )
    for row, (error, end) in enumerate(zip(errors, ends, strict=True)):
        axes.annotate(quantity(error.mae, unit), (end, row), (5, 0), textcoords="offset points", va="center")
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set(xlabel=with_unit("Mean absolute error", unit), xlim=(0, 1.25 * max(ends)))
    axes.set_title(f"{what[0].upper()}{what[1:]}; smaller is better")
    return figure


def tipping_figure(folder: Path) -> Figure | None:
    """Every quantity over the shifts of unmeasured values, and where its conclusion turns; None without shifts."""
    content = json.loads((folder / "draws.json").read_text(encoding="utf-8"))
    found = cast("list[TippingQuantity]", content["tipping"])
    if not found:
        return None
    figure = Figure(figsize=(4.4 * len(found), 4.2))
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, each in zip(panels, found, strict=True):
        _tipping_panel(axes, each)
        name = plain_text(each["quantity"], 40)
        axes.set_title(f"{name[:1].upper()}{name[1:]}")
        axes.set_xlabel(with_unit("Unmeasured values shifted by", content["unit"]))
        axes.set_ylabel(with_unit(content["target"], content["unit"]) if name == "mean" else "")
        in_percent(axes, y=name.startswith("share"))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _tipping_panel(axes: Axes, quantity: TippingQuantity) -> None:
    rows = quantity["rows"]
    shifts, low, high = ([row[key] for row in rows] for key in ("delta", "lower", "upper"))
    axes.fill_between(shifts, low, high, color=WITHHELD, alpha=0.35, linewidth=0, label="95 % interval")
    axes.plot(shifts, [row["estimate"] for row in rows], "o-", color=RELEASED, label="draws, pooled")
    axes.axvline(0, color=MUTED, linewidth=1, linestyle=":")
    if quantity["reference"] is not None:
        axes.axhline(quantity["reference"], color=INK, linestyle="--", linewidth=1.2, label="held against")
    for place, turn in enumerate((quantity["turns_below"], quantity["turns_above"])):
        if turn is None:
            continue
        axes.axvline(turn, color=ERROR, linewidth=1.8)
        right = turn > (shifts[0] + shifts[-1]) / 2
        axes.annotate(
            f"turns at {turn:+.2g}",
            (turn, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if right else 4, -12 - 14 * place),
            textcoords="offset points",
            ha="right" if right else "left",
            color=ERROR,
        )
