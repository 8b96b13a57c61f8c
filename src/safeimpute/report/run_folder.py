"""A run's folder: results, what was promised, and the manifest that lets it be repeated."""

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl

from safeimpute import __version__
from safeimpute.estimator import SafeImputer
from safeimpute.evaluation.summary import summarise_run
from safeimpute.records.writers.guarded_csv import write_csv
from safeimpute.runtime.files import finished_file, sha256_of

PACKAGES = ("numpy", "scipy", "torch", "lightgbm", "polars", "pyarrow")


def write_run(
    folder: Path,
    imputer: SafeImputer,
    imputations: pl.DataFrame,
    source: Path | None,
    columns: Mapping[str, str],
    *,
    looked_before: bool = False,
) -> dict[str, Any]:
    """Write everything a run leaves behind; returns the summary. `columns` renamed the source's columns."""
    summary = summarise_run(imputer, imputations)
    if looked_before:
        summary["promise"] = "Level chosen after looking: no guarantee."
        summary["assumption"] = (
            "An earlier run showed the same visits at another level; calibration visits already seen cannot vouch for "
            "a level chosen afterwards."
        )
    imputations.write_parquet(folder / "imputations.parquet")
    write_csv(imputations, folder / "imputations.csv")
    write_json(summary, folder / "summary.json")
    write_json(
        _manifest(imputer, source, columns) | {"levels_chosen_after_looking": looked_before},
        folder / "run.json",
    )
    imputer.save(folder / "model", chosen_after_looking=looked_before)
    return summary


def showed_other_levels(folder: Path, imputer: SafeImputer, source: Path | None) -> bool:
    """Whether the folder holds a run on the same visits at other levels, or one that came after looking itself.

    The same file with other columns left out is the same visits.
    """
    try:
        earlier = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        same_file = source is not None and earlier["input"]["sha256"] == sha256_of(source)
        same_target = earlier["config"]["target"] == imputer.config_.target
        same_visits = earlier["input"]["visits_sha256"] == imputer.visits_.fingerprint
        same_visits |= same_file and same_target
        levels = earlier["config"]["tolerance"], earlier["config"]["fdr"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if earlier.get("levels_chosen_after_looking"):
        return bool(same_visits)
    return bool(same_visits and levels != (imputer.config_.tolerance, imputer.config_.fdr))


def write_json(content: Any, path: Path) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False, default=str) + "\n", encoding="utf-8")


def _manifest(imputer: SafeImputer, source: Path | None, columns: Mapping[str, str]) -> dict[str, Any]:
    visits = imputer.visits_
    return {
        "safeimpute": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "config": imputer.current_config().model_dump(mode="json"),
        "input": {
            "file": source.name if source else None,
            "path": str(source.resolve()) if source else None,
            "columns": dict(columns),
            "sha256": sha256_of(source) if source else None,
            "visits_sha256": visits.fingerprint,
            "rows": visits.rows,
            "merged_rows": visits.merged_rows,
            "dropped_rows": {},
            "ignored_columns": dict(visits.ignored),
        },
    }


def save_json(content: Any, path: Path) -> None:
    """Write a JSON file of its own, whole or not at all."""
    with finished_file(path) as partial:
        write_json(content, partial)
