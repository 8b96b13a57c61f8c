"""The product's own system as one method among others: it learns from training and validation targets alike."""

from dataclasses import dataclass

import numpy as np

from safeimpute.learning.best.system import FrozenBest, fit_best
from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Task
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays


class BestImputer:
    """The system with its settings, not yet trained."""

    def __init__(self, settings: BestSettings | None = None) -> None:
        self.settings = settings or BestSettings()

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> "FittedBestImputer":
        """Cross-fit; the risk's tolerance is of no consequence to the values."""
        visible = visible_targets(task)
        error = float(np.nanstd(visible.target_values)) or 1.0
        seed = int(rng.integers(2**31))
        return FittedBestImputer(fit_best(visible, self.settings, Tolerance(error), seed, device=device).frozen)


@dataclass(frozen=True)
class FittedBestImputer:
    """Frozen models that impute any task."""

    frozen: FrozenBest

    def impute(self, task: Task) -> Imputation:
        """Impute every visit from its patient's other visible targets."""
        estimates = self.frozen.estimate(visible_targets(task))
        return Imputation(estimates.value, estimates.signals)


def visible_targets(task: Task) -> VisitArrays:
    """The task's visits with validation targets visible too: a cross-fitted system needs none set aside."""
    target = np.where(task.validation, task.validation_target, task.visits.target_values)
    return task.visits.with_target(target)
