"""A fitted model on disk: safetensors, JSON and parquet, checksummed, loaded without running any code."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from safeimpute import __version__
from safeimpute.errors import GuaranteeRefused, ModelFolderError
from safeimpute.measuring.model import MeasuringModel
from safeimpute.records.arrays import VisitArrays
from safeimpute.records.new_visits import Reading
from safeimpute.runtime.files import finished_folder, sha256_of
from safeimpute.runtime.state import Arrays, Plain, from_state, state_of
from safeimpute.runtime.text import plain_text
from safeimpute.scoring.frozen import FrozenModel
from safeimpute.scoring.signature import SIGNATURE, private_key, require_signed, sign_manifest
from safeimpute.scoring.soundness import require_sound, require_visit_arrays
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.groups import Grouping, Merged
from safeimpute.selection.intervals import IntervalGround
from safeimpute.selection.late import late_results
from safeimpute.selection.reference import Reference
from safeimpute.settings import Settings, make_settings
from safeimpute.splits.questions import question_for
from safeimpute.systems.best.system import FrozenBest
from safeimpute.systems.protocol import Estimates

FORMAT = 7
MANIFEST = "model.json"
TENSORS = "arrays.safetensors"
STATE = "state.json"
PACKAGES = ("numpy", "scipy", "torch", "lightgbm", "polars", "pyarrow", "safetensors")
T = TypeVar("T")


@dataclass(frozen=True)
class SavedModel:
    """What a model folder holds."""

    manifest: dict[str, Any]
    settings: Settings
    reading: Reading
    tensors: Arrays
    plain: Plain

    @property
    def fingerprint(self) -> str:
        """Of the visits it was fitted on."""
        return str(self.manifest["visits_sha256"])

    @property
    def looked(self) -> bool:
        """Its release was seen: the levels are fixed."""
        return bool(self.manifest["looked"])

    @property
    def seconds(self) -> dict[str, float]:
        """Spent in each stage of the fit."""
        return dict(self.manifest["seconds"])

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
        )
        names = self.manifest["outside"]
        outside = {name: tensors["visit.outside"][:, k].astype(bool) for k, name in enumerate(names)}
        return Calibrated(
            question=question_for(visits, settings),
            truth=visits.target_values,
            estimates=estimates,
            weight=tensors["visit.weight"],
            outside=outside,
            measuring=self._measuring(),
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
        require_sound(model, self.reading)
        return model

    def _frozen(self, facts: dict[str, Any]) -> FrozenModel:
        plausible = facts["plausible"]
        return FrozenModel(
            system=FrozenBest.from_state(self._named("system."), self.plain["system"]),
            measuring=self._measuring(),
            cutoffs={int(group): Cutoff(**each) for group, each in facts["cutoffs"].items()},
            intervals=IntervalGround(self.tensors["interval.ratio"], self.tensors["interval.reached"]),
            plausible=None if plausible is None else (plausible[0], plausible[1]),
            past_only=facts["past_only"],
            calendar=facts["calendar"],
            coverage=facts["coverage"],
            no_promise=facts["no_promise"],
            grouping=self._grouping(),
            merged=_merged(facts["groups"]),
            risk_cap=self.settings.risk_cap,
            reference=from_state(Reference, self._named("reference."), self.plain["reference"]),
            help=facts["help"],
            since=facts["since"],
            until=facts["until"],
        )

    def _grouping(self) -> Grouping | None:
        stored = self.manifest["grouping"]
        return None if stored is None else Grouping.from_state(stored)

    def _measuring(self) -> MeasuringModel | None:
        stored = self.plain.get("measuring")
        return None if stored is None else MeasuringModel.from_state(self._named("measuring."), stored)

    def _named(self, start: str) -> Arrays:
        """Arrays whose names begin so, without that beginning."""
        return {
            name.removeprefix(start): each for name, each in self.tensors.items() if name.startswith(start)
        }


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
    facts = {
        "settings": asdict(parts.settings),
        "unit": parts.unit,
        "visits_sha256": parts.fingerprint,
        "fitted_on": {"visits": len(parts.calibrated.truth), "patients": parts.patients},
        "reading": asdict(parts.reading),
        "seconds": parts.seconds,
        "outside": list(parts.calibrated.outside),
        "looked": parts.looked,
        "grouping": None if parts.calibrated.grouping is None else parts.calibrated.grouping.state(),
        "scoring": None if frozen is None else _scoring_facts(frozen),
    }
    with finished_folder(folder, force=False) as partial:
        _write(partial, facts, tensors, plain)
        if parts.key_file is not None:
            sign_manifest(partial / MANIFEST, private_key(parts.key_file))


def save_calibrated(
    folder: Path, saved: SavedModel, frozen: FrozenModel, told: dict[str, Any], *, force: bool = False
) -> None:
    """Write a model with another calibration: what it learnt stays as it was; `told` says on what it rests."""
    arrays, reference = state_of(frozen.reference)
    tensors = saved.tensors | {f"reference.{name}": array for name, array in arrays.items()}
    tensors |= {"interval.ratio": frozen.intervals.ratio, "interval.reached": frozen.intervals.reached}
    written = ("format", "safeimpute", "written", "packages", "files", "checksum")
    facts = {name: each for name, each in saved.manifest.items() if name not in written}
    facts |= {"scoring": _scoring_facts(frozen), "calibrated_on": told, "looked": True}
    with finished_folder(folder, force=force) as partial:
        _write(partial, facts, tensors, saved.plain | {"reference": reference})


def _visit_tensors(parts: ModelParts) -> Arrays:
    """What `impute` needs when the model meets its own table again."""
    estimates, calibrated = parts.calibrated.estimates, parts.calibrated
    tensors = {f"network.{name}": array for name, array in parts.network.items()}
    return tensors | {
        "visit.value": estimates.value,
        "visit.risk": estimates.risk,
        "visit.spread": estimates.spread,
        "visit.no_evidence": estimates.no_evidence.astype(np.uint8),
        "visit.weight": calibrated.weight,
        "visit.outside": np.column_stack(list(calibrated.outside.values())).astype(np.uint8),
    }


def _scoring_facts(frozen: FrozenModel) -> dict[str, Any]:
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


def _merged(stored: dict[str, list[int]] | None) -> Merged | None:
    if stored is None:
        return None
    cells = {int(group): tuple(each) for group, each in stored.items()}
    return Merged({cell: group for group, each in cells.items() for cell in each}, cells)


def _write(folder: Path, facts: dict[str, Any], tensors: Arrays, plain: Plain) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, folder / TENSORS)
    (folder / STATE).write_text(json.dumps(plain) + "\n", encoding="utf-8")
    names = [TENSORS, STATE]
    manifest = {
        "format": FORMAT,
        "safeimpute": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        **facts,
        "files": {name: sha256_of(folder / name) for name in names},
    }
    manifest["checksum"] = _own_checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


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


def _reading(stored: dict[str, Any]) -> Reading:
    categories = {name: tuple(levels) for name, levels in stored["categories"].items()}
    lists = {name: tuple(stored[name]) for name in ("labs", "attributes", "fine", "clocked")}
    return Reading(**stored | lists | {"categories": categories})


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


def verified_manifest(folder: Path, key_file: Path | None = None) -> dict[str, Any]:
    """The manifest of a folder that is whole, as it was written, of this version's format, and signed if asked for."""
    content = _content(folder)
    if key_file is not None:
        require_signed(folder, content, key_file)
    manifest = _manifest(folder, content)
    if manifest.get("checksum") != _own_checksum(manifest):
        raise ModelFolderError(
            f"model file {MANIFEST!r} in {folder.name!r} was changed after it was written (its own checksum differs). "
            "Restore the folder or fit again."
        )
    files = manifest["files"]
    for name, expected in files.items():
        if not (folder / name).is_file():
            raise ModelFolderError(
                f"model file {name!r} is missing from {folder.name!r}. Restore the folder or fit again."
            )
        if sha256_of(folder / name) != expected:
            raise ModelFolderError(
                f"model file {name!r} in {folder.name!r} is damaged or belongs to another model (its checksum "
                "differs). Restore the folder or fit again."
            )
    for path in sorted(folder.iterdir()):
        if path.name not in (*files, MANIFEST, SIGNATURE) and not path.name.startswith("."):
            raise ModelFolderError(
                f"{folder.name!r} holds {path.name!r}, which the model did not write. Move it elsewhere."
            )
    return manifest


def _content(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:
        raise ModelFolderError(f"{folder.name!r} holds no readable safeimpute model ({MANIFEST}).") from None


def _manifest(folder: Path, content: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(content.decode())
        found, version = manifest["format"], plain_text(manifest["safeimpute"], 40)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelFolderError(f"{folder.name!r} holds no readable safeimpute model ({MANIFEST}).") from None
    if found != FORMAT:
        older = isinstance(found, int) and found < FORMAT
        remedy = "Fit again." if older else "Upgrade safeimpute, or fit again."
        raise ModelFolderError(
            f"{folder.name!r} has model format {plain_text(found, 40)}, written by safeimpute {version}; this "
            f"version reads {FORMAT}. {remedy}"
        )
    if not isinstance(manifest.get("files"), dict) or set(manifest["files"]) != {TENSORS, STATE}:
        raise ModelFolderError(
            f"{MANIFEST!r} in {folder.name!r} lists other files than a model has. Restore the folder or fit again."
        )
    return dict(manifest)


def _own_checksum(manifest: dict[str, Any]) -> str:
    """SHA-256 of everything else the manifest says."""
    said = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
