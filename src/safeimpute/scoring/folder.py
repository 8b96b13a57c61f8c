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
import polars as pl

from safeimpute import __version__
from safeimpute.errors import GuaranteeRefused, InputError, ModelFolderError, NotFittedError
from safeimpute.measuring.model import MeasuringModel
from safeimpute.records.arrays import FloatArray, VisitArrays
from safeimpute.records.new_visits import Reading, reading_of
from safeimpute.records.visits import Visits
from safeimpute.runtime.files import finished_folder, sha256_of
from safeimpute.scoring.frozen import Calibration, ScoringModel
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.pipeline import Scored, Split
from safeimpute.selection.release import NO_EVIDENCE
from safeimpute.settings import Config, make_config
from safeimpute.systems.presets import FittedBest, VisitScores
from safeimpute.systems.state import Arrays, Plain
from safeimpute.tolerance import Tolerance

FORMAT = 2
MANIFEST = "model.json"
TENSORS = "arrays.safetensors"
STATE = "state.json"
CALIBRATION = "calibration.parquet"
PACKAGES = ("numpy", "scipy", "torch", "lightgbm", "polars", "pyarrow", "safetensors")
T = TypeVar("T")
CALIBRATION_ROWS = ("patient", "risk", "weight", "inside", "bad", "error", "spread")


@dataclass(frozen=True)
class SavedModel:
    """What a model folder holds."""

    manifest: dict[str, Any]
    config: Config
    reading: Reading
    tensors: Arrays
    plain: Plain
    calibration: pl.DataFrame | None

    @property
    def fingerprint(self) -> str:
        return str(self.manifest["visits_sha256"])

    @property
    def looked(self) -> bool:
        """Its calibration visits were used: the levels are fixed."""
        return bool(self.manifest["looked"])

    def scored(self, arrays: VisitArrays) -> Scored:
        """The fitted state beside the visits it was fitted on."""
        tensors, names = self.tensors, self.manifest["outside"]
        outside = {name: tensors["visit.outside"][:, k].astype(bool) for k, name in enumerate(names)}
        scores = VisitScores(
            value=tensors["visit.value"],
            risk=tensors["visit.risk"],
            explored_risk=tensors["visit.explored_risk"],
            spread=tensors["visit.spread"],
            no_evidence=outside[NO_EVIDENCE],
            features=np.empty((len(arrays), 0), np.float32),
            seconds=self.manifest["seconds"],
            rerank=_only_at(self.config.allowed_error, tensors["visit.risk"], self.config.preset),
        )
        split = Split(tensors["visit.role"], tensors.get("visit.group"))
        plan = self.config.plan()
        return Scored(arrays, split, scores, tensors["visit.weight"], outside, self.config.promise, plan)

    def scoring(self) -> ScoringModel:
        """The frozen functions and the calibration that score new visits."""
        facts = self.manifest["scoring"]
        if facts is None:
            raise GuaranteeRefused(
                f"this model was fitted with the preset {self.config.preset!r}, which cannot score new visits: its "
                "network knows only the visits of the graph it was trained on. Fit the preset 'best'."
            )
        fitted = {name.removeprefix("fitted."): each for name, each in self.tensors.items()}
        measuring = self.plain.get("measuring")
        return ScoringModel(
            fitted=FittedBest.from_state(fitted, self.plain),
            measuring=None if measuring is None else MeasuringModel.from_state({}, measuring),
            calibration=self._calibration(facts["calibration"]),
            cutoff=None if facts["cutoff"] is None else Cutoff(**facts["cutoff"]),
            no_promise=facts["no_promise"],
            known_patients=self.tensors["known_patients"],
            by_patient=facts["by_patient"],
            plausible=None if facts["plausible"] is None else tuple(facts["plausible"]),
            tolerance=self.config.allowed_error,
            alpha=self.config.fdr,
            interval=self.config.interval,
            seed=self.config.random_state,
        )

    def _calibration(self, facts: dict[str, Any] | None) -> Calibration | None:
        if facts is None or self.calibration is None:
            return None
        stored: dict[str, Any] = {name: self.calibration[name].to_numpy() for name in CALIBRATION_ROWS}
        return Calibration(**stored | facts, validation_risk=self.tensors["validation_risk"])


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


def save_model(
    folder: Path,
    config: Config,
    visits: Visits,
    scored: Scored,
    scoring: ScoringModel | None,
    *,
    looked: bool,
) -> None:
    """Write the folder whole or not at all; `scoring` is None for a preset that cannot score new visits."""
    tensors = _visit_tensors(config, scored)
    plain: Plain = {}
    if scoring is not None:
        arrays, plain = scoring.fitted.state()
        tensors |= {f"fitted.{name}": array for name, array in arrays.items()}
        tensors["known_patients"] = scoring.known_patients
        if scoring.measuring is not None:
            plain["measuring"] = scoring.measuring.state()[1]
        if scoring.calibration is not None:
            tensors["validation_risk"] = scoring.calibration.validation_risk
    facts = {
        "config": config.model_dump(mode="json"),
        "unit": config.unit_known,
        "visits_sha256": visits.fingerprint,
        "fitted_on": {"visits": len(visits), "patients": visits.patients},
        "reading": asdict(reading_of(visits, config.columns)),
        "seconds": dict(scored.scores.seconds),
        "outside": list(scored.outside),
        "looked": looked,
        "scoring": None if scoring is None else _scoring_facts(scoring),
    }
    with finished_folder(folder, force=False) as partial:
        _write(partial, facts, tensors, plain, None if scoring is None else scoring.calibration)


def _visit_tensors(config: Config, scored: Scored) -> Arrays:
    """What `impute` needs when the model meets its own table again."""
    scores, split = scored.scores, scored.split
    tensors = {f"network.{name}": array for name, array in scores.arrays.items()}
    tensors |= {
        "visit.role": split.roles,
        "visit.value": scores.value,
        "visit.risk": scores.risk_at(config.allowed_error),
        "visit.explored_risk": scores.explored_risk,
        "visit.spread": scores.spread,
        "visit.weight": scored.weight,
        "visit.outside": np.column_stack(list(scored.outside.values())).astype(np.uint8),
    }
    return tensors if split.group is None else tensors | {"visit.group": split.group}


def _scoring_facts(scoring: ScoringModel) -> dict[str, Any]:
    calibration = scoring.calibration
    return {
        "by_patient": scoring.by_patient,
        "plausible": scoring.plausible,
        "no_promise": scoring.no_promise,
        "cutoff": None if scoring.cutoff is None else asdict(scoring.cutoff),
        "calibration": None
        if calibration is None
        else {"n_patients": calibration.n_patients, "key": calibration.key},
        "calibration_visits": 0 if calibration is None else len(calibration.risk),
        "panel_visits": len(scoring.fitted.blend.source.panel.target),
        "known_patients": len(scoring.known_patients),
    }


def _write(
    folder: Path, facts: dict[str, Any], tensors: Arrays, plain: Plain, calibration: Calibration | None
) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, folder / TENSORS)
    (folder / STATE).write_text(json.dumps(plain) + "\n", encoding="utf-8")
    names = [TENSORS, STATE]
    if calibration is not None:
        rows = {name: getattr(calibration, name) for name in CALIBRATION_ROWS}
        pl.DataFrame(rows).write_parquet(folder / CALIBRATION)
        names.append(CALIBRATION)
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


def load_model(folder: Path) -> SavedModel:
    """Read and verify a model folder; a damaged, foreign or newer one is refused, and the file at fault named."""
    manifest = verified_manifest(folder)
    reading = _load(folder, MANIFEST, lambda _: _reading(manifest["reading"]))
    config = _load(folder, MANIFEST, lambda _: make_config(**manifest["config"]))
    return SavedModel(
        manifest=manifest,
        config=config,
        reading=reading,
        tensors=_load(folder, TENSORS, _read_tensors),
        plain=_load(folder, STATE, lambda path: json.loads(path.read_text(encoding="utf-8"))),
        calibration=_load(folder, CALIBRATION, pl.read_parquet) if CALIBRATION in manifest["files"] else None,
    )


def _read_tensors(path: Path) -> Arrays:
    from safetensors.numpy import load_file

    return load_file(path)


def _reading(stored: dict[str, Any]) -> Reading:
    categories = {name: tuple(levels) for name, levels in stored["categories"].items()}
    lists = {name: tuple(stored[name]) for name in ("labs", "attributes")}
    return Reading(**stored | lists | {"categories": categories})


def _load(folder: Path, name: str, read: Callable[[Path], T]) -> T:
    """Whatever goes wrong in a file whose checksum is right was written by another program."""
    try:
        return read(folder / name)
    except (InputError, KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
        raise ModelFolderError(
            f"model file {name!r} in {folder.name!r} is not what this version writes ({type(error).__name__}). Fit "
            "again."
        ) from None


def verified_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder that is whole, as it was written, and of this version's format."""
    manifest = _manifest(folder)
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
        if path.name not in (*files, MANIFEST) and not path.name.startswith("."):
            raise ModelFolderError(
                f"{folder.name!r} holds {path.name!r}, which the model did not write. Move it elsewhere."
            )
    return manifest


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        found, version = manifest["format"], manifest["safeimpute"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelFolderError(f"{folder.name!r} holds no readable safeimpute model ({MANIFEST}).") from None
    if found != FORMAT:
        older = isinstance(found, int) and found < FORMAT
        remedy = "Fit again." if older else "Upgrade safeimpute, or fit again."
        raise ModelFolderError(
            f"{folder.name!r} has model format {found!r}, written by safeimpute {version}; this version reads "
            f"{FORMAT}. {remedy}"
        )
    if not isinstance(manifest.get("files"), dict) or TENSORS not in manifest["files"]:
        raise ModelFolderError(f"{folder.name!r} lists no model files. Restore the folder or fit again.")
    return dict(manifest)


def _own_checksum(manifest: dict[str, Any]) -> str:
    """SHA-256 of everything else the manifest says."""
    said = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
