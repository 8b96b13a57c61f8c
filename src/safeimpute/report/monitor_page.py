"""The report of monitoring: `monitor.md`, `monitor.html`, the picture, and the numbers behind them."""

import base64
import json
from math import log10
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safeimpute.evaluation.monitor_summary import MonitorSummary, ShareRow, in_words
from safeimpute.machine.files import finished_file
from safeimpute.report.figure_style import in_percent, save, styled
from safeimpute.report.html import resource
from safeimpute.report.palette import CATEGORIES, ERROR, INK, MEASURED, MUTED

PICTURE = "monitor"


def write_monitor_report(folder: Path, summary: MonitorSummary) -> list[Path]:
    """Write all files, each whole or not at all; those of an earlier night are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with styled():
        pictures = save(draw_monitor(summary), folder, PICTURE)
    texts = {
        "monitor.json": json.dumps(summary, indent=2) + "\n",
        "monitor.md": monitor_markdown(summary),
        "monitor.html": monitor_html(summary, pictures[0].read_bytes()),
    }
    for name, text in texts.items():
        with finished_file(folder / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return [*pictures, *(folder / name for name in texts)]


def monitor_markdown(summary: MonitorSummary) -> str:
    parts = [
        f"# Does the promise for {summary['target']} still hold?",
        "",
        *(f"{line}  " for line in in_words(summary)),
    ]
    parts += ["", f"![by month, and the evidence of the tests]({PICTURE}.png)"]
    head = ["| | values below the cut-off | unacceptable | 90 % interval |", "| --- | ---: | ---: | ---: |"]
    for title, rows in _tables(summary):
        parts += ["", f"## {title}", "", *head, *(f"| {' | '.join(row)} |" for row in rows)]
    parts += ["", "## Tests", "", "| | entries | largest evidence | alarm at |", "| --- | ---: | ---: | ---: |"]
    parts += [
        f"| {test['name']} | {test['entries']:,} | {test['evidence']:.3g} | {test['alarm_at']:.0f} |"
        for test in summary["tests"]
    ]
    return "\n".join(parts) + "\n"


def monitor_html(summary: MonitorSummary, picture: bytes) -> str:
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(resource("monitor.html.j2"))
    return template.render(
        summary=summary,
        lines=in_words(summary),
        tables=_tables(summary),
        picture=Markup(base64.b64encode(picture).decode()),  # noqa: S704 - our own bytes
        ink=INK,
        muted=MUTED,
    )


def _tables(summary: MonitorSummary) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    found = [("By month", [_cells(row) for row in summary["months"]])]
    for name, rows in summary["groups"].items():
        found.append((f"By {name}", [_cells(row) for row in rows]))
    return found


def _cells(row: ShareRow) -> tuple[str, str, str, str]:
    if row["share"] is None:
        return row["name"], "0", "–", "–"
    interval = f"{100 * (row['low'] or 0):.1f} to {100 * (row['high'] or 0):.1f} %"
    return row["name"], f"{row['values']:,}", f"{100 * row['share']:.1f} %", interval


def draw_monitor(summary: MonitorSummary) -> Figure:
    """Above: the share by month against the level. Below: the evidence of the tests against their lines."""
    with styled():
        figure = Figure(figsize=(7.6, 6.2))
        shares, tests = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        _draw_shares(shares, summary)
        _draw_tests(tests, summary)
        if summary["dated"]:
            tests.xaxis_date()
        tests.set_xlabel("time of the visit" if summary["dated"] else "day of the visit")
    return figure


def _draw_shares(axes: Axes, summary: MonitorSummary) -> None:
    there = [
        (day, row)
        for day, row in zip(summary["month_days"], summary["months"], strict=True)
        if row["share"] is not None
    ]
    for day, row in there:
        axes.plot([day, day], [row["low"] or 0, row["high"] or 0], color=MEASURED, linewidth=1.5, alpha=0.5)
    axes.plot([day for day, _ in there], [row["share"] or 0 for _, row in there], "o-", color=MEASURED)
    axes.axhline(summary["alpha"], color=INK, linestyle="--", linewidth=1)
    axes.annotate(
        f"promised: at most {100 * summary['alpha']:g} %",
        (0.01, summary["alpha"]),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color=INK,
    )
    axes.set_ylim(0, None)
    in_percent(axes, y=True)
    axes.set_title(f"Unacceptable among measured {summary['target']} values below the cut-off, by month")
    _mark_events(axes, summary, named=True)


def _draw_tests(axes: Axes, summary: MonitorSummary) -> None:
    for test, colour in zip(summary["tests"][:3], CATEGORIES, strict=False):
        for place, (day, path) in enumerate(zip(test["day"], test["log10"], strict=True)):
            axes.plot(day, path, color=colour, label=test["name"] if place == 0 else None, linewidth=1.6)
    line = min(test["alarm_at"] for test in summary["tests"][:3])
    axes.axhline(log10(line), color=INK, linestyle="--", linewidth=1)
    axes.annotate(
        f"alarm ({line:.0f}:1)",
        (0.01, log10(line)),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color=INK,
    )
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -3), min(max(high, log10(line) + 1), 6))
    axes.set_title("Evidence that something changed (powers of ten)")
    axes.legend(loc="upper left", ncols=3)
    _mark_events(axes, summary, named=False)


def _mark_events(axes: Axes, summary: MonitorSummary, *, named: bool) -> None:
    for kind, day in summary["event_days"]:
        colour = ERROR if kind == "alarm" else MUTED
        axes.axvline(day, color=colour, linewidth=1.2)
        if named:
            axes.annotate(
                kind,
                (day, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3, -12) if kind == "alarm" else (3, -12),
                textcoords="offset points",
                ha="right" if kind == "alarm" else "left",
                color=colour,
            )
