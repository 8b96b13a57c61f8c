"""HyperImpute (Jarrett et al., ICML 2022) and GAIN (Yoon et al., ICML 2018), both by the hyperimpute package.

The package is no longer maintained and needs an environment of its own; see `outside`.
"""

import numpy as np

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.outside import complete_target
from safeimpute_lab.methods.rounds import scaled
from safeimpute_lab.methods.table import FittedOnTable, Predict, fit_on_table, only_for

HYPERIMPUTE_ITERATIONS = 40  # the package's default; the other settings stay at their defaults there
GAIN_ITERATIONS = 10_000  # this and the next line: Yoon et al.'s published code
GAIN_SETTINGS = {"batch": 128.0, "hint": 0.9, "alpha": 100.0}


class HyperImpute:
    """Columnwise regression, each column with the learner that predicts it best, until nothing changes."""

    def __init__(self, effort: float = 1.0) -> None:
        self.settings = {"iterations": float(scaled(HYPERIMPUTE_ITERATIONS, effort))}

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        return _fit("hyperimpute", task, self.settings, rng)


class Gain:
    """A generator of missing values against a discriminator that guesses which were measured."""

    def __init__(self, effort: float = 1.0) -> None:
        self.settings = GAIN_SETTINGS | {"iterations": float(scaled(GAIN_ITERATIONS, effort))}

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        return _fit("gain", task, self.settings, rng)


def _fit(method: str, task: Task, settings: dict[str, float], rng: np.random.Generator) -> FittedOnTable:
    seed = int(rng.integers(2**31))

    def learn(table: FloatArray) -> Predict:
        return only_for(table, complete_target(method, table, settings, seed))

    return fit_on_table(task, learn)
