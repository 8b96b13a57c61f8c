"""Typed forms of what a benchmark finds: one cell's figures, a method's row, the whole result."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import TypedDict

import numpy as np

from safeimpute.evaluation.evaluate import Accuracy, Outcome, ReleaseSummary
from safeimpute.evaluation.metrics import MeanSe
from safeimpute.visits.arrays import FloatArray

CohortFigures = dict[str, dict[str, float]]  # by cohort, by name of the figure


class Failure(TypedDict):
    """Why a cell has no result."""

    kind: str
    text: str
    limit: float | None  # seconds or GiB, where a limit was broken


class Machine(TypedDict):
    """Where a method ran and what it held there; the risk that ranks it apart."""

    device: str
    gpu_peak_mib: float | None
    peak_mib: float
    cpu: str


class CellFigures(Machine):
    """Figures of one method on one split; values and releases stand beside them as arrays."""

    error: None
    mae: float  # with all values visible but the test's
    rmse: float
    auc: float | None  # of the risk learnt from validation errors, under the paper's hold-out
    shipped_auc: float | None  # of a preset's own risk; None for other methods
    seconds: dict[str, float]
    test_to_training: float


class Paired(TypedDict):
    """A method against a rival over the splits both finished."""

    difference: MeanSe
    ratio: float
    p_value: float | None
    splits: int


class SharedRow(TypedDict):
    """Errors of one method on the values another one released at a level."""

    fdr: float
    fdp: MeanSe
    mae: MeanSe
    rmse: MeanSe
    precision: MeanSe
    splits_released: int
    draws_released: float | None


class ValidationRisk(TypedDict):
    """A preset's release with the risk all other methods have, under the paper's hold-out."""

    release: list[ReleaseSummary]
    risk_auc: MeanSe


class MethodRow(TypedDict):
    """Everything known about one method."""

    imputation: Accuracy
    release: list[ReleaseSummary]
    risk_auc: MeanSe
    validation_risk: ValidationRisk | None  # of presets, whose `release` is the one they ship
    seconds: dict[str, float | None]
    peak_mib: float | None
    gpu_peak_mib: float | None
    devices: list[str]
    splits_done: int
    error: str | None
    mean_rank: float | None
    against: dict[str, Paired | None]
    on_release_of: dict[str, list[SharedRow]]


class Published(TypedDict):
    """The paper's tables, by method and cohort."""

    source: str
    imputation: dict[str, CohortFigures]
    under_selection: dict[str, CohortFigures]


class Gathered(TypedDict):
    """What finished cells come to."""

    effort: float
    note: str | None
    repartitions: int
    states_of_code: int
    rivals: list[str]
    methods: dict[str, MethodRow]
    published: Published


class BenchmarkResult(Gathered):
    """The same with what was compared on what: the content of benchmark.json."""

    target: str
    unit: str | None
    tolerance: float | str
    splits: int
    split: str
    test_fraction: float
    n_visits: int
    n_patients: int
    limits: Mapping[str, float] | None


def packed(outcomes: Sequence[Sequence[Outcome]]) -> FloatArray:
    """Outcomes as an array of levels x draws x figures; NaN where there is none."""
    rows = [[astuple(each) for each in at_level] for at_level in outcomes]
    return np.array(rows, dtype=np.float64)  # None becomes NaN


def unpacked(table: FloatArray) -> list[list[Outcome]]:
    """What `packed` put together."""
    return [[_outcome(row) for row in at_level.tolist()] for at_level in table]


def _outcome(row: list[float]) -> Outcome:
    risky, released, fdp, power, acceptance, mae, rmse = row
    some = released > 0
    return Outcome(int(risky), int(released), fdp, power, acceptance, mae if some else None, rmse if some else None)
