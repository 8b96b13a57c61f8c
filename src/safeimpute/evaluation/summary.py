"""The run's result as one typed summary, of each lab and of several; every page and printed line is made from it."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from safeimpute.evaluation.completions import plain_values
from safeimpute.evaluation.data_profile import profile_data, summarise_measuring
from safeimpute.evaluation.release_profile import Judgement, Subgroup, describe_subgroups, distribution_of, trade_off
from safeimpute.evaluation.run_summary import (
    Accuracy,
    Bands,
    BandSummary,
    BoundSummary,
    CutoffSummary,
    GapHistogram,
    GatheringSummary,
    Histogram,
    LabLine,
    LabsSummary,
    RiskGroup,
    RunSummary,
    StabilitySummary,
    Terms,
)
from safeimpute.model.imputer import SafeImputer
from safeimpute.model.labs import bound_of_labs
from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.claims import BOUND_SURVIVES, bound_in_words, headline_in_words
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.groups import Grouping, Merged
from safeimpute.selection.reasons import IN_WORDS
from safeimpute.selection.result import Gathering, RunResult
from safeimpute.settings import BestSettings, Settings
from safeimpute.tolerance import OFF
from safeimpute.visits.arrays import NONE, BoolArray, FloatArray, IntArray, previous_observed
from safeimpute.visits.imputations import BAND
from safeimpute.visits.visits import Visits

BINS = 24
RISK_GROUPS = 10
SECOND_LOOK = (
    "Second look at the same visits: no guarantee. An earlier run showed these visits under another level, tolerance, "
    "seed, claim, preset or promise, and errors already seen cannot vouch for a choice made after seeing them. A "
    "promise needs visits not looked at yet, or the choices of the first run."
)


def summarise_run(result: RunResult, visits: Visits, imputations: pl.DataFrame) -> RunSummary:
    """What was asked, what came out, what it promises, and what it rests on."""
    calibrated, released = result.calibrated, imputations["released"].to_numpy()
    settings, promised, reasons = result.settings, result.promised, _by_reason(imputations)
    tolerance = settings.allowed_error
    bands: Bands = {"bands": _bands(result, imputations)} if tolerance.limits else {}
    return {
        **terms_of(settings, settings.best),
        "target": settings.target,
        "unit": result.unit,
        "tolerance": settings.tolerance,
        "tolerance_in_words": settings.allowed_error.describe(result.unit),
        "promise": promised.promise,
        "assumption": promised.assumption,
        "limits": promised.limits,
        "no_promise": promised.no_promise,
        "second_look": False,
        "measured": int(np.sum(~np.isnan(calibrated.truth))),
        "judged": int(calibrated.question.judged.sum()),
        "missing": len(imputations),
        "released": int(released.sum()),
        "withheld": int((~released).sum()),
        "next_step": result.next_step,
        "withheld_by_reason": reasons,
        "reason_words": {reason: IN_WORDS.get(reason, reason).replace(OFF, tolerance.in_short) for reason in reasons},
        "risk_is_probability": calibrated.estimates.learnt_for is not None,
        "groups_by": list(settings.groups),
        "risk_cap": settings.risk_cap,
        "cutoffs": _cutoffs(result),
        "bound": _bound(result.bound, result.headline, result.bound_in_words, result.bound_alone),
        "gathering": [_gathering(each) for each in result.gathering],
        "measuring": summarise_measuring(calibrated.diagnosis, visits, len(imputations)),
        "sensitivity": [{"gamma": each.gamma, "released": each.released} for each in result.doubts],
        "stability": _stability(result, int(released.sum())),
        "by_risk": _histogram(imputations["risk"].to_numpy(), released),
        "by_value": _histogram(imputations["value"].to_numpy(), released),
        "by_gap": _by_gap(calibrated, released),
        "distribution": distribution_of(result, imputations["value"].to_numpy(), released),
        "accuracy": _accuracy(calibrated, settings),
        "alignment": _alignment(calibrated, settings),
        "curve": trade_off(result),
        "subgroups": _subgroups(result, visits, released),
        "data": profile_data(visits, settings.random_state),
        "seconds": dict(result.seconds),
        **bands,
    }


def _stability(result: RunResult, released: int) -> StabilitySummary:
    found = result.stability
    return {
        "parts": found.parts,
        "fewest": found.fewest,
        "most": found.most,
        "always": found.always,
        "words": found.in_words(released),
    }


def _bands(result: RunResult, imputations: pl.DataFrame) -> list[BandSummary]:
    """Each band's measured values and how they were imputed, and what was imputed into it."""
    tolerance, calibrated = result.settings.allowed_error, result.calibrated
    judged = calibrated.question.judged & np.isfinite(calibrated.estimates.value)
    truth, imputed = tolerance.band(calibrated.truth[judged]), tolerance.band(calibrated.estimates.value[judged])
    there = imputations.group_by(BAND).agg(pl.len().alias("missing"), pl.col("released").sum())
    counts = {band: (missing, released) for band, missing, released in there.iter_rows()}
    rows: list[BandSummary] = []
    for place, band in enumerate(tolerance.bands):
        missing, released = counts.get(band, (0, 0))
        measured, right = int(np.sum(truth == place)), int(np.sum((truth == place) & (imputed == place)))
        into = int(np.sum(imputed == place))
        rows.append(
            {"band": band, "measured": measured, "into": into, "right": right, "missing": missing, "released": released}
        )
    return rows


def terms_of(settings: Settings, best: BestSettings) -> Terms:
    """What holds for every lab of a run; `best` as resolved for it."""
    return {
        "fdr": settings.fdr,
        "preset": settings.preset,
        "claim": settings.claim,
        "promise_kind": settings.promise,
        "confidence": settings.confidence,
        "past_only": settings.past_only,
        "effort": best.effort_in_words if settings.preset == "best" else "",
    }


def as_second_look(summary: RunSummary) -> RunSummary:
    """The same results without a promise: these visits were seen before, under another choice."""
    alone: BoundSummary = {**summary["bound"], "headline": "", "words": summary["bound"]["alone"]}
    nothing = {"promise": "", "assumption": "", "limits": "", "no_promise": SECOND_LOOK, "second_look": True}
    return {**summary, **nothing, "bound": alone}  # type: ignore[typeddict-item]


def _by_reason(imputations: pl.DataFrame) -> dict[str, int]:
    withheld = imputations.filter(~pl.col("released"))
    counts = withheld["reason"].value_counts().sort(["count", "reason"], descending=[True, False])
    return {str(reason): int(count) for reason, count in counts.iter_rows()}


def _bound(bound: Bound, headline: str, words: str, alone: str) -> BoundSummary:
    return {
        "confidence": bound.confidence,
        "values": bound.values,
        "risky": bound.risky,
        "share": bound.share,
        "headline": headline,
        "words": words,
        "alone": alone,
        "survives": BOUND_SURVIVES,
    }


def _gathering(found: Gathering) -> GatheringSummary:
    return {
        "by": found.by,
        "groups": [
            {
                "group": each.group,
                "missing": each.missing,
                "cells": [
                    {
                        "fdr": cell.fdr,
                        "released": cell.released,
                        "share": cell.share,
                        "own_released": cell.own_released,
                        "own_share": cell.own_share,
                    }
                    for cell in each.cells
                ],
            }
            for each in found.groups
        ],
    }


def _cutoffs(result: RunResult) -> list[CutoffSummary]:
    decision, calibrated = result.decision, result.calibrated
    group = np.zeros(len(decision.released), dtype=np.int64)
    if decision.merged is not None and calibrated.grouping is not None:
        cells = calibrated.grouping.cells(calibrated.question.visits, calibrated.estimates.value)
        group = decision.merged.of(cells)[calibrated.candidates]
    return [
        {
            "group": _group_in_words(calibrated.grouping, decision.merged, number),
            "missing": int(np.sum(group == number)),
            "released": int(np.sum(decision.released[group == number])),
            "risk": cutoff.risk,
            "share": cutoff.share,
            "patients": cutoff.patients,
            "visits": cutoff.visits,
            "words": cutoff_in_words(cutoff, result.settings),
        }
        for number, cutoff in sorted(decision.cutoffs.items())
    ]


def _group_in_words(grouping: Grouping | None, merged: Merged | None, group: int) -> str:
    """A group by the labels of the cells that stand together in it; empty without groups."""
    if grouping is None or merged is None:
        return ""
    return "; ".join(grouping.label(cell) for cell in merged.cells[group])


def cutoff_in_words(cutoff: Cutoff, settings: Settings) -> str:
    """Up to which risk values are released, and what is known of the measured visits up to there."""
    effective_size = f"{cutoff.visits:,.0f} visits, or {cutoff.patients:,.0f} patients, of equal weight"
    if cutoff.risk is None:
        confident = settings.promise == "confident"
        sure = f" with {100 * settings.confidence:g} % confidence" if confident else ""
        return (
            f"No cut-off keeps the level of {100 * settings.fdr:g} %{sure}: even the least risky imputations of "
            f"measured visits are off too often, or too few vouch for them (all together worth {effective_size})."
        )
    share = f"{100 * (cutoff.share or 0.0):.0f} % are {settings.allowed_error.in_short}"
    released = f"Values with a risk of up to {cutoff.risk:.3g} are released."
    if settings.claim == "visits":
        return f"{released} Of the visits set aside to calibrate, up to this risk {share}."
    return (
        f"{released} Of the measured visits up to this risk, weighted to stand for unmeasured ones, {share}; all "
        f"measured visits together are worth {effective_size}."
    )


def _histogram(values: FloatArray, released: BoolArray) -> Histogram:
    there = np.isfinite(values)
    values, released = values[there], released[there]
    if not len(values):
        return {"edges": [], "released": [], "withheld": []}
    edges = np.histogram_bin_edges(values[values <= np.quantile(values, 0.99)], bins=BINS)
    inside = np.clip(values, edges[0], edges[-1])  # the last bin also holds the top percent
    return {
        "edges": [float(edge) for edge in edges],
        "released": np.histogram(inside[released], edges)[0].tolist(),
        "withheld": np.histogram(inside[~released], edges)[0].tolist(),
    }


def _by_gap(calibrated: Calibrated, released: BoolArray) -> GapHistogram:
    """Released and withheld by days since the patient's last measured target; without one, counted apart."""
    arrays, rows = calibrated.question.visits, calibrated.candidates
    previous = previous_observed(arrays.patient, ~np.isnan(calibrated.truth))[rows]
    has = previous != NONE
    gap = arrays.time[rows[has]] - arrays.time[previous[has]]
    without = released[~has]
    return {
        **_histogram(gap, released[has]),
        "no_earlier_value": {"released": int(without.sum()), "withheld": int((~without).sum())},
    }


def _judged(calibrated: Calibrated) -> tuple[IntArray, FloatArray, FloatArray]:
    """Judged visits with an imputation: rows, imputed and measured values."""
    rows = np.flatnonzero(calibrated.question.judged & np.isfinite(calibrated.estimates.value))
    return rows, calibrated.estimates.value[rows], calibrated.truth[rows]


def _accuracy(calibrated: Calibrated, settings: Settings) -> Accuracy:
    """Errors at the judged visits, none of which was imputed with its own value in sight."""
    rows, value, truth = _judged(calibrated)
    plain = plain_values(calibrated.question.visits, past_only=settings.past_only)
    ways = {settings.preset: value, **{name: values[rows] for name, values in plain.items()}}
    how = (
        "set aside from the start to calibrate, so that nothing was learnt from them"
        if settings.claim == "visits"
        else "each imputed without its own value, by a model that never saw its patient"
    )
    return {
        "visits": len(rows),
        "how": how,
        "mae": {name: float(np.mean(np.abs(each - truth))) for name, each in ways.items() if len(rows)},
        "risky_share": float(settings.allowed_error.loss(value, truth).mean()) if len(rows) else None,
    }


def _alignment(calibrated: Calibrated, settings: Settings) -> list[RiskGroup]:
    """Errors of the judged visits in groups of equal size by risk."""
    rows, value, truth = _judged(calibrated)
    risk = calibrated.estimates.risk[rows]
    error, risky = np.abs(value - truth), settings.allowed_error.loss(value, truth)
    order = np.flatnonzero(np.isfinite(risk))
    order = order[np.argsort(risk[order], kind="stable")]
    return [
        {
            "group": number + 1,
            "visits": len(part),
            "risk_from": float(risk[part[0]]),
            "risk_to": float(risk[part[-1]]),
            "mae": float(error[part].mean()),
            "risky": float(risky[part].mean()),
        }
        for number, part in enumerate(np.array_split(order, RISK_GROUPS))
        if len(part)
    ]


def _subgroups(result: RunResult, visits: Visits, released: BoolArray) -> list[Subgroup]:
    calibrated = result.calibrated
    rows, value, truth = _judged(calibrated)
    judgement = Judgement(
        candidates=calibrated.candidates,
        released=released,
        judged=rows,
        error=np.abs(value - truth),
        risky=result.settings.allowed_error.loss(value, truth),
        passing=result.passing[rows],
        weight=calibrated.weight[rows],
    )
    return describe_subgroups(visits, judgement)


def summarise_labs(imputer: SafeImputer, each: Mapping[str, RunSummary], folders: Mapping[str, str]) -> LabsSummary:
    """Put the labs' summaries side by side, under the promise of the whole."""
    settings, promised = imputer.settings_, imputer.promised()
    first, bound = next(iter(imputer.labs_.values())), bound_of_labs(imputer.labs_, settings)
    second = [lab for lab, summary in each.items() if summary["second_look"]]
    no_promise = SECOND_LOOK if len(second) == len(each) else promised.no_promise
    fault = "off by their lab's tolerance or more"
    some = f"Nothing is promised for {', '.join(second)} (second look). " if second and not no_promise else ""
    return {
        "targets": list(each),
        "over": settings.over,
        **terms_of(settings, first.settings.best),
        "promise": "" if no_promise else promised.promise,
        "assumption": "" if no_promise else promised.assumption,
        "limits": "" if no_promise else some + promised.limits,
        "no_promise": no_promise,
        "second_look": bool(second),
        "bound": _bound(
            bound,
            "" if no_promise else headline_in_words(bound.values, fault, settings),
            bound_in_words(bound, fault, None if no_promise else settings.fdr),
            bound_in_words(bound, fault),
        ),
        "visits": len(first.visits),
        "patients": first.visits.patients,
        "missing": sum(summary["missing"] for summary in each.values()),
        "released": sum(summary["released"] for summary in each.values()),
        "withheld": sum(summary["withheld"] for summary in each.values()),
        "left_out": dict(imputer.left_out_),
        "labs": {lab: _line(summary, folders[lab]) for lab, summary in each.items()},
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
