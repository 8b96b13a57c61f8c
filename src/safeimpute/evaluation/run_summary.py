"""A run's result as typed data: what summary.json holds, all that is shown is made from it.

Everything is plain and finite, so that it can be written as JSON; what does not exist is None.
"""

from typing import TypedDict, final

from safeimpute.evaluation.data_profile import DataProfile, MeasuringSummary
from safeimpute.evaluation.release_profile import Distribution, LevelOutcome, Subgroup
from safeimpute.settings import ClaimName, OverName, PresetName, PromiseName


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
    headline: str  # the release in one sentence with one number; empty without a promise
    words: str
    alone: str  # the same where no level is promised
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


class Doubt(TypedDict):
    """What would still be released were the odds of measuring off by a factor."""

    gamma: float
    released: int


class StabilitySummary(TypedDict):
    """How much the release hangs on the draw: decided without each part of the patients in turn."""

    parts: int
    fewest: int
    most: int
    always: int  # values of the release that every one of these decisions releases
    words: str  # empty where nothing was released


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


class BandSummary(TypedDict):
    """What lies between two limits."""

    band: str
    measured: int  # judged visits whose measured value lies in it
    into: int  # judged visits imputed into it
    right: int  # both
    missing: int  # missing values imputed into it
    released: int


class Bands(TypedDict, total=False):
    """Where limits count."""

    bands: list[BandSummary]


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


@final
class RunSummary(Asked, PromiseSummary, Bands):
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
    stability: StabilitySummary
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


class LabLine(TypedDict):
    """One lab of several."""

    folder: str  # of the lab's own results, inside the run's folder
    unit: str | None
    tolerance: float | str
    tolerance_in_words: str
    measured: int
    missing: int
    released: int
    withheld: int
    next_step: str  # the nearest setting that would have released, where nothing was; seen after looking
    cutoff: float | None
    risky: float | None  # weighted share of unacceptable errors among measured visits up to the cut-off
    mae: float | None  # of this run's preset, at measured visits
    no_promise: str  # why nothing is promised for this lab; empty where something is
    second_look: bool
    seconds: float  # of the fit


@final
class LabsSummary(Terms, PromiseSummary):
    """What was asked for all labs, what came out, and what it promises."""

    targets: list[str]
    over: OverName
    bound: BoundSummary  # over all labs
    visits: int
    patients: int
    missing: int
    released: int
    withheld: int
    left_out: dict[str, str]  # labs of `all` that cannot be imputed, and why
    labs: dict[str, LabLine]
