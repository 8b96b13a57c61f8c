"""A finished run as its folder records it, ready to be repeated on the very same visits."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.records.asked import labs_asked
from safeimpute.records.bundled import load_pbc
from safeimpute.records.looks import look_of
from safeimpute.records.tables import read_visits
from safeimpute.records.units import column_choice
from safeimpute.records.visits import prepare_targets
from safeimpute.runtime.looks import is_second_look
from safeimpute.runtime.table_format import TableFormat, make_table_format
from safeimpute.settings import Settings, make_settings


@dataclass(frozen=True)
class EarlierRun:
    """Where the visits came from and how they were imputed."""

    config: dict[str, Any]
    path: Path | None  # None: the bundled visits
    columns: dict[str, str]
    fingerprint: str
    second_look: bool  # it promised nothing itself
    read_as: TableFormat = field(default_factory=TableFormat)

    def chose_otherwise(self, settings: Settings) -> bool:
        """Whether another run on its visits is a second look: it showed their errors under another choice."""
        told = make_settings(**self.config)
        several = told.target != settings.target  # this is one lab of them
        earlier = replace(
            told, target=settings.target, labs=settings.labs, best=told.best.resolved(several=several)
        )
        looks = [look_of(each, self.fingerprint, "") for each in (earlier, settings)]
        return self.second_look or is_second_look(looks[:1], looks[1])

    def visits(self) -> pl.DataFrame:
        """The visits again, or an error where they have changed since."""
        if self.path is not None and not self.path.is_file():
            raise OptionError(
                f"the run's visits are no longer where they were ({self.path.name!r}). Put the file back, or use "
                "safeimpute run with its new place."
            )
        settings, told = make_settings(**self.config), self.read_as
        table = (
            load_pbc()
            if self.path is None
            else read_visits(
                self.path,
                self.columns,
                date_format=told.date_format,
                decimal=told.decimal,
                separator=told.separator,
                unit_of=told.units,
                time=settings.time,
            )
        )
        labs = labs_asked(settings, table)
        prepared = prepare_targets(table, column_choice(settings), labs).values()
        if self.fingerprint not in [each.fingerprint for each in prepared]:
            raise OptionError("the visits have changed since that run. Use safeimpute run on the new table.")
        return table


def read_earlier_run(folder: Path) -> EarlierRun:
    """What `run.json` says about a run."""
    try:
        manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        source = manifest["input"]
        return EarlierRun(
            config=dict(manifest["config"]),
            path=Path(source["path"]) if source["path"] else None,
            columns=dict(source["columns"]),
            fingerprint=source["visits_sha256"],
            second_look=bool(manifest["second_look"]),
            read_as=make_table_format(**source.get("format", {})),
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise OptionError(
            f"{folder} records no run that can be repeated (run.json). Give the folder of a finished run of this "
            "version."
        ) from None
