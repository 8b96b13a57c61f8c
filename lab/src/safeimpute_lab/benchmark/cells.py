"""A benchmark's cells on disk: one method on one split, kept under the study it belongs to (arrays and JSON only).

A work folder holds one folder per study, named by a hash of everything that decides a result besides method and
seed. It can be carried to a bare machine, filled there, and brought back: a cell of another study is never used.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from safeimpute import __version__
from safeimpute.errors import OptionError
from safeimpute.machine.files import finished_file
from safeimpute.settings import (
    DEFAULT_CLAIM,
    BestSettings,
    ClaimName,
    GcnSettings,
    GraphSettings,
    PaperSettings,
    PerturbationSettings,
    PresetName,
    Settings,
)
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays
from safeimpute_lab.benchmark.result import CellFigures, Failure
from safeimpute_lab.methods.rounds import scaled

STUDY_FILE, VISITS_FILE, CELLS, LOGS = "study.json", "visits.npz", "cells", "logs"
PROTOCOL = 3  # what a cell does and keeps; 2: fitted openly, then by the hold-out; 3: paper by the letter
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Study:
    """All that decides a cell's result besides its method and seed."""

    fingerprint: str  # of the visits
    tolerance: Tolerance
    levels: tuple[float, ...]
    test_fraction: float
    effort: float  # share of the published training rounds
    repartitions: int
    plausible: tuple[float, float] | None = None
    paper: PaperSettings = field(default_factory=PaperSettings)
    best: BestSettings = field(default_factory=BestSettings)
    curve_tolerances: tuple[Tolerance, ...] = ()  # of the paper's own experiments, where they are part of the study
    curve_levels: tuple[float, ...] = ()
    risk_groups: int = 0
    version: str = __version__
    protocol: int = PROTOCOL

    def settings(self, visits: VisitArrays, preset: PresetName, seed: int, claim: ClaimName | None = None) -> Settings:
        """What a fit of a preset is told, networks at the study's effort; without a claim, the one it ships with."""
        gcn = replace(self.paper.gcn, epochs=scaled(self.paper.gcn.epochs, self.effort))
        return Settings(
            target=visits.lab_names[visits.target],
            tolerance=spelled(self.tolerance),
            fdr=self.levels[0],
            preset=preset,
            claim=claim or DEFAULT_CLAIM[preset],
            random_state=seed,
            paper=replace(self.paper, gcn=gcn),
            best=self.best,
        )

    @property
    def reproduces(self) -> bool:
        """Whether it is the paper's own experiments: every method is then judged by the paper's split alone."""
        return bool(self.curve_levels)

    @property
    def key(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Study":
        plausible = stored["plausible"]
        return cls(
            **{
                "protocol": 1,  # the first studies did not say
                **stored,
                "tolerance": Tolerance(**stored["tolerance"]),
                "levels": tuple(stored["levels"]),
                "plausible": None if plausible is None else (plausible[0], plausible[1]),
                "paper": _paper(stored.get("paper", {})),
                "best": BestSettings(**_tuples(stored.get("best", {}))),
                "curve_tolerances": tuple(Tolerance(**each) for each in stored.get("curve_tolerances", ())),
                "curve_levels": tuple(stored.get("curve_levels", ())),
            }
        )


def _paper(stored: Mapping[str, Any]) -> PaperSettings:
    """The paper's settings as a study keeps them; read here, without the library that checks a user's options."""
    tables = {"graph": GraphSettings, "gcn": GcnSettings, "perturbation": PerturbationSettings}
    read = {name: kind(**_tuples(stored[name])) for name, kind in tables.items() if name in stored}
    return PaperSettings(**{**stored, **read})


def _tuples(stored: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where the settings have tuples."""
    return {name: tuple(each) if isinstance(each, list) else each for name, each in stored.items()}


def spelled(tolerance: Tolerance) -> str:
    """A tolerance as users write it, such as `20% or 6`."""
    share = f"{100 * tolerance.share:.15g}%" if tolerance.share else ""
    absolute = f"{tolerance.absolute!r}" if tolerance.absolute else ""
    return " or ".join(part for part in (share, absolute) if part)


@dataclass(frozen=True, order=True)
class CellName:
    """One method on one split."""

    seed: int
    method: str

    @property
    def stem(self) -> str:
        return f"{self.method}-{self.seed}"


@dataclass(frozen=True)
class Cell:
    """What a cell left behind: figures or a failure, and arrays."""

    content: dict[str, Any]  # as stored
    file: Path

    @property
    def failed(self) -> bool:
        return self.content["error"] is not None

    @property
    def figures(self) -> CellFigures:
        """Of a cell that did not fail."""
        return cast(CellFigures, self.content)

    @property
    def failure(self) -> Failure:
        """Of a cell that failed."""
        return cast(Failure, self.content["error"])

    @cached_property
    def arrays(self) -> Arrays:
        with np.load(self.file.with_suffix(".npz"), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def open_study(work: Path, study: Study, visits: VisitArrays) -> Path:
    """The study's folder in a work folder, with its visits; made where it is not there yet."""
    folder = work / study.key
    (folder / CELLS).mkdir(parents=True, exist_ok=True)
    if not (folder / VISITS_FILE).exists():
        given = {f.name: getattr(visits, f.name) for f in fields(visits) if getattr(visits, f.name) is not None}
        with finished_file(folder / VISITS_FILE) as partial:
            np.savez_compressed(partial, **given)
    if not (folder / STUDY_FILE).exists():
        _write_json(asdict(study), folder / STUDY_FILE)
    return folder


def read_study(folder: Path) -> tuple[Study, VisitArrays]:
    """A study and its visits from a folder made by `open_study`."""
    study = Study.from_json(json.loads((folder / STUDY_FILE).read_text(encoding="utf-8")))
    if (study.version, study.protocol) != (__version__, PROTOCOL):
        raise OptionError(
            f"the study in {folder.name} was prepared by another safeimpute (version {study.version}, protocol "
            f"{study.protocol}; this is {__version__}, protocol {PROTOCOL}): "
            "its cells could not be compared. Prepare it again."
        )
    with np.load(folder / VISITS_FILE, allow_pickle=False) as stored:
        content: dict[str, Any] = {name: stored[name] for name in stored.files}
    for names in ("lab_names", "attribute_names", "high_cardinality_names"):
        content[names] = tuple(str(each) for each in content[names])
    return study, VisitArrays(**content | {"target": int(content["target"])})


def studies_in(work: Path) -> list[Path]:
    """The study folders of a work folder, or the folder itself if it is one."""
    if (work / STUDY_FILE).exists():
        return [work]
    return sorted(path.parent for path in work.glob(f"*/{STUDY_FILE}"))


def save_cell(folder: Path, name: CellName, content: Mapping[str, Any], arrays: Arrays | None = None) -> None:
    """Arrays first, then the figures whose file says that the cell is finished; each whole or not at all."""
    path = folder / CELLS / name.stem
    if arrays is not None:
        with finished_file(path.with_name(f"{name.stem}.npz")) as partial:
            np.savez_compressed(partial, allow_pickle=False, **arrays)
    marked = {"study": folder.name, "method": name.method, "seed": name.seed, **content}
    _write_json(marked, path.with_name(f"{name.stem}.json"))


def save_failure(folder: Path, name: CellName, kind: str, text: str, limit: float | None = None) -> None:
    """A cell that did not end well; a result that is there already is not lost to it."""
    found = read_cell(folder, name)
    if found is None or found.failed:
        save_cell(folder, name, {"error": {"kind": kind, "text": text, "limit": limit}})


def read_cell(folder: Path, name: CellName) -> Cell | None:
    """A finished cell of this study, or None where there is none that can be trusted to be one."""
    path = folder / CELLS / f"{name.stem}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        belongs = (content["study"], content["method"], content["seed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    complete = content.get("error") is not None or path.with_suffix(".npz").exists()
    return Cell(content, path) if complete and belongs == (folder.name, name.method, name.seed) else None


def _write_json(content: Any, path: Path) -> None:
    with finished_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
