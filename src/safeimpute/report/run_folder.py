"""A run's folder: results, what was promised, how it came about, what the review page shows; written, and read back.

`run.json` lets the run be repeated on the very same visits. `review/visits.parquet` holds what was measured at the
visits of every patient with an imputation, `review/exploration.json` the outcome of other levels. Single errors stand
nowhere.
"""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import polars as pl

from safeimpute import __version__
from safeimpute.errors import OptionError
from safeimpute.evaluation.drawn_run import DrawnRun, DrawsSummary, TippingQuantity
from safeimpute.evaluation.release_profile import SliderGrid
from safeimpute.evaluation.run_summary import LabsSummary, RunSummary
from safeimpute.machine.files import finished_file, folder_names, sha256_of
from safeimpute.machine.looks_log import is_second_look, look_of
from safeimpute.machine.options import TableFormat, make_table_format
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.arrays import BoolArray, IntArray
from safeimpute.visits.checks import Account
from safeimpute.visits.examples import load_pbc
from safeimpute.visits.files.opened import files_in, open_table
from safeimpute.visits.lab_settings import labs_asked
from safeimpute.visits.tables import write_csv
from safeimpute.visits.units import column_choice
from safeimpute.visits.visits import Visits, prepare_targets

LAB_PREFIX = "lab."  # keeps a lab's name apart from the columns of review/visits.parquet
ROWS_PER_GROUP = 20_000  # small enough that one patient is read from a small part of that file
PACKAGES = ("numpy", "scipy", "torch", "lightgbm", "polars", "pyarrow")


class InputRecord(TypedDict):
    """The visits a run read."""

    file: str | None  # None: bundled, or from memory
    path: str | None
    columns: dict[str, str]  # of the file, renamed when it was read
    format: dict[str, Any]  # how the file is written: dates, decimal mark, separator, units
    sha256: str | None
    visits_sha256: str
    rows: int
    merged_rows: int
    dropped_rows: dict[str, int]
    ignored_columns: dict[str, str]


class Manifest(TypedDict):
    """How a run came about."""

    safeimpute: str
    written: str
    python: str
    packages: dict[str, str]
    platform: str
    config: dict[str, Any]  # every setting, resolved
    input: InputRecord
    second_look: bool


def write_run(
    folder: Path,
    tables: Mapping[str, pl.DataFrame],
    summary: RunSummary | LabsSummary,
    manifest: Manifest,
    in_csv: Mapping[str, pl.DataFrame],
) -> None:
    """Write the results of a run, and how it came about, into a folder that is not finished yet.

    `in_csv` are the tables whose csv has another form, values as labs report them.
    """
    for name, table in tables.items():
        table.write_parquet(folder / f"{name}.parquet")
        write_csv(in_csv.get(name, table), folder / f"{name}.csv")
    write_json(summary, folder / "summary.json")
    write_json(manifest, folder / "run.json")


def write_review(
    folder: Path, visits: Visits, candidates: IntArray, set_aside: Mapping[str, BoolArray], sliders: SliderGrid
) -> None:
    """Write what the review page shows beside the imputations into a folder `review`."""
    (folder / "review").mkdir()
    table = review_visits(visits, candidates, set_aside)
    table.write_parquet(folder / "review" / "visits.parquet", row_group_size=ROWS_PER_GROUP)
    write_json(sliders, folder / "review" / "exploration.json")


def review_visits(visits: Visits, candidates: IntArray, set_aside: Mapping[str, BoolArray]) -> pl.DataFrame:
    """One row per visit of a patient with an imputation; `imputation` is its row in imputations.parquet.

    `set_aside` says, by reason, at which visits a measured target was no input: drawn, but not as used.
    """
    arrays = visits.arrays
    imputation = np.full(len(visits), -1)
    imputation[candidates] = np.arange(len(candidates))
    shown = np.flatnonzero(np.isin(arrays.patient, arrays.patient[candidates]))
    labs = {
        f"{LAB_PREFIX}{name}": pl.Series(arrays.labs[shown, position], dtype=pl.Float32).fill_nan(None)
        for position, name in enumerate(arrays.lab_names)
    }
    return pl.DataFrame(
        {
            "patient": pl.Series(arrays.patient[shown], dtype=pl.Int32).rank("dense") - 1,
            "subject_id": visits.subject[shown],
            "time": visits.time[shown],
            "day": arrays.time[shown],
            "imputation": pl.Series(imputation[shown], dtype=pl.Int32),
            "set_aside": _named(set_aside, len(visits)).gather(shown),
            **labs,
        }
    )


def _named(reasons: Mapping[str, BoolArray], visits: int) -> pl.Series:
    """The reason that holds at each visit; null where none does."""
    named = pl.Series([None], dtype=pl.String).new_from_index(0, visits)
    for reason, there in reasons.items():
        named = pl.select(pl.when(pl.Series(there)).then(pl.lit(reason)).otherwise(named)).to_series()
    return named


def write_json(content: object, path: Path) -> None:
    """Write a JSON file inside a folder that is not finished yet."""
    path.write_text(json.dumps(content, indent=2, allow_nan=False, default=str) + "\n", encoding="utf-8")


def save_json(content: object, path: Path) -> None:
    """Write a JSON file of its own, whole or not at all."""
    with finished_file(path) as partial:
        write_json(content, partial)


def read_summary(folder: Path) -> RunSummary:
    return cast("RunSummary", _read(folder / "summary.json", RunSummary.__required_keys__))


def read_labs_summary(folder: Path) -> LabsSummary:
    return cast("LabsSummary", _read(folder / "summary.json", LabsSummary.__required_keys__))


def places_of_labs(labs: Sequence[str]) -> dict[str, str]:
    """Each lab's own folder inside the folder of a run of several."""
    return {lab: f"labs/{name}" for lab, name in folder_names(tuple(labs)).items()}


def holds_several_labs(folder: Path) -> bool:
    return (folder / "labs").is_dir() and not (folder / "review").exists()


def lab_folders(folder: Path) -> list[Path]:
    """The folders of each lab's results: the run's own, or those inside a run of several labs."""
    if not holds_several_labs(folder):
        return [folder]
    return [folder / line["folder"] for line in read_labs_summary(folder)["labs"].values()]


def read_manifest(folder: Path) -> Manifest:
    return cast("Manifest", _read(folder / "run.json", Manifest.__required_keys__))


def _read(path: Path, needed: frozenset[str]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{path} cannot be read ({type(error).__name__}). Give the folder of a finished run."
        ) from None
    if not isinstance(content, dict) or not needed <= content.keys():
        raise OptionError(f"{path} was not written by this version of safeimpute. Run it again.")
    return content


def write_draws(folder: Path, drawn: DrawnRun) -> DrawsSummary:
    """Write the draws of a run into its folder; the figure is drawn with the others."""
    summary = drawn.summary
    drawn.long.write_parquet(folder / "draws.parquet")
    write_json({"target": drawn.target, "unit": drawn.unit, **summary}, folder / "draws.json")
    if summary["tipping"]:
        write_csv(tipping_table(summary["tipping"]), folder / "tipping.csv")
    for form, table in drawn.completed.items():
        write_csv(table, folder / f"mice_{form}.csv")
    return summary


def tipping_table(found: list[TippingQuantity]) -> pl.DataFrame:
    return pl.DataFrame(
        [{"quantity": each["quantity"], **row} for each in found for row in each["rows"]],
        schema_overrides={"conclusion": pl.String},
    )


@dataclass(frozen=True)
class Origin:
    """Where a run's visits came from, and the run on them that was looked at before."""

    source: Path | None = None  # None: the bundled visits
    columns: Mapping[str, str] = field(default_factory=dict)  # of the source, renamed
    read_as: TableFormat = field(default_factory=TableFormat)  # how the source is written
    earlier: Path | None = None
    account: Account = field(default_factory=Account, compare=False)  # what reading did to the rows

    def read(self, time: str = "time", subject: str = "subject_id") -> pl.DataFrame:
        """The visits; `time` is their column of times, `subject` of patients."""
        if self.source is None:
            return load_pbc()
        opened = open_table(self.source, self.columns, self.read_as, time=time, subject=subject)
        self.account.add(opened.account)
        return opened.frame


def make_manifest(settings: Settings, visits: Visits, origin: Origin, *, second_look: bool) -> Manifest:
    """The manifest of a run on visits that came from an origin."""
    source = origin.source
    return {
        "safeimpute": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "config": asdict(settings),
        "input": {
            "file": source.name if source else None,
            "path": str(source.resolve()) if source else None,
            "columns": dict(origin.columns),
            "format": asdict(origin.read_as),
            "sha256": _sha256_of(source) if source else None,
            "visits_sha256": visits.fingerprint,
            "rows": visits.rows,
            "merged_rows": visits.merged_rows,
            "dropped_rows": dict(origin.account.dropped),
            "ignored_columns": dict(visits.ignored),
        },
        "second_look": second_look,
    }


def _sha256_of(source: Path) -> str:
    """Of a file, or of all files of a folder in their order."""
    if not source.is_dir():
        return sha256_of(source)
    return hashlib.sha256("".join(map(sha256_of, files_in(source))).encode()).hexdigest()


@dataclass(frozen=True)
class EarlierRun:
    """Where the visits came from and how they were imputed."""

    config: dict[str, Any]
    origin: Origin
    fingerprint: str
    second_look: bool  # it promised nothing itself

    def chose_otherwise(self, settings: Settings) -> bool:
        """Whether another run on its visits is a second look: it showed their errors under another choice."""
        told = make_settings(**self.config)
        several = told.target != settings.target  # this is one lab of them
        earlier = replace(told, target=settings.target, best=told.best.resolved(several=several))
        if several:
            earlier = replace(earlier, unit=settings.unit)
        looks = [look_of(vars(each), self.fingerprint, "") for each in (earlier, settings)]
        return self.second_look or is_second_look(looks[:1], looks[1])

    def visits(self) -> pl.DataFrame:
        """The visits again, or an error where they have changed since."""
        source, settings = self.origin.source, make_settings(**self.config)
        if source is not None and not source.exists():
            raise OptionError(
                f"the run's visits are no longer where they were ({source.name!r}). Put the file back, or use "
                "safeimpute run with its new place."
            )
        table = self.origin.read(settings.time, settings.subject)
        labs = labs_asked(settings, table)
        prepared = prepare_targets(table, column_choice(settings), labs).values()
        if self.fingerprint not in [each.fingerprint for each in prepared]:
            raise OptionError("the visits have changed since that run. Use safeimpute run on the new table.")
        return table


def read_earlier_run(folder: Path) -> EarlierRun:
    try:
        manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        source = manifest["input"]
        return EarlierRun(
            config=dict(manifest["config"]),
            origin=Origin(
                Path(source["path"]) if source["path"] else None,
                dict(source["columns"]),
                make_table_format(**source.get("format", {})),
                folder,
            ),
            fingerprint=source["visits_sha256"],
            second_look=bool(manifest["second_look"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise OptionError(
            f"{folder} records no run that can be repeated (run.json). Give the folder of a finished run of this "
            "version."
        ) from None
