"""One cell of the benchmark in a process of its own: fit a method on one split, score it, write what it found.

    python -m safeimpute.benchmark.cell STUDY_FOLDER METHOD SEED [--device cuda] [--parent PID]

Arrays only (NumPy, SciPy, torch, LightGBM, scikit-learn), so that it also runs on a bare GPU machine.
"""

import argparse
import hashlib
import os
import platform
import resource
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.benchmark.cells import CellName, Study, read_study, save_cell, save_failure
from safeimpute.benchmark.registry import make_imputer
from safeimpute.errors import SafeImputeError
from safeimpute.evaluation import metrics
from safeimpute.evaluation.evaluate import REPARTITION_STREAM, ScoredSplit, release_scores, repartition
from safeimpute.records.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute.selection.claims import Claim
from safeimpute.selection.pipeline import Scored, Split, score_split, split_for
from safeimpute.selection.release import NO_EVIDENCE, OUT_OF_RANGE
from safeimpute.splits.roles import Role, Task, hide
from safeimpute.systems.best.evidence import EvidenceSettings, fit_evidence, read_evidence
from safeimpute.systems.best.risk import fit_risk, prepare_risk
from safeimpute.systems.paper.gcn import GcnImputer
from safeimpute.systems.presets import FIT_STREAM, BestSettings, PaperSettings, Plan, VisitScores
from safeimpute.systems.protocol import Imputation, scaled
from safeimpute.tolerance import Tolerance

PRESETS = ("paper", "best")
RISK_STREAM = 15
RELEASED = "released"  # packed bits: levels x re-partitions x visits


@dataclass(frozen=True)
class Outcome:
    """A method on a split: the value accuracy is judged by, and the release that is judged."""

    alone: FloatArray
    result: ScoredSplit
    signals: Imputation
    seconds: dict[str, float]
    machine: dict[
        str, Any
    ]  # where the method itself ran and what it held there; the risk that ranks it apart


def run_cell(study: Study, visits: VisitArrays, name: CellName, device: str) -> tuple[dict[str, Any], Any]:
    """Scores (JSON-able) and arrays of one cell."""
    split = split_for(Claim(), visits, name.seed, study.test_fraction)
    task = hide(visits, split.roles)
    fitted = _preset if name.method in PRESETS else _baseline
    outcome = fitted(study, visits, split, task, name, device)
    rows, truth, result = split.rows(Role.TEST), visits.target_values, outcome.result
    scores = {
        "error": None,
        "mae": metrics.mean_absolute_error(outcome.alone[rows], truth[rows]),
        "rmse": metrics.root_mean_squared_error(outcome.alone[rows], truth[rows]),
        **_released(result, study),
        "seconds": outcome.seconds,
        "test_to_training": len(rows) / max(len(split.rows(Role.TRAINING)), 1),
        **outcome.machine,
    }
    if name.method not in PRESETS:
        return scores, {"value": outcome.alone}
    risk, nothing = validation_risk(task, outcome.signals, study.tolerance, name.seed, device)
    again = _judge(study, visits, split, outcome.signals.value, risk, nothing, name.seed)
    kept = {"value": outcome.alone, "released_value": result.value, RELEASED: released_sets(result, study)}
    return scores | {"validation_risk": _released(again, study)}, kept


def _baseline(
    study: Study, visits: VisitArrays, split: Split, task: Task, name: CellName, device: str
) -> Outcome:
    """Any method of the registry, ranked by a risk learnt from its validation errors."""
    start = time.perf_counter()
    imputer = make_imputer(name.method, study.effort)
    imputation = imputer.fit(task, np.random.default_rng([name.seed, FIT_STREAM]), device).impute(task)
    fitted, machine = time.perf_counter(), _machine(device)
    risk, nothing = validation_risk(task, imputation, study.tolerance, name.seed, device)
    seconds = {"graph": 0.0, "fit": fitted - start, "risk": time.perf_counter() - fitted}
    result = _judge(study, visits, split, imputation.value, risk, nothing, name.seed)
    return Outcome(imputation.value, result, imputation, seconds, machine)


def _preset(
    study: Study, visits: VisitArrays, split: Split, task: Task, name: CellName, device: str
) -> Outcome:
    """`paper` or `best` as shipped, with its own risk."""
    plan = _plan(study, name, device)
    scored = score_split(visits, split, Claim(), plan, study.plausible)
    result = ScoredSplit(scored, visits.target_values, split.rows(Role.TEST), seconds=0.0)
    alone = result.value if name.method == "best" else _without_fallback(task, plan)
    seconds = {stage: float(spent) for stage, spent in {"graph": 0.0, **scored.scores.seconds}.items()}
    return Outcome(alone, result, Imputation(result.value, scored.scores.signals), seconds, _machine(device))


def _plan(study: Study, name: CellName, device: str) -> Plan:
    """A preset with its published settings, its networks trained for the study's share of the rounds."""
    paper, best = PaperSettings(), BestSettings()
    attention = best.blend.attention
    if attention is not None:
        attention = replace(attention, epochs=scaled(attention.epochs, study.effort))
    return Plan(
        preset="paper" if name.method == "paper" else "best",
        tolerance=study.tolerance,
        seed=name.seed,
        device=device,
        paper=replace(paper, gcn=replace(paper.gcn, epochs=scaled(paper.gcn.epochs, study.effort))),
        best=BestSettings(replace(best.blend, attention=attention)),
    )


def _without_fallback(task: Task, plan: Plan) -> FloatArray:
    """The paper judges its imputer alone without fallback edges; only the release has them."""
    graph = replace(plan.paper.graph, fallback=False)
    imputer = GcnImputer(plan.paper.gcn, graph, plan.paper.perturbation)
    rng = np.random.default_rng([plan.seed, FIT_STREAM])
    return imputer.fit(task, rng, plan.device).impute(task).value


def validation_risk(
    task: Task, imputation: Imputation, tolerance: Tolerance, seed: int, device: str
) -> tuple[FloatArray, BoolArray]:
    """A risk for any imputer from its errors at validation visits, and where nothing is known at all.

    Its errors at training visits are in sample, hence of no use: they are hidden from the risk.
    """
    rng = np.random.default_rng([seed, RISK_STREAM])
    evidence = read_evidence(task.visits, fit_evidence(task, EvidenceSettings(), rng), device)
    unseen = replace(task, visits=task.visits.with_target(np.full(len(task.visits), np.nan)))
    risk = fit_risk(prepare_risk(unseen, evidence, imputation, rng), tolerance, seed)
    return risk.score(evidence, imputation), evidence.nothing_known


def _judge(
    study: Study,
    visits: VisitArrays,
    split: Split,
    value: FloatArray,
    risk: FloatArray,
    nothing_known: BoolArray,
    seed: int,
) -> ScoredSplit:
    """A value and a risk, ready for the same release as the presets'."""
    outside = {NO_EVIDENCE: nothing_known}
    if study.plausible is not None:
        outside[OUT_OF_RANGE] = (value < study.plausible[0]) | (value > study.plausible[1])
    scores = VisitScores(
        value=value,
        risk=risk,
        explored_risk=risk,
        spread=np.ones(len(value)),
        no_evidence=nothing_known,
        features=np.empty((len(value), 0), dtype=np.float32),
        seconds={},
    )
    plan = Plan("best", study.tolerance, seed)
    scored = Scored(visits, split, scores, np.ones(len(value)), outside, Claim(), plan)
    return ScoredSplit(scored, visits.target_values, split.rows(Role.TEST), seconds=0.0)


def _released(result: ScoredSplit, study: Study) -> dict[str, Any]:
    """How well the risk ranks, and the release at every level."""
    rows = result.tested
    return {
        "auc": metrics.auc(result.risk(study.tolerance)[rows], result.bad(study.tolerance, rows)),
        "release": [
            {"fdr": level, **release_scores(result, study.tolerance, level, study.repartitions)}
            for level in study.levels
        ],
    }


def released_sets(result: ScoredSplit, study: Study) -> Any:
    """Which visits were released in every re-partition (the same ones `release_scores` draws), as packed bits."""
    sets = np.zeros((len(study.levels), study.repartitions, len(result.value)), dtype=bool)
    for position, level in enumerate(study.levels):
        rng = np.random.default_rng([result.scored.plan.seed, REPARTITION_STREAM])
        for draw in range(study.repartitions):
            split, tested = repartition(result, rng) if draw else (result.scored.split, result.tested)
            sets[position, draw, tested] = result.released(study.tolerance, level, split, tested)
    return np.packbits(sets, axis=-1)


def _machine(device: str) -> dict[str, Any]:
    """The device used so far and the largest size held on it; a method that left the GPU alone ran on the CPU."""
    used = 0.0
    if device == "cuda":
        import torch

        used = torch.cuda.max_memory_allocated() / 2**20
    name = torch.cuda.get_device_name() if used else f"{platform.machine()} CPU"
    return {"device": name, "gpu_peak_mib": used or None, "peak_mib": _peak_mib(), "cpu": _processor()}


def _processor() -> str:
    """Model and number of cores; times of different ones do not compare."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores"


def _peak_mib() -> float:
    """Largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would carry over what the starting process held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def describe(error: BaseException) -> tuple[str, str]:
    """What kind of failure it was and what went wrong, without any text that could quote a patient's value."""
    if isinstance(error, SafeImputeError):
        return "refused", str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "memory", "out of memory"
    where = traceback.extract_tb(error.__traceback__)[-1]
    return "error", f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"


def _end_with(parent: int) -> None:
    """A benchmark killed outright must not leave its cell running: end the whole group once orphaned."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def state_of_code() -> str:
    """A short hash of the sources a result depends on: cells of one study may come from different days."""
    package = Path(__file__).resolve().parents[1]
    parts = ("benchmark", "systems", "neighbours", "measuring", "splits", "evaluation", "selection")
    sources = sorted(path for part in parts for path in (package / part).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def main() -> None:
    """Run the cell named on the command line; a failure is written like a result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("method")
    parser.add_argument("seed", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="the process to end with")
    given = parser.parse_args()
    _end_with(given.parent)
    name, start = CellName(given.seed, given.method), time.perf_counter()
    try:
        scores, arrays = run_cell(*read_study(given.folder), name, given.device)
    except Exception as error:
        traceback.print_exc()
        save_failure(given.folder, name, *describe(error))
    else:
        told = {"wall": time.perf_counter() - start, "code": state_of_code()}
        save_cell(given.folder, name, scores | told, arrays)


if __name__ == "__main__":
    main()
