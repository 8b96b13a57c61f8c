"""A run's folder as the review page reads it: imputations in memory, a patient's visits from disk when asked for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.evaluation.release_profile import SliderGrid
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.machine.files import sha256_of
from safeimpute.report.run_folder import LAB_PREFIX, Manifest, read_manifest, read_summary
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.examples import PBC_UNITS


@dataclass(frozen=True)
class RunData:
    """One finished run."""

    folder: Path
    identity: str  # SHA-256 of imputations.parquet: decisions about another table of imputations do not count here
    imputations: pl.DataFrame  # as written, with the patient's number and plain text for identifier and time
    summary: RunSummary
    manifest: Manifest
    exploration: SliderGrid
    whole: Path | None = None  # the run's folder, where this is one lab of several

    @property
    def guaranteed(self) -> bool:
        return not self.summary["no_promise"]

    @property
    def beside(self) -> Path:
        """The folder beside which new runs are put."""
        return self.folder if self.whole is None else self.whole.with_name(f"{self.whole.name}-{self.folder.name}")

    @property
    def visits_file(self) -> Path:
        return self.folder / "review" / "visits.parquet"

    @property
    def why_file(self) -> Path:
        return self.folder / "why.parquet"

    def unit_of(self, lab: str) -> str | None:
        if lab == self.summary["target"]:
            return self.summary["unit"]
        if self.manifest["input"]["path"] is None:
            return PBC_UNITS.get(lab)
        known = load_catalogue().labs.get(lab)
        return known.unit if known else None


def read_run(folder: Path, whole: Path | None = None) -> RunData:
    """Read a finished run, or one lab's part of the `whole`, or say what is missing."""
    try:
        imputations = pl.read_parquet(folder / "imputations.parquet")
        summary, manifest = read_summary(folder), read_manifest(folder)
        exploration = json.loads((folder / "review" / "exploration.json").read_text(encoding="utf-8"))
        beside = _beside_each(folder / "review" / "visits.parquet", summary["target"], len(imputations))
    except (OSError, ValueError, OptionError, pl.exceptions.PolarsError) as error:
        raise OptionError(
            f"{folder} cannot be reviewed ({type(error).__name__}): it is no finished run of this version. Give the "
            "folder of a run or demo, or run it again."
        ) from None
    plain = imputations.with_columns(
        *beside,
        pl.col("subject_id").cast(pl.String).alias("subject"),
        pl.col("time").cast(pl.String).alias("time_text"),
        *(_finite(name) for name in ("value", "lower", "upper", "risk", "cutoff", "p_value")),
    ).with_row_index("imputation")
    identity = sha256_of(folder / "imputations.parquet")
    return RunData(folder, identity, plain, summary, manifest, cast("SliderGrid", exploration), whole)


def _finite(name: str) -> pl.Expr:
    """An interval without bounds has none to draw, and JSON has no word for infinity."""
    return pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name)


def _beside_each(visits: Path, target: str, imputations: int) -> tuple[pl.Series, pl.Series]:
    """Of every imputation: the patient's number, and the days to the nearest own measured value that was an input."""
    there, lab = pl.read_parquet_schema(visits), f"{LAB_PREFIX}{target}"
    wanted = [name for name in ("patient", "imputation", "day", "set_aside", lab) if name in there]
    table = pl.read_parquet(visits, columns=wanted).sort("day")
    missing = table.filter(pl.col("imputation") >= 0)
    if len(missing) != imputations or lab not in wanted:
        raise ValueError("visits and imputations do not belong together")
    used = pl.col(lab).is_not_null() & (pl.col("set_aside").is_null() if "set_aside" in wanted else True)
    measured = table.filter(used).select("patient", "day", pl.col("day").alias("measured_on"))
    nearest = missing.join_asof(measured, on="day", by="patient", strategy="nearest", check_sortedness=False)
    each = nearest.sort("imputation")
    return each["patient"], (each["day"] - each["measured_on"]).abs().alias("nearest")


def lab_names(visits: pl.DataFrame) -> list[str]:
    return [name.removeprefix(LAB_PREFIX) for name in visits.columns if name.startswith(LAB_PREFIX)]
