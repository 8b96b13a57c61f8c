"""`report.html`: one page that opens offline, made from a run folder's summary and manifest alone, or its labs'."""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from safeimpute.evaluation.run_summary import LabLine, LabsSummary, RunSummary
from safeimpute.machine.files import finished_file, plain_text
from safeimpute.report import palette
from safeimpute.report.charts import draw_charts
from safeimpute.report.content import page_content
from safeimpute.report.palette import number, percent, quantity, sentence
from safeimpute.report.run_folder import (
    Manifest,
    holds_several_labs,
    lab_folders,
    read_labs_summary,
    read_manifest,
    read_summary,
)
from safeimpute.visits.catalogue import lab_title


def write_report(folder: Path) -> Path:
    """Render the page of a finished run, or the overview and each lab's page, and put it beside its results."""
    if holds_several_labs(folder):
        page = render_labs_report(read_labs_summary(folder), [_own_page(each) for each in lab_folders(folder)])
    else:
        page = _own_page(folder)
    path = folder / "report.html"
    with finished_file(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return path


def _own_page(folder: Path) -> str:
    return render_report(read_summary(folder), read_manifest(folder))


def render_report(summary: RunSummary, manifest: Manifest) -> str:
    """The page as text; every string of the data passes the template's escaping or an XML tree's."""
    return _render("template.html.j2", **page_content(summary, manifest), charts=draw_charts(summary))


def render_labs_report(summary: LabsSummary, pages: Sequence[str]) -> str:
    """The same for several labs: an overview, and the labs' own pages, which are escaped already."""
    inner = [_as_page(page, f"lab{number}") for number, page in enumerate(pages, start=1)]
    marked = [Markup(page) for page in inner]  # noqa: S704 - rendered and escaped by our own template
    return _render("labs.html.j2", **labs_content(summary), pages=marked)


def _as_page(text: str, key: str) -> str:
    """The body of a lab's own report as one page among several: names of places made its own.

    Only our template and pictures write `id="…"`; a quotation mark in the data is escaped before it gets here.
    """
    body = text.partition("<body>")[2].partition('<div id="tip"')[0]
    body = re.sub(r'\bid="([\w-]+)"', rf'id="{key}-\1"', body)
    return body.replace("<main>", '<div class="main">').replace("</main>", "</div>")


def _render(template: str, **content: object) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    script = resource("report.js")
    return environment.from_string(resource(template)).render(
        **content,
        colours={name.lower(): value for name, value in vars(palette).items() if name.isupper()},
        style=Markup(resource("report.css")),  # noqa: S704 - our own files, not data
        script=Markup(script),  # noqa: S704
        script_hash=csp_hash(f"\n{script}"),
    )


def csp_hash(script: str) -> str:
    """The one script the page's policy lets run; anything smuggled in through the data stays inert."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def resource(name: str) -> str:
    return (resources.files("safeimpute.report") / name).read_text(encoding="utf-8")


def labs_content(summary: LabsSummary) -> dict[str, object]:
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
        "headline": sentence(summary["bound"]["headline"]),
        "bound": sentence(summary["bound"]["words"]),
        "bound_survives": sentence(summary["bound"]["survives"]),
        "rows": [_row(lab, line, place) for place, (lab, line) in enumerate(summary["labs"].items(), start=1)],
        "left_out": [(plain_text(lab, 60), sentence(why)) for lab, why in summary["left_out"].items()],
    }


def _row(lab: str, line: LabLine, place: int) -> dict[str, object]:
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
