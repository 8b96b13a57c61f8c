"""One cell of the benchmark in a process of its own: a method on one split, judged, and what it found written down.

    python -m safeimpute_lab.benchmark.cell STUDY_FOLDER METHOD SEED [--device cuda] [--parent PID]

Every method is fitted twice. For accuracy it gets all values but the test's and takes its validation from them. For
a release it is fitted once more by the paper's hold-out (70/15/15 of the rest), where a risk learnt from its own
validation errors ranks its values, calibration visits decide under claim `visits`, and calibration and test, both
hidden, are drawn anew many times. Presets are judged as shipped besides: `paper` by that hold-out with its own risk,
`best` cross-calibrated under claim `unmeasured`, from the fit that its accuracy is judged by. Where the paper itself is
reproduced only the second fit is needed, and only it is made.

Arrays only (NumPy, SciPy, torch, LightGBM, scikit-learn), so that it also runs on a bare GPU machine.
"""

import argparse
import hashlib
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import safeimpute
from safeimpute.errors import SafeImputeError
from safeimpute.evaluation import metrics
from safeimpute.evaluation.evaluate import outcome
from safeimpute.evaluation.trials import Trial, draws, run_trials
from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Role
from safeimpute.machine.resources import peak_mib
from safeimpute.selection.questions import draw_roles
from safeimpute.settings import PaperSettings
from safeimpute.visits.arrays import FloatArray, Stream, VisitArrays, generator
from safeimpute_lab.benchmark.cells import Arrays, CellName, Study, read_study, save_cell, save_failure
from safeimpute_lab.benchmark.experiments import EXPERIMENTS, run_experiments
from safeimpute_lab.benchmark.hold_out import hold_out_trial, impute_held_out
from safeimpute_lab.benchmark.result import CellFigures, Machine, packed
from safeimpute_lab.benchmark.risks import RISKS, run_risks
from safeimpute_lab.benchmark.tasks import opened
from safeimpute_lab.benchmark.tasks import task_for as task_for
from safeimpute_lab.registry import METHODS, Imputer

PRESETS = ("paper", "best")
VALUE, HELD_OUT_VALUE = "value", "held_out_value"  # of every visit, by the first fit and by the second
OUTCOMES, SHIPPED_OUTCOMES = "outcomes", "shipped_outcomes"  # levels x draws x figures
RELEASED = "released"  # packed bits: levels x draws x visits, of a preset as shipped


@dataclass(frozen=True)
class Fits:
    """A method on a split: what accuracy is judged by, and what is released by the paper's hold-out."""

    value: FloatArray
    held_out: Imputation
    shipped: Trial | None  # of a preset
    seconds: dict[str, float]
    machine: Machine


def run_cell(study: Study, visits: VisitArrays, name: CellName, device: str) -> tuple[CellFigures, Arrays]:
    """Figures and arrays of one cell."""
    fit = {"paper": _paper, "best": _best}.get(name.method, _baseline)
    fits = fit(study, visits, name, device)
    roles, start = draw_roles(visits, name.seed, study.test_fraction), time.perf_counter()
    told = study.settings(visits, "best", name.seed, claim="visits")
    trial = hold_out_trial(visits, fits.held_out, roles, told, study.plausible, device)
    seconds = {"graph": 0.0, "risk": time.perf_counter() - start, **fits.seconds}
    tested, truth = roles == Role.TEST, visits.target_values
    pair = fits.value[tested], truth[tested]
    figures: CellFigures = {
        "error": None,
        "mae": metrics.mean_absolute_error(*pair),
        "rmse": metrics.root_mean_squared_error(*pair),
        "auc": _auc(trial),
        "shipped_auc": None if fits.shipped is None else _auc(fits.shipped),
        "seconds": seconds,
        "test_to_training": float(tested.sum() / max(int((~np.isnan(truth)).sum() - tested.sum()), 1)),
        **fits.machine,
    }
    kept: Arrays = {VALUE: fits.value, HELD_OUT_VALUE: fits.held_out.value, OUTCOMES: _outcomes(trial, study)}
    if fits.shipped is not None:
        kept |= {SHIPPED_OUTCOMES: _outcomes(fits.shipped, study), RELEASED: released_sets(fits.shipped, study)}
    return figures, kept


def run_experiments_cell(
    study: Study, visits: VisitArrays, name: CellName, device: str
) -> tuple[Mapping[str, Any], Arrays]:
    """The paper's own experiments on one split."""
    return run_experiments(study, visits, name.seed, device)


def run_risks_cell(study: Study, visits: VisitArrays, name: CellName, device: str) -> tuple[Mapping[str, Any], Arrays]:
    """Other ways to know which values to doubt, on one split."""
    return run_risks(study, visits, name.seed, device)


def impute_openly(
    imputer: Imputer, visits: VisitArrays, seed: int, test_fraction: float, *, stops: bool = True, device: str = "cpu"
) -> FloatArray:
    """The first fit of a method, its values judged at the test's visits: all other values are visible.

    What stopped the training is an input afterwards, except to methods that know no other table than their own.
    """
    task, _ = task_for(visits, seed, test_fraction, stops=stops)
    fitted = imputer.fit(task, generator(seed, Stream.FIT), device)
    return fitted.impute(opened(task) if stops else task).value


def _baseline(study: Study, visits: VisitArrays, name: CellName, device: str) -> Fits:
    """Any other method; its cost is that of the first fit."""
    start, method, held_out = time.perf_counter(), METHODS[name.method], None
    if study.reproduces:
        held_out = _again(study, visits, name, device)
        value = held_out.value
    else:
        imputer = method.make(study.effort)
        value = impute_openly(imputer, visits, name.seed, study.test_fraction, stops=method.stops, device=device)
    seconds, machine = {"fit": time.perf_counter() - start}, _machine(device)
    return Fits(value, held_out or _again(study, visits, name, device), None, seconds, machine)


def _best(study: Study, visits: VisitArrays, name: CellName, device: str) -> Fits:
    """`best` as shipped, and its values once more by the paper's hold-out."""
    trial, machine = _shipped(study, visits, name, device)
    fit = trial.seconds["fit"] + trial.seconds["estimate"]
    seconds = {"fit": fit, "risk": trial.seconds["total"] - fit}  # the second: learning who gets measured
    return Fits(trial.estimates.value, _again(study, visits, name, device), trial, seconds, machine)


def _paper(study: Study, visits: VisitArrays, name: CellName, device: str) -> Fits:
    """`paper` as shipped, by its hold-out; alone it is judged, as published, without fallback edges."""
    trial, machine = _shipped(study, visits, name, device)
    value = trial.estimates.value
    if not study.reproduces:
        imputer = network_alone(study.settings(visits, "paper", name.seed).paper)
        value = impute_openly(imputer, visits, name.seed, study.test_fraction, device=device)
    seconds = {stage: trial.seconds[stage] for stage in ("graph", "fit", "risk")}
    held_out = Imputation(trial.estimates.value, trial.estimates.signals)
    return Fits(value, held_out, trial, seconds, machine)


def network_alone(paper: PaperSettings) -> Imputer:
    """The paper's imputer without fallback edges; only its release has them."""
    from safeimpute.learning.paper.gcn import GcnImputer

    return GcnImputer(paper.gcn, replace(paper.graph, fallback=False), paper.perturbation)


def _again(study: Study, visits: VisitArrays, name: CellName, device: str) -> Imputation:
    """The second fit."""
    roles, method = draw_roles(visits, name.seed, study.test_fraction), METHODS[name.method]
    if name.method == "best":
        from safeimpute_lab.methods.best import BestImputer

        return impute_held_out(BestImputer(study.best), visits, roles, name.seed, stops=False, device=device)
    imputer = method.make(study.effort)
    return impute_held_out(imputer, visits, roles, name.seed, stops=method.stops, device=device)


def _shipped(study: Study, visits: VisitArrays, name: CellName, device: str) -> tuple[Trial, Machine]:
    """A preset on the split as its users have it, the networks trained for the study's share of the rounds."""
    preset = study.settings(visits, "paper" if name.method == "paper" else "best", name.seed)
    trials = run_trials(visits, preset, 1, study.test_fraction, plausible=study.plausible, device=device)
    return trials[0], _machine(device)


def _auc(trial: Trial) -> float | None:
    """How well the risk tells risky values from others."""
    tolerance = trial.settings.allowed_error
    return metrics.auc(trial.estimates.risk_at(tolerance)[trial.tested], trial.risky(tolerance))


def _draws(trial: Trial, study: Study) -> list[Trial]:
    """The split and, where the claim allows it, calibration and test drawn anew."""
    return list(draws(trial, study.repartitions if trial.settings.claim == "visits" else 1))


def _outcomes(trial: Trial, study: Study) -> FloatArray:
    """The release at every level and draw."""
    tolerance, drawn = trial.settings.allowed_error, _draws(trial, study)
    return packed([[outcome(draw, tolerance, alpha) for draw in drawn] for alpha in study.levels])


def released_sets(trial: Trial, study: Study) -> np.ndarray:
    """Which visits were released at every level and draw, as packed bits."""
    tolerance, drawn = trial.settings.allowed_error, _draws(trial, study)
    sets = np.zeros((len(study.levels), len(drawn), len(trial.truth)), dtype=bool)
    for position, alpha in enumerate(study.levels):
        for number, draw in enumerate(drawn):
            sets[position, number, draw.tested] = draw.release(tolerance, alpha).released
    return np.packbits(sets, axis=-1)


def _machine(device: str) -> Machine:
    """The device used so far and the largest size held on it; a method that left the GPU alone ran on the CPU."""
    used = 0.0
    if device == "cuda":
        import torch

        used = torch.cuda.max_memory_allocated() / 2**20
    name = torch.cuda.get_device_name() if used else f"{platform.machine()} CPU"
    return {"device": name, "gpu_peak_mib": used or None, "peak_mib": peak_mib(), "cpu": _processor()}


def _processor() -> str:
    """Model and number of cores; times of different ones do not compare."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores"


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
    product, lab = Path(safeimpute.__file__).parent, Path(__file__).parents[1]
    apart = {"cli", "report", "web"}  # change no result
    sources = [path for path in product.rglob("*.py") if path.relative_to(product).parts[0] not in apart]
    sources += [path for part in ("benchmark", "methods") for path in (lab / part).rglob("*.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:12]


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
        run = {EXPERIMENTS: run_experiments_cell, RISKS: run_risks_cell}.get(name.method, run_cell)
        figures, arrays = run(*read_study(given.folder), name, given.device)
    except Exception as error:
        traceback.print_exc()
        save_failure(given.folder, name, *describe(error))
    else:
        told = {"wall": time.perf_counter() - start, "code": state_of_code()}
        save_cell(given.folder, name, {**figures, **told}, arrays)


if __name__ == "__main__":
    main()
