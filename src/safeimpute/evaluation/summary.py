"""The run's result as one typed summary; every page, picture and printed line is made from it."""

import numpy as np
import polars as pl

from safeimpute.estimator import LabImputer
from safeimpute.evaluation.data_profile import profile_data
from safeimpute.evaluation.distribution import distribution_of
from safeimpute.evaluation.exploration import CURVE_LEVELS, explore
from safeimpute.evaluation.gathering import group_in_words, where_risky_gathers
from safeimpute.evaluation.measuring_summary import summarise_measuring
from safeimpute.evaluation.plain_ways import plain_values
from safeimpute.evaluation.run_summary import (
    Accuracy,
    BoundSummary,
    CutoffSummary,
    Doubt,
    GapHistogram,
    Histogram,
    RiskGroup,
    RunSummary,
)
from safeimpute.evaluation.subgroups import Judgement, Subgroup, describe_subgroups
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.records.history import NONE, previous_observed
from safeimpute.records.units import decision_limits, target_unit
from safeimpute.selection.claims import BOUND_SURVIVES, bound_in_words
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.reasons import IN_WORDS
from safeimpute.selection.release import passing, rule_of
from safeimpute.settings import Settings

__all__ = ["FittedImputer", "RunSummary", "as_second_look", "summarise_run"]

FittedImputer = LabImputer  # for those who only hand it on
BINS = 24
RISK_GROUPS = 10
SECOND_LOOK = (
    "Second look at the same visits: no guarantee. An earlier run showed these visits under another level, tolerance, "
    "seed, claim, preset or promise, and errors already seen cannot vouch for a choice made after seeing them. A "
    "promise needs visits not looked at yet, or the choices of the first run."
)


def summarise_run(imputer: LabImputer, imputations: pl.DataFrame) -> RunSummary:
    """What was asked, what came out, what it promises, and what it rests on."""
    settings, calibrated = imputer.current_settings(), imputer.calibrated_
    allowed, unit, promised = settings.allowed_error, target_unit(settings), imputer.promised()
    released = imputations["released"].to_numpy()
    fitted = getattr(imputer, "fitted_", None)
    return {
        "target": settings.target,
        "unit": unit,
        "tolerance": settings.tolerance,
        "tolerance_in_words": allowed.describe(unit),
        "fdr": settings.fdr,
        "preset": settings.preset,
        "claim": settings.claim,
        "promise_kind": settings.promise,
        "confidence": settings.confidence,
        "past_only": settings.past_only,
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
        "withheld_by_reason": (reasons := _by_reason(imputations)),
        "reason_words": {reason: IN_WORDS.get(reason, reason) for reason in reasons},
        "risk_is_probability": calibrated.estimates.learnt_for is not None,
        "groups_by": list(settings.groups),
        "risk_cap": settings.risk_cap,
        "cutoffs": _cutoffs(imputer, settings),
        "bound": _bound(imputer, settings, unit),
        "gathering": where_risky_gathers(
            calibrated, allowed, rule_of(settings), decision_limits(settings.target, unit)
        ),
        "measuring": summarise_measuring(calibrated.diagnosis, imputer.visits_, len(imputations)),
        "sensitivity": _sensitivity(imputer, settings),
        "by_risk": _histogram(imputations["risk"].to_numpy(), released),
        "by_value": _histogram(imputations["value"].to_numpy(), released),
        "by_gap": _by_gap(imputer, released),
        "distribution": distribution_of(imputer, imputations["value"].to_numpy(), released),
        "accuracy": _accuracy(imputer, settings),
        "alignment": _alignment(imputer, settings),
        "curve": explore(calibrated, allowed, rule_of(settings), sorted({*CURVE_LEVELS, settings.fdr})),
        "subgroups": _subgroups(imputer, released, settings),
        "data": profile_data(imputer.visits_, settings.random_state),
        "seconds": {} if fitted is None else {name: float(each) for name, each in fitted.seconds.items()},
    }


def as_second_look(summary: RunSummary) -> RunSummary:
    """The same results without a promise: these visits were seen before, under another choice."""
    return {
        **summary,
        "promise": "",
        "assumption": "",
        "limits": "",
        "no_promise": SECOND_LOOK,
        "second_look": True,
    }


def _by_reason(imputations: pl.DataFrame) -> dict[str, int]:
    withheld = imputations.filter(~pl.col("released"))
    counts = withheld["reason"].value_counts().sort(["count", "reason"], descending=[True, False])
    return {str(reason): int(count) for reason, count in counts.iter_rows()}


def _bound(imputer: LabImputer, settings: Settings, unit: str | None) -> BoundSummary:
    bound = imputer.bound_
    return {
        "confidence": bound.confidence,
        "values": bound.values,
        "risky": bound.risky,
        "share": bound.share,
        "words": bound_in_words(bound, settings.allowed_error.describe(unit)),
        "survives": BOUND_SURVIVES,
    }


def _cutoffs(imputer: LabImputer, settings: Settings) -> list[CutoffSummary]:
    decision, calibrated = imputer.decision_, imputer.calibrated_
    group = np.zeros(len(decision.released), dtype=np.int64)
    if decision.merged is not None and calibrated.grouping is not None:
        cells = calibrated.grouping.cells(calibrated.question.visits, calibrated.estimates.value)
        group = decision.merged.of(cells)[calibrated.candidates]
    return [
        {
            "group": group_in_words(calibrated.grouping, decision.merged, number),
            "missing": int(np.sum(group == number)),
            "released": int(np.sum(decision.released[group == number])),
            "risk": cutoff.risk,
            "share": cutoff.share,
            "patients": cutoff.patients,
            "visits": cutoff.visits,
            "words": cutoff_in_words(cutoff, settings),
        }
        for number, cutoff in sorted(decision.cutoffs.items())
    ]


def cutoff_in_words(cutoff: Cutoff, settings: Settings) -> str:
    """Up to which risk values are released, and what is known of the measured visits up to there."""
    worth = f"{cutoff.visits:,.0f} visits, or {cutoff.patients:,.0f} patients, of equal weight"
    if cutoff.risk is None:
        confident = settings.promise == "confident"
        sure = f" with {100 * settings.confidence:g} % confidence" if confident else ""
        return (
            f"No cut-off keeps the level of {100 * settings.fdr:g} %{sure}: even the least risky imputations of "
            f"measured visits are off too often, or too few vouch for them (all together worth {worth})."
        )
    share = f"{100 * (cutoff.share or 0.0):.0f} % are off by the tolerance or more"
    released = f"Values with a risk of up to {cutoff.risk:.3g} are released."
    if settings.claim == "visits":
        return f"{released} Of the visits set aside to calibrate, up to this risk {share}."
    return (
        f"{released} Of the measured visits up to this risk, weighted to stand for unmeasured ones, {share}; all "
        f"measured visits together are worth {worth}."
    )


def _sensitivity(imputer: LabImputer, settings: Settings) -> list[Doubt]:
    """Released counts if an unseen reason changed the odds of being measured by a factor of up to gamma."""
    if settings.claim == "visits":
        return []
    found = imputer.calibrated_.under_doubt(settings.allowed_error, settings.fdr, settings.gammas)
    return [{"gamma": each.gamma, "released": each.released} for each in found]


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


def _by_gap(imputer: LabImputer, released: BoolArray) -> GapHistogram:
    """Released and withheld by days since the patient's last measured target; without one, counted apart."""
    arrays, rows = imputer.visits_.arrays, imputer.calibrated_.candidates
    previous = previous_observed(arrays.patient, ~np.isnan(imputer.calibrated_.truth))[rows]
    has = previous != NONE
    gap = arrays.time[rows[has]] - arrays.time[previous[has]]
    without = released[~has]
    return {
        **_histogram(gap, released[has]),
        "no_earlier_value": {"released": int(without.sum()), "withheld": int((~without).sum())},
    }


def _judged(imputer: LabImputer) -> tuple[IntArray, FloatArray, FloatArray]:
    """Judged visits with an imputation: rows, imputed and measured values."""
    calibrated = imputer.calibrated_
    rows = np.flatnonzero(calibrated.question.judged & np.isfinite(calibrated.estimates.value))
    return rows, calibrated.estimates.value[rows], calibrated.truth[rows]


def _accuracy(imputer: LabImputer, settings: Settings) -> Accuracy:
    """Errors at the judged visits, none of which was imputed with its own value in sight."""
    rows, value, truth = _judged(imputer)
    plain = plain_values(imputer.calibrated_.question.visits, past_only=settings.past_only)
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
        "risky_share": float(settings.allowed_error.risky(value, truth).mean()) if len(rows) else None,
    }


def _alignment(imputer: LabImputer, settings: Settings) -> list[RiskGroup]:
    """Errors of the judged visits in groups of equal size by risk."""
    rows, value, truth = _judged(imputer)
    risk = imputer.calibrated_.estimates.risk[rows]
    error, risky = np.abs(value - truth), settings.allowed_error.risky(value, truth)
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


def _subgroups(imputer: LabImputer, released: BoolArray, settings: Settings) -> list[Subgroup]:
    rows, value, truth = _judged(imputer)
    calibrated = imputer.calibrated_
    ground = calibrated.ground(settings.allowed_error)
    judgement = Judgement(
        candidates=calibrated.candidates,
        released=released,
        judged=rows,
        error=np.abs(value - truth),
        risky=settings.allowed_error.risky(value, truth),
        passing=passing(ground, imputer.decision_)[rows],
        weight=calibrated.weight[rows],
    )
    return describe_subgroups(imputer.visits_, judgement)
