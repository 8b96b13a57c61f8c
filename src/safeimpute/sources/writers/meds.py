"""MEDS 0.4: imputations as events with codes of their own, in a data set of its own; withheld values are no events."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from safeimpute.errors import OptionError
from safeimpute.sources.writers.exported import Exported, in_utc, whole_ids
from safeimpute.visits import marks

VERSION = "0.4.0"
EXTENSIONS = ("safeimpute_value", "safeimpute_lower", "safeimpute_upper", "safeimpute_risk")
NO_GUARANTEE = "imputed, no guarantee"
EVENTS = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us")),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
        pa.field("text_value", pa.large_string()),
        *(pa.field(name, pa.float64()) for name in EXTENSIONS),
    ]
)
CODES = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("description", pa.string()),
        pa.field("parent_codes", pa.list_(pa.string())),
    ]
)


def write_meds(folder: Path, export: Exported) -> None:
    """Write `data/` and `metadata/` into an unfinished folder."""
    if worded := [name for name, each in export.labs.items() if each.classes and each.classes.words]:
        raise OptionError(
            f"the values of {worded[0]!r} are words, and a MEDS event of ours holds a number. Export them as fhir or "
            "omop, or run with the classes as numbers (class 0<1)."
        )
    (folder / "data").mkdir()
    (folder / "metadata").mkdir()
    pq.write_table(_events(export), folder / "data" / "0.parquet")
    pq.write_table(_codes(export), folder / "metadata" / "codes.parquet")
    about = json.dumps(_about(export), indent=2) + "\n"
    (folder / "metadata" / "dataset.json").write_text(about, encoding="utf-8")


def _events(export: Exported) -> pa.Table:
    """Sorted by patient and time; the 32-bit value the standard asks for, and the whole one beside it."""
    given = export.rows.filter("given")
    doubtful = [name for name, each in export.labs.items() if not each.promise.sentence]
    events = given.select(
        subject_id=whole_ids(given["subject"], "subject_id"),
        time=in_utc(given["time"]),
        code=pl.col("lab").replace_strict(_codes_of(export), return_dtype=pl.String),
        numeric_value=pl.col("value").cast(pl.Float32),
        text_value=pl.when(pl.col("lab").is_in(doubtful)).then(pl.lit(NO_GUARANTEE)),
        safeimpute_value="value",
        safeimpute_lower="lower",
        safeimpute_upper="upper",
        safeimpute_risk="risk",
    )
    return events.sort("subject_id", "time", "code").to_arrow().cast(EVENTS)


def _codes_of(export: Exported) -> dict[str, str]:
    return {name: f"{marks.LAB}{name}//{each.lab.unit}" for name, each in export.labs.items()}


def _codes(export: Exported) -> pa.Table:
    rows = []
    for name, code in _codes_of(export).items():
        coded = export.labs[name]
        parents = [f"LOINC/{each}" for each in coded.lab.codes_in("loinc")[:1]]
        description = f"{coded.lab.title}, imputed by safeimpute, not measured. {coded.promise.note}"
        rows.append({"code": code, "description": description, "parent_codes": parents})
    return pa.Table.from_pylist(rows, schema=CODES)


def _about(export: Exported) -> dict[str, object]:
    origin = export.origin
    return {
        "dataset_name": "safeimpute imputations",
        "dataset_version": origin.table[:16],
        "etl_name": "safeimpute",
        "etl_version": origin.version,
        "meds_version": VERSION,
        "created_at": origin.written,
        "other_extension_columns": list(EXTENSIONS),
    }
