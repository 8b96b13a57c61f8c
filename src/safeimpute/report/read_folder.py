"""Reading a finished run's folder back, or saying what is wrong with it."""

import json
from pathlib import Path
from typing import Any, cast

from safeimpute.errors import OptionError
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.evaluation.several_summary import LabsSummary
from safeimpute.report.manifest import Manifest


def read_summary(folder: Path) -> RunSummary:
    """The summary of a run of this version."""
    return cast("RunSummary", _read(folder / "summary.json", RunSummary.__required_keys__))


def read_labs_summary(folder: Path) -> LabsSummary:
    """The summary of a run of several labs, of this version."""
    return cast("LabsSummary", _read(folder / "summary.json", LabsSummary.__required_keys__))


def holds_several_labs(folder: Path) -> bool:
    """Whether a run's folder is one of several labs."""
    return (folder / "labs").is_dir() and not (folder / "review").exists()


def lab_folders(folder: Path) -> list[Path]:
    """The labs' own folders in a run of several labs."""
    return [folder / line["folder"] for line in read_labs_summary(folder)["labs"].values()]


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
