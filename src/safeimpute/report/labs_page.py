"""`report.html` of a run of several labs: an overview and a page per lab, in one file that opens offline."""

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from safeimpute.evaluation.several_summary import LabLine, LabsSummary
from safeimpute.records.catalogue_facts import lab_title
from safeimpute.report import palette
from safeimpute.report.html import csp_hash, render_report, resource
from safeimpute.report.palette import number, percent, quantity, sentence
from safeimpute.report.run_folder import read_labs_summary, read_manifest, read_summary
from safeimpute.runtime.files import finished_file
from safeimpute.runtime.text import plain_text


def write_labs_report(folder: Path) -> Path:
    """Render the report of a finished run of several labs and put it beside its results."""
    summary = read_labs_summary(folder)
    pages = [
        _as_page(render_report(read_summary(own), read_manifest(own)), f"lab{number}")
        for number, own in enumerate((folder / line["folder"] for line in summary["labs"].values()), start=1)
    ]
    path = folder / "report.html"
    with finished_file(path) as partial:
        partial.write_text(render_labs_report(summary, pages), encoding="utf-8")
    return path


def render_labs_report(summary: LabsSummary, pages: list[str]) -> str:
    """The report as text; `pages` are the labs' own, already escaped."""
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    script = resource("report.js")
    return template.from_string(resource("labs.html.j2")).render(
        **labs_content(summary),
        pages=[Markup(page) for page in pages],  # noqa: S704 - rendered and escaped by our own template
        colours={name.lower(): value for name, value in vars(palette).items() if name.isupper()},
        style=Markup(resource("report.css")),  # noqa: S704 - our own files, not data
        script=Markup(script),  # noqa: S704
        script_hash=csp_hash(f"\n{script}"),
    )


def labs_content(summary: LabsSummary) -> dict[str, Any]:
    """Everything the overview says."""
    labs, missing = len(summary["labs"]), max(summary["missing"], 1)
    together = summary["over"] == "cells"
    return {
        "answer": (
            f"Of {summary['missing']:,} missing values of {labs} labs, {summary['released']:,} "
            f"({percent(summary['released'] / missing)}) are released and {summary['withheld']:,} withheld."
        ),
        "level": (
            f"{percent(summary['fdr'])} over all labs together"
            if together
            else f"{percent(summary['fdr'])} in each lab"
        ),
        "visits": f"{summary['visits']:,} visits of {summary['patients']:,} patients",
        "effort": plain_text(summary["effort"]),
        "made": not summary["no_promise"],
        "promise": sentence(summary["promise"] or summary["no_promise"]),
        "assumption": sentence(summary["assumption"]),
        "limits": sentence(summary["limits"]),
        "bound": sentence(summary["bound"]["words"]),
        "bound_survives": sentence(summary["bound"]["survives"]),
        "rows": [
            _row(lab, line, place) for place, (lab, line) in enumerate(summary["labs"].items(), start=1)
        ],
        "left_out": [(plain_text(lab, 60), sentence(why)) for lab, why in summary["left_out"].items()],
    }


def _row(lab: str, line: LabLine, place: int) -> dict[str, Any]:
    share = line["released"] / max(line["missing"], 1)
    return {
        "page": f"lab{place}",
        "lab": plain_text(lab_title(lab), 60),
        "column": plain_text(lab, 60),
        "tolerance": sentence(line["tolerance_in_words"]),
        "measured": f"{line['measured']:,}",
        "missing": f"{line['missing']:,}",
        "released": f"{line['released']:,}",
        "share": percent(share),
        "width": round(100 * share, 2),
        "cutoff": "–" if line["cutoff"] is None else number(line["cutoff"]),
        "mae": "–" if line["mae"] is None else quantity(line["mae"], line["unit"]),
        "no_promise": sentence(line["no_promise"]),
    }


def _as_page(text: str, key: str) -> str:
    """The body of a lab's own report as one page among several: names of places made its own.

    Only our template and pictures write `id="…"`; a quotation mark in the data is escaped before it gets here.
    """
    body = text.partition("<body>")[2].partition('<div id="tip"')[0]
    body = re.sub(r'\bid="([\w-]+)"', rf'id="{key}-\1"', body)
    return body.replace("<main>", '<div class="main">').replace("</main>", "</div>")
