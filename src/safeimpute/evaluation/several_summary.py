"""The result of a run of several labs as typed data: what its summary.json holds; each lab has a summary of its own."""

from collections.abc import Mapping
from typing import TypedDict

from safeimpute.estimator import SeveralLabs
from safeimpute.evaluation.run_summary import BoundSummary, PromiseSummary, RunSummary, Terms
from safeimpute.evaluation.summary import SECOND_LOOK, terms_of
from safeimpute.selection.bounds import Bound
from safeimpute.selection.claims import BOUND_SURVIVES, bound_in_words
from safeimpute.settings import OverName


class LabLine(TypedDict):
    """One lab of several."""

    folder: str  # of the lab's own results, inside the run's folder
    unit: str | None
    tolerance: float | str
    tolerance_in_words: str
    measured: int
    missing: int
    released: int
    withheld: int
    next_step: str  # the nearest setting that would have released, where nothing was; seen after looking
    cutoff: float | None
    risky: float | None  # weighted share of unacceptable errors among measured visits up to the cut-off
    mae: float | None  # of this run's preset, at measured visits
    no_promise: str  # why nothing is promised for this lab; empty where something is
    second_look: bool
    seconds: float  # of the fit


class LabsSummary(Terms, PromiseSummary):
    """What was asked for all labs, what came out, and what it promises."""

    targets: list[str]
    over: OverName
    bound: BoundSummary  # over all labs
    visits: int
    patients: int
    missing: int
    released: int
    withheld: int
    left_out: dict[str, str]  # labs of `all` that cannot be imputed, and why
    labs: dict[str, LabLine]


def summarise_labs(
    several: SeveralLabs, each: Mapping[str, RunSummary], folders: Mapping[str, str]
) -> LabsSummary:
    """Put the labs' summaries side by side, under the promise of the whole."""
    settings, promised = several.settings, several.promised()
    first = next(iter(several.imputers.values()))
    second = [lab for lab, summary in each.items() if summary["second_look"]]
    no_promise = SECOND_LOOK if len(second) == len(each) else promised.no_promise
    some = f"Nothing is promised for {', '.join(second)} (second look). " if second and not no_promise else ""
    return {
        "targets": list(each),
        "over": settings.over,
        **terms_of(settings, first.settings_.best),
        "promise": "" if no_promise else promised.promise,
        "assumption": "" if no_promise else promised.assumption,
        "limits": "" if no_promise else some + promised.limits,
        "no_promise": no_promise,
        "second_look": bool(second),
        "bound": _bound(several.bound()),
        "visits": len(first.visits_),
        "patients": first.visits_.patients,
        "missing": sum(summary["missing"] for summary in each.values()),
        "released": sum(summary["released"] for summary in each.values()),
        "withheld": sum(summary["withheld"] for summary in each.values()),
        "left_out": dict(several.left_out),
        "labs": {lab: _line(summary, folders[lab]) for lab, summary in each.items()},
    }


def _bound(bound: Bound) -> BoundSummary:
    return {
        "confidence": bound.confidence,
        "values": bound.values,
        "risky": bound.risky,
        "share": bound.share,
        "words": bound_in_words(bound, "their lab's tolerance"),
        "survives": BOUND_SURVIVES,
    }


def _line(summary: RunSummary, folder: str) -> LabLine:
    cutoff = summary["cutoffs"][0] if summary["cutoffs"] else None
    return {
        "folder": folder,
        "unit": summary["unit"],
        "tolerance": summary["tolerance"],
        "tolerance_in_words": summary["tolerance_in_words"],
        "measured": summary["measured"],
        "missing": summary["missing"],
        "released": summary["released"],
        "withheld": summary["withheld"],
        "next_step": summary["next_step"],
        "cutoff": cutoff["risk"] if cutoff else None,
        "risky": cutoff["share"] if cutoff else None,
        "mae": summary["accuracy"]["mae"].get(summary["preset"]),
        "no_promise": summary["no_promise"],
        "second_look": summary["second_look"],
        "seconds": sum(summary["seconds"].values()),
    }
