"""Selection against selection: the same values and risks released by our rules and by other people's.

    python -m safeimpute_lab selections [--patients 150] [--repetitions 100] [--out cells.jsonl]

Worlds of known truth from the guarantee's study, with and without a shift in who gets measured. MAPIE runs in the
baselines environment (`make baselines`), nonconform in one of its own with Python 3.12 (`make nonconform`); without its
environment a rule is left out and named.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.selection.ledger import Ledger
from safeimpute.selection.p_values import benjamini_hochberg, paper_p_values
from safeimpute.visits.arrays import BoolArray, FloatArray
from safeimpute_lab.methods.outside import find_python
from safeimpute_lab.studies.guarantee.rules import RULES, WORLDS, summarise
from safeimpute_lab.studies.guarantee.worlds import World

CHOSEN = {"none": "no shift", "covariate": "shift"}
WORKER = Path(__file__).with_name("selections_worker.py")
NONCONFORM_VARIABLE = "SAFEIMPUTE_NONCONFORM_PYTHON"
PUBLISHED, PLAIN, WEIGHTED = "paper's", "risk at most the level", "weighted conformal p-values (Jin and Candès), BH"


@dataclass(frozen=True)
class Drawn:
    """A world and the uniform numbers that break ties."""

    world: World
    uniform: FloatArray

    @property
    def calibration(self) -> BoolArray:
        return self.world.measured & self.world.inside


Release = Callable[[Drawn, float], BoolArray]  # of the candidates


def by_paper(drawn: Drawn, alpha: float) -> BoolArray:
    """Unweighted conformal p-values and BH, as published."""
    world, known = drawn.world, drawn.calibration
    asked = world.candidate
    risky = np.asarray(world.risky[known], dtype=bool)
    return benjamini_hochberg(paper_p_values(world.risk[asked], world.risk[known], risky, drawn.uniform[asked]), alpha)


def by_weighted_p_values(drawn: Drawn, alpha: float) -> BoolArray:
    """p_j = (w_j + sum of w_i over risky i of no larger risk) / (w_j + sum of w_i), then BH without pruning."""
    world, known = drawn.world, drawn.calibration
    asked = world.candidate
    risk, weight = world.risk[known], world.weight[known]
    order = np.argsort(risk)
    mass = np.r_[0.0, np.cumsum(np.where(world.risky[known], weight, 0.0)[order])]
    below = mass[np.searchsorted(risk[order], world.risk[asked], side="right")]
    own = world.weight[asked]
    return benjamini_hochberg((below + own) / (weight.sum() + own), alpha)


def by_risk(drawn: Drawn, alpha: float) -> BoolArray:
    """No calibration: the risk is taken at its word."""
    return np.asarray(drawn.world.risk[drawn.world.candidate] <= alpha)


def _by_ledger(name: str) -> Release:
    def release(drawn: Drawn, alpha: float) -> BoolArray:
        world = drawn.world
        ledger = Ledger(world.entries(), world.grid(), world.risk[world.candidate])
        cutoff = RULES[name](ledger, alpha)
        risk = world.risk[world.candidate]
        return np.zeros(len(risk), dtype=bool) if cutoff is None else np.asarray(risk <= cutoff)

    return release


HERE: dict[str, Release] = {
    **{name: _by_ledger(name) for name in RULES},
    PUBLISHED: by_paper,
    WEIGHTED: by_weighted_p_values,
    PLAIN: by_risk,
}


def elsewhere(rule: str, python: Path, drawn: Sequence[Drawn], alphas: Sequence[float]) -> list[list[BoolArray]]:
    """A rule of another package at every level on every world, in its environment."""
    arrays = {
        "draw": np.concatenate([np.full(len(each.uniform), number) for number, each in enumerate(drawn)]),
        "candidate": np.concatenate([each.world.candidate for each in drawn]),
        "calibration": np.concatenate([each.calibration for each in drawn]),
        "risk": np.concatenate([each.world.risk for each in drawn]),
        "risky": np.concatenate([np.asarray(each.world.risky, dtype=bool) for each in drawn]),
        "weight": np.concatenate([each.world.weight for each in drawn]),
    }
    with tempfile.TemporaryDirectory() as folder:
        given, answer = (str(Path(folder) / name) for name in ("given.npz", "answer.npz"))
        np.savez(given, **arrays)  # type: ignore[arg-type]
        command = [str(python), "-P", str(WORKER), rule, given, answer, *map(str, alphas)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        with np.load(answer) as stored:
            released = stored["released"]
    ends = np.cumsum([len(each.uniform) for each in drawn])[:-1]
    return [
        [part[each.world.candidate] for part, each in zip(np.split(level, ends), drawn, strict=True)]
        for level in released
    ]


def environments() -> dict[str, Path | None]:
    """Where the other packages run."""
    named = os.environ.get(NONCONFORM_VARIABLE)
    own = Path(named) if named else Path(__file__).resolve().parents[4] / ".venv-nonconform" / "bin" / "python"
    weighted = own if own.is_file() else None
    return {"nonconform": weighted, "nonconform, random": weighted, "mapie": find_python()}


def row_of(drawn: Sequence[Drawn], released: Sequence[BoolArray], alpha: float) -> dict[str, Any]:
    """One rule at one level in one world, judged by the truth."""
    risky = [np.asarray(each.world.risky, dtype=bool)[each.world.candidate] for each in drawn]
    counts = np.array(
        [(np.sum(bad & out), out.sum(), np.sum(~bad)) for bad, out in zip(risky, released, strict=True)],
        dtype=np.float64,
    )
    found = summarise(counts[:, 0], counts[:, 1], counts[:, 2], alpha)
    return {name: round(float(value), 4) for name, value in vars(found).items()}


def draw_worlds(key: str, patients: int, repetitions: int) -> list[Drawn]:
    """So many draws of one world."""
    found = []
    for number in range(repetitions):
        rng = np.random.default_rng([34, patients, number])
        world = WORLDS[key](rng, patients)
        found.append(Drawn(world, rng.random(len(world.risk))))
    return found


def run(keys: Sequence[str], patients: int, repetitions: int, alphas: Sequence[float]) -> list[dict[str, Any]]:
    """Every rule on the same draws of every world."""
    worlds = {key: draw_worlds(key, patients, repetitions) for key in keys}
    drawn = [each for found in worlds.values() for each in found]
    released = {name: [[rule(each, alpha) for each in drawn] for alpha in alphas] for name, rule in HERE.items()}
    for name, python in environments().items():
        if python is not None:
            released[name] = elsewhere(name, python, drawn, alphas)
    return [
        {"world": CHOSEN[key], "patients": patients, "repetitions": repetitions, "alpha": alpha, "rule": name}
        | row_of(worlds[key], level[place * repetitions : (place + 1) * repetitions], alpha)
        for place, key in enumerate(keys)
        for name, levels in released.items()
        for alpha, level in zip(alphas, levels, strict=True)
    ]


def main() -> None:
    """Run every world, print the rows and keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--patients", type=int, default=150)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.1, 0.2])
    parser.add_argument("--out", type=Path, default=Path("out/selections.jsonl"))
    told = parser.parse_args()
    rows = run(list(CHOSEN), told.patients, told.repetitions, told.alphas)
    for absent in (name for name, python in environments().items() if python is None):
        print(f"left out: {absent}, whose environment is not there")
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
