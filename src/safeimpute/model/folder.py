"""A fitted model on disk: safetensors, JSON and parquet, checksummed, loaded without running any code.

One lab is one folder; of several each has its own, and an index (`labs.json`) names them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from safeimpute import __version__
from safeimpute.errors import GuaranteeRefused, InputError, ModelFolderError
from safeimpute.learning.best.system import FrozenBest
from safeimpute.learning.protocol import Estimates
from safeimpute.machine.files import finished_folder, folder_names, sha256_of
from safeimpute.machine.state import Arrays, Plain, from_state, state_of
from safeimpute.model.frozen import FrozenModel, Reference
from safeimpute.model.manifest import (
    MANIFEST,
    STATE,
    TENSORS,
    Facts,
    Manifest,
    ScoringFacts,
    verified_manifest,
    write_manifest,
)
from safeimpute.model.validation import require_valid, require_visit_arrays
from safeimpute.selection.calibrated import Calibrated, IntervalErrors, late_results
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.groups import Grouping, Merged
from safeimpute.selection.measuring.model import MeasuringModel
from safeimpute.selection.questions import question_for
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.new_visits import Reading

T = TypeVar("T")
INDEX, FORMAT = "labs.json", 1


@dataclass(frozen=True)
class SavedModel:
    """What a model folder holds."""

    manifest: Manifest
    settings: Settings
    reading: Reading
    tensors: Arrays
    plain: Plain

    @property
    def fingerprint(self) -> str:
        """Of the visits it was fitted on."""
        return str(self.manifest["visits_sha256"])

    @property
    def identity(self) -> str:
        """The manifest's checksum, by which a night log knows the model."""
        return str(self.manifest["checksum"])

    @property
    def looked(self) -> bool:
        """Its release was seen: the levels are fixed."""
        return bool(self.manifest["looked"])

    def calibrated(self, visits: VisitArrays) -> Calibrated:
        """The fitted state beside the visits it was fitted on."""
        tensors, settings = self.tensors, self.settings
        learnt_for = settings.allowed_error if settings.preset == "best" else None
        estimates = Estimates(
            value=tensors["visit.value"],
            risk=tensors["visit.risk"],
            spread=tensors["visit.spread"],
            no_evidence=tensors["visit.no_evidence"].astype(bool),
            learnt_for=learnt_for,
            above=tensors.get("visit.above"),
        )
        names = self.manifest["outside"]
        outside = {name: tensors["visit.outside"][:, k].astype(bool) for k, name in enumerate(names)}
        return Calibrated(
            question=question_for(visits, settings),
            truth=visits.target_values,
            estimates=estimates,
            weight=tensors["visit.weight"],
            outside=outside,
            shown=Grouping.from_state(self.manifest["shown"]),
            measuring=self.measuring(),
            grouping=self._grouping(),
            risk_cap=settings.risk_cap,
            late=late_results(visits, settings),
        )

    def frozen(self) -> FrozenModel:
        """What scores new visits."""
        facts = self.manifest["scoring"]
        if facts is None:
            raise GuaranteeRefused(
                f"this model was fitted with the preset {self.settings.preset!r}, which cannot score new visits: its "
                "network knows only the visits of the graph it was trained on. Fit the preset 'best'."
            )
        model = _read_as_ours(STATE, lambda: self._frozen(facts))
        require_valid(model, self.reading)
        return model

    def _frozen(self, facts: ScoringFacts) -> FrozenModel:
        plausible = facts["plausible"]
        return FrozenModel(
            system=FrozenBest.from_state(self._named("system."), self.plain["system"]),
            measuring=self.measuring(),
            cutoffs={int(group): Cutoff(**each) for group, each in facts["cutoffs"].items()},
            intervals=IntervalErrors(self.tensors["interval.ratio"], self.tensors["interval.reached"]),
            plausible=None if plausible is None else (plausible[0], plausible[1]),
            past_only=facts["past_only"],
            calendar=facts["calendar"],
            coverage=facts["coverage"],
            no_promise=facts["no_promise"],
            grouping=self._grouping(),
            merged=_merged(facts["groups"]),
            risk_cap=self.settings.risk_cap,
            shown=Grouping.from_state(self.manifest["shown"]),
            reference=from_state(Reference, self._named("reference."), self.plain["reference"]),
            help=facts["help"],
            since=facts["since"],
            until=facts["until"],
        )

    def _grouping(self) -> Grouping | None:
        stored = self.manifest["grouping"]
        return None if stored is None else Grouping.from_state(stored)

    def measuring(self) -> MeasuringModel | None:
        """Who gets measured, as far as it was learnt."""
        stored = self.plain.get("measuring")
        return None if stored is None else MeasuringModel.from_state(self._named("measuring."), stored)

    def _named(self, start: str) -> Arrays:
        """Arrays whose names begin so, without that beginning."""
        return {name.removeprefix(start): each for name, each in self.tensors.items() if name.startswith(start)}


@dataclass(frozen=True)
class ModelParts:
    """What is written: the fitted table's state, and what scores new visits where the preset can."""

    settings: Settings
    unit: str | None
    reading: Reading
    fingerprint: str
    patients: int
    calibrated: Calibrated
    seconds: dict[str, float]
    network: Arrays
    frozen: FrozenModel | None
    looked: bool
    second_look: bool
    key_file: Path | None = None  # to sign with


def save_model(folder: Path, parts: ModelParts) -> None:
    """Write the folder whole or not at all."""
    tensors, plain, frozen = _visit_tensors(parts), {}, parts.frozen
    if frozen is not None:
        arrays, plain["system"] = frozen.system.state()
        tensors |= {f"system.{name}": array for name, array in arrays.items()}
        tensors |= {"interval.ratio": frozen.intervals.ratio, "interval.reached": frozen.intervals.reached}
        arrays, plain["reference"] = state_of(frozen.reference)
        tensors |= {f"reference.{name}": array for name, array in arrays.items()}
        if frozen.measuring is not None:
            arrays, plain["measuring"] = frozen.measuring.state()
            tensors |= {f"measuring.{name}": array for name, array in arrays.items()}
    facts: Facts = {
        "settings": asdict(parts.settings),
        "unit": parts.unit,
        "visits_sha256": parts.fingerprint,
        "fitted_on": {"visits": len(parts.calibrated.truth), "patients": parts.patients},
        "reading": _stored_reading(parts.reading),
        "seconds": parts.seconds,
        "outside": list(parts.calibrated.outside),
        "looked": parts.looked,
        "second_look": parts.second_look,
        "grouping": None if parts.calibrated.grouping is None else parts.calibrated.grouping.state(),
        "shown": parts.calibrated.shown.state(),
        "scoring": None if frozen is None else _scoring_facts(frozen),
    }
    with finished_folder(folder, force=False) as partial:
        _write(partial, facts, tensors, plain, parts.key_file)


def save_models(folder: Path, settings: Settings, parts: Mapping[str, ModelParts]) -> None:
    """Write every lab's model, whole or not at all: one lab as the folder itself, several inside it."""
    if settings.target in parts:
        return save_model(folder, parts[settings.target])
    names = folder_names(tuple(parts))
    with finished_folder(folder, force=False) as partial:
        for lab, name in names.items():
            save_model(partial / name, parts[lab])
        index = {
            "format": FORMAT,
            "safeimpute": __version__,
            "settings": asdict(settings),
            "labs": {
                lab: {"folder": name, "sha256": sha256_of(partial / name / MANIFEST)} for lab, name in names.items()
            },
        }
        (partial / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return None


def save_calibrated(
    folder: Path, saved: SavedModel, frozen: FrozenModel, told: Mapping[str, Any], *, force: bool = False
) -> None:
    """Write a model with another calibration: what it learnt stays as it was; `told` says on what it rests."""
    arrays, reference = state_of(frozen.reference)
    tensors = saved.tensors | {f"reference.{name}": array for name, array in arrays.items()}
    tensors |= {"interval.ratio": frozen.intervals.ratio, "interval.reached": frozen.intervals.reached}
    facts = cast(Facts, {name: each for name, each in saved.manifest.items() if name in Facts.__annotations__})
    facts |= {"scoring": _scoring_facts(frozen), "calibrated_on": told, "looked": True}
    with finished_folder(folder, force=force) as partial:
        _write(partial, facts, tensors, saved.plain | {"reference": reference})


def _visit_tensors(parts: ModelParts) -> Arrays:
    """What `impute` needs when the model meets its own table again."""
    estimates, calibrated = parts.calibrated.estimates, parts.calibrated
    tensors = {f"network.{name}": array for name, array in parts.network.items()}
    if estimates.above is not None and estimates.above.shape[1]:
        tensors["visit.above"] = estimates.above
    return tensors | {
        "visit.value": estimates.value,
        "visit.risk": estimates.risk,
        "visit.spread": estimates.spread,
        "visit.no_evidence": estimates.no_evidence.astype(np.uint8),
        "visit.weight": calibrated.weight,
        "visit.outside": np.column_stack(list(calibrated.outside.values())).astype(np.uint8),
    }


def _scoring_facts(frozen: FrozenModel) -> ScoringFacts:
    return {
        "plausible": frozen.plausible,
        "past_only": frozen.past_only,
        "calendar": frozen.calendar,
        "coverage": frozen.coverage,
        "no_promise": frozen.no_promise,
        "help": frozen.help,
        "since": frozen.since,
        "until": frozen.until,
        "cutoffs": {str(group): asdict(cutoff) for group, cutoff in frozen.cutoffs.items()},
        "groups": None if frozen.merged is None else {str(k): v for k, v in frozen.merged.cells.items()},
        "panel_visits": sum(len(model.source.panel.target) for model in frozen.system.models),
        "folds": len(frozen.system.models),
    }


def _merged(stored: Mapping[str, Sequence[int]] | None) -> Merged | None:
    if stored is None:
        return None
    cells = {int(group): tuple(each) for group, each in stored.items()}
    return Merged({cell: group for group, each in cells.items() for cell in each}, cells)


def _write(folder: Path, facts: Facts, tensors: Arrays, plain: Plain, key_file: Path | None = None) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, folder / TENSORS)
    (folder / STATE).write_text(json.dumps(plain) + "\n", encoding="utf-8")
    write_manifest(folder, facts, key_file)


def load_model(folder: Path, key_file: Path | None = None) -> SavedModel:
    """Read and verify a model folder; a damaged, foreign or newer one is refused, and the file at fault named.

    With a public key, one that its owner did not sign is refused too.
    """
    manifest = verified_manifest(folder, key_file)
    saved = SavedModel(
        manifest=manifest,
        settings=_read_as_ours(MANIFEST, lambda: make_settings(**manifest["settings"])),
        reading=_read_as_ours(MANIFEST, lambda: _reading(manifest["reading"])),
        tensors=_read_as_ours(TENSORS, lambda: _read_tensors(folder / TENSORS)),
        plain=_read_as_ours(STATE, lambda: json.loads((folder / STATE).read_text(encoding="utf-8"))),
    )
    facts = _read_as_ours(MANIFEST, lambda: (manifest["fitted_on"]["visits"], manifest["outside"]))
    require_visit_arrays(saved.tensors, *facts)
    return saved


def _read_tensors(path: Path) -> Arrays:
    from safetensors.numpy import load_file

    return load_file(path)


def _stored_reading(reading: Reading) -> dict[str, Any]:
    """What `_reading` reads; words stand in it only where there are any."""
    stored = asdict(reading)
    return stored if reading.words else {name: each for name, each in stored.items() if name != "words"}


def _reading(stored: Mapping[str, Any]) -> Reading:
    levels = {
        kind: {name: tuple(each) for name, each in stored[kind].items()} for kind in ("categories", "high_cardinality")
    }
    lists = {name: tuple(stored[name]) for name in ("labs", "attributes", "clocked")}
    lists["words"] = tuple(stored.get("words", ()))
    return Reading(**{**stored, **lists, **levels})


def _read_as_ours(name: str, read: Callable[[], T]) -> T:
    """Whatever goes wrong in a file whose checksum is right was written by another program."""
    try:
        return read()
    except ModelFolderError:
        raise
    except Exception as error:
        raise ModelFolderError(
            f"model file {name!r} is not what this version writes ({type(error).__name__}). Fit again."
        ) from None


def read_index(folder: Path) -> tuple[Settings, list[Path]] | None:
    """What was asked of several labs, and where each lies; what is damaged, foreign or missing is named."""
    if not (folder / INDEX).is_file():
        return None
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        found, labs = index["format"], dict(index["labs"])
        settings = make_settings(**index["settings"])
        places = {lab: (str(entry["folder"]), str(entry["sha256"])) for lab, entry in labs.items()}
    except (OSError, ValueError, KeyError, TypeError, InputError):
        raise ModelFolderError(f"{folder.name!r} holds no readable index of several labs ({INDEX}).") from None
    if found != FORMAT or not places:
        raise ModelFolderError(f"{folder.name!r} has an index of another version ({INDEX}). Fit again.")
    for lab, (name, expected) in places.items():
        manifest = folder / name / MANIFEST
        if Path(name).name != name or name in ("", ".", "..") or not manifest.is_file():
            raise ModelFolderError(
                f"the model of lab {lab!r} is missing from {folder.name!r}. Restore it or fit again."
            )
        if sha256_of(manifest) != expected:
            raise ModelFolderError(
                f"the model of lab {lab!r} in {folder.name!r} is damaged or belongs to another run (its checksum "
                "differs). Restore the folder or fit again."
            )
    return settings, [folder / name for name, _ in places.values()]
