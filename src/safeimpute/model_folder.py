"""A fitted model on disk: safetensors and JSON, checksummed, loaded without running any code."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute import __version__
from safeimpute.config import Config, make_config
from safeimpute.errors import InputError, ModelFolderError, NotFittedError
from safeimpute.files import finished_folder
from safeimpute.pipeline import Scored, Split
from safeimpute.presets import VisitScores
from safeimpute.records.arrays import FloatArray, VisitArrays
from safeimpute.selection.release import NO_EVIDENCE
from safeimpute.tolerance import Tolerance

FORMAT = 1
MANIFEST = "model.json"
TENSORS = "arrays.safetensors"
STATE = "state.json"


@dataclass(frozen=True)
class SavedModel:
    """What a model folder holds."""

    config: Config
    fingerprint: str
    tensors: dict[str, Any]
    seconds: dict[str, float]
    outside: tuple[str, ...]
    looked: bool  # its calibration visits were used: the levels are fixed

    def scored(self, arrays: VisitArrays) -> Scored:
        """The fitted state beside the visits it was fitted on."""
        tensors = self.tensors
        scores = VisitScores(
            value=tensors["visit.value"],
            risk=tensors["visit.risk"],
            explored_risk=tensors["visit.explored_risk"],
            spread=tensors["visit.spread"],
            no_evidence=tensors["visit.outside"][:, self.outside.index(NO_EVIDENCE)].astype(bool),
            features=np.empty((len(arrays), 0)),
            seconds=self.seconds,
            rerank=_only_at(self.config.allowed_error, tensors["visit.risk"], self.config.preset),
        )
        outside = {name: tensors["visit.outside"][:, k].astype(bool) for k, name in enumerate(self.outside)}
        split = Split(tensors["visit.role"], tensors.get("visit.group"))
        plan = self.config.plan()
        return Scored(arrays, split, scores, tensors["visit.weight"], outside, self.config.promise, plan)


def _only_at(fitted: Tolerance, risk: FloatArray, preset: str) -> Callable[[Tolerance], FloatArray] | None:
    """A learned risk speaks for the tolerance it was learnt for; a saved one cannot learn another."""
    if preset == "paper":
        return None

    def risk_at(tolerance: Tolerance) -> FloatArray:
        if tolerance != fitted:
            raise NotFittedError(
                "a loaded model keeps the tolerance it was fitted for: fit again for another."
            )
        return risk

    return risk_at


def save_model(folder: Path, config: Config, fingerprint: str, scored: Scored, *, looked: bool) -> None:
    """Write the folder whole or not at all."""
    with finished_folder(folder, force=False) as partial:
        _write(partial, config, fingerprint, scored, looked)


def _write(folder: Path, config: Config, fingerprint: str, scored: Scored, looked: bool) -> None:
    from safetensors.numpy import save_file

    scores, split = scored.scores, scored.split
    tensors = {f"fitted.{name}": np.ascontiguousarray(array) for name, array in scores.arrays.items()}
    tensors |= {
        "visit.role": split.roles,
        "visit.value": scores.value,
        "visit.risk": scores.risk_at(config.allowed_error),
        "visit.explored_risk": scores.explored_risk,
        "visit.spread": scores.spread,
        "visit.weight": scored.weight,
        "visit.outside": np.column_stack(list(scored.outside.values())).astype(np.uint8),
    }
    if split.group is not None:
        tensors["visit.group"] = split.group
    save_file(tensors, folder / TENSORS)
    (folder / STATE).write_text(json.dumps(scores.plain) + "\n", encoding="utf-8")
    manifest = {
        "format": FORMAT,
        "safeimpute": __version__,
        "config": config.model_dump(mode="json"),
        "visits_sha256": fingerprint,
        "seconds": dict(scores.seconds),
        "outside": list(scored.outside),
        "looked": looked,
        "files": {name: _sha256(folder / name) for name in (TENSORS, STATE)},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def load_model(folder: Path) -> SavedModel:
    """Read and verify a model folder; a damaged, foreign or newer one is refused."""
    manifest = _manifest(folder)
    for name, expected in manifest["files"].items():
        if not (folder / name).is_file() or _sha256(folder / name) != expected:
            raise ModelFolderError(
                f"model file {name!r} is missing or damaged. Restore the folder or fit again."
            )
    try:
        from safetensors.numpy import load_file

        return SavedModel(
            config=make_config(**manifest["config"]),
            fingerprint=manifest["visits_sha256"],
            tensors=load_file(folder / TENSORS),
            seconds=manifest["seconds"],
            outside=tuple(manifest["outside"]),
            looked=bool(manifest["looked"]),
        )
    except (KeyError, TypeError, InputError) as error:
        raise ModelFolderError(
            f"{folder.name!r} is no complete safeimpute model ({error}). Fit again."
        ) from None


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        found = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelFolderError(f"{folder.name!r} holds no readable safeimpute model ({MANIFEST}).") from None
    if found != FORMAT:
        raise ModelFolderError(
            f"{folder.name!r} has model format {found!r}; this version reads {FORMAT}. Upgrade safeimpute or fit again."
        )
    if not isinstance(manifest.get("files"), dict) or TENSORS not in manifest["files"]:
        raise ModelFolderError(f"{folder.name!r} lists no model files. Restore the folder or fit again.")
    return dict(manifest)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
