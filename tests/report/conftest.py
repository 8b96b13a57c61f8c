"""A run folder and an evaluation folder written by hand: the report's input without any fitting."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safeimpute.evaluation.data_profile import profile_data
from safeimpute.evaluation.subgroups import Outcome, describe_subgroups
from safeimpute.records.bundled import load_pbc
from safeimpute.records.visits import ColumnChoice, prepare_visits

LEVELS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


def _shared() -> dict[str, Any]:
    visits = prepare_visits(load_pbc(), ColumnChoice("cholesterol"))
    measured = ~np.isnan(visits.arrays.target_values)
    rng = np.random.default_rng(0)
    candidates, validation = np.flatnonzero(~measured), np.flatnonzero(measured)[::7]
    error = rng.gamma(1.5, 30.0, len(validation))
    released = rng.random(len(candidates)) < 0.37
    outcome = Outcome(candidates, released, validation, error, error > 60)
    return {
        "data": profile_data(visits),
        "subgroups": describe_subgroups(visits, outcome),
        "released": released,
        "validation_visits": len(validation),
        "rng": rng,
    }


def _histogram(rng: np.random.Generator, released: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    edges = np.histogram_bin_edges(values, bins=24)
    return {
        "edges": edges.tolist(),
        "released": np.histogram(values[released], edges)[0].tolist(),
        "withheld": np.histogram(values[~released], edges)[0].tolist(),
    }


@pytest.fixture
def summary() -> dict[str, Any]:
    """The summary of a run on the bundled visits, with made-up results of a plausible size."""
    shared = _shared()
    rng, released = shared["rng"], shared["released"]
    missing, kept = len(released), int(released.sum())
    gap = _histogram(rng, released[60:], rng.gamma(2.0, 250.0, missing - 60))
    return {
        "target": "cholesterol",
        "unit": "mg/dL",
        "tolerance": "20%",
        "tolerance_in_words": "20 % of the true value",
        "fdr": 0.2,
        "preset": "paper",
        "claim": "visits",
        "promise": "Among the released values, at most 20 % are expected to be off by 20 % or more.",
        "assumption": "For visits as measured as the calibration visits.",
        "limits": "An average over repetitions: a single batch may exceed it.",
        "measured": shared["data"]["visits"] - missing,
        "missing": missing,
        "released": kept,
        "withheld": missing - kept,
        "withheld_by_reason": {"risk above cut-off": missing - kept - 9, "no evidence": 9},
        "calibration_visits": 169,
        "effective_sample_size": 169.0,
        "sensitivity": [],
        "cutoff": None,
        "by_value": _histogram(rng, released, rng.lognormal(5.7, 0.35, missing)),
        "by_gap": {**gap, "no_earlier_value": {"released": 11, "withheld": 49}},
        "validation": {
            "visits": shared["validation_visits"],
            "mae": {
                "paper": 61.2,
                "overall mean": 102.0,
                "last value carried forward": 66.5,
                "patient's own mean": 70.1,
            },
            "risky_share": 0.41,
            "curve": [
                {"fdr": a, "released": int(missing * a), "fdp": 0.9 * a, "power": min(1.0, 2.2 * a)}
                for a in LEVELS
            ],
            "alignment": [
                {"group": g, "visits": 16, "mae": 20.0 + 8 * g, "risky": min(1.0, 0.08 * g)}
                for g in range(1, 11)
            ],
        },
        "subgroups": shared["subgroups"],
        "data": shared["data"],
        "seconds": {"graph": 0.4, "fit": 8.2, "risk": 0.6},
    }


@pytest.fixture
def manifest() -> dict[str, Any]:
    return {
        "safeimpute": "0.1.0",
        "written": "2026-11-15T08:00:00+00:00",
        "python": "3.11.2",
        "packages": {"numpy": "2.3.0", "torch": "2.13.0"},
        "platform": "Linux",
        "config": {
            "target": "cholesterol",
            "random_state": 0,
            "labs": ["a", "b"],
            "paper": {"gcn": {"width": 64}},
        },
        "input": {
            "file": "visits.csv",
            "sha256": "0" * 64,
            "visits_sha256": "f" * 64,
            "rows": 1945,
            "merged_rows": 0,
            "dropped_rows": {"time missing": 3},
            "ignored_columns": {},
        },
    }


@pytest.fixture
def evaluation(summary: dict[str, Any]) -> dict[str, Any]:
    def points(strength: float) -> list[dict[str, Any]]:
        return [
            {
                "fdr": level,
                "fdp": {"mean": 0.95 * level, "se": 0.02},
                "power": {"mean": min(1.0, strength * level), "se": 0.04},
                "acceptance": {"mean": 0.5 * level, "se": None},
            }
            for level in LEVELS
        ]

    release = [
        {"fdr": a, "mae": {"mean": None if a < 0.1 else 30 + 40 * a, "se": 1.5}, "splits_released": 5}
        for a in (0.05, 0.1, 0.2, 0.35)
    ]
    return {
        "preset": "paper",
        "target": "cholesterol",
        "tolerance": "20%",
        "unit": "mg/dL",
        "splits": 5,
        "imputation": {"mae": {"mean": 61.0, "se": 1.2}, "rmse": {"mean": 95.0, "se": 3.0}},
        "release": release,
        "curves": [
            {"absolute": 0.0, "share": 0.2 * f, "factor": f, "points": points(1.5 + f)}
            for f in (0.75, 1.0, 1.25, 1.5)
        ],
        "alignment": [
            {"group": g, "mae": {"mean": 20.0 + 8 * g, "se": 3.0}, "risky": {"mean": 0.08 * g, "se": None}}
            for g in range(1, 11)
        ],
        "data": summary["data"],
    }


@pytest.fixture
def run_folder(tmp_path: Path, summary: dict[str, Any], manifest: dict[str, Any]) -> Path:
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.fixture
def evaluation_folder(tmp_path: Path, evaluation: dict[str, Any]) -> Path:
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    return tmp_path
