"""Published settings of conformal selection: FDR and power must come out as tabulated."""

import numpy as np
import pytest

from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.p_values import Scores, conformal_p_values

NOISE, LEVEL, N_CALIBRATION, M = 0.5, 0.1, 1000, 100


def interaction(x, outer, inner):
    """Settings 1 and 5: the sign of x0 x1 decides which half of x3 counts."""
    same, up, down = x[:, 0] * x[:, 1] > 0, x[:, 3] > 0.5, x[:, 3] < -0.5
    return same * np.where(up, outer(x[:, 3]), inner) + ~same * np.where(down, -outer(-x[:, 3]), -inner)


def mean_1(x):
    return 4 * interaction(x, lambda v: v, 0.5)


def mean_2(x):
    return 5 * (x[:, 0] * x[:, 1] + np.exp(x[:, 3] - 1))


def mean_5(x):
    return interaction(x, lambda v: 0.25 + v, 0.0)


def mean_6(x):
    return 2 * (x[:, 0] * x[:, 1] + x[:, 2] ** 2 + np.exp(x[:, 3] - 1) - 1)


def constant(factor):
    return lambda mu: np.full_like(mu, factor * NOISE)


def shrinking(mu):
    return NOISE * (5.5 - np.abs(mu)) / 2


def growing(mu):
    size = np.abs(mu)
    return NOISE * (0.25 * mu**2 * (size < 2) + 0.5 * size * (size >= 1))


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
def test_fdr_and_power_are_the_published_ones(number, mean, sd, fdr, power):
    rng = np.random.default_rng(number)
    results = np.empty((1000, 2))
    for repetition in range(len(results)):
        mu = mean(rng.uniform(-1, 1, (N_CALIBRATION + M, 4)))
        bad = mu + sd(mu) * rng.standard_normal(len(mu)) <= 0
        risk = Scores(-mu, rng.random(len(mu)))
        p = conformal_p_values(
            Scores(risk.risk[N_CALIBRATION:], risk.tie[N_CALIBRATION:]),
            Scores(risk.risk[:N_CALIBRATION], risk.tie[:N_CALIBRATION]),
            bad[:N_CALIBRATION],
        )
        released, wrong = benjamini_hochberg(p, LEVEL), bad[N_CALIBRATION:]
        results[repetition] = (
            (released & wrong).sum() / max(released.sum(), 1),
            (released & ~wrong).sum() / max((~wrong).sum(), 1),
        )
    assert results.mean(axis=0) == pytest.approx([fdr, power], abs=0.02)
