"""A run's result as typed data: what summary.json and the page's sliders hold, all that is shown is made from it.

Everything is plain and finite, so that it can be written as JSON; what does not exist is None.
"""

from typing import TypedDict

from safeimpute.evaluation.data_profile import DataProfile
from safeimpute.evaluation.subgroups import Subgroup
from safeimpute.settings import ClaimName, PresetName, PromiseName


class Counts(TypedDict):
    """How many of some missing values were released, how many withheld."""

    released: int
    withheld: int


class Histogram(TypedDict):
    """Released and withheld values between edges; the last bin also holds the highest percent."""

    edges: list[float]
    released: list[int]
    withheld: list[int]


class GapHistogram(Histogram):
    """By days since the patient's last measured target; patients without one are counted apart."""

    no_earlier_value: Counts


class CutoffSummary(TypedDict):
    """The risk up to which a group of values is released, and what is known of the values up to there."""

    group: str  # in words; empty where there is one for all
    missing: int
    released: int
    risk: float | None  # None: no risk keeps the level
    share: float | None  # of unacceptable errors among measured visits up to it, weighted as the claim asks
    visits: float  # of equal weight, worth the measured ones within the promise
    patients: float  # likewise
    words: str


class BoundSummary(TypedDict):
    """How many of the released values are unacceptable at most, whatever level is picked."""

    confidence: float
    values: int
    risky: int  # of these values
    share: float | None  # of all that the rule releases in the long run
    words: str
    survives: str  # which promise survives looking


class GatheringCellSummary(TypedDict):
    """One group at one level: what the rule over all values does there, and what a rule of its own would do."""

    fdr: float
    released: int
    share: float | None  # of unacceptable errors among its measured visits that would be released, weighted
    own_released: int
    own_share: float | None


class GatheringGroupSummary(TypedDict):
    """One group of visits, at every level."""

    group: str
    missing: int
    cells: list[GatheringCellSummary]


class GatheringSummary(TypedDict):
    """Where risky values gather by one way to group visits."""

    by: str
    groups: list[GatheringGroupSummary]


class CalibrationPoint(TypedDict):
    """Visits with a like chance of being unmeasured: the mean chance, and the share that is."""

    visits: int
    predicted: float
    observed: float


class MeasuringReason(TypedDict):
    """What tells measured from unmeasured visits, and its share of what the model learnt."""

    column: str
    share: float
    direction: str


class MeasuringSummary(TypedDict):
    """How good the model of who gets measured is, and what it leaves of the measured visits."""

    words: str  # how well it tells, in plain words
    worth: str  # what the weights leave, in plain words
    auc: float | None
    miscalibration: float  # mean distance between predicted and observed shares
    calibration: list[CalibrationPoint]
    measured: int  # visits inside the promise
    effective_visits: float
    effective_patients: float
    outside: int  # missing values no measured visit resembles
    reasons: list[MeasuringReason]
    columns: list[str]  # of the table, used by the model
    not_used: dict[str, str]  # columns of the table it did not see, and why


class Doubt(TypedDict):
    """What would still be released were the odds of measuring off by a factor."""

    gamma: float
    released: int


class Accuracy(TypedDict):
    """Errors at measured visits, beside plain ways on the same visits."""

    visits: int
    how: str  # how these visits were imputed
    mae: dict[str, float]  # this run's under its preset's name, first
    risky_share: float | None


class RiskGroup(TypedDict):
    """Measured visits of like risk: how wrong their imputations are."""

    group: int  # from 1, the lowest risk
    visits: int
    risk_from: float
    risk_to: float
    mae: float
    risky: float


class LevelOutcome(TypedDict):
    """What the average rule would do at a level, judged by the same errors."""

    fdr: float
    cutoff: float | None
    released: int
    risky: (
        float  # share of unacceptable errors among measured visits up to the cut-off, weighted; 0 without one
    )
    power: float  # share of the acceptable ones that lie up to it
    mae: float | None
    bound: int  # with confidence at most so many of the released values are unacceptable, whatever level is picked


class ToleranceOutcomes(TypedDict):
    """The outcome at every level, at one tolerance."""

    tolerance: str  # as a user would type it
    words: str
    released: list[int]
    risky: list[float]
    power: list[float]
    mae: list[float | None]
    bound: list[int]  # at the run's own tolerance; empty at others, which the bound does not cover


class SliderGrid(TypedDict):
    """The outcome at every setting of the page's two sliders."""

    levels: list[float]
    chosen_level: int
    chosen_tolerance: int
    candidates: int  # missing values inside the promise
    judged: int  # measured visits the outcomes are judged by
    confidence: float  # of the bound
    confident: bool  # the run itself asked for confidence; the sliders follow the average rule
    tolerances: list[ToleranceOutcomes]


class Spread(TypedDict):
    """Some values in three figures."""

    values: int
    mean: float | None
    median: float | None


class CohortMeans(TypedDict):
    """The mean of the target over all visits, by what is counted."""

    measured: float | None  # measured values alone
    with_released: float | None  # released values filled in
    missing_expected: float | None  # of the missing values, by measured ones weighted to stand for them
    expected: float | None  # of all visits, by the same


class Fifth(TypedDict):
    """A fifth of the missing values by imputed value."""

    low: float
    high: float
    missing: int
    released: int


class Distribution(TypedDict):
    """What the release does to the distribution of values."""

    measured: Spread
    released: Spread  # imputed values
    withheld: Spread
    passing: Spread  # what was measured where the rule would release, weighted to stand for missing values
    stopped: Spread  # and where it would withhold
    means: CohortMeans
    fifths: list[Fifth]
    warning: str
    instead: str  # what to use


class Terms(TypedDict):
    """What holds for every lab of a run."""

    fdr: float
    preset: PresetName
    claim: ClaimName
    promise_kind: PromiseName
    confidence: float
    past_only: bool
    effort: str  # what a light fit did with less; empty where nothing was spared


class Asked(Terms):
    """What the run was told."""

    target: str
    unit: str | None
    tolerance: float | str
    tolerance_in_words: str


class PromiseSummary(TypedDict):
    """What is promised, in words."""

    promise: str  # empty: no guarantee, and `no_promise` says why
    assumption: str
    limits: str
    no_promise: str
    second_look: bool


class RunSummary(Asked, PromiseSummary):
    """What was asked, what came out, what it promises, and what it rests on."""

    measured: int
    judged: int  # measured visits whose errors decided the release
    missing: int
    released: int
    withheld: int
    next_step: str  # the nearest setting that would have released, where nothing was; seen after looking
    withheld_by_reason: dict[str, int]  # most frequent first
    reason_words: dict[str, str]  # what each of these reasons means
    risk_is_probability: bool
    groups_by: list[str]
    risk_cap: float | None
    cutoffs: list[CutoffSummary]
    bound: BoundSummary
    gathering: list[GatheringSummary]
    measuring: MeasuringSummary | None  # None where the claim does not look at who gets measured
    sensitivity: list[Doubt]
    by_risk: Histogram
    by_value: Histogram
    by_gap: GapHistogram
    distribution: Distribution
    accuracy: Accuracy
    alignment: list[RiskGroup]
    curve: list[LevelOutcome]
    subgroups: list[Subgroup]
    data: DataProfile
    seconds: dict[str, float]
