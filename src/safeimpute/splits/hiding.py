"""Hiding known values to judge what is done about missing ones: at random, or by what the table shows."""

from typing import Literal

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute.splits.questions import draw_roles
from safeimpute.splits.roles import Role, Roles
from safeimpute.splits.streams import Stream, generator

HideBy = Literal["random", "covariates"]
STEEPNESS = 1.2  # log odds of being hidden per standard unit of the covariates' score
STEPS = 60


def hide_some(visits: VisitArrays, share: float, how: HideBy, rng: np.random.Generator) -> BoolArray:
    """Measured visits to hide: drawn at random, or likelier the higher a score of attributes, labs and time."""
    measured = ~np.isnan(visits.target_values)
    chance = np.full(len(visits), share)
    if how == "covariates":
        table = np.column_stack([visits.attributes, visits.labs[:, visits.other_labs], visits.time])
        centre, scale = np.nanmean(table[measured], axis=0), np.nanstd(table[measured], axis=0)
        z = np.nan_to_num((table - centre) / np.where(scale > 0, scale, np.inf))
        score = np.clip(z, -3.0, 3.0) @ rng.choice([-1.0, 1.0], z.shape[1])
        spread = float(score[measured].std()) or 1.0
        chance = _with_mean(STEEPNESS * (score - score[measured].mean()) / spread, share, measured)
    return np.asarray(measured & (rng.random(len(visits)) < chance))


def _with_mean(logit: FloatArray, share: float, rows: BoolArray) -> FloatArray:
    """Chances with these log odds up to a constant, chosen so that they average to a share."""
    low, high = -20.0, 20.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        mean = float(np.mean(1.0 / (1.0 + np.exp(-(logit[rows] + middle)))))
        low, high = (middle, high) if mean < share else (low, middle)
    return np.asarray(1.0 / (1.0 + np.exp(-(logit + low))))


def roles_with_hidden(visits: VisitArrays, hidden: BoolArray, seed: int) -> Roles:
    """Roles in which the hidden visits are tested."""
    left = visits.with_target(np.where(hidden, np.nan, visits.target_values))
    roles = draw_roles(left, seed)
    roles[hidden] = Role.TEST
    return roles


def hiding_rng(seed: int) -> np.random.Generator:
    """The stream values are hidden by."""
    return generator(seed, Stream.TEST)
