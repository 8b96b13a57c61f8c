"""A run folder and an evaluation folder written by hand: the report's input without any fitting."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from safeimpute.evaluation.data_profile import DataProfile, MeasuringSummary, profile_data
from safeimpute.evaluation.evaluate import ReleaseSummary
from safeimpute.evaluation.release_profile import Judgement, Subgroup, describe_subgroups
from safeimpute.evaluation.run_summary import GatheringGroupSummary, Histogram, RunSummary
from safeimpute.report.figures import EvaluationContent
from safeimpute.report.run_folder import Manifest
from safeimpute.visits.arrays import BoolArray, FloatArray
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import load_pbc
from safeimpute.visits.visits import prepare_visits

LEVELS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


@dataclass(frozen=True)
class _Made:
    """The bundled visits with made-up decisions and errors."""

    data: DataProfile
    subgroups: list[Subgroup]
    released: BoolArray
    judged: int
    rng: np.random.Generator


def _gathering(missing: int) -> list[GatheringGroupSummary]:
    return [
        {
            "group": name,
            "missing": missing // 3,
            "cells": [
                {
                    "fdr": level,
                    "released": 40 + 10 * place,
                    "share": None if place == 2 else 0.1 + 0.2 * place,
                    "own_released": 30,
                    "own_share": 0.15,
                }
                for level in (0.1, 0.2, 0.35)
            ],
        }
        for place, name in enumerate(("low", "middle", "top"))
    ]


def _made() -> _Made:
    visits = prepare_visits(load_pbc(), ColumnChoice("cholesterol"))
    measured = ~np.isnan(visits.arrays.target_values)
    rng = np.random.default_rng(0)
    candidates, judged = np.flatnonzero(~measured), np.flatnonzero(measured)
    error = rng.gamma(1.5, 30.0, len(judged))
    released = rng.random(len(candidates)) < 0.37
    passing, weight = rng.random(len(judged)) < 0.4, rng.gamma(2.0, 1.0, len(judged))
    judgement = Judgement(candidates, released, judged, error, error > 60, passing, weight)
    return _Made(profile_data(visits), describe_subgroups(visits, judgement), released, len(judged), rng)


def _histogram(released: BoolArray, values: FloatArray) -> Histogram:
    edges = np.histogram_bin_edges(values, bins=24)
    return {
        "edges": edges.tolist(),
        "released": np.histogram(values[released], edges)[0].tolist(),
        "withheld": np.histogram(values[~released], edges)[0].tolist(),
    }


MEASURING: MeasuringSummary = {
    "words": "Well: measured and unmeasured visits differ clearly.",
    "effective_size": "Measured visits are weighted; they are worth 222 visits, or 124 patients, of equal weight.",
    "auc": 0.84,
    "miscalibration": 0.031,
    "calibration": [{"visits": 195, "predicted": 0.1 * g + 0.05, "observed": min(1.0, 0.11 * g)} for g in range(10)],
    "measured": 1115,
    "effective_visits": 221.8,
    "effective_patients": 123.9,
    "outside": 9,
    "reasons": [
        {"column": "days since albumin", "share": 0.21, "direction": "higher at unmeasured visits"},
        {"column": "ward", "share": 0.12, "direction": "differs by level"},
    ],
    "columns": ["time", "albumin", "ward"],
    "not_used": {"remark": "text with many different entries"},
}


@pytest.fixture
def summary() -> RunSummary:
    """The summary of a run on the bundled visits, with made-up results of a plausible size."""
    made = _made()
    rng, released = made.rng, made.released
    missing, kept = len(released), int(released.sum())
    gap = _histogram(released[60:], rng.gamma(2.0, 250.0, missing - 60))
    words = {"risk above cut-off": "too likely to be off", "no evidence": "nothing supports it"}
    return {
        "target": "cholesterol",
        "unit": "mg/dL",
        "tolerance": "20%",
        "tolerance_in_words": "20 % of the true value",
        "effort": "",
        "next_step": "",
        "fdr": 0.2,
        "preset": "best",
        "claim": "unmeasured",
        "promise_kind": "average",
        "confidence": 0.9,
        "past_only": False,
        "promise": "Of the released values, at most 20 % are expected to be off by 20 % or more.",
        "assumption": "Whether it was measured does not depend on its value.",
        "limits": "An average over repetitions: a single release may exceed it.",
        "no_promise": "",
        "second_look": False,
        "measured": made.judged,
        "judged": made.judged,
        "missing": missing,
        "released": kept,
        "withheld": missing - kept,
        "withheld_by_reason": {"risk above cut-off": missing - kept - 9, "no evidence": 9},
        "reason_words": words,
        "risk_is_probability": True,
        "cutoffs": [
            {
                "group": "",
                "missing": missing,
                "released": kept,
                "risk": 0.433,
                "share": 0.18,
                "patients": 108.0,
                "visits": 222.0,
                "words": "Values with a risk of up to 0.433 are released.",
            }
        ],
        "groups_by": [],
        "risk_cap": None,
        "bound": {
            "confidence": 0.9,
            "values": kept,
            "risky": kept // 3,
            "share": 0.31,
            "headline": f"Expect up to {round(0.2 * kept)} of these {kept} released values (20 %) to be off.",
            "words": f"With 90 % confidence, at most {kept // 3} of these {kept} released values are off.",
            "alone": f"With 90 % confidence no more than {kept // 3} of these {kept} released values are off.",
            "survives": "This bound holds for every level at once.",
        },
        "gathering": [{"by": by, "groups": _gathering(missing)} for by in ("value", "history", "sex")],
        "measuring": MEASURING,
        "stability": {"parts": 5, "fewest": kept - 9, "most": kept + 4, "always": kept - 12, "words": "Seven stay."},
        "sensitivity": [{"gamma": 1.0, "released": kept}, {"gamma": 1.5, "released": 17}],
        "by_risk": _histogram(released, rng.beta(2.0, 5.0, missing)),
        "by_value": _histogram(released, rng.lognormal(5.7, 0.35, missing)),
        "by_gap": {**gap, "no_earlier_value": {"released": 11, "withheld": 49}},
        "distribution": {
            "measured": {"values": made.judged, "mean": 320.4, "median": 281.0},
            "released": {"values": kept, "mean": 279.9, "median": 269.6},
            "withheld": {"values": missing - kept, "mean": 347.6, "median": 310.6},
            "passing": {"values": 640, "mean": 274.2, "median": 263.0},
            "stopped": {"values": 484, "mean": 361.9, "median": 318.0},
            "means": {"measured": 320.4, "with_released": 309.1, "missing_expected": 312.6, "expected": 317.1},
            "fifths": [
                {"low": 60.0 * k, "high": 60.0 * k + 59, "missing": 164, "released": 120 - 25 * k} for k in range(5)
            ],
            "warning": "Released values are no random sample of the missing ones.",
            "instead": "Use draws of every missing value.",
        },
        "accuracy": {
            "visits": made.judged,
            "how": "each imputed without its own value, by a model that never saw its patient",
            "mae": {
                "best": 56.6,
                "overall mean": 100.0,
                "last value carried forward": 79.4,
                "patient's own other values": 72.0,
            },
            "risky_share": 0.24,
        },
        "alignment": [
            {
                "group": g,
                "visits": 112,
                "risk_from": 0.06 * g - 0.02,
                "risk_to": 0.06 * g + 0.04,
                "mae": 20.0 + 8 * g,
                "risky": min(1.0, 0.08 * g),
            }
            for g in range(1, 11)
        ],
        "curve": [
            {
                "fdr": a,
                "cutoff": a if a > 0.05 else None,
                "released": int(missing * a) if a > 0.05 else 0,
                "risky": 0.9 * a if a > 0.05 else 0.0,
                "power": min(1.0, 2.2 * a) if a > 0.05 else 0.0,
                "mae": 30.0 if a > 0.05 else None,
                "bound": int(missing * a) // 3 if a > 0.05 else 0,
            }
            for a in LEVELS
        ],
        "subgroups": made.subgroups,
        "data": made.data,
        "seconds": {"fit": 8.2, "estimate": 0.6},
    }


@pytest.fixture
def manifest() -> Manifest:
    return {
        "safeimpute": "0.1.0",
        "written": "2026-11-15T08:00:00+00:00",
        "python": "3.11.2",
        "packages": {"numpy": "2.3.0", "torch": "2.13.0"},
        "platform": "Linux",
        "config": {"target": "cholesterol", "random_state": 0, "labs": ["a", "b"], "paper": {"gcn": {"width": 64}}},
        "input": {
            "file": "visits.csv",
            "path": "/data/visits.csv",
            "columns": {},
            "format": {},
            "sha256": "0" * 64,
            "visits_sha256": "f" * 64,
            "rows": 1945,
            "merged_rows": 0,
            "dropped_rows": {"time missing": 3},
            "ignored_columns": {},
        },
        "second_look": False,
    }


def _released(level: float, strength: float, mae: float | None) -> ReleaseSummary:
    return {
        "fdr": level,
        "fdp": {"mean": 0.95 * level, "se": 0.02},
        "precision": {"mean": 1 - 0.95 * level, "se": 0.02},
        "power": {"mean": min(1.0, strength * level), "se": 0.04},
        "acceptance": {"mean": 0.5 * level, "se": None},
        "mae": {"mean": mae, "se": None if mae is None else 1.5},
        "rmse": {"mean": mae, "se": None},
        "pooled": level,
        "exceeds": 0.4,
        "splits_released": 0 if mae is None else 5,
    }


@pytest.fixture
def evaluation(summary: RunSummary) -> EvaluationContent:
    return {
        "splits": 5,
        "unit": "mg/dL",
        "imputation": {"mae": {"mean": 61.0, "se": 1.2}, "rmse": {"mean": 95.0, "se": 3.0}},
        "release": [_released(a, 2.0, None if a < 0.1 else 30 + 40 * a) for a in (0.05, 0.1, 0.2, 0.35)],
        "curves": [
            {"absolute": 0.0, "share": 0.2 * f, "points": [_released(a, 1.5 + f, 40.0) for a in LEVELS]}
            for f in (0.75, 1.0, 1.25, 1.5)
        ],
        "alignment": [
            {
                "group": g,
                "score": {"mean": 0.06 * g, "se": 0.01},
                "mae": {"mean": 20.0 + 8 * g, "se": 3.0},
                "risky": {"mean": 0.08 * g, "se": None},
            }
            for g in range(1, 11)
        ],
        "data": summary["data"],
    }


@pytest.fixture
def run_folder(tmp_path: Path, summary: RunSummary, manifest: Manifest) -> Path:
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.fixture
def evaluation_folder(tmp_path: Path, evaluation: EvaluationContent) -> Path:
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    return tmp_path
