"""The study's figure, drawn from its figures alone."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Rows = list[dict[str, Any]]

NAIVE, TRIED, OURS, OTHER = "#c0392b", "#8a8a8a", "#1f5fa8", "#2a9d8f"
ALPHA_SHADES = {0.1: "#9ecae1", 0.2: "#4292c6", 0.35: "#084594"}


def draw_figure(figures: dict[str, Any], out: Path) -> None:
    rows: Rows = figures["releases"]
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.6), layout="constrained")
    measuring(axes[0, 0], rows)
    patients_fdp(axes[0, 1], rows)
    patients_power(axes[0, 2], rows)
    unmeasured_new(axes[1, 0], rows)
    batches(axes[1, 1], rows)
    value_driven(axes[1, 2], rows)
    for suffix in ("svg", "png"):
        figure.savefig(out / f"guarantee.{suffix}", dpi=150)
    plt.close(figure)


def select(rows: Rows, setting: str, rule: str, alpha: float | None = None) -> Rows:
    return [r for r in rows if r["setting"] == setting and r["rule"] == rule and alpha in (None, r["alpha"])]


def over_icc(rows: Rows, prefix: str, rule: str, alpha: float) -> tuple[list[float], Rows]:
    found = [
        r for r in rows
        if r["setting"].startswith(f"{prefix}, icc ") and r["rule"] == rule and r["alpha"] == alpha
    ]  # fmt: skip
    found.sort(key=lambda r: float(r["setting"].rsplit(" ", 1)[1]))
    return [float(r["setting"].rsplit(" ", 1)[1]) for r in found], found


def errorbar(axis: Axes, x: list[float], rows: Rows, colour: str, label: str, marker: str = "o") -> None:
    axis.errorbar(
        x, [r["fdp"] for r in rows], yerr=[3 * r["fdp_se"] for r in rows],
        color=colour, label=label, marker=marker, markersize=4, linewidth=1.3, capsize=2,
    )  # fmt: skip


def level(axis: Axes, alpha: float, word: str = "promised") -> None:
    axis.axhline(alpha, color="black", linewidth=0.9, linestyle="--", label=f"{word}: {alpha:g}")


def finish(axis: Axes, title: str, x: str, y: str, **legend: Any) -> None:
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axis.set(xlabel=x, ylabel=y)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7.5, frameon=False, **legend)


def measuring(axis: Axes, rows: Rows) -> None:
    for rule, colour, marker, label in (
        ("naive", NAIVE, "s", "naive: unweighted BH"),
        ("ours, known weights", OURS, "o", "ours, known weights"),
        ("ours, estimated weights", OTHER, "^", "ours, estimated weights"),
    ):
        found = select(rows, "measuring shift", rule)
        errorbar(axis, [r["alpha"] for r in found], found, colour, label, marker)
    axis.plot([0, 0.4], [0, 0.4], color="black", linewidth=0.9, linestyle="--", label="promised")
    finish(axis, "a  Visits nobody measured", "FDR level asked for", "mean FDP ± 3 SE", loc="upper left")


def patients_fdp(axis: Axes, rows: Rows) -> None:
    for rule, colour, marker, label in (
        ("naive", NAIVE, "s", "naive: visits of training patients"),
        ("one visit per patient", TRIED, "D", "one visit per patient"),
        ("ours", OURS, "o", "ours"),
    ):
        errorbar(axis, *over_icc(rows, "new patients", rule, 0.2), colour, label, marker)
    level(axis, 0.2)
    axis.set_ylim(0, 0.65)
    finish(axis, "b  New patients: errors", "intraclass correlation", "mean FDP ± 3 SE", loc="upper left")


def patients_power(axis: Axes, rows: Rows) -> None:
    for rule, colour, label in (("ours", OURS, "ours"), ("pooled maximum", TRIED, "pooled maximum")):
        for alpha, style in ((0.1, ":"), (0.2, "-")):
            icc, found = over_icc(rows, "new patients", rule, alpha)
            power = [r["power"] for r in found]
            axis.plot(
                icc, power, style, color=colour, marker="o", markersize=4, label=f"{label}, level {alpha:g}"
            )
    axis.set_ylim(0, 1.1)
    finish(
        axis,
        "c  New patients: power",
        "intraclass correlation",
        "good values released",
        ncols=2,
        loc="upper center",
    )


def unmeasured_new(axis: Axes, rows: Rows) -> None:
    for rule, colour, marker, label in (
        ("naive", NAIVE, "s", "naive: unweighted BH"),
        ("ours, calibration patients", OURS, "o", "ours, calibration patients"),
        ("ours, own visits", OTHER, "^", "ours, own visits"),
    ):
        errorbar(axis, *over_icc(rows, "unmeasured", rule, 0.2), colour, label, marker)
    level(axis, 0.2)
    axis.set_ylim(0, 0.5)
    finish(
        axis,
        "d  Unmeasured visits of new patients",
        "intraclass correlation",
        "mean FDP ± 3 SE",
        loc="upper left",
    )


def batches(axis: Axes, rows: Rows) -> None:
    for alpha, colour in ALPHA_SHADES.items():
        found = [r for r in rows if r["setting"].startswith("batch of ") and r["alpha"] == alpha]
        size = [int(r["setting"].rsplit(" ", 1)[1]) for r in found]
        axis.plot(
            size,
            [r["share_bad"] for r in found],
            color=colour,
            marker="o",
            markersize=4,
            label=f"BH, level {alpha:g}",
        )
        axis.axhline(alpha, color=colour, linewidth=0.9, linestyle="--")
    axis.set_xscale("log")
    axis.set_xticks(size, [str(m) for m in size])
    axis.minorticks_off()
    finish(
        axis,
        "e  Few candidates",
        "candidates in the batch",
        "share of bad among releases",
        ncols=1,
        loc="upper right",
    )
    axis.set_ylim(0, 0.55)


def value_driven(axis: Axes, rows: Rows) -> None:
    found = [r for r in rows if r["rule"].startswith("gamma ") and r["alpha"] == 0.2]
    gamma = [float(r["rule"].split()[1]) for r in found]
    errorbar(axis, gamma, found, OURS, "mean FDP ± 3 SE")
    axis.plot(gamma, [r["power"] for r in found], color=OTHER, marker="^", markersize=4, label="power")
    level(axis, 0.2, "asked for, not promised")
    finish(axis, "f  Value-driven measuring (analysis)", "gamma allowed for", "share", loc="upper right")
