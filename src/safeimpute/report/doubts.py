"""What the report says where a release is empty, bounded or in doubt: the next step, the bound, an unseen reason."""

from safeimpute.evaluation.next_step import next_steps
from safeimpute.evaluation.run_summary import RunSummary, SliderGrid
from safeimpute.report.palette import percent, sentence


def nothing_released(summary: RunSummary, *, nearest_follows: bool = False) -> str:
    """Why a release is empty and what would help; empty where something was released, or nothing could be.

    The next level of the curve is named unless the nearest settings follow, which know it more finely.
    """
    if summary["released"] or not summary["missing"] or summary["no_promise"]:
        return ""
    confident = summary["promise_kind"] == "confident"
    sure = f" with {percent(summary['confidence'])} confidence" if confident else ""
    said = (
        f"No cut-off keeps the level asked for{sure}. What would help: more patients with measured values, a larger "
        "tolerance or a higher level, chosen before looking."
    )
    reached = [p for p in summary["curve"] if p["released"] and p["fdr"] >= summary["fdr"]]
    if nearest_follows or not reached:
        return said
    level, values = percent(reached[0]["fdr"]), f"{reached[0]['released']:,}"
    average = ", promised on average only," if confident else ""
    return f"{said} At a level of {level}{average} about {values} values would be released."


def next_settings(summary: RunSummary, sliders: SliderGrid | None) -> list[str]:
    """Where nothing was released: the nearest settings that would have let something through."""
    if summary["released"] or not summary["missing"] or sliders is None:
        return []
    said = {
        "level": "at a level of {level}",
        "tolerance": "with a tolerance of {tolerance}",
        "both": "at a level of {level} and with a tolerance of {tolerance}",
    }
    return [
        said[step["changes"]].format(
            level=percent(step["fdr"]), tolerance=sentence(step["tolerance_in_words"])
        )
        + f": about {step['released']:,} values, {percent(step['risky'])} of measured ones like them unacceptable"
        for step in next_steps(sliders)
    ]


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
            f"were these odds off by a factor of {last['gamma']:g} either way, {last['released']:,} of the "
            f"{summary['released']:,} values could still be released"
        )
    if gone:
        said.append(
            f"by a factor of {gone['gamma']:g} none could"
            if kept
            else f"a factor of {gone['gamma']:g} would already leave none"
        )
    words = "; ".join(said)
    return f"{words[:1].upper()}{words[1:]}." if words else ""
