"""The plain part of who gets measured: a ridge-penalised logistic regression on every column, without shrinking much.

Trees stopped early take too little account of a small group or a site whose visits are rarely measured, and weights
that are too even are a broken promise. So the main effects are fitted here first, and trees learn what they leave.
"""

from dataclasses import dataclass

import numpy as np

from safeimpute.measuring.features import MeasuringTable
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.systems.trees import Table

RIDGE = 1.0  # on columns in standard units
LEVEL_RIDGE = 0.1  # on a level of a fine column: it has few visits, and a site that rarely measures must show
FAR = 4.0  # standard units; farther counts as this far
MOST_ROWS = 50_000  # learnt from
BLOCK_ROWS = 65_536
STEPS = 20


@dataclass(frozen=True)
class Logistic:
    """Coefficients, and how columns become regressors: standard units, absence, and levels of fine columns."""

    coefficients: FloatArray
    centre: FloatArray
    scale: FloatArray
    absent: BoolArray  # plain columns whose absence is a regressor
    plain: IntArray  # columns that are amounts
    fine: tuple[int, ...]
    levels: tuple[FloatArray, ...]  # of each fine column

    def logit(self, matrix: Table) -> FloatArray:
        """Log odds of being unmeasured, row by row."""
        found = np.empty(len(matrix))
        for start in range(0, len(matrix), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            # A row-wise product: a visit's bytes must not depend on the rows around it.
            found[part] = (self.regressors(matrix[part]) * self.coefficients).sum(axis=1)
        return found

    def regressors(self, matrix: Table) -> FloatArray:
        """One, amounts in standard units (0 where absent), absences, levels."""
        amounts = (matrix[:, self.plain].astype(np.float64) - self.centre) / self.scale
        missing = np.isnan(amounts)
        parts = [np.ones((len(matrix), 1)), np.where(missing, 0.0, np.clip(amounts, -FAR, FAR))]
        parts.append(missing[:, self.absent].astype(np.float64))
        for column, levels in zip(self.fine, self.levels, strict=True):
            parts.append((matrix[:, [column]] == levels).astype(np.float64))
        return np.ascontiguousarray(
            np.hstack(parts)
        )  # rows in one piece: each is summed the same way, also alone

    def importance(self, columns: int) -> FloatArray:
        """Per column its share of the absolute coefficients, absence and levels counted with their column."""
        size = np.abs(self.coefficients[1:])
        found = np.zeros(columns)
        plain, absent = len(self.plain), int(self.absent.sum())
        found[self.plain] += size[:plain]
        found[self.plain[self.absent]] += size[plain : plain + absent] / 2
        place = plain + absent
        for column, levels in zip(self.fine, self.levels, strict=True):
            found[column] += size[place : place + len(levels)].mean() if len(levels) else 0.0
            place += len(levels)
        total = float(found.sum())
        return found / total if total > 0 else found


def fit_logistic(
    table: MeasuringTable, unmeasured: FloatArray, rows: IntArray, rng: np.random.Generator
) -> Logistic:
    """Fit to some rows; Newton's method on the penalised likelihood."""
    if len(rows) > MOST_ROWS:
        rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    matrix, plain = table.matrix[rows], np.setdiff1d(np.arange(table.matrix.shape[1]), table.fine)
    amounts = matrix[:, plain].astype(np.float64)
    there = ~np.isnan(amounts)
    count = np.maximum(there.sum(axis=0), 1)
    centre = np.where(there, amounts, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(there, (amounts - centre) ** 2, 0.0).sum(axis=0) / count)
    share = there.mean(axis=0)
    start = Logistic(
        coefficients=np.empty(0),
        centre=centre,
        scale=np.where(spread > 0, spread, 1.0),
        absent=(share > 0.01) & (share < 0.99),
        plain=plain.astype(np.int64),
        fine=table.fine,
        levels=tuple(np.unique(matrix[:, k][~np.isnan(matrix[:, k])]).astype(np.float64) for k in table.fine),
    )
    levels = sum(len(each) for each in start.levels)
    coefficients = _newton(start.regressors(matrix), unmeasured[rows], levels)
    return Logistic(**vars(start) | {"coefficients": coefficients})


def _newton(regressors: FloatArray, label: FloatArray, levels: int) -> FloatArray:
    """Coefficients; the last `levels` regressors are levels of fine columns."""
    penalty = np.full(regressors.shape[1], RIDGE)
    penalty[0], penalty[len(penalty) - levels :] = 1e-6, LEVEL_RIDGE
    found = np.zeros(regressors.shape[1])
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(regressors @ found, -30.0, 30.0)))
        gradient = regressors.T @ (label - chance) - penalty * found
        weight = chance * (1.0 - chance) + 1e-6
        curvature = (regressors * weight[:, None]).T @ regressors + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        found = found + step
        if np.abs(step).max() < 1e-6:
            break
    return found
