"""Figures of the data as it came: what was measured, how often, how regularly."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from safeimpute.evaluation.data_profile import CountHistogram, DataProfile
from safeimpute.report.charts import holds_the_rest
from safeimpute.report.figure_style import count_axis, in_percent, one_panel, thousands
from safeimpute.report.palette import CATEGORIES, MEASURED, NOT_MEASURED, RELEASED, percent, plain_text

LONGEST_NAME = 22


def draw_all(data: DataProfile) -> dict[str, Callable[[], Figure | None]]:
    """The figures of a data profile, by file name."""
    return {
        "missingness_heat_map": lambda: missingness_heat_map(data),
        "visits_per_patient": lambda: counts(
            data["visits_per_patient"], "Visits per patient", "Patients", 0.5
        ),
        "gaps_between_visits": lambda: counts(
            data["gap_days"], "Days between visits", "Pairs of consecutive visits"
        ),
        "visit_missingness": lambda: visit_missingness(data["visit_missingness"], data["labs"]),
    }


def missingness_heat_map(data: DataProfile) -> Figure:
    """Labs across, visits down in blocks, sorted by patient and time."""
    shares = np.array(data["heat_map"])
    labs, visits = data["labs"], data["visits"]
    figure, axes = one_panel(max(4.6, 1.8 + 0.6 * len(labs)), 6.0)
    colours = LinearSegmentedColormap.from_list("measured", [NOT_MEASURED, MEASURED])
    extent = (-0.5, len(labs) - 0.5, visits, 0)
    image = axes.imshow(
        shares, aspect="auto", cmap=colours, vmin=0, vmax=1, extent=extent, interpolation="nearest"
    )
    names = [f"{plain_text(name, LONGEST_NAME)} ({percent(data['observed_share'][name])})" for name in labs]
    axes.set_xticks(range(len(labs)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.grid(visible=False)
    axes.set(xlabel="Lab (share of visits measured)", ylabel=f"{visits:,} visits, sorted by patient and time")
    thousands(axes)
    bar = figure.colorbar(image, label="Share of visits measured", shrink=0.6)
    in_percent(bar.ax, y=True)
    bar.outline.set_visible(False)
    return figure


def counts(histogram: CountHistogram, label: str, what: str, centre: float = 0.0) -> Figure | None:
    """A histogram whose last bin, where it holds the rest, is as wide as the others and says so."""
    edges, heights = histogram["edges"], histogram["counts"]
    if not sum(heights):
        return None
    figure, axes = one_panel()
    width, rest = edges[1] - edges[0], holds_the_rest(edges)
    starts = [edge - centre for edge in edges[:-1]]
    axes.bar(starts, heights, 0.94 * width, align="edge", color=RELEASED)
    axes.set(xlabel=f"{label} (last bar: {edges[-2]:,.0f} or more)" if rest else label, ylabel=what)
    axes.margins(x=0.01)
    count_axis(axes, x=True)
    thousands(axes, x=True)
    return figure


def visit_missingness(patients: Sequence[Sequence[dict[str, float]]], labs: Sequence[str]) -> Figure | None:
    """For sampled patients, one small panel each: how many labs are missing at each visit, and which."""
    if not patients:
        return None
    columns = min(5, len(patients))
    rows = -(-len(patients) // columns)
    figure = Figure(figsize=(2.1 * columns + 0.8, 1.7 * rows + 1.4))
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    shown = _shown_labs(patients, labs)
    for number, axes in enumerate(panels):
        if number < len(patients):
            _stack(axes, patients[number], shown)
            axes.set_title(f"patient {'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[number % 26]}", fontsize=9.5)
        else:
            axes.set_visible(False)
    figure.supxlabel("Visit number", fontsize=11)
    figure.supylabel("Labs missing at the visit", fontsize=11)
    if shown:
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=4, title="Missing lab")
    return figure


def _shown_labs(patients: Sequence[Sequence[dict[str, float]]], labs: Sequence[str]) -> list[list[str]]:
    """Labs by how often they are missing, each its own colour; beyond the palette they share the last one."""
    missing = {lab: sum(visit[lab] for visits in patients for visit in visits) for lab in labs}
    ordered = sorted((lab for lab in labs if missing[lab]), key=lambda lab: -missing[lab])
    if len(ordered) <= len(CATEGORIES):
        return [[lab] for lab in ordered]
    alone = len(CATEGORIES) - 1
    return [*([lab] for lab in ordered[:alone]), ordered[alone:]]


def _stack(axes: Axes, visits: Sequence[dict[str, float]], shown: Sequence[Sequence[str]]) -> None:
    position = np.arange(1, len(visits) + 1)
    bottom = np.zeros(len(visits))
    for colour, group in zip(CATEGORIES, shown, strict=False):
        height = np.array([sum(visit[lab] for lab in group) for visit in visits])
        label = plain_text(group[0], LONGEST_NAME) if len(group) == 1 else f"{len(group)} others"
        axes.bar(position, height, 0.85, bottom, color=colour, label=label)
        bottom += height
    axes.set_xlim(0.4, len(visits) + 0.6)
    count_axis(axes, x=True, most=5)
