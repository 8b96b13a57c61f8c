"""What a process that scores is told, as it crosses from parent to child: plain JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safeimpute.runtime.table_format import TableFormat, make_table_format


@dataclass(frozen=True)
class ScoreJob:
    """What a child is told."""

    model: Path
    visits: Path
    out: Path
    columns: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    read_as: TableFormat = field(default_factory=TableFormat)
    engine: str = "local"
    public_key: Path | None = None
    ledger: Path | None = None  # of nights
    force: bool = False

    def as_json(self, out: Path) -> str:
        told = asdict(self) | {name: str(getattr(self, name).absolute()) for name in ("model", "visits")}
        for name in ("public_key", "ledger"):
            place = getattr(self, name)
            told[name] = None if place is None else str(place.absolute())
        return json.dumps(told | {"out": str(out.absolute())})

    @classmethod
    def from_json(cls, text: str) -> "ScoreJob":
        told = json.loads(text)
        paths: dict[str, Any] = {name: Path(told[name]) for name in ("model", "visits", "out")}
        for name in ("public_key", "ledger"):
            paths[name] = None if told[name] is None else Path(told[name])
        read_as = make_table_format(**told["read_as"])
        return cls(**told | paths | {"read_as": read_as, "without": tuple(told["without"])})
