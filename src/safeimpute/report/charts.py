"""The report's pictures as inline SVG, each from the run's summary alone; XML trees escape every text."""

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal
from xml.etree import ElementTree as ET

from markupsafe import Markup

from safeimpute.evaluation.data_profile import CalibrationPoint, CountHistogram
from safeimpute.evaluation.release_profile import LevelOutcome
from safeimpute.evaluation.run_summary import Doubt, GatheringSummary, Histogram, RiskGroup, RunSummary
from safeimpute.machine.files import plain_text
from safeimpute.report.palette import (
    ERROR,
    GRID,
    INK,
    MEASURED,
    MUTED,
    NEUTRAL,
    NOT_MEASURED,
    RELEASED,
    WITHHELD,
    number,
    percent,
    quantity,
    with_unit,
)

MOST_LEVEL = 0.5
LEAST_ROOM = 0.13  # of the axis, for a number above a line
# Small enough that text keeps a readable size when a phone shrinks the picture to its width.
WIDTH, HEIGHT = 400.0, 256.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 20.0, 36.0, 44.0
FONT_SIZE = 12.5


def draw_charts(summary: RunSummary) -> dict[str, Markup | None]:
    """Every picture of the page by name; None where there is nothing to draw."""
    unit, target = summary["unit"], plain_text(summary["target"], 32)
    groups, data = summary["alignment"], summary["data"]
    measuring = summary["measuring"]
    limits = [each["risk"] for each in summary["cutoffs"] if each["risk"] is not None]
    return {
        "by_risk": released_and_withheld(summary["by_risk"], "Risk", None, limits, show="{:g}".format),
        "measuring": measuring and chances(measuring["calibration"], target),
        "sensitivity": doubts(summary["sensitivity"], summary["released"]),
        "curve": trade_off(summary["curve"], summary["fdr"]),
        "by_value": released_and_withheld(summary["by_value"], with_unit(f"Imputed {target}", unit), unit),
        "by_gap": released_and_withheld(summary["by_gap"], f"Days since {target} was last measured", "days"),
        "alignment_error": _by_risk_group(groups, "mae", unit),
        "alignment_risky": _by_risk_group(groups, "risky", unit, summary["accuracy"]["risky_share"]),
        "gathering_value": gathering(summary["gathering"], "value", summary["fdr"]),
        "gathering_history": gathering(summary["gathering"], "history", summary["fdr"]),
        "visits_per_patient": _counts(data["visits_per_patient"], "Visits per patient", "Patients", whole=True),
        "gaps": _counts(data["gap_days"], "Days between visits", "Pairs of consecutive visits", whole=False),
    }


def trade_off(curve: Sequence[LevelOutcome], chosen: float) -> Markup | None:
    """Power and share of unacceptable errors over FDR levels, the chosen one marked."""
    if not curve:
        return None
    top = max(MOST_LEVEL, *(point["fdr"] for point in curve))
    x = Axis(0.0, top, nice_ticks(0.0, top), "FDR level asked for", percent)
    y = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), "Share of measured values", percent)
    plot = start_plot(x, y, "Power and share of unacceptable errors at measured visits, by FDR level")
    plot.line([(0.0, 0.0), (top, top)], NEUTRAL, "2 4", 1.5)
    plot.line([(chosen, 0.0), (chosen, 1.0)], INK, "none", 1.2)
    side = "end" if chosen > 0.7 * top else "start"
    shift = -0.01 * top if side == "end" else 0.01 * top
    plot.note(chosen + shift, 1.03, f"chosen: {percent(chosen)}", side)
    released = [point for point in curve if point["released"]]
    plot.line([(point["fdr"], point["risky"]) for point in released], ERROR, "7 4")
    plot.line([(point["fdr"], point["power"]) for point in curve], RELEASED)
    for point in released:
        plot.dot(point["fdr"], point["risky"], ERROR, _level_tip(point), square=True)
    for point in curve:
        plot.dot(point["fdr"], point["power"], RELEASED, _level_tip(point))
    return plot.markup()


def chances(groups: Sequence[CalibrationPoint], target: str) -> Markup | None:
    """Predicted chance of being unmeasured against the share that was, in groups of visits."""
    if not groups:
        return None
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    x = Axis(0.0, 1.0, ticks, "Predicted chance of being unmeasured", percent)
    y = Axis(0.0, 1.0, ticks, "Visits that were unmeasured", percent)
    plot = start_plot(x, y, f"How well the chance of an unmeasured {target} is predicted")
    plot.line([(0.0, 0.0), (1.0, 1.0)], NEUTRAL, "2 4", 1.5)
    for group in groups:
        told = f"{group['visits']:,} visits: {percent(group['predicted'])} predicted"
        tip = f"{told}, {percent(group['observed'])} unmeasured"
        plot.dot(group["predicted"], group["observed"], RELEASED, tip, radius=4.6)
    return plot.markup()


def doubts(rows: Sequence[Doubt], released: int) -> Markup | None:
    """What would still be released, by how far an unseen reason may shift the odds of being measured."""
    if not rows or not released:
        return None
    names = [f"{row['gamma']:g}" for row in rows]
    label = "Odds of being measured off by a factor of"
    x = Axis(-0.5, len(rows) - 0.5, tuple(map(float, range(len(rows)))), label, lambda place: names[round(place)])
    top = max(row["released"] for row in rows)
    plot = start_plot(x, from_zero(top, "Values still released", number, whole=True), "Sensitivity")
    for place, row in enumerate(rows):
        count = row["released"]
        if count:
            tip = f"By a factor of {names[place]}: {count:,} released"
            plot.bar(place - 0.36, place + 0.36, 0, count, RELEASED, tip)
        plot.note(place, count + 0.03 * plot.y.high, f"{count:,}", "middle")
    return plot.markup()


def _level_tip(point: LevelOutcome) -> str:
    if not point["released"]:
        return f"At {percent(point['fdr'])}: nothing released"
    return (
        f"At {percent(point['fdr'])}: about {point['released']:,.0f} released, "
        f"{percent(point['risky'])} of them unacceptable, {percent(point['power'])} of the good ones released"
    )


def released_and_withheld(
    histogram: Histogram,
    label: str,
    unit: str | None,
    limits: Sequence[float] = (),
    show: Callable[[float], str] = number,
) -> Markup | None:
    """Stacked bars: released below, withheld on top; a line at every cut-off among `limits`."""
    edges, released, withheld = histogram["edges"], histogram["released"], histogram["withheld"]
    if not edges:
        return None
    totals = [a + b for a, b in zip(released, withheld, strict=True)]
    x = Axis(edges[0], edges[-1], nice_ticks(edges[0], edges[-1]), label, show)
    y = from_zero(max(totals), "Missing values", number, whole=True)
    plot = start_plot(x, y, f"Released and withheld by: {label}")
    for position, (low, high) in enumerate(pairwise(edges)):
        kept, total = released[position], totals[position]
        more = " or more" if position == len(totals) - 1 else f" to {quantity(high, unit)}"
        tip = f"{number(low)}{more}: {kept:,} released, {total - kept:,} withheld"
        if kept:
            plot.bar(low, high, 0, kept, RELEASED, tip)
        if total > kept:
            plot.bar(low, high, kept, total, WITHHELD, tip)
    _mark_cutoffs(plot, sorted({limit for limit in limits if x.low <= limit <= x.high}))
    return plot.markup()


@dataclass(frozen=True)
class Axis:
    """A range of values with the ticks to print."""

    low: float
    high: float
    ticks: tuple[float, ...]
    label: str
    show: Callable[[float], str]

    def place(self, value: float, start: float, end: float) -> float:
        return start + (value - self.low) / (self.high - self.low) * (end - start)


@dataclass(frozen=True)
class Plot:
    """An SVG tree with two axes; draws in data coordinates."""

    root: ET.Element
    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.place(x, LEFT, WIDTH - RIGHT), self.y.place(y, HEIGHT - BOTTOM, TOP)

    def bar(self, left: float, right: float, bottom: float, top: float, colour: str, tip: str) -> None:
        """A rectangle; `tip` is shown on hover and read by screen readers."""
        (x0, y0), (x1, y1) = self.at(left, bottom), self.at(right, top)
        gap = min(1.0, 0.1 * (x1 - x0))
        attributes = {"x": x0 + gap, "y": y1, "width": x1 - x0 - 2 * gap, "height": y0 - y1}
        _add(self.root, "rect", attributes, fill=colour, **{"data-tip": tip})

    def line(self, points: Sequence[tuple[float, float]], colour: str, dash: str = "none", width: float = 2.2) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))
        style = {"stroke": colour, "stroke-width": f"{width:g}", "stroke-dasharray": dash, "fill": "none"}
        _add(self.root, "polyline", {}, points=path, **style)

    def dot(self, x: float, y: float, colour: str, tip: str, square: bool = False, radius: float = 3.6) -> None:
        cx, cy = self.at(x, y)
        shared = {"fill": colour, "stroke": "#fff", "stroke-width": "1", "data-tip": tip}
        if square:
            size = {"x": cx - radius, "y": cy - radius, "width": 2 * radius, "height": 2 * radius}
            _add(self.root, "rect", size, **shared)
        else:
            _add(self.root, "circle", {"cx": cx, "cy": cy, "r": radius}, **shared)

    def note(self, x: float, y: float, text: str, anchor: str = "start", colour: str = INK) -> None:
        cx, cy = self.at(x, y)
        _text(self.root, cx, cy, text, anchor, colour, "600")

    def markup(self) -> Markup:
        return Markup(ET.tostring(self.root, encoding="unicode"))  # noqa: S704 - the tree escaped every text


def _mark_cutoffs(plot: Plot, limits: Sequence[float]) -> None:
    """A line at each; of several only the numbers stand above them, where there is room."""
    x, top = plot.x, plot.y.high
    named = -math.inf
    for limit in limits:
        plot.line([(limit, 0.0), (limit, top)], INK, "none", 1.6)
        if len(limits) == 1:
            side = "end" if limit > (x.low + x.high) / 2 else "start"
            plot.note(limit, 1.03 * top, f"cut-off {number(limit)}", side)
        elif limit - named > LEAST_ROOM * (x.high - x.low):
            plot.note(limit, 1.03 * top, number(limit), "middle")
            named = limit


def gathering(found: Sequence[GatheringSummary], by: str, level: float) -> Markup | None:
    """Share of unacceptable errors in each group: under one cut-off for all, and under its own."""
    groups = next((each["groups"] for each in found if each["by"] == by), [])
    cells = [next(cell for cell in group["cells"] if cell["fdr"] == level) for group in groups]
    shares = [share for cell in cells for share in (cell["share"], cell["own_share"]) if share is not None]
    if not shares:
        return None
    names = [plain_text(group["group"], 24).removeprefix("of ") for group in groups]
    x = Axis(-0.5, len(groups) - 0.5, tuple(map(float, range(len(groups)))), "", lambda at: names[round(at)])
    plot = start_plot(x, from_zero(max(*shares, level), "Unacceptable errors", percent), "By group")
    for place, (name, cell) in enumerate(zip(names, cells, strict=True)):
        for left, share, released, colour in (
            (place - 0.38, cell["share"], cell["released"], ERROR),
            (place, cell["own_share"], cell["own_released"], RELEASED),
        ):
            if share is not None:
                tip = f"{name}: {percent(share)} unacceptable, {released:,} released"
                plot.bar(left, left + 0.38, 0, share, colour, tip)
    plot.line([(x.low, level), (x.high, level)], INK, "5 4", 1.3)
    return plot.markup()


def _by_risk_group(
    groups: Sequence[RiskGroup], key: Literal["mae", "risky"], unit: str | None, overall: float | None = None
) -> Markup | None:
    """Error, or share of unacceptable errors, in groups of equal size from low to high risk."""
    if not groups:
        return None
    label = with_unit("Mean absolute error", unit) if key == "mae" else "Share of unacceptable errors"
    show = number if key == "mae" else percent
    ticks = tuple(float(group["group"]) for group in groups)
    x = Axis(0.5, len(groups) + 0.5, ticks, "Measured values by risk: 1 = lowest tenth", number)
    plot = start_plot(x, from_zero(max(group[key] for group in groups), label, show), label)
    for group in groups:
        middle, value = group["group"], group[key]
        shown = quantity(value, unit) if key == "mae" else percent(value)
        tip = f"Risk group {middle:g} ({group['visits']} values): {shown}"
        plot.bar(middle - 0.42, middle + 0.42, 0, value, RELEASED if key == "mae" else ERROR, tip)
    if overall is not None:
        plot.line([(x.low, overall), (x.high, overall)], INK, "5 4", 1.3)
        plot.note(x.low + 0.1, overall + 0.03 * plot.y.high, f"all: {percent(overall)}")
    return plot.markup()


def _counts(histogram: CountHistogram, label: str, what: str, whole: bool) -> Markup | None:
    """A histogram whose last bin, where it holds the rest, is drawn as wide as the others."""
    edges, counts = histogram["edges"], histogram["counts"]
    if not sum(counts):
        return None
    width, tail = edges[1] - edges[0], holds_the_rest(edges)
    last = edges[-2] + width if tail else edges[-1]
    shift = 0.5 if whole else 0.0  # a bar of whole numbers stands centred on its number
    ticks = tuple(t for t in nice_ticks(edges[0], last) if not whole or t == int(t))
    x = Axis(edges[0] - shift, last - shift, ticks, label, number)
    plot = start_plot(x, from_zero(max(counts), what, number, whole=True), f"{what} by {label.lower()}")
    for position, count in enumerate(counts):
        low, high = edges[position], min(edges[position + 1], last)
        rest = tail and position == len(counts) - 1
        plot.bar(low - shift, high - shift, 0, count, RELEASED, f"{_span(low, high, whole, rest)}: {count:,}")
    return plot.markup()


def holds_the_rest(edges: Sequence[float]) -> bool:
    """Whether the last bin of a histogram is wider than the others."""
    return len(edges) > 2 and edges[-1] - edges[-2] > 1.5 * (edges[1] - edges[0])


def _span(low: float, high: float, whole: bool, rest: bool) -> str:
    if rest:
        return f"{number(low)} or more"
    return number(low) if whole else f"{number(low)} to {number(high)}"


def start_plot(x: Axis, y: Axis, description: str) -> Plot:
    """Axes, grid, tick labels and titles; the y title stands level above the axis, where it can be read."""
    box = {"viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}", "role": "img", "aria-label": description}
    root = ET.Element("svg", box, **{"font-size": f"{FONT_SIZE:g}"})
    plot = Plot(root, x, y)
    for tick in y.ticks:
        _, level = plot.at(x.low, tick)
        _add(root, "line", {"x1": LEFT, "x2": WIDTH - RIGHT, "y1": level, "y2": level}, stroke=GRID)
        _text(root, LEFT - 6, level + 4, y.show(tick), "end", MUTED)
    base = HEIGHT - BOTTOM
    _add(root, "line", {"x1": LEFT, "x2": WIDTH - RIGHT, "y1": base, "y2": base}, stroke=MUTED)
    for tick in x.ticks:
        across, _ = plot.at(tick, y.low)
        _text(root, across, base + 16, x.show(tick), "middle", MUTED)
    _text(root, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x.label, "middle", INK)
    _text(root, 2, 14, y.label, "start", INK)
    return plot


def nice_ticks(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """Round numbers from `low` to `high`, roughly `about` of them."""
    if not high > low:
        return (low,)
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(position * step, 12) for position in range(first, last + 1))


def from_zero(highest: float, label: str, show: Callable[[float], str], whole: bool = False) -> Axis:
    """An axis from 0 that ends on a round number above the highest value."""
    top = highest if highest > 0 else 1.0
    ticks = nice_ticks(0.0, top, 5)
    step = max(ticks[1] - ticks[0] if len(ticks) > 1 else top, 1.0 if whole else 0.0)
    last = math.ceil(top / step - 1e-9)
    return Axis(0.0, last * step, tuple(round(step * position, 12) for position in range(last + 1)), label, show)


def pixel_strip(shares: Sequence[float]) -> str:
    """A one-pixel-high PNG as a data address: pale where nothing was measured, dark where everything was."""
    pale, dark = _rgb(NOT_MEASURED), _rgb(MEASURED)
    row = bytes(round(a + (b - a) * share) for share in shares for a, b in zip(pale, dark, strict=True))
    header = struct.pack(">IIBBBBB", len(shares), 1, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" + row, 9)), (b"IEND", b""))
    body = b"".join(struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in chunks)
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _add(parent: ET.Element, tag: str, numbers: dict[str, float], **texts: str) -> ET.Element:
    return ET.SubElement(parent, tag, {name: f"{value:.2f}" for name, value in numbers.items()} | texts)


def _text(parent: ET.Element, x: float, y: float, text: str, anchor: str, colour: str, weight: str = "400") -> None:
    style = {"text-anchor": anchor, "fill": colour, "font-weight": weight}
    _add(parent, "text", {"x": x, "y": y}, **style).text = text
