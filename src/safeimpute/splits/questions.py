"""Which measured targets may be inputs, which of them calibrate, and which visits are asked about."""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute.settings import ClaimName, PresetName, Settings
from safeimpute.splits.roles import Role, Roles, Task, split_visits
from safeimpute.splits.streams import Stream, generator


@dataclass(frozen=True)
class Question:
    """One table, its targets divided by use; `candidate` visits are released or withheld."""

    visits: VisitArrays  # the target column holds visible targets only
    judged: BoolArray  # measured visits whose errors calibrate the release
    candidate: BoolArray
    validation_target: FloatArray  # preset paper: stops the training, is never an input; NaN elsewhere

    @property
    def visible(self) -> BoolArray:
        """Visits whose target may be an input, to all visits but itself."""
        return ~np.isnan(self.visits.target_values)

    @property
    def task(self) -> Task:
        """What the paper's network may see."""
        return Task(self.visits, self.validation_target)


def draw_roles(visits: VisitArrays, seed: int, test_fraction: float = 0.0) -> Roles:
    """The paper's split of the measured visits: some tested, 70/15/15 of the rest; by visit, at random."""
    measured = ~np.isnan(visits.target_values)
    return split_visits(measured, generator(seed, Stream.SPLIT), test_fraction=test_fraction)


def question_of(
    visits: VisitArrays,
    preset: PresetName,
    claim: ClaimName,
    roles: Roles,
    candidate: BoolArray | None = None,
) -> Question:
    """Divide a table for a claim.

    Candidates are the tested visits where roles test any, else the unmeasured ones, unless given. Under cross-
    calibration every other measured visit is visible and calibrates; under `visits` some are set aside for it.
    """
    target, tested = visits.target_values, roles == Role.TEST
    if candidate is None:
        candidate = tested if tested.any() else roles == Role.UNMEASURED
    measured = ~np.isin(roles, (Role.TEST, Role.UNMEASURED))
    judged = roles == Role.CALIBRATION if claim == "visits" else measured
    validation = roles == Role.VALIDATION if preset == "paper" else np.zeros(len(visits), dtype=bool)
    visible = measured & ~validation & (~judged if claim == "visits" else True)
    return Question(
        visits=visits.with_target(np.where(visible, target, np.nan)),
        judged=judged,
        candidate=candidate,
        validation_target=np.where(validation, target, np.nan),
    )


def question_for(visits: VisitArrays, settings: Settings) -> Question:
    """How a fit divides its table; the same whenever it is asked again."""
    roles = draw_roles(visits, settings.random_state)
    return question_of(visits, settings.preset, settings.claim, roles)
