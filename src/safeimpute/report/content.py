"""The report's words and tables from a run's summary and manifest: plain data for the template to render."""

from safeimpute.evaluation.data_profile import MeasuringSummary
from safeimpute.evaluation.release_profile import Distribution, GroupOutcome
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.machine.files import plain_text
from safeimpute.report.background import allowed_error, band_rows, data_content, model_card, unacceptable
from safeimpute.report.palette import number, percent, quantity, sentence
from safeimpute.report.run_folder import Manifest
from safeimpute.visits.catalogue import lab_title

Section = dict[str, object]  # of the page, as its template reads it
MOST_COLUMNS = 40
THIS_RUN = "this run"
NOT_PROMISED = (
    "Nor does it say that a single value is right, that each subgroup, patient or range of values keeps the "
    "level, or that withheld values are wrong. Intervals cover their share of all imputed values, not of the "
    "released."
)
PROBABILITY = "The risk of a value is the learnt chance that it is {}."
SCORE = "The risk of a value is a score without a unit: larger is riskier."
GROUPED_BY = {"value": "imputed value", "history": "own measured values"}
NOT_WEIGHED = (
    "This claim does not look at who gets measured: it speaks for visits like the measured ones, of which some were "
    "set aside at random. Nothing is promised for visits that were left unmeasured for a reason."
)


def page_content(summary: RunSummary, manifest: Manifest) -> Section:
    return {
        "target": plain_text(summary["target"], 60),
        "title": plain_text(lab_title(summary["target"]), 60),
        "unit": plain_text(summary["unit"], 16) if summary["unit"] else None,
        "answer": answer(summary),
        "setting": _setting(summary),
        "release_bar": _release_bar(summary),
        "withheld_reasons": _withheld_reasons(summary),
        "next_step": next_step(summary),
        "promise": _promise(summary),
        "cutoffs": [sentence(each["words"]) for each in summary["cutoffs"] if not each["group"]],
        "group_rows": _group_rows(summary),
        "band_rows": band_rows(summary),
        "headline": sentence(summary["bound"]["headline"]) if summary["bound"]["headline"] else "",
        "bound": sentence(summary["bound"]["words"]) if summary["bound"]["words"] else "",
        "level_width": round(100 * summary["fdr"], 2) if summary["bound"]["headline"] else None,
        "bound_survives": summary["bound"]["survives"],
        "bound_width": bound_width(summary),
        "stability": sentence(summary["stability"]["words"]) if summary["stability"]["words"] else "",
        "gathering": _gathering(summary),
        "what_risk_is": PROBABILITY.format(allowed_error(summary).in_short)
        if summary["risk_is_probability"]
        else SCORE,
        "measuring": _measuring(summary["measuring"]),
        "not_weighed": NOT_WEIGHED,
        "sensitivity": sensitivity_words(summary),
        "curve_about": _curve_about(summary),
        "curve_rows": _curve_rows(summary),
        "distribution": _distribution(summary),
        "without_earlier": _without_earlier(summary),
        "judged": f"{summary['accuracy']['visits']:,}",
        "how_judged": plain_text(summary["accuracy"]["how"]),
        "alignment_rows": _alignment_rows(summary),
        "data": data_content(summary["data"], manifest["input"]),
        "accuracy": _accuracy(summary),
        "subgroups": _subgroups(summary),
        "card": model_card(summary, manifest),
    }


def answer(summary: RunSummary) -> str:
    """The run in one sentence; every number in it stands in summary.json."""
    missing, released, target = summary["missing"], summary["released"], plain_text(summary["target"], 60)
    if not missing:
        return f"No {target} value is missing: there was nothing to impute."
    values = f"missing {target} values" if missing != 1 else f"missing {target} value"
    if not released:
        return f"Of {missing:,} {values}, none can be released; all {summary['withheld']:,} are withheld."
    share = percent(released / missing)
    return f"Of {missing:,} {values}, {released:,} ({share}) are released and {summary['withheld']:,} withheld."


def _setting(summary: RunSummary) -> str:
    data = summary["data"]
    return (
        f"{unacceptable(summary)}; {_asked(summary)}. The table holds {data['visits']:,} "
        f"visits of {data['patients']:,} patients; {_calibrated_by(summary)}."
        f"{' A ' + sentence(summary['effort']) + '.' if summary['effort'] else ''}"
    )


def _asked(summary: RunSummary) -> str:
    level = percent(summary["fdr"])
    if summary["no_promise"]:
        return f"the level asked for was {level}, and nothing is guaranteed"
    if summary["promise_kind"] == "confident":
        confidence = percent(summary["confidence"])
        return f"with {confidence} confidence at most {level} of the released values may be that wrong"
    return f"on average at most {level} of the released values may be that wrong"


def _calibrated_by(summary: RunSummary) -> str:
    measured, judged = f"{summary['measured']:,} have a measured value", f"{summary['judged']:,}"
    if summary["claim"] == "visits":
        return f"{measured}, of which {judged} were set aside to decide the release"
    return f"{measured}; all are used, and each was also imputed as if it were missing, which decides the release"


def _release_bar(summary: RunSummary) -> list[Section]:
    missing = max(summary["missing"], 1)
    counts = {"released": summary["released"], "withheld": summary["withheld"]}
    return [
        {
            "kind": kind,
            "count": f"{count:,}",
            "share": percent(count / missing),
            "width": round(100 * count / missing, 2),
        }
        for kind, count in counts.items()
    ]


def _withheld_reasons(summary: RunSummary) -> list[dict[str, str]]:
    return [
        {
            "reason": plain_text(reason),
            "count": f"{count:,}",
            "words": plain_text(summary["reason_words"].get(reason, "")),
        }
        for reason, count in summary["withheld_by_reason"].items()
    ]


def _promise(summary: RunSummary) -> Section:
    """The three cards: what is promised, under which assumption, and what is not; or that nothing is, and why."""
    if not summary["no_promise"]:
        cards = {key: sentence(summary[key]) for key in ("promise", "assumption", "limits")}
        title = "Promised" if summary["released"] else "Would be promised"
        return {"made": True, "title": title, **cards, "not_promised": NOT_PROMISED}
    said, why = "Nothing is promised about these values.", summary["no_promise"]
    if summary["second_look"]:
        said, _, why = summary["no_promise"].partition(". ")
        said = f"{said}."
    why = sentence(why)
    return {
        "made": False,
        "title": "No guarantee",
        "promise": plain_text(said),
        "assumption": f"{why[:1].upper()}{why[1:]}{'' if why.endswith('.') else '.'}",
        "limits": "The values, intervals and risks stand as computed; read them as estimates.",
        "not_promised": "",
    }


def _measuring(measuring: MeasuringSummary | None) -> Section | None:
    if measuring is None:
        return None
    columns = [plain_text(name, 40) for name in measuring["columns"]]
    return {
        "words": sentence(measuring["words"]),
        "effective_size": sentence(measuring["effective_size"]),
        "off_by": f"{100 * measuring['miscalibration']:.0f}",
        "reasons": [
            {
                "column": plain_text(each["column"], 60),
                "direction": plain_text(each["direction"]),
                "share": percent(each["share"]),
                "width": round(100 * each["share"], 2),
            }
            for each in measuring["reasons"]
        ],
        "columns": columns[:MOST_COLUMNS],
        "more_columns": max(0, len(columns) - MOST_COLUMNS),
        "not_used": [(plain_text(name, 60), plain_text(why)) for name, why in measuring["not_used"].items()],
    }


def _curve_about(summary: RunSummary) -> str:
    """What the curve is judged by, and how it meets this run."""
    weighted = "" if summary["claim"] == "visits" else ", weighted to stand for unmeasured ones"
    said = (
        f"Judged by the {summary['judged']:,} measured values that decided this run{weighted}: looking at other levels "
        "uses the same errors again, so a level chosen after looking carries no promise of its own. The bound in the "
        f"last column does: with {percent(summary['confidence'])} confidence no more of the values let through are "
        "unacceptable, whichever level is picked."
    )
    if summary["promise_kind"] != "confident":
        return said
    return (
        f"{said} The curve follows the rule that holds on average; this run asked for "
        f"{percent(summary['confidence'])} confidence and released {summary['released']:,}."
    )


def _curve_rows(summary: RunSummary) -> list[Section]:
    return [
        {
            "chosen": point["fdr"] == summary["fdr"],
            "cells": [
                percent(point["fdr"]),
                "–" if point["cutoff"] is None else number(point["cutoff"]),
                f"{point['released']:,}",
                percent(point["risky"]) if point["released"] else "–",
                percent(point["power"]),
                f"{point['bound']:,}" if point["released"] else "–",
            ],
        }
        for point in summary["curve"]
    ]


def _group_rows(summary: RunSummary) -> list[list[str]]:
    return [
        [
            plain_text(each["group"], 300),
            f"{each['released']:,} of {each['missing']:,}",
            "–" if each["risk"] is None else number(each["risk"]),
            "–" if each["share"] is None else percent(each["share"]),
        ]
        for each in summary["cutoffs"]
        if each["group"]
    ]


def _gathering(summary: RunSummary) -> list[Section]:
    """Where risky values gather at the run's own level: one table per way to group."""
    tables: list[Section] = []
    for by in summary["gathering"]:
        rows = []
        for group in by["groups"]:
            cell = next(each for each in group["cells"] if each["fdr"] == summary["fdr"])
            shares = [cell["share"], cell["own_share"]]
            rows.append(
                {
                    "above": cell["share"] is not None and cell["share"] > summary["fdr"],
                    "cells": [
                        plain_text(group["group"], 60),
                        f"{group['missing']:,}",
                        f"{cell['released']:,}",
                        _share(shares[0]),
                        f"{cell['own_released']:,}",
                        _share(shares[1]),
                    ],
                }
            )
        tables.append({"by": plain_text(GROUPED_BY.get(by["by"], by["by"]), 60), "rows": rows})
    return tables


def _share(share: float | None) -> str:
    return "too few" if share is None else percent(share)


def _distribution(summary: RunSummary) -> Section | None:
    """What the release does to the distribution, in sentences and by fifths of the imputed value."""
    found, unit = summary["distribution"], summary["unit"]
    if not summary["released"]:
        return None
    kinds = ("released", "withheld", "measured")
    means = {kind: found[kind]["mean"] for kind in kinds}  # type: ignore[literal-required]
    said = [f"{kind} {quantity(mean, unit)}" for kind, mean in means.items() if mean is not None]
    return {
        "means": f"Mean values: {', '.join(said)}.",
        "truth": _passing_words(found, unit),
        "cohort": _cohort_words(found, unit),
        "fifths": [
            [
                f"{number(each['low'])} to {quantity(each['high'], unit)}",
                f"{each['missing']:,}",
                percent(each["released"] / each["missing"]),
                round(100 * each["released"] / each["missing"], 2),
            ]
            for each in found["fifths"]
        ],
        "warning": sentence(found["warning"]),
        "instead": sentence(found["instead"]),
    }


def _passing_words(found: Distribution, unit: str | None) -> str:
    passing, stopped = found["passing"]["mean"], found["stopped"]["mean"]
    if passing is None or stopped is None:
        return ""
    return (
        f"Among measured visits, weighted to stand for missing ones, those this rule would release were measured at "
        f"{quantity(passing, unit)} on average, those it would withhold at {quantity(stopped, unit)}."
    )


def _cohort_words(found: Distribution, unit: str | None) -> str:
    means = found["means"]
    measured, filled, expected = means["measured"], means["with_released"], means["expected"]
    if measured is None or filled is None or expected is None:
        return ""
    further = abs(filled - expected) > abs(measured - expected)
    return (
        f"The mean of all visits is {quantity(measured, unit)} from measured values alone and {quantity(filled, unit)} "
        f"with released values filled in; weighted for who gets measured it is expected at {quantity(expected, unit)}. "
        f"Filling in moves it {'further away' if further else 'nearer here, which it need not'}."
    )


def _without_earlier(summary: RunSummary) -> str | None:
    counts = summary["by_gap"]["no_earlier_value"]
    total = counts["released"] + counts["withheld"]
    if not total:
        return None
    verb = "value has" if total == 1 else "values have"
    return (
        f"{total:,} missing {verb} no earlier measurement of the same patient and cannot be shown here: "
        f"{counts['released']:,} released, {counts['withheld']:,} withheld."
    )


def _alignment_rows(summary: RunSummary) -> list[list[str]]:
    return [
        [
            f"{group['group']}",
            f"{number(group['risk_from'])} to {number(group['risk_to'])}",
            f"{group['visits']:,}",
            quantity(group["mae"], summary["unit"]),
            percent(group["risky"]),
        ]
        for group in summary["alignment"]
    ]


def _accuracy(summary: RunSummary) -> list[Section]:
    errors = summary["accuracy"]["mae"]
    worst = max(errors.values(), default=0.0) or 1.0
    return [
        {
            "own": name == summary["preset"],
            "method": f"{THIS_RUN} (preset {name})" if name == summary["preset"] else plain_text(name, 60),
            "error": quantity(error, summary["unit"]),
            "width": round(100 * error / worst, 2),
        }
        for name, error in errors.items()
    ]


def _subgroups(summary: RunSummary) -> list[Section]:
    return [
        {
            "title": plain_text(entry["title"], 60),
            "groups": [_subgroup(group, summary["unit"]) for group in entry["groups"]],
        }
        for entry in summary["subgroups"]
    ]


def _subgroup(group: GroupOutcome, unit: str | None) -> Section:
    share = group["released"] / group["missing"] if group["missing"] else None
    return {
        "group": plain_text(group["group"], 60),
        "missing": f"{group['missing']:,}",
        "released": f"{group['released']:,}",
        "share": "–" if share is None else percent(share),
        "width": round(100 * (share or 0.0), 2),
        "judged": f"{group['judged']:,}",
        "mae": "too few" if group["mae"] is None else quantity(group["mae"], unit),
        "risky": "too few" if group["risky"] is None else percent(group["risky"]),
        "risky_passing": "too few" if group["risky_passing"] is None else percent(group["risky_passing"]),
    }


def next_step(summary: RunSummary) -> str:
    """The nearest setting that would have released, where nothing was; empty elsewhere."""
    return "" if summary["released"] or not summary["missing"] else sentence(summary["next_step"])


def bound_width(summary: RunSummary) -> float | None:
    """How much of the released values may be unacceptable, in percent of the bar."""
    bound = summary["bound"]
    return round(100 * bound["risky"] / bound["values"], 2) if bound["values"] else None


def sensitivity_words(summary: RunSummary) -> str:
    """How strong an unseen reason it takes to empty the release, in one sentence; empty where it was not asked."""
    rows = sorted(summary["sensitivity"], key=lambda row: row["gamma"])
    if not rows or not summary["released"]:
        return ""
    doubted = [row for row in rows if row["gamma"] > 1]
    kept = [row for row in doubted if row["released"]]
    gone = next((row for row in doubted if not row["released"]), None)
    said = []
    if kept:
        last = kept[-1]
        said.append(
            f"were the odds of being measured off by a factor of {last['gamma']:g} either way, {last['released']:,} of "
            f"the {summary['released']:,} values could still be released"
        )
    if gone:
        said.append(
            f"by a factor of {gone['gamma']:g} none could"
            if kept
            else f"a factor of {gone['gamma']:g} would already leave none"
        )
    words = "; ".join(said)
    return f"{words[:1].upper()}{words[1:]}." if words else ""
