"""A model for nights, and months that follow its fit: shared by the tests of night log, monitor and recalibration."""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from helpers.scored_cohorts import fit_visits
from safeimpute import SafeImputer
from safeimpute.visits.examples import simulate

CUT = 1_300.0  # last day of the fit


@cache
def hospital(patients: int = 500) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All visits, and the truth at them."""
    made = simulate("mimic4", np.random.default_rng(8), patients=patients)
    return made.visits, made.truth


def before() -> pl.DataFrame:
    """What the fit saw."""
    return hospital()[0].filter(pl.col("time") <= CUT)


def months(count: float = 12.0) -> pl.DataFrame:
    """The records so many months after the fit."""
    return hospital()[0].filter(pl.col("time") <= CUT + 30.4 * count)


def elsewhere(number: int, count: float = 36.0, patients: int = 500) -> pl.DataFrame:
    """So many months of a hospital like the fit's, all of its patients new."""
    made = simulate("mimic4", np.random.default_rng(100 + number), patients=patients).visits
    made = made.filter(pl.col("time") <= CUT + 30.4 * count)
    return made.with_columns(pl.col("subject_id") + 1_000_000 * (number + 1))


def drifted(visits: pl.DataFrame, day: float, sd: float = 1.5) -> pl.DataFrame:
    """Measured targets scatter more from a day on."""
    noise = np.random.default_rng(1).normal(0, sd, len(visits)) * (visits["time"].to_numpy() > day)
    return visits.with_columns((pl.col("hba1c") + pl.Series(noise)).clip(4, 16))


def below_a_limit(visits: pl.DataFrame, share: float = 0.3) -> pl.DataFrame:
    """The lowest measured targets are known only to lie below a limit."""
    limit = round(float(before()["hba1c"].quantile(share) or 0.0), 2)
    text = pl.when(pl.col("hba1c") < limit).then(pl.lit(f"<{limit}")).otherwise(pl.col("hba1c").cast(pl.String))
    return visits.with_columns(hba1c=text)


@cache
def fitted() -> SafeImputer:
    """Fitted once per process; level and tolerance at which something is released."""
    return fit_visits(before(), "later", fdr=0.25, tolerance=0.8)


def saved(folder: Path) -> Path:
    """Its folder."""
    fitted().save(folder / "model")
    return folder / "model"
