"""The one logistic fit: of measuring, of risks against errors, of outcomes."""

import numpy as np

from safeimpute.visits.arrays import FloatArray

STEPS = 20


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
        found = found + step
        if np.abs(step).max() < 1e-6:
            break
    return found
