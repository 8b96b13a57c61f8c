"""`hospital_review.html`: intended use, model card, change plan and monitoring plan for a hospital's review of a run.

Filled from summary.json, run.json and the model's manifest. What a run cannot know is left to the hospital, by name.
"""

import json
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined

from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.evaluation.safeguards import Safeguards, safeguards
from safeimpute.machine.files import finished_file, plain_text
from safeimpute.report.background import INTENDED_USE, NOT_FOR, model_card
from safeimpute.report.html import resource
from safeimpute.report.palette import INK, MUTED, percent
from safeimpute.report.reporting import accuracy_in_words, groups_in_words, risky_in_words
from safeimpute.report.run_folder import Manifest, lab_folders, read_manifest, read_summary

PAGE = "hospital_review.html"
HOSPITAL = "For the hospital:"
CLAIMS = {
    "visits": "the visits of the fitted table and no others",
    "unmeasured": "the unmeasured visits of patients like those of the fitted table",
    "patients": "unmeasured visits of new patients like those of the fitted table",
    "later": "visits that come in later, of known and new patients, as long as no alarm stands",
}
Rows = list[tuple[str, ...]]


class Section(NamedTuple):
    """Sentences, and a table whose first row is its head."""

    title: str
    sentences: list[str]
    rows: Rows


def write_hospital_review(folder: Path) -> list[Path]:
    """One page beside each lab's results."""
    written = []
    for place in lab_folders(folder):
        page = render_hospital_review(read_summary(place), read_manifest(place), model_checksum(place))
        with finished_file(place / PAGE) as partial:
            partial.write_text(page, encoding="utf-8")
        written.append(place / PAGE)
    return written


def model_checksum(folder: Path) -> str:
    """By which the run's model is known; empty where none was saved."""
    file = folder / "model" / "model.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["checksum"]) if file.is_file() else ""


def render_hospital_review(summary: RunSummary, manifest: Manifest, checksum: str) -> str:
    """The page as text; every string of the data is escaped."""
    guards = safeguards(summary["claim"], summary["fdr"])
    sections = [
        _use(summary),
        _card(summary, manifest, checksum),
        _changes(summary, guards),
        _monitoring(summary, guards),
    ]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(resource("hospital.html.j2"))
    return template.render(
        title=plain_text(summary["target"], 60),
        written=f"Written by safeimpute {manifest['safeimpute']} from the run of {manifest['written']}",
        sections=sections,
        hospital=HOSPITAL,
        ink=INK,
        muted=MUTED,
    )


def _use(summary: RunSummary) -> Section:
    data, kept = summary["data"], summary["no_promise"]
    promised = f"Nothing is promised: {kept}" if kept else f"{summary['promise']} {summary['assumption']}"
    whom = CLAIMS.get(summary["claim"], f"what the claim {summary['claim']!r} names")
    return Section(
        "Intended use",
        [
            INTENDED_USE,
            f"Not for: {NOT_FOR}",
            f"{HOSPITAL} who uses the values, for which decisions, and who answers for it.",
        ],
        [
            ("Asked", "Answer of this run"),
            ("Which value", _named(summary)),
            ("When it is unacceptable", f"off by {summary['tolerance_in_words']} or more"),
            ("Whom it speaks for", whom),
            ("Promise", plain_text(promised, 2000)),
            ("What it does not cover", plain_text(summary["limits"] or "nothing is promised", 2000)),
            ("Fitted on", f"{data['visits']:,} visits of {data['patients']:,} patients"),
            ("Missing", f"{summary['missing']:,}: {summary['released']:,} released, {summary['withheld']:,} withheld"),
        ],
    )


def _named(summary: RunSummary) -> str:
    return plain_text(summary["target"], 60) + (f" in {summary['unit']}" if summary["unit"] else "")


def _card(summary: RunSummary, manifest: Manifest, checksum: str) -> Section:
    facts = [row for row in model_card(summary, manifest)["rows"] if row[0] not in ("Intended use", "Not for")]
    inputs = [name for name in (*summary["data"]["labs"], *summary["data"]["attributes"]) if name != summary["target"]]
    own: Rows = [
        ("Fact", "Of this run"),
        ("Reads", ", ".join(plain_text(name, 40) for name in inputs) or "time alone"),
        ("Errors", f"{accuracy_in_words(summary)} {risky_in_words(summary)}"),
        ("Groups", groups_in_words(summary)),
        ("Cut-offs", " ".join(plain_text(each["words"], 500) for each in summary["cutoffs"]) or "none"),
        ("Released values are no sample", plain_text(summary["distribution"]["warning"], 500)),
        ("Model folder, SHA-256", checksum or "no model was saved"),
    ]
    return Section("Model card", [], [*own, *((name, plain_text(value, 800)) for name, value in facts)])


def _changes(summary: RunSummary, guards: Safeguards) -> Section:
    sure = f", with {percent(summary['confidence'])} confidence" if summary["promise_kind"] == "confident" else ""
    grouped = "one for each group" if len(summary["cutoffs"]) > 1 else "one"
    anew, ways = "yes" if guards["watched"] or guards["from_table"] else "no", []
    if guards["watched"]:
        ways.append(
            "recalibrate MODEL --log LOG changes it, only while an alarm stands (or no cut-off is in force); the model "
            "folder stays as it is and the change is added to the night log."
        )
    if guards["from_table"]:
        ways.append("recalibrate MODEL --visits TABLE -o NEW writes a new model folder with its own SHA-256.")
    if not ways:
        ways.append(f"Nothing may change a model of the claim {summary['claim']!r}: fit anew.")
    return Section(
        "Change plan",
        [
            *ways,
            f"A new cut-off needs measured visits worth {guards['needed_visits']:,} of equal weight, of patients worth "
            f"{guards['needed_patients']:,}; with less, none is set and nothing is promised.",
            "Anything else is a new fit: a new model, a new SHA-256, and this review again.",
            f"{HOSPITAL} who may recalibrate, who is told, and who signs models (--sign, --require-signature).",
        ],
        [
            ("Part of the model", "As reviewed", "May recalibrate change it?"),
            ("Cut-off on the risk", f"{grouped}; see the model card", anew),
            ("Odds that a visit is measured", "learnt at the fit", "by a line" if guards["watched"] else "no"),
            ("Width of intervals", "from the errors of the fit", anew),
            ("Level of the promise", f"{percent(summary['fdr'])}, {summary['promise_kind']}{sure}", "no"),
            ("Tolerance", summary["tolerance_in_words"], "no"),
            ("Value and its unit", _named(summary), "no"),
            ("Claim: whom it speaks for", summary["claim"], "no"),
            ("Models of value and risk", "those of the model folder in the model card", "no"),
            ("Columns it reads", f"{len(summary['data']['labs'])} labs, see the model card", "no"),
            ("Groups with a level of their own", ", ".join(summary["groups_by"]) or "none", "no"),
        ],
    )


def _monitoring(summary: RunSummary, guards: Safeguards) -> Section:
    if not guards["watched"]:
        return Section(
            "Monitoring plan",
            [
                f"This run makes the claim {summary['claim']!r}: nothing watches it, and monitor refuses its model. "
                "Use it for the visits it names; for visits that come in every night fit with the claim 'later'.",
                f"{HOSPITAL} when the fit is repeated, and who compares both.",
            ],
            [],
        )
    return Section(
        "Monitoring plan",
        [
            "Every night: safeimpute monitor MODEL TONIGHT --log LOG, then safeimpute score with the same --log.",
            "Every later visit is imputed as if missing and, where it was measured, compared. Visits without a result "
            f"wait {guards['waits']}.",
            "An alarm is exit code 3. From then on score releases nothing until recalibrate or a new fit.",
            f"{HOSPITAL} who reads the alarm, within which time, and what is done with values released since it began.",
        ],
        [("Test", "What it asks", "Then", "False alarms, ever"), *guards["tests"]],
    )
