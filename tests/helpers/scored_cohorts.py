"""A fitted model and visits that came in since, shared by the tests of scoring."""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from safeimpute import SafeImputer
from safeimpute.settings import BestSettings
from safeimpute.visits.examples import simulate

QUICK = BestSettings(folds=3)
TOLERANCE, LEVEL = 0.6, 0.2  # wide enough to release many, narrow enough to withhold some
NEW_SUBJECTS = 10_000_000  # keeps the subjects of a second cohort apart from those of the first
KEYS = ["subject_id", "time"]


def fit_visits(visits: pl.DataFrame, claim: str = "unmeasured", **told: object) -> SafeImputer:
    """A quick fit of HbA1c."""
    given: dict[str, object] = {"target": "hba1c", "tolerance": TOLERANCE, "fdr": LEVEL, "best": QUICK}
    return SafeImputer(**given | {"claim": claim} | told).fit(visits)


@cache
def cohort_of(patients: int) -> pl.DataFrame:
    """Visits that are fitted."""
    return simulate("mimic4", np.random.default_rng(3), patients=patients).visits


def fitted_cohort(claim: str = "unmeasured", patients: int = 250) -> tuple[SafeImputer, pl.DataFrame]:
    """A fit and its table, made once per process: change neither."""
    return _fitted(claim, patients), cohort_of(patients)


@cache
def _fitted(claim: str, patients: int) -> SafeImputer:
    return fit_visits(cohort_of(patients), claim)


@cache
def new_visits(patients: int = 100, seed: int = 99) -> pl.DataFrame:
    """Patients the fit never met, at times it knows."""
    last = cohort_of(250)["time"].max()
    visits = simulate("mimic4", np.random.default_rng(seed), patients=patients).visits
    return visits.with_columns(pl.col("subject_id") + NEW_SUBJECTS).filter(pl.col("time") <= last)


def returning(visits: pl.DataFrame, subjects: range) -> pl.DataFrame:
    """Patients of the fit, each with one more visit shortly after the last, the target not measured there."""
    known = visits.filter(pl.col("subject_id").is_in(list(subjects)))
    again = known.group_by("subject_id", maintain_order=True).last().with_columns(pl.col("time") + 30.0)
    again = again.with_columns(pl.lit(None, pl.Float64).alias("hba1c")).select(known.columns)
    return pl.concat([known, again]).sort(KEYS)


def saved_model(folder: Path, **fit: object) -> Path:
    """The folder of a saved fit."""
    imputer, _ = fitted_cohort(**fit)  # type: ignore[arg-type]
    imputer.save(folder / "model")
    return folder / "model"
