"""A few lines of SVG: axes, bars, lines and a pixel strip, built as XML so that every text is escaped."""

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from markupsafe import Markup

from safeimpute.report.palette import GRID, INK, MEASURED, MUTED, NOT_MEASURED

# Small enough that text keeps a readable size when a phone shrinks the picture to its width.
WIDTH, HEIGHT = 400.0, 256.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 20.0, 36.0, 44.0
FONT_SIZE = 12.5


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

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, dash: str = "none", width: float = 2.2
    ) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))
        style = {"stroke": colour, "stroke-width": f"{width:g}", "stroke-dasharray": dash, "fill": "none"}
        _add(self.root, "polyline", {}, points=path, **style)

    def dot(
        self, x: float, y: float, colour: str, tip: str, square: bool = False, radius: float = 3.6
    ) -> None:
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
    return Axis(
        0.0, last * step, tuple(round(step * position, 12) for position in range(last + 1)), label, show
    )


def pixel_strip(shares: Sequence[float]) -> str:
    """A one-pixel-high PNG as a data address: pale where nothing was measured, dark where everything was."""
    pale, dark = _rgb(NOT_MEASURED), _rgb(MEASURED)
    row = bytes(round(a + (b - a) * share) for share in shares for a, b in zip(pale, dark, strict=True))
    header = struct.pack(">IIBBBBB", len(shares), 1, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" + row, 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _add(parent: ET.Element, tag: str, numbers: dict[str, float], **texts: str) -> ET.Element:
    return ET.SubElement(parent, tag, {name: f"{value:.2f}" for name, value in numbers.items()} | texts)


def _text(
    parent: ET.Element, x: float, y: float, text: str, anchor: str, colour: str, weight: str = "400"
) -> None:
    style = {"text-anchor": anchor, "fill": colour, "font-weight": weight}
    _add(parent, "text", {"x": x, "y": y}, **style).text = text
