"""`run.json`: everything needed to know how a run came about, and to repeat it."""

import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

from safeimpute import __version__
from safeimpute.records.visits import Visits
from safeimpute.runtime.files import sha256_of
from safeimpute.runtime.table_format import TableFormat
from safeimpute.settings import Settings

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


def make_manifest(
    settings: Settings,
    visits: Visits,
    source: Path | None,
    columns: Mapping[str, str],
    *,
    second_look: bool,
    read_as: TableFormat | None = None,
) -> Manifest:
    """The manifest of a run on visits that came from `source`, its columns renamed by `columns`."""
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
            "columns": dict(columns),
            "format": asdict(read_as or TableFormat()),
            "sha256": sha256_of(source) if source else None,
            "visits_sha256": visits.fingerprint,
            "rows": visits.rows,
            "merged_rows": visits.merged_rows,
            "dropped_rows": {},
            "ignored_columns": dict(visits.ignored),
        },
        "second_look": second_look,
    }
