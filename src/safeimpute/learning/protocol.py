"""What the two systems, and every imputation method, offer: so that selection and evaluation need to know neither."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays


@dataclass(frozen=True)
class Imputation:
    """A value for every visit of a task, and what the imputer knows about its own doubt."""

    value: FloatArray  # in the target's unit, finite at every visit
    signals: Mapping[str, FloatArray] = field(default_factory=dict)  # one column each, for the risk


@dataclass(frozen=True)
class Estimates:
    """What a system says about every visit; nothing of it depends on the visit's own target."""

    value: FloatArray  # imputation, in the target's unit
    risk: FloatArray  # larger is riskier
    spread: FloatArray  # expected size of the error, up to a factor common to all visits
    no_evidence: BoolArray  # nothing supports the value: outside every promise
    learnt_for: Tolerance | None = None  # the tolerance a learned risk speaks of; None: it speaks of none
    signals: Mapping[str, FloatArray] = field(default_factory=dict)  # what the risk was made of
    above: FloatArray | None = None  # visits x limits: chance that the truth lies at or above each; None: not learnt

    def __len__(self) -> int:
        return len(self.value)

    def risk_at(self, tolerance: Tolerance) -> FloatArray:
        """The risk at another tolerance, without learning it anew: visits ranked by spread over what is allowed.

        Were errors Laplace with mean `spread`, exp(-allowed / spread) of them would reach what is allowed.
        """
        if self.learnt_for is None or tolerance == self.learnt_for:
            return self.risk
        return tolerance.chance(self.value, self.spread)

    def at(self, rows: BoolArray | IntArray) -> "Estimates":
        """The same at some visits."""
        return Estimates(
            self.value[rows],
            self.risk[rows],
            self.spread[rows],
            self.no_evidence[rows],
            self.learnt_for,
            {name: each[rows] for name, each in self.signals.items()},
            None if self.above is None else self.above[rows],
        )


def join_estimates(visits: int, parts: list[tuple[BoolArray, Estimates]]) -> Estimates:
    """Estimates of some visits each, put together; NaN, and no evidence, at visits of no part."""
    if not parts:
        nowhere = np.full(visits, np.nan)
        return Estimates(nowhere, nowhere, nowhere, np.ones(visits, dtype=bool))
    first = parts[0][1]
    value, risk, spread = (np.full(visits, np.nan) for _ in range(3))
    nothing = np.ones(visits, dtype=bool)
    signals = {name: np.full(visits, np.nan) for name in first.signals}
    above = None if first.above is None else np.full((visits, first.above.shape[1]), np.nan)
    for rows, part in parts:
        if above is not None:
            above[rows] = part.above
        value[rows], risk[rows], spread[rows], nothing[rows] = (part.value, part.risk, part.spread, part.no_evidence)
        for name, column in signals.items():
            column[rows] = part.signals[name]
    return Estimates(value, risk, spread, nothing, first.learnt_for, signals, above)


@dataclass(frozen=True)
class Support:
    """Why values were imputed: one row per visit that carried one; grouped by imputed visit, own visits first."""

    visit: IntArray  # row of the imputed visit
    own: BoolArray  # the same patient's visit, else an analogous visit of another patient
    weight: FloatArray  # its share; at most 1 in all per imputed visit
    target: FloatArray  # its visible target, in the target's unit
    gap_days: FloatArray  # signed, negative before the visit; NaN for other patients' visits
    value_distance: FloatArray  # NaN for own visits
    trend_distance: FloatArray  # NaN for own visits


Arrays = dict[str, NDArray[Any]]


class Frozen(Protocol):
    """Everything a system learnt: it estimates any table of visits, patient by patient."""

    def estimate(self, visits: VisitArrays, device: str = "cpu") -> Estimates:
        """Value and risk of every visit from its patient's other visible targets."""
        ...


class Fitted(Protocol):
    """A system fitted to a table of visits."""

    @property
    def estimates(self) -> Estimates:
        """Of every visit of that table."""
        ...

    @property
    def seconds(self) -> Mapping[str, float]:
        """Spent in each stage."""
        ...

    @property
    def frozen(self) -> Frozen | None:
        """What can estimate other tables; None where the system knows only its own."""
        ...

    def arrays(self) -> Arrays:
        """Weights to keep with a saved model, where they are arrays."""
        ...

    def explain(self, rows: IntArray) -> Support | None:
        """The visits that carried the values at some rows; None where the system cannot say."""
        ...
