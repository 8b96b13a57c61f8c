"""What every imputer offers, so that risks, evaluation and the estimator need to know no method."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from safeimpute.records.arrays import FloatArray
from safeimpute.splits.roles import Task


def scaled(rounds: int, effort: float, least: int = 1) -> int:
    """A published number of rounds at a share of the effort."""
    return max(least, round(rounds * effort))


@dataclass(frozen=True)
class Imputation:
    """A value for every visit of a task, and what the imputer knows about its own doubt."""

    value: FloatArray  # in the target's unit, finite at every visit
    signals: Mapping[str, FloatArray] = field(default_factory=dict)  # one column each, for the risk


class FittedImputer(Protocol):
    """A trained imputer; frozen from here on."""

    def impute(self, task: Task) -> Imputation:
        """Impute every visit of a task; what is said where the target is hidden never depends on a hidden target.

        Where it is visible, methods that complete one graph or table (`grape`, `tdm`) may use it; nobody judges them
        there.
        """
        ...


class Imputer(Protocol):
    """A method with its settings, not yet trained."""

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedImputer:
        """Learn from the task's training targets; validation targets may steer settings and stopping only."""
        ...
