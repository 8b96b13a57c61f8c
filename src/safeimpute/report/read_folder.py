"""Reading a finished run's folder back, or saying what is wrong with it."""

import json
from pathlib import Path
from typing import Any, cast

from safeimpute.errors import OptionError
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.report.manifest import Manifest


def read_summary(folder: Path) -> RunSummary:
    """The summary of a run of this version."""
    return cast("RunSummary", _read(folder / "summary.json", RunSummary.__required_keys__))


def read_manifest(folder: Path) -> Manifest:
    """How a run of this version came about."""
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
