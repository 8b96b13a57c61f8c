"""A fitted model for new patients and visits that came in since, shared by the tests of scoring."""

from pathlib import Path

import numpy as np
import polars as pl

from safeimpute import SafeImputer
from safeimpute.records.simulate import simulate
from safeimpute.systems.best.attention import AttentionSettings
from safeimpute.systems.best.blend import BlendSettings
from safeimpute.systems.presets import BestSettings

QUICK = BestSettings(BlendSettings(folds=2, attention=AttentionSettings(epochs=2)))
TOLERANCE, LEVEL = 1.0, 0.3
NEW_SUBJECTS = 10_000_000  # keeps the subjects of a second cohort apart from those of the first


def fitted_cohort(
    claim: str = "patients,unmeasured", patients: int = 1400
) -> tuple[SafeImputer, pl.DataFrame]:
    visits = simulate("mimic4", np.random.default_rng(3), patients=patients).visits
    imputer = SafeImputer(target="hba1c", tolerance=TOLERANCE, fdr=LEVEL, claim=claim, best=QUICK)
    return imputer.fit(visits), visits


def new_visits(patients: int = 300, seed: int = 99) -> pl.DataFrame:
    visits = simulate("mimic4", np.random.default_rng(seed), patients=patients).visits
    return visits.with_columns(pl.col("subject_id") + NEW_SUBJECTS)


def saved_model(folder: Path, **fit: object) -> Path:
    imputer, _ = fitted_cohort(**fit)  # type: ignore[arg-type]
    imputer.save(folder / "model")
    return folder / "model"
