"""A made-up run folder as large as a hospital's: 100,000 imputations among 250,000 visits, nothing fitted."""

import json
from pathlib import Path

import numpy as np
import polars as pl

from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.report.run_folder import LAB_PREFIX, ROWS_PER_GROUP, Manifest

IMPUTATIONS, VISITS, PATIENTS, LABS, CARRIERS = 100_000, 250_000, 40_000, 12, 20


def write_large_run(folder: Path, summary: RunSummary, manifest: Manifest) -> Path:
    """Everything the review page reads of a run; `summary` and `manifest` are those of any other run."""
    rng = np.random.default_rng(0)
    (folder / "review").mkdir(parents=True)
    visits = _visits(rng)
    imputations = _imputations(visits.filter(pl.col("imputation") >= 0), rng)
    visits.write_parquet(folder / "review" / "visits.parquet", row_group_size=ROWS_PER_GROUP)
    imputations.write_parquet(folder / "imputations.parquet")
    _why(imputations, rng).write_parquet(folder / "why.parquet")
    released = int(imputations["released"].sum())
    large: RunSummary = {**summary, "missing": IMPUTATIONS, "released": released, "withheld": IMPUTATIONS - released}
    (folder / "summary.json").write_text(json.dumps(large))
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "review" / "exploration.json").write_text("{}")
    return folder


def _visits(rng: np.random.Generator) -> pl.DataFrame:
    patient = np.sort(rng.integers(0, PATIENTS, VISITS))
    imputed = np.sort(rng.choice(VISITS, IMPUTATIONS, replace=False))
    imputation = np.full(VISITS, -1)
    imputation[imputed] = np.arange(IMPUTATIONS)
    day = np.arange(VISITS, dtype=np.float64) * 30
    labs = {f"{LAB_PREFIX}lab{k}": rng.normal(100, 10, VISITS).astype(np.float32) for k in range(LABS)}
    labs[f"{LAB_PREFIX}cholesterol"] = np.where(imputation >= 0, np.nan, rng.normal(300, 50, VISITS)).astype(np.float32)
    names = [f"patient-{number:06d}" for number in range(PATIENTS)]
    ids = pl.Series(names)[patient]
    frame = pl.DataFrame({"patient": pl.Series(patient, dtype=pl.Int32).rank("dense") - 1, "subject_id": ids})
    return frame.with_columns(
        pl.Series("time", day),
        pl.Series("day", day),
        pl.Series("imputation", imputation, dtype=pl.Int32),
        *(pl.Series(name, values).fill_nan(None) for name, values in labs.items()),
    )


def _imputations(at: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    value, risk = rng.normal(300, 60, len(at)), rng.beta(2, 5, len(at))
    released = risk < 0.3
    return at.select("subject_id", "time").with_columns(
        lab=pl.lit("cholesterol"),
        unit=pl.lit("mg/dL"),
        value=pl.Series(value),
        lower=pl.Series(value - 50),
        upper=pl.Series(value + 50),
        risk=pl.Series(risk),
        cutoff=pl.lit(0.3),
        p_value=pl.lit(None, dtype=pl.Float64),
        released=pl.Series(released),
        reason=pl.Series(np.where(released, "", "risk above cut-off")),
    )


def _why(imputations: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    rows = len(imputations) * CARRIERS
    own = np.tile(np.arange(CARRIERS) < 6, len(imputations))
    keys = imputations.select("subject_id", "time")[np.repeat(np.arange(len(imputations)), CARRIERS)]
    return keys.with_columns(
        carried_by=pl.Series(np.where(own, "own visit", "another patient's visit")),
        weight=pl.Series(rng.random(rows) / CARRIERS),
        value=pl.Series(rng.normal(300, 50, rows)),
        gap_days=pl.Series(np.where(own, rng.normal(0, 400, rows), np.nan)).fill_nan(None),
        value_distance=pl.Series(np.where(own, np.nan, rng.random(rows))).fill_nan(None),
        trend_distance=pl.Series(np.where(own, np.nan, rng.random(rows))).fill_nan(None),
    )
