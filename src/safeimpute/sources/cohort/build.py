"""Runs a cohort definition on a source and writes visits and record; nothing half-written remains."""

import hashlib
import json
import platform
from datetime import UTC, datetime
from pathlib import Path

import ibis
import ibis.expr.types as ir

from safeimpute import __version__
from safeimpute.errors import OptionError, SourceError
from safeimpute.machine.files import disk_faults, reserved
from safeimpute.machine.places import scratch_folder
from safeimpute.machine.progress import Progress, silent
from safeimpute.sources.cohort import results, visits
from safeimpute.sources.cohort.definition import CohortDefinition
from safeimpute.sources.cohort.results import disease_members
from safeimpute.sources.cohort.summary import PUBLISHED, Accounts, CohortRecord, Found, account, remarks, summarise
from safeimpute.sources.readers import Reader, reader_for
from safeimpute.sources.readers.engine import Budget, Source
from safeimpute.visits.catalogue import Catalogue

ENGINE_MEMORY = 1.5  # GiB


def build_cohort(
    kind: str,
    location: str,
    definition: CohortDefinition,
    out: Path,
    *,
    catalogue: Catalogue,
    force: bool = False,
    memory: float | None = None,
    threads: int | None = None,
    progress: Progress = silent,
) -> CohortRecord:
    """Build the visits table at `out` and its record beside it; returns the record.

    `memory` is what the database engine may use, in GiB (1.5 unless told).
    """
    reader = reader_for(kind)
    record_path = _outputs(out, force=force)
    inputs = () if "://" in location else (Path(location),)
    with (
        reserved(out, force=force, inputs=inputs, folder=False),
        disk_faults(out),
        scratch_folder(out.name, out.parent) as folder,
    ):
        budget = Budget(work=folder, memory=memory or ENGINE_MEMORY, threads=threads)
        source = reader.open_source(location, catalogue, budget)
        try:
            found = _run(source, reader, definition, budget.work / "visits.parquet", progress)
            engine = f"{source.engine.name} {source.engine.version}"
        finally:
            source.close()
        record = _record(kind, source, reader, definition, engine, budget.work / "visits.parquet", found)
        (budget.work / "record.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        _publish(budget.work, out, record_path)
    return record


def _outputs(out: Path, *, force: bool) -> Path:
    """The record's path, after checking that both files may be written."""
    if out.suffix != ".parquet":
        raise OptionError(f"output {out} must end in .parquet.")
    if not out.parent.is_dir():
        raise OptionError(f"folder {out.parent} is not there. Create it first.")
    record_path = out.with_suffix(".cohort.json")
    existing = [str(path) for path in (out, record_path) if path.exists()]
    if existing and not force:
        raise OptionError(f"{' and '.join(existing)} would be overwritten. Use --force, or another name.")
    return record_path


def _publish(work: Path, out: Path, record_path: Path) -> None:
    """The visits appear last: where they are, the record is, and both are whole."""
    out.unlink(missing_ok=True)
    (work / "record.json").replace(record_path)
    (work / "visits.parquet").replace(out)


def _run(source: Source, reader: Reader, definition: CohortDefinition, parquet: Path, progress: Progress) -> Found:
    _require_codes(definition, reader)
    progress("finding the patients of the cohort", 0.0)
    patients = _saved_patients(source, reader.patients(source))
    members = _members(source, reader, definition)
    progress("reading the results, one pass", 0.1)
    listed = reader.results(source, results.wanted_codes(definition, reader.VOCABULARY))
    gathered = source.saved("gathered", results.gather(listed, definition, reader.VOCABULARY, members))
    judged = results.judge(gathered, definition, patients)
    measured = source.saved("measured", results.merge(judged))
    progress("building the visits", 0.7)
    anchors = source.saved(
        "anchors", visits.anchor_visits(measured, definition, _stays(source, reader, definition, members))
    )
    found = source.saved("found", visits.look_back(anchors, measured, definition))
    limits = source.saved("limits", visits.at_visits(anchors, results.limits(judged, definition), definition))
    censored = _visits_by_lab(source, limits)
    counts = account(source, gathered, judged, measured, found)
    _require_targets(definition, counts)
    known_clock = bool(source.rows(measured.agg(known=measured.known.count()))[0]["known"])
    progress("writing the visits", 0.9)
    table = visits.visits_table(
        found, measured, patients, definition, limits, known_clock=known_clock, censored=tuple(censored)
    )
    source.write(table, parquet)
    return {
        "accounts": counts,
        "censored": censored,
        "contacts": _contacts(source, anchors, found),
        "remarks": remarks(source, judged, definition),
        "clocks": ["drawn", "known"] if known_clock else ["drawn"],
        "columns": table.columns,
        "notes": source.notes,
    }


def _require_codes(definition: CohortDefinition, reader: Reader) -> None:
    """A lab the source's vocabulary has no code for would stay empty without a word."""
    missing = [item.name for item in definition.labs if not item.codes_in(reader.VOCABULARY)]
    if missing:
        raise OptionError(
            f"the catalogue has no code of {', '.join(missing)} in {reader.TITLE}. Leave it out, or add the code in a "
            "TOML file: --catalogue."
        )


def _saved_patients(source: Source, patients: ir.Table) -> ir.Table:
    listed = patients.filter(patients.subject_id.notnull()).distinct()
    saved = source.saved("patients", listed)
    repeated = saved.count() - saved.subject_id.nunique()
    if several := source.rows(saved.agg(several=repeated))[0]["several"]:
        raise SourceError(
            f"{source.place} lists {several:,} patients more than once with different sex or birth. "
            "Keep one row per patient."
        )
    return saved


def _members(source: Source, reader: Reader, definition: CohortDefinition) -> ir.Table | None:
    if definition.concept_set is not None or definition.snomed:
        return source.saved("members", disease_members(source, reader, definition))
    if definition.codes is None:
        return None
    return source.saved("members", results.cohort_members(reader.diagnoses(source), definition.codes))


def _stays(source: Source, reader: Reader, definition: CohortDefinition, members: ir.Table | None) -> ir.Table | None:
    if definition.anchors == "target":
        return None
    listed = reader.admissions(source)
    stays = listed.filter(listed.subject_id.notnull(), listed.admitted.notnull())
    undated = source.rows(listed.agg(n=listed.admitted.isnull().sum().cast("int64")))[0]["n"]
    if undated:
        source.notes.append(f"{undated:,} admissions have no possible date and were passed over")
    return stays if members is None else stays.semi_join(members, "subject_id")


def _contacts(source: Source, anchors: ir.Table, found: ir.Table) -> dict[str, int]:
    """How many places for a visit there were, and how many had no lab value to show."""
    places = source.rows(anchors.agg(n=anchors.count()))[0]["n"]
    filled = source.rows(found.select("subject_id", "time").distinct().agg(n=ibis._.count()))[0]["n"]
    return {"anchors": places, "without_any_lab_value": places - filled}


def _visits_by_lab(source: Source, limits: ir.Table) -> dict[str, int]:
    """Visits at which a lab's result was censored."""
    counts = limits.group_by("lab").agg(visits=limits.count())
    return {row["lab"]: row["visits"] for row in source.rows(counts.order_by("lab"))}


def _is_published(definition: CohortDefinition) -> bool:
    other_disease = definition.concept_set is not None or bool(definition.snomed)
    return [item.name for item in definition.targets] == ["hba1c"] and not other_disease


def _require_targets(definition: CohortDefinition, counts: Accounts) -> None:
    for item in definition.targets:
        if not counts["used"].get(item.name):
            _refuse_target(item.name, counts)


def _refuse_target(target: str, counts: Accounts) -> None:
    reasons = counts["set_aside"] | counts["not_relevant"]
    fates = [f"{labs[target]:,} {reason}" for reason, labs in reasons.items() if labs.get(target)]
    raise SourceError(
        f"no usable result of the target {target!r} among {counts['rows']:,} rows "
        f"({'; '.join(fates) or 'its codes do not occur'}). Nothing was written. "
        "Check the target, the units, whose disease it is (--diabetes, --disease) and the window."
    )


def _record(
    kind: str, source: Source, reader: Reader, definition: CohortDefinition, engine: str, parquet: Path, found: Found
) -> CohortRecord:
    labs = tuple(item.name for item in definition.labs)
    with parquet.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "source": {"kind": kind, "title": reader.TITLE, "place": source.place},
        "definition": definition.resolved(reader.VOCABULARY),
        "labs": list(labs),
        "attributes": list(definition.attributes),
        "visits_sha256": digest,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "safeimpute": __version__,
            "ibis": ibis.__version__,
            "engine": engine,
            "python": platform.python_version(),
        },
        "summary": summarise(parquet, labs),
        **found,
        "published": PUBLISHED.get(kind) if _is_published(definition) else None,
    }
