"""Values on their way out: those a reviewer accepted, or a run's or a scored table's, with what is promised of them."""

import hashlib
import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.machine.files import sha256_of
from safeimpute.report.run_folder import read_manifest, read_summary
from safeimpute.sources.writers import exported
from safeimpute.sources.writers.exported import Exported, Origin, Promise, export_table
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute.visits.tables import write_csv
from safeimpute.web.decisions import ACCEPTED, REJECTED, DecisionLog, ReviewState, log_beside
from safeimpute.web.run_data import RunData

if TYPE_CHECKING:
    from safeimpute.visits.catalogue import Catalogue

Format = Literal["csv", "parquet"]
COLUMNS = (
    *("subject_id", "time", "lab", "unit", "value", "lower", "upper"),
    *("risk", "cutoff", "p_value", "released"),
)
COVERS_ALL = "The promise covers all released values together, not this accepted subset."
NO_GUARANTEE = "Second look at the same visits: no guarantee."
WORDS = {ACCEPTED: exported.ACCEPTED, REJECTED: exported.REJECTED}
RECORD = "export.jsonl"  # no suffix that a reader of FHIR would take for a resource


def export_note(run: RunData) -> str:
    return COVERS_ALL if run.guaranteed else NO_GUARANTEE


def accepted_values(run: RunData, state: ReviewState) -> pl.DataFrame:
    """One row per accepted imputation: the value, who accepted it when, and every comment on it."""
    accepted = run.imputations.filter(state.marks() == ACCEPTED)
    said = pl.DataFrame(
        [_last_word(state, number) for number in accepted["imputation"]],
        schema={"accepted_by": pl.String, "accepted_at": pl.String, "comments": pl.String},
        orient="row",
    )
    return accepted.select(COLUMNS).hstack(said).with_columns(pl.lit(export_note(run)).alias("note"))


def _last_word(state: ReviewState, imputation: int) -> tuple[str, str, str]:
    """Who decided last about an imputation, when, and every comment on it."""
    status = state.in_force(imputation)
    last = [row for row in status if row.kind in ("accept", "reject")][-1]
    return last.reviewer, last.at, "; ".join(f"{row.reviewer}: {row.comment}" for row in status if row.comment)


def export_bytes(table: pl.DataFrame, kind: Format) -> bytes:
    buffer = io.BytesIO()
    if kind == "csv":
        write_csv(table, buffer)
    else:
        table.write_parquet(buffer)
    return buffer.getvalue()


def reviewed(folder: Path, identity: str, imputations: int) -> pl.DataFrame | None:
    """The decisions that stand, from the log beside a run's folder; None where nobody reviewed it."""
    path = log_beside(folder.resolve())
    if not path.is_file():
        return None
    state = ReviewState(DecisionLog(path, identity), imputations)
    marks = state.marks()
    undecided = (None,) * len(exported.REVIEW)
    rows = [(WORDS[mark], *_last_word(state, number)) if mark else undecided for number, mark in enumerate(marks)]
    return pl.DataFrame(rows, schema=exported.REVIEW, orient="row")


def ready_to_export(
    run: Path, model: Path | None, catalogue: "Catalogue", names: Mapping[str, str], *, only_accepted: bool
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


def _of_run(folder: Path, catalogue: "Catalogue", names: Mapping[str, str], *, only_accepted: bool) -> Exported:
    manifest, summary = read_manifest(folder), read_summary(folder)
    path = folder / "imputations.parquet"
    table, identity = _read(path), sha256_of(path)
    origin = Origin(
        version=manifest["safeimpute"],
        table=identity,
        model=_checksum(folder / "model"),
        written=_now(),
        coverage=float(manifest["config"]["interval"]),
        promises={summary["target"]: _promise(summary, only_accepted=only_accepted)},
        classes=_classes(summary["target"], parse_tolerance(summary["tolerance"])),
    )
    review = reviewed(folder, identity, len(table))
    return export_table(table, origin, catalogue, names=names, review=review, only_accepted=only_accepted)


def _classes(target: str, tolerance: Tolerance) -> dict[str, Tolerance]:
    return {target: tolerance} if tolerance.levels else {}


def _promise(summary: RunSummary, *, only_accepted: bool) -> Promise:
    """A subset that a reviewer picked is not what the sentence speaks of, and it says so."""
    sentence = summary["promise"]
    if sentence and only_accepted:
        sentence = f"{sentence} {COVERS_ALL}"
    return Promise(sentence, _without_stop(summary["no_promise"]))


def _of_scored(path: Path, model: Path, catalogue: "Catalogue", names: Mapping[str, str]) -> Exported:
    from safeimpute import __version__
    from safeimpute.model.scorer import Scorer

    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or any(each.suffix != ".parquet" for each in files):
        raise OptionError(
            f"{path} is no table in parquet form, which alone keeps identifiers and times as they were. Score to a "
            ".parquet file."
        )
    table = pl.concat([_read(each) for each in files])
    scorer = Scorer.load(model).one
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
        classes=_classes(scorer.settings.target, scorer.settings.allowed_error),
    )
    return export_table(table, origin, catalogue, names=names)


def _require_own(table: pl.DataFrame, cutoffs: set[float | None], target: str) -> None:
    """A table that another model decided would be given the wrong promise."""
    foreign = "lab" not in table.columns or not (table["lab"] == target).all()
    if "cutoff" in table.columns:
        foreign = foreign or not set(table["cutoff"].drop_nulls().unique()) <= cutoffs
    if foreign:
        raise OptionError("the table was not scored by this model: its lab or its cut-offs differ. Check --model.")


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
        raise OptionError(f"{model} holds no readable model: where a value comes from must be told.") from None


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
    """Enter the values in the release register beside the export; returns a warning where that was not possible."""
    from safeimpute.visits.imputations import record_released

    rows = ready.rows.select("time", "lab", "value", subject_id="subject", released="given")
    return record_released(output, ready.origin.table, rows)


def carriers(run: Path, source: Path | None, catalogue: "Catalogue", ready: Exported) -> pl.DataFrame | None:
    """The Observations that carried each imputation, where the run was told to keep them and their source is given."""
    if source is None:
        return None
    why = run / "why.parquet"
    if not why.is_file():
        raise OptionError(f"{run} does not say what carried its values, so nothing can be named: run with --why.")
    from safeimpute.sources.writers.fhir import observations_behind

    return observations_behind(ready, _read(why), source, catalogue)
