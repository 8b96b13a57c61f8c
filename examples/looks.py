"""How the examples' figures look, and where they go: one place, so that the scripts show the work alone."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURED, RELEASED, WITHHELD, LEVEL = "#1f2933", "#00897b", "#9aa5b1", "#c2410c"
STYLE: Any = {
    "figure.dpi": 110,
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def told(about: str, name: str) -> argparse.Namespace:
    """What every example is told: where its files go, and where its figure goes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/examples") / name, help="folder for its files")
    parser.add_argument("--figures", type=Path, help="folder for the figure (default: the same)")
    chosen = parser.parse_args()
    chosen.figures = chosen.figures or chosen.out
    for folder in (chosen.out, chosen.figures):
        folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(STYLE)
    return chosen


def save(figure: "Figure", folder: Path, name: str) -> None:
    """A small PNG, the same bytes for the same picture."""
    path = folder / f"{name}.png"
    figure.savefig(path, metadata={"Software": None})
    print(f"Figure: {path}")


def what_became(axes: "Axes", table: "pl.DataFrame") -> None:
    """Missing values as bars: released, and withheld by reason."""
    reasons = table.filter(~table["released"])["reason"].value_counts(sort=True)
    rows = [("released", int(table["released"].sum())), *reasons.iter_rows()]
    colours = [RELEASED] + [WITHHELD] * len(reasons)
    bars = axes.barh(range(len(rows)), [count for _, count in rows], color=colours, height=0.6)
    axes.bar_label(bars, padding=4)
    axes.set_yticks(range(len(rows)), [name if name == "released" else f"withheld:\n{name}" for name, _ in rows])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(f"{len(table):,} missing values")
    axes.set_xlabel("values")


def course(axes: "Axes", measured: "pl.DataFrame", imputed: "pl.DataFrame", lab: str) -> None:
    """One patient over time: measured values, released ones with their intervals, withheld ones hollow."""
    axes.plot(measured["time"], measured[lab], "o", color=MEASURED, label="measured")
    for released, face, name in ((True, RELEASED, "released, 90 % interval"), (False, "white", "withheld")):
        rows = imputed.filter(imputed["released"] == released)
        edge = RELEASED if released else WITHHELD
        if released:
            axes.vlines(rows["time"], rows["lower"], rows["upper"], color=edge, linewidth=1.2)
        axes.plot(
            rows["time"], rows["value"], "D", markerfacecolor=face, markeredgecolor=edge, markersize=6, label=name
        )
    axes.legend(loc="best", fontsize=8.5)
