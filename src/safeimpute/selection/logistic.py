"""The one logistic fit: of measuring, of risks against errors, of outcomes."""

import numpy as np

from safeimpute.visits.arrays import FloatArray

STEPS = 20
FARTHEST = 4.0  # that a step may move any log odds: beyond it Newton's parabola is no longer the likelihood


def newton(
    design: FloatArray,
    label: FloatArray,
    penalty: FloatArray,
    towards: FloatArray | None = None,
    weight: FloatArray | None = None,
) -> FloatArray:
    """Coefficients of a logistic regression by Newton's steps, each pulled by its penalty to zero, or `towards`."""
    found = np.zeros(design.shape[1]) if towards is None else towards
    still = found
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(design @ found, -30.0, 30.0)))
        pull, bend = label - chance, chance * (1.0 - chance) + 1e-6
        if weight is not None:
            pull, bend = weight * pull, weight * bend
        gradient = design.T @ pull - penalty * (found - still)
        step = np.linalg.solve((design * bend[:, None]).T @ design + np.diag(penalty), gradient)
        moved = float(np.abs(design @ step).max(initial=0.0))
        step = step * (FARTHEST / moved) if moved > FARTHEST else step
        found = found + step
        if np.abs(step).max() < 1e-6:
            break
    return found
