"""Every option of a fit, declared once with its type, range, default and one sentence; all else derives from here.

The command line's flags, the estimator's signature, the TOML file, `run.json` and the site's page of options are made
from these classes. No numerical library is loaded, so `--help` answers at once and `--threads` is heard before.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from safeimpute.errors import OptionError
from safeimpute.machine.options import (
    CHECKED,
    COST,
    LIMITS,
    Option,
    a_name,
    as_claim,
    as_labs,
    auto_or_names,
    checked,
    days_of,
    or_none,
    read_moment,
)
from safeimpute.machine.options import as_names as _names
from safeimpute.machine.options import parameters_of as parameters_of
from safeimpute.machine.progress import Effort, EffortName

if TYPE_CHECKING:
    from safeimpute.tolerance import Tolerance

PresetName = Literal["best", "paper"]
ClaimName = Literal["unmeasured", "patients", "later", "visits"]
PromiseName = Literal["average", "confident"]
OverName = Literal["labs", "cells"]
DeviceName = Literal["auto", "cpu", "cuda"]
LogLabs = Literal["auto"] | tuple[str, ...]
DEFAULT_CLAIM: dict[str, ClaimName] = {"best": "unmeasured", "paper": "visits"}
BY_PRESET: Any = None  # until `Settings` has looked at the preset


def _tolerance(given: Any) -> Any:
    from safeimpute.tolerances import read_tolerance

    return read_tolerance(given)


COLUMN = "the name of a column"
COLUMNS = "names of columns, comma separated or as a list"
LOG = Option(
    "Labs whose logarithm is imputed; auto takes those that are positive and skewed.",
    takes="auto, or names of labs",
    reads=auto_or_names,
)
NO_LOG = replace(LOG, default="no lab")  # the paper takes no logarithm


@dataclass(frozen=True)
class GraphSettings:
    """How the paper's event graph joins visits."""

    __pydantic_config__: ClassVar[Any] = CHECKED

    max_gap_days: Annotated[
        float | None,
        Option(
            "Longest gap between visits of one patient that are joined (Delta_t).",
            above=0,
            most=100_000,
            default="95th percentile of the gaps",
            reads=or_none,
        ),
    ] = None
    value_radius: Annotated[
        float | None,
        Option(
            "Largest distance by values at which visits are joined (tau_v).",
            above=0,
            most=1_000_000,
            default="by median_degree",
            reads=or_none,
        ),
    ] = None
    trend_radius: Annotated[
        float | None,
        Option(
            "Largest distance by trends at which visits are joined (tau_delta).",
            above=0,
            most=1_000_000,
            default="by median_degree",
            reads=or_none,
        ),
    ] = None
    median_degree: Annotated[
        int,
        Option(
            "Like visits that the median visit shall be joined to, among visits with a trend to compare: the others "
            "can have no such edge at any radius.",
            least=1,
            most=1_000,
        ),
    ] = 16
    max_neighbors: Annotated[
        int | None,
        Option(
            "Most like visits one visit is joined to; none leaves the paper's graph uncapped.",
            least=1,
            most=10_000,
            reads=or_none,
        ),
    ] = 32
    fallback: Annotated[bool, Option("Join a visit whose trend cannot be compared to its nearest by value.")] = True
    use_temporal: Annotated[bool, Option("Join visits along time; off in the ablation.")] = True
    use_value: Annotated[bool, Option("Join visits by likeness; off in the ablation.")] = True
    trend_epsilon: Annotated[
        float, Option("Days added to the gap a trend is divided by (epsilon).", above=0, most=10_000)
    ] = 1e-6
    log_labs: Annotated[LogLabs, NO_LOG] = ()


@dataclass(frozen=True)
class GcnSettings:
    """The paper's network and its training."""

    __pydantic_config__: ClassVar[Any] = CHECKED

    layers: Annotated[int, Option("Graph convolutions, one after the other.", least=1, most=8)] = 2
    width: Annotated[int, Option("Units per layer.", least=1, most=1_024)] = 64
    gate: Annotated[bool, Option("Weigh the two relations per visit; without it they are averaged (ablation).")] = True
    reconstruction_weight: Annotated[
        float, Option("Weight of reconstructing other labs (lambda); 0 is the ablation.", least=0, most=100)
    ] = 0.1
    masked_labs: Annotated[
        float, Option("Share of other labs hidden and reconstructed per epoch.", least=0, most=0.9)
    ] = 0.15
    hidden_targets: Annotated[
        float, Option("Share of training targets hidden and predicted per epoch.", least=0.1, most=0.9)
    ] = 0.5
    huber: Annotated[
        float, Option("Where the Huber loss turns linear (eta), in standard units.", least=0.001, most=1_000)
    ] = 1.0
    dropout: Annotated[float, Option("Share of units dropped in training; the paper drops none.", least=0, below=1)] = (
        0.0
    )
    learning_rate: Annotated[float, Option("Step size of Adam.", least=1e-6, most=1)] = 1e-2
    weight_decay: Annotated[float, Option("Weight decay of Adam.", least=0, most=1)] = 5e-4
    epochs: Annotated[int, Option("Most passes over the training visits.", least=1, most=100_000)] = 500
    check_every: Annotated[int, Option("Epochs between looks at the validation error.", least=1, most=1_000)] = 5
    patience: Annotated[int, Option("Looks without improvement before training stops.", least=1, most=100_000)] = 40


@dataclass(frozen=True)
class PerturbationSettings:
    """Keep probability of an edge with margin m: least + (most - least) * m ** sharpness."""

    __pydantic_config__: ClassVar[Any] = CHECKED

    passes: Annotated[int, Option("Thinned graphs the instability is taken over (K).", least=2, most=1_000)] = 20
    least: Annotated[float, Option("Keep probability of the weakest edge.", least=0, most=1)] = 0.5
    most: Annotated[float, Option("Keep probability of the firmest edge.", least=0, most=1)] = 0.95
    sharpness: Annotated[
        float, Option("How fast the keep probability falls with the margin.", least=0.01, most=100)
    ] = 1.0

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise OptionError(
                f"paper.perturbation: least ({self.least:g}) is above most ({self.most:g}). The weakest edge is kept "
                "at most as often as the firmest."
            )


@dataclass(frozen=True)
class PaperSettings:
    """The paper's system; each switch of its ablations is an option."""

    __pydantic_config__: ClassVar[Any] = CHECKED

    graph: GraphSettings = field(default_factory=GraphSettings)
    gcn: GcnSettings = field(default_factory=GcnSettings)
    perturbation: PerturbationSettings = field(default_factory=PerturbationSettings)
    beta: Annotated[
        float, Option("Weight of scarce evidence in the proxy risk; 0 is the ablation.", least=0, most=1_000)
    ] = 0.1


@dataclass(frozen=True)
class BestSettings(Effort):
    """What the best system looks at, and in how many folds of patients it learns."""

    __pydantic_config__: ClassVar[Any] = CHECKED

    folds: Annotated[int, Option("Folds of patients; each is judged by the others.", least=3, most=10)] = 5
    effort: Annotated[
        EffortName, Option("Work of a fit: full, or light (four folds, faster trees). auto: light for several labs.")
    ] = "auto"
    own_each_way: Annotated[
        int, Option("Own measured visits looked at before a visit, and after it.", least=2, most=50)
    ] = 6
    analogues: Annotated[
        int, Option("Visits of other patients most like a visit that are looked at.", least=1, most=64)
    ] = 16
    panel_visits: Annotated[int, Option("Measured visits kept to find analogues among.", least=100, most=500_000)] = (
        20_000
    )
    learn_visits: Annotated[
        int, Option("Measured visits a fold learns from; drawn if more.", least=1_000, most=10_000_000)
    ] = 200_000
    log_labs: Annotated[LogLabs, LOG] = "auto"
    block_visits: Annotated[
        int, Option("Visits read at once: bounds memory, not results.", least=1_024, most=1_048_576)
    ] = 65_536


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything one fit was told, checked and resolved; `make_settings` makes it."""

    __pydantic_config__: ClassVar[Any] = CHECKED

    target: Annotated[
        str,
        Option(
            "Lab to impute, or several in one run.",
            takes="the name of a column, names of columns (comma separated or as a list), or all",
            reads=as_labs,
        ),
    ]
    tolerance: Annotated[
        float | str,
        Option(
            "Error that counts as unacceptable.",
            takes="a number in the target's unit (0.5), a share of the true value (20%), the larger of both "
            "(10% or 6), limits for the wrong side of a decision limit, an error and limits (0.5 and limits), "
            "class 0<1 or class no<yes for another class than the true one, each lab's own (hba1c=0.5,ldl=10%), or "
            "allowable for the catalogue's allowable errors",
            reads=_tolerance,
        ),
    ]
    fdr: Annotated[float, Option("Largest share of unacceptable errors among the released values.", above=0, below=1)]
    limits: Annotated[tuple[float, ...], LIMITS] = ()
    cost: Annotated[str, COST] = ""
    preset: Annotated[PresetName, Option("Which system imputes.")] = "best"
    claim: Annotated[
        ClaimName,
        Option(
            "What the release is promised for: visits nobody measured (unmeasured), such visits of patients the fit "
            "never met (patients) or of what comes in later (later), or visits like the measured ones (visits).",
            default="unmeasured; visits with preset paper",
            reads=as_claim,
        ),
    ] = BY_PRESET
    promise: Annotated[
        PromiseName, Option("Whether the level holds on average over repetitions, or for this release with confidence.")
    ] = "average"
    confidence: Annotated[
        float, Option("Confidence of the promise confident, and of the bound reported.", above=0.5, below=1)
    ] = 0.9
    groups: Annotated[
        tuple[str, ...],
        Option(
            "Groups within each of which the level holds, crossed where several are named.",
            takes="value (bands of the imputed value), history (own values 0, 1 to 2, 3 or more) and names of "
            "attributes, comma separated or as a list",
            default="none: the level holds over all released values together",
            reads=_names,
        ),
    ] = ()
    risk_cap: Annotated[
        float | None,
        Option(
            "No value with a larger risk is released, whatever the level allows.",
            above=0,
            most=1,
            default="no cap",
            reads=or_none,
        ),
    ] = None
    over: Annotated[
        OverName, Option("Of several labs: the level holds in each, or over the cells of all together.")
    ] = "labs"
    labs: Annotated[
        tuple[str, ...], Option("Columns that are labs.", takes=COLUMNS, default="told by the data", reads=_names)
    ] = ()
    attributes: Annotated[
        tuple[str, ...], Option("Columns that are attributes.", takes=COLUMNS, default="told by the data", reads=_names)
    ] = ()
    exclude: Annotated[
        tuple[str, ...], Option("Columns to leave out.", takes=COLUMNS, default="no column", reads=_names)
    ] = ()
    subject: Annotated[str, Option("Column that says whose visit it is.", takes=COLUMN, reads=a_name)] = "subject_id"
    time: Annotated[str, Option("Column that says when the visit was.", takes=COLUMN, reads=a_name)] = "time"
    unit: Annotated[
        str | None,
        Option(
            "Unit of the target.",
            takes="a text such as mg/dL; of several labs each its own (hba1c=%,ldl=mg/dL)",
            default="by the catalogue of labs",
        ),
    ] = None
    past_only: Annotated[
        bool,
        Option(
            "Impute each visit from what was known about the patient by its time: earlier visits, and only values "
            "whose LAB__known, where the table has it, is not later. The claim later implies it."
        ),
    ] = False
    since: Annotated[
        float | str | None,
        Option(
            "With the claim later: calibrate on what came since this date; everything is learnt from all the same.",
            takes="a date such as 2026-01-31, or a number of days where the table counts days",
            default="the whole record",
            reads=read_moment,
        ),
    ] = None
    interval: Annotated[float, Option("Coverage of the interval from lower to upper.", above=0, below=1)] = 0.9
    gammas: Annotated[
        tuple[Annotated[float, Option("One factor.", least=1, most=1_000)], ...],
        Option(
            "Factors by which an unseen reason may change the odds of measuring, for the sensitivity table.",
            flag="gamma",
            takes="numbers from 1 to 1,000, comma separated or as a list",
            reads=_names,
        ),
    ] = (1.0, 1.25, 1.5, 2.0, 3.0)
    random_state: Annotated[
        int,
        Option("Seed of every random choice.", least=0, most=2**63 - 1, takes="a whole number, 0 or more", flag="seed"),
    ] = 0
    device: Annotated[DeviceName, Option("Where networks run; auto takes the GPU where there is one.")] = "auto"
    best: BestSettings = field(default_factory=BestSettings)
    paper: PaperSettings = field(default_factory=PaperSettings)

    def __post_init__(self) -> None:
        """Fill in what other options decide; refuse what a preset cannot do."""
        if self.claim is BY_PRESET:
            object.__setattr__(self, "claim", DEFAULT_CLAIM[self.preset])
        if self.claim == "later":
            object.__setattr__(self, "past_only", True)
        self._carry()
        if self.since is not None and self.claim != "later":
            raise OptionError(f"since needs the claim 'later': the claim {self.claim!r} speaks for the whole record.")
        if self.preset == "paper" and self.claim != "visits":
            raise OptionError(
                f"claim {self.claim!r} needs the preset 'best': the preset 'paper' makes the claim 'visits' only."
            )
        if self.preset == "paper" and (self.groups or self.risk_cap is not None):
            raise OptionError(
                "groups and risk_cap need the preset 'best': the preset 'paper' releases as published, over all visits."
            )
        if self.over == "cells" and (self.claim == "visits" or self.groups):
            raise OptionError(
                "over cells needs another claim than 'visits', and no groups: both speak of one lab at a time."
            )
        if self.preset == "paper" and self.past_only:
            raise OptionError(
                "past_only needs the preset 'best': the paper's graph joins visits to later ones as well."
            )

    def _carry(self) -> None:
        """From here on the tolerance carries limits and costs."""
        from safeimpute.tolerances import carrying, counts_costs

        if self.limits or self.cost:
            object.__setattr__(self, "tolerance", carrying(self.tolerance, self.limits, self.cost))
            vars(self).update(limits=(), cost="")
        if self.claim == "visits" and counts_costs(self.tolerance):
            raise OptionError("cost needs another claim than 'visits', whose ranks know only right and wrong.")

    @property
    def since_days(self) -> float | None:
        """`since` as the visits count time: days, from 1970 on where it is a date."""
        return None if self.since is None else days_of(self.since)

    @property
    def uses_calendar(self) -> bool:
        """Absolute time counts, except where the months to come are promised for: they lie beyond what was learnt."""
        return self.claim != "later"

    @property
    def allowed_error(self) -> "Tolerance":
        """The tolerance, read."""
        from safeimpute.tolerance import parse_tolerance

        return parse_tolerance(self.tolerance)


def make_settings(**given: Any) -> Settings:
    """Checked settings from options by name (None: not given), or an error that names the option and what it takes."""
    told = {name: value for name, value in given.items() if value is not None}
    from safeimpute.tolerances import implied

    return checked(Settings, implied(told.get("limits"), told.get("cost")) | told)
