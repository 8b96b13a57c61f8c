"""What `safeimpute export` starts from: a run's folder with its review, or a scored table with its model."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.records.writers.exported import Exported, Origin, Promise, export_table
from safeimpute.runtime.files import sha256_of

if TYPE_CHECKING:
    from safeimpute.records.catalogue import Catalogue

RECORD = "export.jsonl"  # no suffix that a reader of FHIR would take for a resource


def ready_to_export(
    run: Path,
    model: Path | None,
    catalogue: "Catalogue",
    names: Mapping[str, str],
    *,
    only_accepted: bool,
) -> Exported:
    """The imputations of a run or a scored table, checked and ready to be written."""
    if (run / "run.json").is_file():
        return _of_run(run, catalogue, names, only_accepted=only_accepted)
    if only_accepted:
        raise OptionError("--accepted needs the folder of a run: only a run can be reviewed.")
    if model is None:
        raise OptionError(
            f"{run} is no folder of a finished run. For a scored table, name the model it comes from: --model."
        )
    return _of_scored(run, model, catalogue, names)


def _of_run(
    folder: Path, catalogue: "Catalogue", names: Mapping[str, str], *, only_accepted: bool
) -> Exported:
    from safeimpute.report.run_folder import read_manifest, read_summary
    from safeimpute.web.reviewed import reviewed

    manifest, summary = read_manifest(folder), read_summary(folder)
    path = folder / "imputations.parquet"
    table, identity = _read(path), sha256_of(path)
    origin = Origin(
        version=manifest["safeimpute"],
        table=identity,
        model=_checksum(folder / "model"),
        written=_now(),
        coverage=float(manifest["config"]["interval"]),
        promises=_promises(dict(summary), only_accepted=only_accepted),
    )
    review = reviewed(folder, identity, len(table))
    return export_table(table, origin, catalogue, names=names, review=review, only_accepted=only_accepted)


def _promises(summary: dict[str, Any], *, only_accepted: bool) -> dict[str, Promise]:
    """Of each lab; a subset that a reviewer picked is not what the sentence speaks of, and it says so."""
    from safeimpute.web.export import COVERS_ALL

    of_lab = summary.get("labs") or {summary["target"]: summary}
    found = {}
    for name, said in of_lab.items():
        sentence = said["promise"]
        if sentence and only_accepted:
            sentence = f"{sentence} {COVERS_ALL}"
        found[name] = Promise(sentence, _without_stop(said["no_promise"]))
    return found


def _of_scored(path: Path, model: Path, catalogue: "Catalogue", names: Mapping[str, str]) -> Exported:
    from safeimpute import __version__
    from safeimpute.scoring.scorer import Scorer

    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or any(each.suffix != ".parquet" for each in files):
        raise OptionError(
            f"{path} is no table in parquet form, which alone keeps identifiers and times as they were. Score to a "
            ".parquet file."
        )
    table = pl.concat([_read(each) for each in files])
    scorer = Scorer.load(model)
    _require_own(table, {cutoff.risk for cutoff in scorer.model.cutoffs.values()}, scorer.settings.target)
    said = scorer.promised()
    digests = "".join(sha256_of(each) for each in files)
    origin = Origin(
        version=__version__,
        table=digests if len(files) == 1 else hashlib.sha256(digests.encode()).hexdigest(),
        model=_checksum(model),
        written=_now(),
        coverage=scorer.settings.interval,
        promises={scorer.settings.target: Promise(said.promise, _without_stop(said.no_promise))},
    )
    return export_table(table, origin, catalogue, names=names)


def _require_own(table: pl.DataFrame, cutoffs: set[float | None], target: str) -> None:
    """A table that another model decided would be given the wrong promise."""
    foreign = "lab" not in table.columns or not (table["lab"] == target).all()
    if "cutoff" in table.columns:
        foreign = foreign or not set(table["cutoff"].drop_nulls().unique()) <= cutoffs
    if foreign:
        raise OptionError(
            "the table was not scored by this model: its lab or its cut-offs differ. Check --model."
        )


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise OptionError(f"{path} cannot be read ({type(error).__name__}). Run or score again.") from None


def _checksum(model: Path) -> str:
    """The fitted model's own, as its folder says."""
    try:
        return str(json.loads((model / "model.json").read_text(encoding="utf-8"))["checksum"])
    except (OSError, ValueError, KeyError, TypeError):
        raise OptionError(
            f"{model} holds no readable model: where a value comes from must be told."
        ) from None


def _without_stop(text: str) -> str:
    return text.rstrip(". ")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_record(folder: Path, run: Path, to: str, ready: Exported) -> None:
    """What was exported from where, in one line of JSON."""
    origin = ready.origin
    record = {
        "safeimpute": origin.version,
        "exported_at": origin.written,
        "to": to,
        "run": run.resolve().name,
        "run_sha256": origin.table,
        "model_checksum": origin.model,
        **ready.counts,
        "promises": {name: each.promise.note for name, each in ready.labs.items()},
    }
    (folder / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")


def remember(output: Path, ready: Exported) -> str:
    """Enter the values in the ledger beside the export; returns a warning where that was not possible."""
    from safeimpute.records.writers.released_ledger import record_released

    rows = ready.rows.select(subject_id="subject", lab="lab", value="value", released="given")
    return record_released(output, ready.origin.table, rows)


def carriers(run: Path, source: Path | None, catalogue: "Catalogue", ready: Exported) -> pl.DataFrame | None:
    """The Observations that carried each imputation, where the run was told to keep them and their source is given."""
    if source is None:
        return None
    why = run / "why.parquet"
    if not why.is_file():
        raise OptionError(
            f"{run} does not say what carried its values, so nothing can be named: run with --why."
        )
    from safeimpute.records.writers.derived_from import observations_behind

    return observations_behind(ready, _read(why), source, catalogue)
