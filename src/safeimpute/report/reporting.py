"""`reporting.md` and `model_card.md` in a run's folder: what a paper has to say about missing data, filled in.

Made from summary.json, run.json and, where there are draws, draws.json. Every item is answered by the run, or marked as
the author's. The items follow TARMOS (Lee et al. 2021) and TRIPOD+AI (Collins et al. 2024) in our own words.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from safeimpute.evaluation.drawn_run import DrawsSummary
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.machine.files import plain_text
from safeimpute.report.background import INTENDED_USE, METHODS, NOT_FOR, allowed_error, model_card
from safeimpute.report.palette import NBSP, number, percent, quantity
from safeimpute.report.run_folder import Manifest, read_manifest, read_summary

AUTHOR = "**For the author:**"
FAIRNESS = (
    "The level is kept over all released values together, not within each group; errors and released shares by group "
    f"stand under 23a. {AUTHOR} which groups matter, and what was done."
)
Item = tuple[str, str]  # what is asked, what the run answers


def write_reporting(folder: Path) -> None:
    summary, manifest = read_summary(folder), read_manifest(folder)
    drawn = None
    if (folder / "draws.json").is_file():
        drawn = cast("DrawsSummary", json.loads((folder / "draws.json").read_text(encoding="utf-8")))
    pages = {"reporting.md": reporting_page(summary, manifest, drawn), "model_card.md": card_page(summary, manifest)}
    for name, text in pages.items():
        (folder / name).write_text(text.replace(NBSP, " "), encoding="utf-8")


def reporting_page(summary: RunSummary, manifest: Manifest, drawn: DrawsSummary | None) -> str:
    """The items of both guidelines, each answered or left to the author."""
    lines = [
        f"# Reporting missing {_target(summary)}",
        "",
        f"Filled in by safeimpute {manifest['safeimpute']} from run.json and summary.json of this run"
        f"{' and draws.json' if drawn else ''}. Items marked {AUTHOR} cannot be known from the data: write them, or "
        "say why not. Read every sentence before it goes into a paper.",
        "",
        "## Treatment and reporting of missing data (TARMOS)",
        "",
        *_table(_tarmos(summary, drawn)),
        "",
        "## TRIPOD+AI: items on missing data and fairness",
        "",
        *_table(_tripod(summary, manifest, drawn)),
        "",
        "## References",
        "",
        "- Lee KJ, Tilling KM, Cornish RP, et al. Framework for the treatment and reporting of missing data in "
        "observational studies: the TARMOS framework. J Clin Epidemiol 2021;134:79-88.",
        "- Collins GS, Moons KGM, Dhiman P, et al. TRIPOD+AI statement. BMJ 2024;385:e078378.",
        "- Rubin DB. Multiple imputation for nonresponse in surveys. Wiley 1987. Barnard J, Rubin DB. Biometrika "
        "1999;86:948-955.",
    ]
    return "\n".join(lines) + "\n"


def _table(items: Sequence[Item]) -> list[str]:
    return ["| Item | Answer |", "|---|---|", *(f"| {asked} | {_cell(answer)} |" for asked, answer in items)]


def _cell(text: str) -> str:
    """Text from the data must not end a table's cell."""
    return text.replace("|", "\\|")


def _tarmos(summary: RunSummary, drawn: DrawsSummary | None) -> list[Item]:
    return [
        (
            "1a. Question and analysis planned as if nothing were missing",
            f"{AUTHOR} exposure, outcome, confounders, model.",
        ),
        ("1b. Which variables have missing values, and how many", _amounts(summary)),
        ("1c. Why values are missing", _why_missing(summary)),
        ("1d. Would an analysis of complete records be valid?", _complete_records(summary)),
        ("1e. How missing values are handled", _handling(summary, drawn)),
        ("1f. Variables beside those of the analysis", _auxiliary(summary)),
        ("1g. Sensitivity analysis planned", _sensitivity_plan(summary, drawn)),
        ("2a. Data examined: who has missing values", _who(summary)),
        ("2b. Imputation model checked", _checked(summary, drawn)),
        (
            "3a. Results of all planned analyses",
            f"{AUTHOR} complete records, draws pooled, and shifted draws, side by side.",
        ),
        ("3b. Results of the sensitivity analysis", _sensitivity(summary, drawn)),
        ("3c. Read in the light of what is missing", f"{AUTHOR} what the missing values could change, clinically."),
    ]


def _tripod(summary: RunSummary, manifest: Manifest, drawn: DrawsSummary | None) -> list[Item]:
    data = summary["data"]
    return [
        (
            "3c. Known inequalities between groups",
            f"{AUTHOR} which groups are cared for or measured differently, and why.",
        ),
        ("5a. Source of the data", f"{_source(manifest)}. {AUTHOR} how patients came in, and whom they stand for."),
        ("7. Preparation of the data", _preparation(summary, manifest)),
        (
            "10. Size of the study",
            f"{data['patients']:,} patients, {data['visits']:,} visits, {summary['measured']:,} measured values.",
        ),
        ("11. Missing data", f"{_amounts(summary)} {_handling(summary, drawn)}"),
        ("14. Fairness: what was done", FAIRNESS),
        (
            "18. Code and data",
            f"safeimpute {manifest['safeimpute']}; settings and seed in run.json. {AUTHOR} where data and code are.",
        ),
        (
            "20b. Patients, with missing values",
            f"{_amounts(summary)} {AUTHOR} a table of characteristics, with what is missing in each.",
        ),
        ("23a. Performance, also in groups", f"{accuracy_in_words(summary)} {groups_in_words(summary)}"),
        ("25. Reading the results, fairness included", f"{AUTHOR} what differences between groups mean for use."),
        ("26. Limits", _limits(summary)),
        (
            "27a. When inputs are poor or absent",
            "Withheld: a visit whose record holds neither another value nor any lab, one unlike any measured visit, "
            "and an impossible value.",
        ),
    ]


def _target(summary: RunSummary) -> str:
    return plain_text(summary["target"], 60)


def _amounts(summary: RunSummary) -> str:
    data, total = summary["data"], summary["missing"] + summary["measured"]
    share = percent(summary["missing"] / total) if total else "–"
    others = {name: 1 - each for name, each in data["observed_share"].items() if name != summary["target"]}
    shown = ", ".join(f"{plain_text(name, 40)} {percent(each)}" for name, each in sorted(others.items())[:12])
    return f"{_target(summary)} is missing at {summary['missing']:,} of {total:,} visits ({share})." + (
        f" Other labs, share of visits without: {shown}." if shown else ""
    )


def _why_missing(summary: RunSummary) -> str:
    told = f"{AUTHOR} who orders the test and when."
    if summary["measuring"] is None:
        return f"Not examined under the claim {summary['claim']!r}. {told}"
    reasons = summary["measuring"]["reasons"][:5]
    what = "; ".join(f"{plain_text(r['column'], 60)}: {plain_text(r['direction'])}" for r in reasons)
    return f"{summary['measuring']['words']} What differs most: {what or 'nothing'}. {told}"


def _complete_records(summary: RunSummary) -> str:
    means = summary["distribution"]["means"]
    measured, expected = means["measured"], means["missing_expected"]
    if measured is None or expected is None:
        return f"{AUTHOR} cannot be judged from this run."
    unit = summary["unit"]
    return (
        f"Measured values average {quantity(measured, unit)}; weighted to stand for the missing ones they average "
        f"{quantity(expected, unit)}. The further apart, the less complete records can stand for all."
    )


def _handling(summary: RunSummary, drawn: DrawsSummary | None) -> str:
    method = METHODS.get(summary["preset"], "")
    said = (
        f"Imputed with preset {summary['preset']}. {method} {summary['released']:,} values were released, "
        f"{summary['withheld']:,} withheld."
    )
    if drawn is None:
        return f"{said} No draws were made: for statistics over all patients run again with --draws 20."
    return (
        f"{said} For statistics over all patients, {drawn['draws']} draws of every missing value, released or "
        "not, from the errors at measured visits (weighted, correlated within a patient, bootstrapped parameters); "
        "analyses of the completed tables pooled by Rubin's rules."
    )


def _auxiliary(summary: RunSummary) -> str:
    data = summary["data"]
    names = [plain_text(name, 40) for name in (*data["labs"], *data["attributes"]) if name != summary["target"]]
    left = ", ".join(plain_text(name, 40) for name in data["ignored"]) or "none"
    return (
        f"Imputed from: {', '.join(names) or 'time alone'}, times of visits and the patient's other values. Left out: "
        f"{left}. {AUTHOR} whether the outcome of the analysis is among them, as draws for a regression on it need."
    )


def _sensitivity_plan(summary: RunSummary, drawn: DrawsSummary | None) -> str:
    shifts = "Unmeasured values shifted against the draws (--delta)." if drawn and drawn["tipping"] else ""
    odds = "Odds of measuring off by a factor (--gamma)." if summary["sensitivity"] else ""
    if not (shifts or odds):
        return f"{AUTHOR} none was made in this run: --delta with --draws."
    return f"{shifts} {odds} {AUTHOR} which shifts are plausible, fixed beforehand.".strip()


def _who(summary: RunSummary) -> str:
    found = []
    for entry in summary["subgroups"]:
        parts = [
            f"{plain_text(group['group'], 40)} {percent(group['missing'] / max(group['missing'] + group['judged'], 1))}"
            for group in entry["groups"]
        ]
        found.append(f"{plain_text(entry['title'], 40)}: {', '.join(parts)}")
    return (
        f"Share of visits without a value by group. {'; '.join(found)}."
        if found
        else "No attribute divides the visits."
    )


def _checked(summary: RunSummary, drawn: DrawsSummary | None) -> str:
    said = accuracy_in_words(summary)
    if drawn is not None and drawn["coverage"]:
        inside = ", ".join(f"{percent(float(c))}: {percent(share)}" for c, share in drawn["coverage"].items())
        said += f" Measured values inside central intervals of such draws, across folds: {inside}."
        if drawn["outside"]:
            said += f" {drawn['outside']:,} missing values are unlike any measured visit; their draws extrapolate."
    return said


def accuracy_in_words(summary: RunSummary) -> str:
    errors, unit = summary["accuracy"]["mae"], summary["unit"]
    shown = ", ".join(f"{plain_text(name, 40)} {quantity(error, unit)}" for name, error in errors.items())
    return (
        f"Mean absolute error at {summary['accuracy']['visits']:,} measured visits "
        f"({plain_text(summary['accuracy']['how'])}): {shown}."
    )


def _sensitivity(summary: RunSummary, drawn: DrawsSummary | None) -> str:
    said = [each["words"] for each in drawn["tipping"]] if drawn else []
    if summary["sensitivity"]:
        counts = ", ".join(f"{row['released']:,} at {row['gamma']:g}" for row in summary["sensitivity"])
        said.append(f"Values still released were the odds of measuring off by a factor: {counts}.")
    return " ".join(said) or f"{AUTHOR} none was made in this run."


def _source(manifest: Manifest) -> str:
    source = manifest["input"]
    return f"{plain_text(source['file'])}, SHA-256 {source['sha256']}" if source["file"] else "bundled or in memory"


def _preparation(summary: RunSummary, manifest: Manifest) -> str:
    source = manifest["input"]
    dropped = ", ".join(f"{count:,} {plain_text(why)}" for why, count in source["dropped_rows"].items()) or "none"
    return (
        f"{source['rows']:,} rows read, {source['merged_rows']:,} merged with a row of the same patient and time; "
        f"dropped: {dropped}; {summary['data']['visits']:,} visits remain. {AUTHOR} whether alike in all groups."
    )


def groups_in_words(summary: RunSummary) -> str:
    found = []
    for entry in summary["subgroups"]:
        parts = []
        for group in entry["groups"]:
            share = percent(group["released"] / group["missing"]) if group["missing"] else "–"
            risky = "too few" if group["risky_passing"] is None else percent(group["risky_passing"])
            parts.append(f"{plain_text(group['group'], 40)} released {share}, unacceptable {risky}")
        found.append(f"{plain_text(entry['title'], 40)}: {'; '.join(parts)}")
    return f"By group: {'. '.join(found)}." if found else "No attribute divides the visits into groups."


def _limits(summary: RunSummary) -> str:
    kept = summary["no_promise"] or f"{summary['promise']} {summary['assumption']} {summary['limits']}"
    return f"{plain_text(kept, 2000)} {AUTHOR} what else limits the study."


def card_page(summary: RunSummary, manifest: Manifest) -> str:
    """The model card as a page: purpose, data, method, performance, groups, limits, settings."""
    card = model_card(summary, manifest)
    facts = [row for row in card["rows"] if row[0] not in ("Intended use", "Not for")]
    cutoffs = " ".join(plain_text(each["words"], 500) for each in summary["cutoffs"])
    lines = [
        f"# Model card: {_target(summary)}",
        "",
        f"**Intended use.** {INTENDED_USE}",
        "",
        f"**Not for.** {NOT_FOR}",
        "",
        f"**Promise.** {plain_text(summary['promise'] or summary['no_promise'], 2000)}",
        "",
        f"**Assumption.** {plain_text(summary['assumption'] or 'none: nothing is promised', 2000)}",
        "",
        f"**Performance.** {accuracy_in_words(summary)} {risky_in_words(summary)} {cutoffs}",
        "",
        f"**Groups.** {groups_in_words(summary)}",
        "",
        f"**Statistics over all patients.** {plain_text(summary['distribution']['warning'], 500)} "
        f"{plain_text(summary['distribution']['instead'], 800)}",
        "",
        f"**Ethics and contact.** {AUTHOR} approval, who answers for the model, how to report a fault.",
        "",
        "| Fact | |",
        "|---|---|",
        *(f"| {name} | {_cell(plain_text(value, 800))} |" for name, value in facts),
        "",
        "| Setting | |",
        "|---|---|",
        *(f"| `{name}` | {_cell(value)} |" for name, value in card["configuration"]),
    ]
    return "\n".join(lines) + "\n"


def risky_in_words(summary: RunSummary) -> str:
    share = summary["accuracy"]["risky_share"]
    if share is None:
        return ""
    level = number(100 * summary["fdr"])
    return f"Of all of them {percent(share)} are {allowed_error(summary).in_short}; the level asked for is {level} %."
