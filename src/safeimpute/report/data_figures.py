"""Figures of the data as it came: what was measured, how often, how regularly."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from safeimpute.evaluation.data_profile import CountHistogram, DataProfile
from safeimpute.machine.files import plain_text
from safeimpute.report.charts import holds_the_rest
from safeimpute.report.figure_style import count_axis, in_percent, one_panel, thousands
from safeimpute.report.palette import CATEGORIES, MEASURED, NOT_MEASURED, RELEASED, percent

LONGEST_NAME = 22


def draw_all(data: DataProfile) -> dict[str, Callable[[], Figure | None]]:
    """The figures of a data profile, by file name."""
    return {
        "missingness_heat_map": lambda: missingness_heat_map(data),
        "visits_per_patient": lambda: counts(data["visits_per_patient"], "Visits per patient", "Patients", 0.5),
        "gaps_between_visits": lambda: counts(data["gap_days"], "Days between visits", "Pairs of consecutive visits"),
        "visit_missingness": lambda: visit_missingness(data["visit_missingness"], data["labs"]),
        "cumulative_missingness": lambda: cumulative_missingness(data["visit_missingness"], data["labs"]),
    }


def missingness_heat_map(data: DataProfile) -> Figure:
    """Labs across, visits down, sorted by patient and time; a row per visit, or per block where there are too many."""
    shares = np.array(data["heat_map"])
    labs, visits = data["labs"], data["visits"]
    figure, axes = one_panel(max(4.6, 1.8 + 0.6 * len(labs)), 6.0)
    colours = LinearSegmentedColormap.from_list("measured", [NOT_MEASURED, MEASURED])
    extent = (-0.5, len(labs) - 0.5, visits, 0)
    image = axes.imshow(shares, aspect="auto", cmap=colours, vmin=0, vmax=1, extent=extent, interpolation="nearest")
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


def cumulative_missingness(patients: Sequence[Sequence[dict[str, float]]], labs: Sequence[str]) -> Figure | None:
    """The paper's form: a bar per sampled patient, a segment per visit as high as the share of labs missing there."""
    if not patients:
        return None
    figure, axes = one_panel(7.6, 4.2)
    longest = max(map(len, patients))
    shades = LinearSegmentedColormap.from_list("visits", [NOT_MEASURED, RELEASED, MEASURED])
    bottom = np.zeros(len(patients))
    for number in range(longest):
        height = np.array([_missing(visits[number], labs) if number < len(visits) else 0.0 for visits in patients])
        colour = shades(number / max(longest - 1, 1))
        axes.bar(_letters(len(patients)), height, 0.8, bottom, color=colour, edgecolor="white", linewidth=0.4)
        bottom += height
    axes.set(xlabel="Patient", ylabel="Share of labs missing, added up over visits")
    scale = ScalarMappable(Normalize(1, max(longest, 2)), shades)
    bar = figure.colorbar(scale, ax=axes, label="Visit number", shrink=0.8)
    bar.outline.set_visible(False)
    count_axis(bar.ax, most=6)
    return figure


def _missing(visit: dict[str, float], labs: Sequence[str]) -> float:
    return sum(visit[lab] for lab in labs) / max(len(labs), 1)


def _letters(count: int) -> list[str]:
    """Names for sampled patients that say nothing about them."""
    return ["ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 26] for number in range(count)]


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
            axes.set_title(f"patient {_letters(number + 1)[-1]}", fontsize=9.5)
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
