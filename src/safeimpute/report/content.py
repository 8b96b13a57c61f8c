"""The report's words and tables from a run's summary and manifest: plain data for the template to render."""

from collections.abc import Iterator, Mapping
from typing import Any

from safeimpute.report.charts import holds_the_rest
from safeimpute.report.palette import NBSP, number, percent, plain_text, quantity
from safeimpute.report.svg import pixel_strip

MOST_LABS = 40
LONGEST_SENTENCE = 2000
THIS_RUN = "this run"
METHODS = {
    "paper": (
        "Visits form a graph: consecutive visits of a patient are linked in time, similar visits of other "
        "patients by their other labs and trends. A graph network with one gate between both kinds of link "
        "imputes the target. The risk of a value grows with how much it moves when links are dropped at "
        "random and with how few links support it."
    ),
    "best": (
        "The value blends the patient's own course over time, boosted trees and attention over similar "
        "visits. The risk is learned: how likely the error reaches the tolerance, from errors of training and "
        "validation visits."
    ),
}
SELECTION = " Conformal selection on calibration visits used for nothing else decides what is released."
INTENDED_USE = (
    "Filling in lab values that were not measured, for research, cohort building and data quality work, "
    "where the share of unacceptable errors among the filled-in values must stay bounded on average."
)
NOT_FOR = (
    "Diagnosing, treating or triaging a single patient; replacing a measurement that can still be made; "
    "patients, laboratories or periods unlike the table it was fitted on, without an evaluation there."
)
NOT_PROMISED = (
    "Nor does it say that a single value is right, that each subgroup, patient or range of values keeps the "
    "level, or that withheld values are wrong. Intervals cover their share of all imputed values, not of the "
    "released."
)


def page_content(summary: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """Everything the page says apart from its charts."""
    guaranteed = not manifest.get("levels_chosen_after_looking")
    return {
        "target": plain_text(summary["target"], 60),
        "unit": plain_text(summary["unit"], 16) if summary["unit"] else None,
        "answer": answer(summary),
        "setting": _setting(summary, guaranteed),
        "release_bar": _release_bar(summary),
        "withheld_reasons": [
            {"reason": plain_text(reason), "count": f"{count:,}"}
            for reason, count in summary["withheld_by_reason"].items()
        ],
        "guaranteed": guaranteed,
        "promise": {
            key: plain_text(summary[key], LONGEST_SENTENCE) for key in ("promise", "assumption", "limits")
        },
        "not_promised": NOT_PROMISED,
        "sensitivity": [(f"{row['gamma']:g}", f"{row['released']:,}") for row in summary["sensitivity"]],
        "cutoff": summary["cutoff"]["words"] if summary["cutoff"] else None,
        "curve_against_run": _curve_against_run(summary),
        "curve_rows": _curve_rows(summary),
        "without_earlier": _without_earlier(summary),
        "validation_visits": f"{summary['validation']['visits']:,}",
        "alignment_rows": _alignment_rows(summary),
        "data": _data(summary["data"], manifest["input"]),
        "accuracy": _accuracy(summary),
        "subgroups": _subgroups(summary),
        "card": _model_card(summary, manifest),
    }


def answer(summary: dict[str, Any]) -> str:
    """The run in one sentence; every number in it stands in summary.json."""
    missing, released, target = summary["missing"], summary["released"], plain_text(summary["target"], 60)
    if not missing:
        return f"No {target} value is missing: there was nothing to impute."
    values = f"missing {target} values" if missing != 1 else f"missing {target} value"
    if not released:
        return f"Of {missing:,} {values}, none can be released; all {summary['withheld']:,} are withheld."
    share = percent(released / missing)
    return (
        f"Of {missing:,} {values}, {released:,} ({share}) are released and {summary['withheld']:,} withheld."
    )


def _setting(summary: dict[str, Any], guaranteed: bool) -> str:
    data, level = summary["data"], percent(summary["fdr"])
    asked = (
        f"on average at most {level} of the released values may be that wrong"
        if guaranteed
        else f"the level asked for was {level}, chosen after looking: nothing is guaranteed"
    )
    return (
        f"An error counts as unacceptable from {plain_text(summary['tolerance_in_words'])}; {asked}. The table holds "
        f"{data['visits']:,} visits of {data['patients']:,} patients; {summary['measured']:,} have a "
        f"measured value, of which {summary['calibration_visits']:,} were set aside for calibration"
        f"{_weighted_worth(summary)}."
    )


def _weighted_worth(summary: dict[str, Any]) -> str:
    """Under weights, how many equally weighted visits the calibration is worth."""
    worth = summary["effective_sample_size"]
    return (
        "" if worth is None or summary["claim"] == "visits" else f" (worth {number(worth)} after weighting)"
    )


def _release_bar(summary: dict[str, Any]) -> list[dict[str, Any]]:
    missing = max(summary["missing"], 1)
    return [
        {
            "kind": kind,
            "count": f"{summary[kind]:,}",
            "share": percent(summary[kind] / missing),
            "width": round(100 * summary[kind] / missing, 2),
        }
        for kind in ("released", "withheld")
    ]


def _curve_against_run(summary: dict[str, Any]) -> str:
    """Validation and calibration are different visits, so the curve need not meet the release."""
    weighted = (
        ""
        if summary["claim"] == "visits"
        else ", inside the claim's scope and weighted as the claim weights them"
    )
    return (
        f"Here validation values stand in for calibration values{weighted}; the run itself decided by its "
        f"{summary['calibration_visits']:,} calibration values and released {summary['released']:,}. With few "
        "values the two can differ a good deal."
    )


def _curve_rows(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "chosen": point["fdr"] == summary["fdr"],
            "cells": [
                percent(point["fdr"]),
                f"{point['released']:,}",
                percent(point["fdp"]) if point["released"] else "–",
                percent(point["power"]),
            ],
        }
        for point in summary["validation"]["curve"]
    ]


def _without_earlier(summary: dict[str, Any]) -> str | None:
    counts = summary["by_gap"]["no_earlier_value"]
    total = counts["released"] + counts["withheld"]
    if not total:
        return None
    verb = "value has" if total == 1 else "values have"
    return (
        f"{total:,} missing {verb} no earlier measurement of the same patient and cannot be shown here: "
        f"{counts['released']:,} released, {counts['withheld']:,} withheld."
    )


def _alignment_rows(summary: dict[str, Any]) -> list[list[str]]:
    return [
        [
            f"{group['group']}",
            f"{group['visits']}",
            quantity(group["mae"], summary["unit"]),
            percent(group["risky"]),
        ]
        for group in summary["validation"]["alignment"]
    ]


def _data(data: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    labs = sorted(zip(data["labs"], zip(*data["heat_map"], strict=True), strict=True), key=lambda lab: lab[0])
    labs.sort(key=lambda lab: -data["observed_share"][lab[0]])
    median = data["median_gap_days"]
    return {
        "facts": [
            ("Rows read", f"{data['rows']:,}"),
            ("Merged (same patient and time)", f"{data['merged_rows']:,}"),
            *((f"Dropped: {plain_text(why)}", f"{count:,}") for why, count in source["dropped_rows"].items()),
            ("Visits", f"{data['visits']:,}"),
            ("Patients", f"{data['patients']:,}"),
            ("Visits per patient, mean", number(data["mean_visits_per_patient"])),
            ("Days between visits, median", "–" if median is None else f"{number(median)} days"),
        ],
        "heat_map": [
            {
                "lab": plain_text(name, 40),
                "strip": pixel_strip(shares),
                "measured": percent(data["observed_share"][name]),
            }
            for name, shares in labs[:MOST_LABS]
        ],
        "more_labs": max(0, len(labs) - MOST_LABS),
        "attributes": [plain_text(name, 60) for name in data["attributes"]],
        "rest_of_visits": holds_the_rest(data["visits_per_patient"]["edges"]),
        "rest_of_gaps": holds_the_rest(data["gap_days"]["edges"]),
        "ignored": sorted((plain_text(name, 60), plain_text(why)) for name, why in data["ignored"].items()),
    }


def _accuracy(summary: dict[str, Any]) -> list[dict[str, Any]]:
    errors = summary["validation"]["mae"]
    worst = max(errors.values()) or 1.0
    return [
        {
            "own": name == summary["preset"],
            "method": f"{THIS_RUN} (preset {name})" if name == summary["preset"] else name,
            "error": quantity(error, summary["unit"]),
            "width": round(100 * error / worst, 2),
        }
        for name, error in errors.items()
    ]


def _subgroups(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "title": plain_text(entry["title"], 60),
            "groups": [_subgroup(group, summary["unit"]) for group in entry["groups"]],
        }
        for entry in summary["subgroups"]
    ]


def _subgroup(group: dict[str, Any], unit: str | None) -> dict[str, Any]:
    share = group["released"] / group["missing"] if group["missing"] else None
    return {
        "group": plain_text(group["group"], 60),
        "missing": f"{group['missing']:,}",
        "released": f"{group['released']:,}",
        "share": "–" if share is None else percent(share),
        "width": round(100 * (share or 0.0), 2),
        "validation_visits": f"{group['validation_visits']:,}",
        "mae": "too few" if group["mae"] is None else quantity(group["mae"], unit),
        "risky": "too few" if group["risky"] is None else percent(group["risky"]),
    }


def _model_card(summary: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    config, source = manifest["config"], manifest["input"]
    versions = {"safeimpute": manifest["safeimpute"], "Python": manifest["python"], **manifest["packages"]}
    file = (
        f"{plain_text(source['file'])}, SHA-256 {source['sha256']}"
        if source["file"]
        else "bundled or in memory"
    )
    return {
        "rows": [
            ("Intended use", INTENDED_USE),
            ("Not for", NOT_FOR),
            (
                "Data",
                f"{summary['data']['visits']:,} visits of {summary['data']['patients']:,} patients; {file}",
            ),
            ("Visits, SHA-256", source["visits_sha256"]),
            ("Method", METHODS.get(summary["preset"], f"Preset {summary['preset']}.") + SELECTION),
            (
                "Time",
                ", ".join(f"{stage} {seconds:.1f}{NBSP}s" for stage, seconds in summary["seconds"].items()),
            ),
            ("Seed", str(config["random_state"])),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("Written", str(manifest["written"])),
        ],
        "configuration": [(name, plain_text(value)) for name, value in _flat(config)],
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", ", ".join(map(str, value)) if isinstance(value, list) else value
