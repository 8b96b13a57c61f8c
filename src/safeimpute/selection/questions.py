"""Which measured targets may be inputs, which of them calibrate, and which visits are asked about."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from safeimpute.learning.roles import Role, Roles, Task, fold_of, split_visits
from safeimpute.selection.enough import calibrated_on
from safeimpute.settings import Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, Stream, VisitArrays, generator, ties

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


@dataclass(frozen=True)
class Question:
    """One table, its targets divided by use; `candidate` visits are released or withheld."""

    visits: VisitArrays  # the target column holds visible targets only
    judged: BoolArray  # measured visits whose errors calibrate the release
    candidate: BoolArray
    validation_target: FloatArray  # preset paper: stops the training, is never an input; NaN elsewhere
    fold: IntArray  # of each visit's patient
    tie: FloatArray  # one uniform number per visit that orders equal risks
    recent: BoolArray  # visits of the period that calibrates

    @property
    def visible(self) -> BoolArray:
        """Visits whose target may be an input, to all visits but itself."""
        return ~np.isnan(self.visits.target_values)

    @property
    def set_aside(self) -> dict[str, BoolArray]:
        """Measured visits whose target is no input, by what they were set aside for."""
        return {
            "to check the promise": self.judged & ~self.visible,
            "to stop the training": ~np.isnan(self.validation_target),
        }

    @property
    def task(self) -> Task:
        """What the paper's network may see."""
        return Task(self.visits, self.validation_target)


def draw_roles(visits: VisitArrays, seed: int, test_fraction: float = 0.0) -> Roles:
    """The paper's split of the measured visits: some tested, 70/15/15 of the rest; by visit, at random."""
    measured = ~np.isnan(visits.target_values)
    roles = split_visits(measured, generator(seed, Stream.SPLIT), test_fraction=test_fraction)
    roles[visits.target_censored] = Role.CENSORED
    return roles


def ask(
    visits: VisitArrays,
    settings: Settings,
    judged: BoolArray,
    candidate: BoolArray,
    validation_target: FloatArray | None = None,
) -> Question:
    """A table whose target column is already as it may be seen, with the folds and ties of the settings' seed."""
    seed = settings.random_state
    none = np.full(len(visits), np.nan)
    return Question(
        visits=visits,
        judged=judged,
        candidate=candidate,
        validation_target=none if validation_target is None else validation_target,
        fold=fold_of(visits.patient_key, seed, settings.best.folds),
        tie=ties(visits.visit_key, seed),
        recent=calibrated_on(visits, settings),
    )


def question_of(
    visits: VisitArrays,
    settings: Settings,
    roles: Roles,
    candidate: BoolArray | None = None,
    *,
    validated: bool | None = None,
) -> Question:
    """Divide a table for the settings' claim.

    Candidates are the tested visits where roles test any, else the unmeasured ones, unless given. Under cross-
    calibration every other measured visit is visible and calibrates; under `visits` some are set aside for it. With
    `validated` (by default for preset `paper`) validation visits steer the training and are no inputs.
    """
    target, tested = visits.target_values, roles == Role.TEST
    if candidate is None:
        candidate = tested if tested.any() else roles == Role.UNMEASURED
    measured = ~np.isin(roles, (Role.TEST, Role.UNMEASURED, Role.CENSORED))
    judged = roles == Role.CALIBRATION if settings.claim == "visits" else measured
    validated = settings.preset == "paper" if validated is None else validated
    validation = roles == Role.VALIDATION if validated else np.zeros(len(visits), dtype=bool)
    visible = measured & ~validation & (~judged if settings.claim == "visits" else True)
    shown = visits.with_target(np.where(visible, target, np.nan))
    return ask(shown, settings, judged, candidate, np.where(validation, target, np.nan))


def question_for(visits: VisitArrays, settings: Settings) -> Question:
    """How a fit divides its table; the same whenever it is asked again."""
    return question_of(visits, settings, draw_roles(visits, settings.random_state))
