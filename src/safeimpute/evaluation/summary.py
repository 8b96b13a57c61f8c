"""The run's result as one plain dictionary; every page, picture and printed line is made from it."""

from typing import Any

import numpy as np
import polars as pl

from safeimpute.benchmark.registry import make_imputer
from safeimpute.errors import GuaranteeRefused
from safeimpute.estimator import SafeImputer
from safeimpute.evaluation.data_profile import profile_data
from safeimpute.evaluation.exploration import CURVE_LEVELS, exploration_ground, explore
from safeimpute.evaluation.metrics import mean_absolute_error
from safeimpute.evaluation.subgroups import Outcome, describe_subgroups
from safeimpute.selection.claims import cutoff_in_words, promise_in_words
from safeimpute.selection.pipeline import long_run_cutoff, released_under_doubt
from safeimpute.settings import Config
from safeimpute.splits.roles import Role, hide

PLAIN_METHODS = {
    "mean": "overall mean",
    "locf": "last value carried forward",
    "patient_mean": "patient's own mean",
}
BINS = 24


def summarise_run(imputer: SafeImputer, imputations: pl.DataFrame) -> dict[str, Any]:
    """What was asked, what came out, what it promises, and what it rests on."""
    config = imputer.current_config()
    withheld = imputations.filter(~pl.col("released"))
    return {
        "target": config.target,
        "unit": config.unit_known,
        "tolerance": config.tolerance,
        "tolerance_in_words": config.allowed_error.describe(config.unit_known),
        "fdr": config.fdr,
        "preset": config.preset,
        "claim": config.claim,
        **promise_in_words(
            config.promise, config.target, config.allowed_error.describe(config.unit_known), config.fdr
        ),
        "measured": int(np.sum(imputer.roles_ != Role.UNMEASURED)),
        "missing": len(imputations),
        "released": int(imputations["released"].sum()),
        "withheld": len(withheld),
        "withheld_by_reason": {
            str(reason): int(count)
            for reason, count in withheld["reason"].value_counts(sort=True).iter_rows()
        },
        "calibration_visits": imputer.decision_.calibration_visits,
        "effective_sample_size": imputer.decision_.effective_sample_size,
        "sensitivity": _sensitivity(imputer, config),
        "cutoff": _cutoff(imputer, config),
        "by_value": _by_value(imputations),
        "by_gap": _by_gap(imputer, imputations),
        "validation": _validation(imputer, config),
        "subgroups": _subgroups(imputer, imputations, config),
        "data": profile_data(imputer.visits_, config.random_state),
        "seconds": dict(imputer.scores_.seconds),
    }


def _sensitivity(imputer: SafeImputer, config: Config) -> list[dict[str, float]]:
    """Released counts if an unseen reason changed the odds of being measured by a factor of up to gamma."""
    scored, truth = imputer.scored_, imputer.visits_.arrays.target_values
    if not config.promise.unmeasured or config.promise.new_patients:
        return []
    counts = released_under_doubt(
        scored, config.allowed_error, config.fdr, scored.candidates(), truth, config.gammas
    )
    return [
        {"gamma": gamma, "released": int(count)} for gamma, count in zip(config.gammas, counts, strict=True)
    ]


def _cutoff(imputer: SafeImputer, config: Config) -> dict[str, Any] | None:
    """The stored cut-off with its promise in words, or why there is none; for claims about new patients."""
    if not config.promise.new_patients:
        return None
    truth = imputer.visits_.arrays.target_values
    try:
        cutoff = long_run_cutoff(imputer.scored_, config.allowed_error, config.fdr, truth)
    except GuaranteeRefused as refused:
        return {"risk": None, "words": str(refused)}
    return {"risk": cutoff.risk, "words": cutoff_in_words(cutoff, config.fdr)}


def _by_value(imputations: pl.DataFrame) -> dict[str, list[float]]:
    return _released_histogram(imputations["value"].to_numpy(), imputations["released"].to_numpy())


def _by_gap(imputer: SafeImputer, imputations: pl.DataFrame) -> dict[str, Any]:
    """Released and withheld by days since the patient's last measured target; without one, counted apart."""
    from safeimpute.records.history import NONE, previous_observed

    arrays = imputer.visits_.arrays
    previous = previous_observed(arrays.patient, imputer.roles_ != Role.UNMEASURED)
    rows = np.flatnonzero(imputer.roles_ == Role.UNMEASURED)
    has = previous[rows] != NONE
    gap = arrays.time[rows[has]] - arrays.time[previous[rows[has]]]
    released = imputations["released"].to_numpy()
    without = {"released": int(released[~has].sum()), "withheld": int((~released[~has]).sum())}
    return {**_released_histogram(gap, released[has]), "no_earlier_value": without}


def _released_histogram(
    values: np.ndarray[Any, Any], released: np.ndarray[Any, Any]
) -> dict[str, list[float]]:
    if not len(values):
        return {"edges": [], "released": [], "withheld": []}
    edges = np.histogram_bin_edges(values[values <= np.quantile(values, 0.99)], bins=BINS)
    inside = np.clip(values, edges[0], edges[-1])  # the last bin also holds the top percent
    return {
        "edges": [float(edge) for edge in edges],
        "released": np.histogram(inside[released], edges)[0].tolist(),
        "withheld": np.histogram(inside[~released], edges)[0].tolist(),
    }


def _validation(imputer: SafeImputer, config: Config) -> dict[str, Any]:
    """Accuracy and trade-off on validation visits: for looking and choosing, never for promising."""
    arrays, roles, scores = imputer.visits_.arrays, imputer.roles_, imputer.scores_
    rows = np.flatnonzero(roles == Role.VALIDATION)
    truth, value = arrays.target_values[rows], scores.value[rows]
    bad = config.allowed_error.risky(value, truth)
    task = hide(arrays, roles)
    rng = np.random.default_rng(config.random_state)
    plain = {
        label: mean_absolute_error(make_imputer(name).fit(task, rng).impute(task).value[rows], truth)
        for name, label in PLAIN_METHODS.items()
    }
    return {
        "visits": len(rows),
        "mae": {config.preset: mean_absolute_error(value, truth), **plain},
        "risky_share": float(bad.mean()),
        "curve": explore(
            exploration_ground(imputer.scored_, arrays.target_values),
            config.allowed_error,
            sorted({*CURVE_LEVELS, config.fdr}),
        ),
        "alignment": _alignment(scores.explored_risk[rows], np.abs(value - truth), bad),
    }


def _alignment(
    risk: np.ndarray[Any, Any], error: np.ndarray[Any, Any], bad: np.ndarray[Any, Any], groups: int = 10
) -> list[dict[str, float]]:
    order = np.argsort(risk, kind="stable")
    return [
        {
            "group": number + 1,
            "visits": len(part),
            "mae": float(error[part].mean()),
            "risky": float(bad[part].mean()),
        }
        for number, part in enumerate(np.array_split(order, groups))
        if len(part)
    ]


def _subgroups(imputer: SafeImputer, imputations: pl.DataFrame, config: Config) -> list[dict[str, Any]]:
    rows = np.flatnonzero(imputer.roles_ == Role.VALIDATION)
    truth, value = imputer.visits_.arrays.target_values[rows], imputer.scores_.value[rows]
    outcome = Outcome(
        candidates=np.flatnonzero(imputer.roles_ == Role.UNMEASURED),
        released=imputations["released"].to_numpy(),
        validation=rows,
        error=np.abs(value - truth),
        risky=config.allowed_error.risky(value, truth),
    )
    return describe_subgroups(imputer.visits_, outcome)
