"""Where a saved model is opened: one lab's folder, or a folder with one for each lab and `labs.json`.

Whoever scores goes through here, so that every model is verified, signed where that is asked for, and comes with what
stands of it: silent after an alarm, at its new cut-off after a recalibration. A model kept open asks again at
every score.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.model.betting import BetCalibration
from safeimpute.model.folder import SavedModel, load_model, read_index
from safeimpute.model.frozen import FrozenModel
from safeimpute.model.manifest import MANIFEST
from safeimpute.model.night_log import Event, NightLog
from safeimpute.selection.calibrated import IntervalErrors
from safeimpute.selection.cutoff import Cutoff
from safeimpute.settings import Settings

POINTER = ".nights"  # in a monitored model's folder: where its night log is


@dataclass(frozen=True)
class Recalibration:
    """A cut-off from the night log, and what goes with it."""

    cutoffs: Mapping[int, Cutoff]
    shift: tuple[float, float]  # log odds = first + second x those of the fit
    errors: tuple[float, float]  # log odds of a risky value = first + second x those of the risk
    bet_calibration: BetCalibration
    ratio: tuple[float, ...]  # errors in units of their spread, for intervals
    reached: tuple[float, ...]
    since: float  # day of the first entry it rests on
    last_entry: int  # of the night log when it was made; tests start anew after it
    values: int  # measured ones it rests on

    def to_dict(self) -> Mapping[str, Any]:
        """As the night log keeps it."""
        return asdict(self) | {"cutoffs": {str(group): asdict(each) for group, each in self.cutoffs.items()}}


def from_dict(told: Mapping[str, Any]) -> Recalibration:
    """What `to_dict` gave."""
    kept = {name: tuple(told[name]) for name in ("shift", "errors", "ratio", "reached")}
    cutoffs = {int(group): Cutoff(**each) for group, each in told["cutoffs"].items()}
    return Recalibration(
        **{**told, **kept, "cutoffs": cutoffs, "bet_calibration": BetCalibration(**told["bet_calibration"])}
    )


@dataclass(frozen=True)
class Status:
    """The events of a model, read."""

    alarm: Event | None = None  # that no recalibration has answered
    recalibration: Recalibration | None = None  # the last
    last_event: int = 0

    @property
    def no_promise(self) -> str:
        """Why nothing may be released; empty where no alarm stands."""
        if self.alarm is None:
            return ""
        why = "; ".join(self.alarm.told["found"])
        return (
            f"monitor raised an alarm on {self.alarm.at[:10]} ({why}). Recalibrate from the night log (safeimpute "
            "recalibrate), or fit anew"
        )

    @property
    def first_entry(self) -> int:
        """Entries after this number are tested."""
        return 0 if self.recalibration is None else self.recalibration.last_entry


def status_of(events: Sequence[Event]) -> Status:
    """What the events of a model come to."""
    answered = [each for each in events if each.kind == "recalibrated"]
    last = answered[-1] if answered else None
    open_ = [each for each in events if each.kind == "alarm" and (last is None or each.number > last.number)]
    return Status(
        open_[0] if open_ else None, None if last is None else from_dict(last.told), events[-1].number if events else 0
    )


def watched_by(folder: Path, log: Path) -> bool:
    """Note in a model's folder which night log watches it, so that scoring hears an alarm; False where it cannot."""
    if log_of(folder) == log.resolve():
        return True
    partial = folder / f"{POINTER}.partial"
    try:
        partial.write_text(f"{log.resolve()}\n", encoding="utf-8")
        partial.replace(folder / POINTER)  # whoever scores meanwhile reads it whole
    except OSError:
        return False
    return True


def point_copies(model: Path, folder: Path) -> None:
    """Note the night log that watches a model in every copy of it inside a folder."""
    for place in model_folders(model):
        if log := log_of(place):
            manifest = (place / MANIFEST).read_bytes()
            for copy in folder.rglob(MANIFEST):
                if copy.read_bytes() == manifest:
                    watched_by(copy.parent, log)


def log_of(folder: Path) -> Path | None:
    """The night log that watches the model of a folder, if one does."""
    try:
        return Path((folder / POINTER).read_text(encoding="utf-8").strip())
    except OSError:
        return None


def require_log(folder: Path | None, identity: str, log: NightLog) -> None:
    """Refuse another night log than the one that watches a model, unless that one was moved and this is it.

    An alarm stands in the log that raised it; by any other the model would promise again.
    """
    path = None if folder is None else log_of(folder)
    if path is None or path == log.path.resolve() or (not path.is_file() and log.knows(identity)):
        return
    raise OptionError(
        f"this model is watched by the night log {str(path)!r}, not by {log.path.name!r}, which does not hold what was "
        "found of it. Give that log; where an alarm stands there, recalibrate from it. If it is lost, remove "
        f"{POINTER} from the model's folder."
    )


def status_in(folder: Path, identity: str) -> Status:
    """What the night log that watches a model says, if one does. Raises OptionError where the night log is gone."""
    path = log_of(folder)
    if path is None:
        return Status()
    if not path.is_file():
        raise OptionError(
            f"this model is watched by the night log {path.name!r}, which is not where it was: an alarm could not be "
            f"heard. Put it back, run monitor with it at its new place, or remove {POINTER} from the model's folder."
        )
    return status_of(NightLog(path).events(identity))


def in_force(model: FrozenModel, status: Status) -> FrozenModel:
    """The model as it may be used tonight."""
    found = status.recalibration
    if found is not None:
        model = replace(
            model,
            cutoffs=found.cutoffs,
            shift=found.shift,
            intervals=IntervalErrors(np.array(found.ratio), np.array(found.reached)),
            reference=replace(model.reference, bet_calibration=found.bet_calibration, errors=found.errors),
            no_promise="",
            help="no risk kept the level in the night log either: recalibrate when more values have been measured, or "
            "fit anew."
            if all(each.risk is None for each in found.cutoffs.values())
            else "",
        )
    return replace(model, no_promise=status.no_promise) if status.no_promise else model


@dataclass(frozen=True)
class OpenedLab:
    """One lab's saved model, and what stands of it."""

    saved: SavedModel
    status: Status
    folder: Path  # where it lies, and where a pointer to its night log may stand


@dataclass(frozen=True)
class OpenedModel:
    """What was asked for as a whole, and each lab's model."""

    settings: Settings
    labs: Mapping[str, OpenedLab]


def open_model(folder: str | Path, public_key: str | Path | None = None, status: Status | None = None) -> OpenedModel:
    """Every lab's model in a folder, verified, with what stands of it.

    Parameters
    ----------
    folder : path
        As `SafeImputer.save` wrote it.
    public_key : path, optional
        PEM file of the Ed25519 key by whose owner each model must be signed.
    status : Status, optional
        What stands, where the caller knows it; by default the night log that watches a model is asked.
    """
    labs = {each.saved.settings.target: each for each in open_labs(folder, public_key, status)}
    index = read_index(Path(folder))
    only = next(iter(labs.values())).saved.settings
    return OpenedModel(only if index is None else index[0], labs)


def open_labs(
    folder: str | Path, public_key: str | Path | None = None, status: Status | None = None
) -> Iterator[OpenedLab]:
    """The same, one after the other: who needs one lab at a time keeps one in memory."""
    key = None if public_key is None else Path(public_key)
    for place in model_folders(folder):
        saved = load_model(place, key)
        yield OpenedLab(saved, status_in(place, saved.identity) if status is None else status, place)


def model_folders(folder: str | Path) -> list[Path]:
    """The folder of each lab's model: the folder itself, or those that the index of several labs names."""
    index = read_index(Path(folder))
    return [Path(folder)] if index is None else index[1]
