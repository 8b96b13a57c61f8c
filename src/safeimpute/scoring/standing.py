"""What holds tonight: the fit's cut-off, nothing after an alarm, or what a recalibration put in its place."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.scoring.frozen import FrozenModel
from safeimpute.scoring.night_ledger import Event, NightLedger
from safeimpute.selection.betting import Purse
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.intervals import IntervalGround


@dataclass(frozen=True)
class Recalibration:
    """A cut-off from the ledger of nights, and what goes with it."""

    cutoffs: Mapping[int, Cutoff]
    shift: tuple[float, float]  # log odds = first + second x those of the fit
    errors: tuple[float, float]  # log odds of a risky value = first + second x those of the risk
    purse: Purse
    ratio: tuple[float, ...]  # errors in units of their spread, for intervals
    reached: tuple[float, ...]
    since: float  # day of the first entry it rests on
    last_entry: int  # of the ledger when it was made; tests start anew after it
    values: int  # measured ones it rests on

    def told(self) -> dict[str, Any]:
        """As the ledger keeps it."""
        return asdict(self) | {"cutoffs": {str(group): asdict(each) for group, each in self.cutoffs.items()}}


def told_back(told: Mapping[str, Any]) -> Recalibration:
    """What `told` wrote."""
    kept = {name: tuple(told[name]) for name in ("shift", "errors", "ratio", "reached")}
    cutoffs = {int(group): Cutoff(**each) for group, each in told["cutoffs"].items()}
    return Recalibration(**{**told, **kept, "cutoffs": cutoffs, "purse": Purse(**told["purse"])})


@dataclass(frozen=True)
class Standing:
    """The events of a model, read."""

    alarm: Event | None = None  # that no recalibration has answered
    recalibration: Recalibration | None = None  # the last
    last_event: int = 0

    @property
    def first_entry(self) -> int:
        """Entries after this number are tested."""
        return 0 if self.recalibration is None else self.recalibration.last_entry


def standing_of(events: Sequence[Event]) -> Standing:
    """What the events of a model come to."""
    answered = [each for each in events if each.kind == "recalibrated"]
    last = answered[-1] if answered else None
    open_ = [each for each in events if each.kind == "alarm" and (last is None or each.number > last.number)]
    return Standing(
        open_[0] if open_ else None,
        None if last is None else told_back(last.told),
        events[-1].number if events else 0,
    )


POINTER = ".nights"  # in a monitored model's folder: where its ledger is


def watched_by(folder: Path, ledger: Path) -> bool:
    """Note in a model's folder which ledger watches it, so that scoring hears an alarm; False where it cannot."""
    try:
        (folder / POINTER).write_text(f"{ledger.resolve()}\n", encoding="utf-8")
    except OSError:
        return False
    return True


def standing_in(folder: Path, identity: str) -> Standing | None:
    """What the ledger that watches a model says; None where nobody watches it. Raises OptionError where it is gone."""
    try:
        path = Path((folder / POINTER).read_text(encoding="utf-8").strip())
    except OSError:
        return None
    if not path.is_file():
        raise OptionError(
            f"this model is watched by the ledger {path.name!r}, which is not where it was: an alarm could not be "
            f"heard. Put it back, run monitor with it at its new place, or remove {POINTER} from the model's folder."
        )
    return standing_of(NightLedger(path).events(identity))


def in_force(model: FrozenModel, standing: Standing) -> FrozenModel:
    """The model as it may be used tonight."""
    found = standing.recalibration
    if found is not None:
        model = replace(
            model,
            cutoffs=found.cutoffs,
            shift=found.shift,
            intervals=IntervalGround(np.array(found.ratio), np.array(found.reached)),
            reference=replace(model.reference, purse=found.purse, errors=found.errors),
            no_promise="",
            help="no risk kept the level in the ledger either: recalibrate when more values have been measured, or "
            "fit anew."
            if all(each.risk is None for each in found.cutoffs.values())
            else "",
        )
    if standing.alarm is not None:
        why = "; ".join(standing.alarm.told["found"])
        model = replace(
            model,
            no_promise=f"monitor raised an alarm on {standing.alarm.at[:10]} ({why}). Recalibrate from the ledger "
            "(safeimpute recalibrate), or fit anew",
        )
    return model
