"""`report.html`: one page that opens offline, made from a run folder's summary and manifest alone."""

import base64
import hashlib
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.report import palette
from safeimpute.report.charts import draw_charts
from safeimpute.report.content import page_content
from safeimpute.report.manifest import Manifest
from safeimpute.report.run_folder import read_manifest, read_summary
from safeimpute.runtime.files import finished_file


def write_report(folder: Path) -> Path:
    """Render the page of a finished run and put it beside its results."""
    page = render_report(read_summary(folder), read_manifest(folder))
    path = folder / "report.html"
    with finished_file(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return path


def render_report(summary: RunSummary, manifest: Manifest) -> str:
    """The page as text; every string of the data passes the template's escaping or an XML tree's."""
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    script = resource("report.js")
    return template.from_string(resource("template.html.j2")).render(
        **page_content(summary, manifest),
        charts=draw_charts(summary),
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
