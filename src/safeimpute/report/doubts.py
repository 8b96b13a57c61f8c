"""What the report says where a release is empty, bounded or in doubt: the next step, the bound, an unseen reason."""

from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.report.palette import sentence


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
