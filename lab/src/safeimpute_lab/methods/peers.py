"""Packages as their authors ship them: PyPOTS (Du 2023), miceforest, and R's mice and missForest.

Each gets the table or the record every other method gets and runs as a process of its own; see `outside`. PyPOTS knows
no dates: a visit is a step, and the time since the first one a column. Its CSAI is left out: in version 1.5 it asks for
the answers before it imputes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.outside import OutsideFailed, ask, complete_target
from safeimpute_lab.methods.rounds import scaled
from safeimpute_lab.methods.sequences import FAR, cut_into_windows
from safeimpute_lab.methods.table import TARGET, FittedOnTable, Predict, fit_on_table, fit_units, only_for, read_table

# PyPOTS's defaults are 100 epochs in batches of 32; its benchmark stops after ten without improvement.
EPOCHS, PATIENCE = 100, 10
CSDI_SAMPLES = 20  # the paper draws 100
ITERATIONS = 5  # of miceforest, as in its examples


@dataclass(frozen=True)
class MiceForest:
    """Chained LightGBM with predictive mean matching; the mean of five imputed tables."""

    effort: float = 1.0

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        seed, told = int(rng.integers(2**31)), {"iterations": float(scaled(ITERATIONS, self.effort))}
        return fit_on_table(task, lambda table: only_for(table, complete_target("miceforest", table, told, seed)))


@dataclass(frozen=True)
class InR:
    """One of R's packages with its defaults; the patient goes along for those that know groups."""

    method: str
    packages: tuple[str, ...]

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        seed, patient = int(rng.integers(2**31)), task.visits.patient

        def learn(table: FloatArray) -> Predict:
            return only_for(table, complete_target(self.method, table, {}, seed, None, self.packages, patient=patient))

        return fit_on_table(task, learn)


@dataclass(frozen=True)
class PyPots:
    """One of PyPOTS's networks over the patients' records."""

    method: str
    effort: float = 1.0
    samples: int = 0

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        """The answer to the task's table and, where validation targets stopped the network, with those shown."""
        told = {"epochs": float(scaled(EPOCHS, self.effort)), "patience": float(PATIENCE)}
        if self.samples:
            told["samples"] = float(scaled(self.samples, self.effort))
        units, seed = fit_units(task), int(rng.integers(2**31))
        table = read_table(task.visits, units)
        checked = read_table(task.visits.with_target(task.validation_target), units)[:, TARGET]
        windows = cut_into_windows(task.visits.patient)
        shown, looked_at = np.clip(table, -FAR, FAR), np.clip(checked, -FAR, FAR)
        found = ask(self.method, {"table": shown, "checked": looked_at, "windows": windows}, told, seed)
        opened = np.column_stack([np.where(np.isnan(checked), table[:, TARGET], checked), table[:, 1:]])
        return FittedOnTable(units, _either(self.method, (table, opened), (found.get("target"), found.get("opened"))))


def _either(
    method: str, tables: tuple[FloatArray, FloatArray], answers: tuple[FloatArray | None, FloatArray | None]
) -> Predict:
    """The answer to one of two tables."""

    def predict(asked: FloatArray) -> FloatArray:
        for table, answer in zip(tables, answers, strict=True):
            if answer is not None and np.array_equal(asked, table, equal_nan=True):
                if answer.shape != (len(asked),) or not np.isfinite(answer).all():
                    raise OutsideFailed(f"{method} did not answer with one finite value per visit.")
                return np.asarray(answer, dtype=np.float64)
        raise ValueError("this method imputes only the visits it was fitted on")

    return predict


def _pypots(method: str, samples: int = 0) -> Callable[[float], PyPots]:
    def make(effort: float = 1.0) -> PyPots:
        return PyPots(method, effort, samples)

    return make


PyPotsSaits, PyPotsBrits, PyPotsHelix = (_pypots(f"pypots-{name}") for name in ("saits", "brits", "helix"))
PyPotsCsdi = _pypots("pypots-csdi", CSDI_SAMPLES)


def r_mice() -> InR:
    """Predictive mean matching, the default for numbers."""
    return InR("r-mice", ("mice",))


def r_mice_two_levels() -> InR:
    """The target by a linear mixed model with an effect per patient (2l.pan)."""
    return InR("r-mice-2l", ("mice", "pan"))


def r_missforest() -> InR:
    """Stekhoven and Bühlmann 2012, by their package."""
    return InR("r-missforest", ("missForest",))
