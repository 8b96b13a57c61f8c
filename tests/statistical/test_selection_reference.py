"""Published settings of conformal selection: FDR and power must come out as tabulated."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from safeimpute.selection.p_values import Ranked, benjamini_hochberg, conformal_p_values

NOISE, LEVEL, N_CALIBRATION, M = 0.5, 0.1, 1000, 100


Vector = NDArray[np.float64]
Function = Callable[[Vector], Vector]


def interaction(x: Vector, outer: Function, inner: float) -> Vector:
    """Settings 1 and 5: the sign of x0 x1 decides which half of x3 counts."""
    same, up, down = x[:, 0] * x[:, 1] > 0, x[:, 3] > 0.5, x[:, 3] < -0.5
    return np.asarray(same * np.where(up, outer(x[:, 3]), inner) + ~same * np.where(down, -outer(-x[:, 3]), -inner))


def mean_1(x: Vector) -> Vector:
    return np.asarray(4 * interaction(x, lambda v: v, 0.5))


def mean_2(x: Vector) -> Vector:
    return np.asarray(5 * (x[:, 0] * x[:, 1] + np.exp(x[:, 3] - 1)))


def mean_5(x: Vector) -> Vector:
    return interaction(x, lambda v: 0.25 + v, 0.0)


def mean_6(x: Vector) -> Vector:
    return np.asarray(2 * (x[:, 0] * x[:, 1] + x[:, 2] ** 2 + np.exp(x[:, 3] - 1) - 1))


def constant(factor: float) -> Function:
    return lambda mu: np.full_like(mu, factor * NOISE)


def shrinking(mu: Vector) -> Vector:
    return np.asarray(NOISE * (5.5 - np.abs(mu)) / 2)


def growing(mu: Vector) -> Vector:
    size = np.abs(mu)
    return np.asarray(NOISE * (0.25 * mu**2 * (size < 2) + 0.5 * size * (size >= 1)))


SETTINGS = [
    (1, mean_1, constant(1.0), 0.098, 1.00),
    (2, mean_2, constant(1.5), 0.103, 0.998),
    (3, mean_2, shrinking, 0.099, 0.985),
    (4, mean_2, growing, 0.099, 1.00),
    (5, mean_5, constant(1.0), 0.105, 0.268),
    (6, mean_6, constant(1.5), 0.100, 0.433),
    (7, mean_6, shrinking, 0.102, 0.239),
    (8, mean_6, growing, 0.102, 0.992),
]


@pytest.mark.parametrize(("number", "mean", "sd", "fdr", "power"), SETTINGS, ids=range(1, 9))
def test_fdr_and_power_are_the_published_ones(
    number: int, mean: Function, sd: Function, fdr: float, power: float
) -> None:
    rng = np.random.default_rng(number)
    results = np.empty((1000, 2))
    for repetition in range(len(results)):
        mu = mean(rng.uniform(-1, 1, (N_CALIBRATION + M, 4)))
        risky = mu + sd(mu) * rng.standard_normal(len(mu)) <= 0
        risk = Ranked(-mu, rng.random(len(mu)))
        p = conformal_p_values(
            Ranked(risk.risk[N_CALIBRATION:], risk.tie[N_CALIBRATION:]),
            Ranked(risk.risk[:N_CALIBRATION], risk.tie[:N_CALIBRATION]),
            risky[:N_CALIBRATION],
        )
        released, wrong = benjamini_hochberg(p, LEVEL), risky[N_CALIBRATION:]
        results[repetition] = (
            (released & wrong).sum() / max(released.sum(), 1),
            (released & ~wrong).sum() / max((~wrong).sum(), 1),
        )
    assert results.mean(axis=0) == pytest.approx([fdr, power], abs=0.02)
