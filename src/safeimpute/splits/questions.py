"""Which measured targets may be inputs, which of them calibrate, and which visits are asked about."""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.settings import Settings
from safeimpute.splits.enough import calibrated_on
from safeimpute.splits.folds import fold_of
from safeimpute.splits.roles import Role, Roles, Task, split_visits
from safeimpute.splits.streams import Stream, generator, ties


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
    return split_visits(measured, generator(seed, Stream.SPLIT), test_fraction=test_fraction)


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
    measured = ~np.isin(roles, (Role.TEST, Role.UNMEASURED))
    judged = roles == Role.CALIBRATION if settings.claim == "visits" else measured
    validated = settings.preset == "paper" if validated is None else validated
    validation = roles == Role.VALIDATION if validated else np.zeros(len(visits), dtype=bool)
    visible = measured & ~validation & (~judged if settings.claim == "visits" else True)
    shown = visits.with_target(np.where(visible, target, np.nan))
    return ask(shown, settings, judged, candidate, np.where(validation, target, np.nan))


def question_for(visits: VisitArrays, settings: Settings) -> Question:
    """How a fit divides its table; the same whenever it is asked again."""
    return question_of(visits, settings, draw_roles(visits, settings.random_state))
