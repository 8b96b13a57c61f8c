"""Conformal intervals: wide enough for the chosen share of all candidates, not of the released ones."""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import FloatArray


@dataclass(frozen=True)
class IntervalGround:
    """Errors of judged visits in units of their spread, smallest first, and the weight reached up to each."""

    ratio: FloatArray
    reached: FloatArray

    def radii(self, candidate_weight: FloatArray, coverage: float) -> FloatArray:
        """Per candidate the multiple of its spread that covers with the asked probability.

        The weighted quantile of |error| / spread, the candidate's own weight standing at infinity; infinite where
        the judged visits cannot support the coverage.
        """
        total = self.reached[-1] if len(self.reached) else 0.0
        needed = coverage * (total + candidate_weight) * (1 - 1e-12)
        radii: FloatArray = np.append(self.ratio, np.inf)[np.searchsorted(self.reached, needed)]
        return radii


def interval_ground(error: FloatArray, spread: FloatArray, weight: FloatArray) -> IntervalGround:
    """Gather the errors that intervals are made from."""
    ratio = error / spread
    order = np.argsort(ratio, kind="stable")
    return IntervalGround(ratio[order], np.cumsum(weight[order]))
