"""How every figure looks and is saved: one style, PNG and SVG, the same bytes each time."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from safeimpute.machine.files import finished_file
from safeimpute.report.palette import GRID, INK, MUTED

DPI = 200
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.09,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same everywhere
    "font.size": 10,
    "grid.color": GRID,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "svg.hashsalt": "safeimpute",
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a lab's name is no formula
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


def styled() -> AbstractContextManager[None]:
    """The style holds inside the block only: nothing global changes."""
    return mpl.rc_context(_STYLE)


def one_panel(width: float = 6.4, height: float = 4.0) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def in_percent(axes: Axes, *, x: bool = False, y: bool = False) -> None:
    for axis, wanted in ((axes.xaxis, x), (axes.yaxis, y)):
        if wanted:
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def count_axis(axes: Axes, *, x: bool = False, y: bool = True, most: int = 8) -> None:
    for axis, wanted in ((axes.xaxis, x), (axes.yaxis, y)):
        if wanted:
            axis.set_major_locator(MaxNLocator(most, integer=True, steps=[1, 2, 5, 10]))


def thousands(axes: Axes, *, x: bool = False) -> None:
    """Counts (and, if asked, the x axis) with a comma at the thousands."""
    for axis in (axes.yaxis, axes.xaxis) if x else (axes.yaxis,):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """PNG for slides, SVG for print; neither carries a date or a version.

    `Figure.savefig` would draw each of them twice, the first time only to lay it out.
    """
    png, svg = (folder / f"{name}.{kind}" for kind in ("png", "svg"))
    figure.set_dpi(DPI)
    as_png: Any = FigureCanvasAgg(figure)
    with finished_file(png) as partial, styled():
        as_png.print_png(partial, metadata={"Software": None})
    figure.set_layout_engine("none")  # laid out once, for both
    as_svg: Any = FigureCanvasSVG(figure)
    with finished_file(svg) as partial, styled():
        as_svg.print_svg(partial, metadata={"Date": None, "Creator": None})
    return [png, svg]
