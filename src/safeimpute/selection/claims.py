"""What a release promises: for whom, on average or with confidence, under which assumption; as plain sentences."""

from dataclasses import dataclass

from safeimpute.selection.bounds import Bound
from safeimpute.settings import ClaimName, PromiseName, Settings

WHO: dict[str, str] = {
    "unmeasured": "for visits where nobody measured it, of patients like those in the table",
    "patients": "for visits where nobody measured it, of patients the fit never met but like those in the table",
    "later": "for visits where nobody measured it, as they come in after the fit, imputed from what is known by then",
    "visits": "for visits of the patients in the table that are like those where it was measured",
}

SECOND_LOOK = "the levels were chosen after looking at the same visits"  # why nothing is promised then


@dataclass(frozen=True)
class Promised:
    """A claim in words: the promise, what it rests on, and what it does not say."""

    promise: str  # empty: no guarantee
    assumption: str
    limits: str
    no_promise: str = ""  # why there is no guarantee; empty where there is one


def promise_in_words(settings: Settings, unit: str | None, columns: tuple[str, ...] = ()) -> Promised:
    """The promise, its assumption and its limits; `columns` are those the model of measuring used.

    The level holds within each of the settings' groups, where some are named.
    """
    target = settings.target
    return promise_about(settings, target, settings.allowed_error.fault(unit), target, columns)


def promise_about(settings: Settings, target: str, fault: str, measured: str, columns: tuple[str, ...]) -> Promised:
    """The same in any words: of a target, what an unacceptable value is (`fault`), what was measured or not."""
    claim, promise, groups = settings.claim, settings.promise, settings.groups
    where = fault.startswith("on ")
    share, shares = (f"lies {fault}", f"lie {fault}") if where else (f"is {fault}", f"are {fault}")
    level = f"{100 * settings.fdr:g} %"
    if promise == "confident":
        sentence = (
            f"With {100 * settings.confidence:g} % confidence, at most {level} of the {target} values that this rule "
            f"releases {WHO[claim]} {shares}{_within(groups)}."
        )
    else:
        sentence = f"Of the {target} values released {WHO[claim]}, the expected share that {share} is at most "
        sentence += f"{level}{_within(groups)}."
    return Promised(sentence, " ".join(_assumptions(claim, measured, columns)), _limits(claim, promise, groups))


def without_promise(why: str) -> Promised:
    """No guarantee, and why."""
    return Promised("", "", "", why)


def _assumptions(claim: ClaimName, target: str, columns: tuple[str, ...]) -> list[str]:
    if claim == "visits":
        return [
            "The visits to be filled in are like the measured ones, of which some were set aside at random to "
            "calibrate. Nothing is promised for visits that were left unmeasured for a reason."
        ]
    used = f" ({_listed(columns)})" if columns else ""
    said = [
        f"Given what the table shows at other visits and of other columns{used}, whether {target} was measured does "
        "not depend on its value. The promise is as good as the model of who gets measured."
    ]
    if claim == "patients":
        said.append("The new patients come from where the table's patients come from.")
    if claim == "later":
        said.append("The months to come resemble those of the fit: who comes, who is measured, how values move.")
    return said


def _listed(columns: tuple[str, ...], most: int = 12) -> str:
    shown = ", ".join(columns[:most])
    return shown if len(columns) <= most else f"{shown} and {len(columns) - most} more"


def _within(groups: tuple[str, ...]) -> str:
    return f", also within each group by {' and '.join(groups)}" if groups else ""


def headline_in_words(released: int, fault: str, settings: Settings) -> str:
    """A release with a promise in one sentence with one number."""
    if not released:
        return ""
    level, some = (
        f"{100 * settings.fdr:g} %",
        f"{round(settings.fdr * released):,} of these {released:,} released values",
    )
    if settings.promise == "confident":
        sure = f"with {100 * settings.confidence:g} % confidence"
        return f"The rule keeps to {level}, {sure}: expect no more than {some} to be {fault}."
    return f"Expect up to {some} ({level}) to be {fault}."


FAR = 2.0  # times the level: a bound so large says that the table cannot vouch for this very release


def bound_in_words(bound: Bound, fault: str, alpha: float | None = None) -> str:
    """How many may be off by bad luck: what follows the headline, or stands alone where no level is promised."""
    if not bound.values:
        return ""
    sure = f"with {100 * bound.confidence:g} % confidence"
    share = f"({100 * bound.risky / bound.values:.0f} %)"
    if alpha is None or bound.risky <= alpha * bound.values:
        some = f"{bound.risky:,} of these {bound.values:,} released values {share}"
        return f"{sure.capitalize()} no more than {some} are {fault}."
    said = f"By bad luck it may be more; {sure} it is no more than {bound.risky:,} of them {share}."
    if bound.risky < FAR * alpha * bound.values:
        return said
    return (
        f"{said} That is far from {100 * alpha:g} %: so few measured values cannot vouch for this very release. "
        "Surer, for visits not looked at yet: --promise confident, a higher level, or --risk-cap."
    )


BOUND_SURVIVES = (
    "This bound holds for every level at once: a level picked after looking may be reported with the bound shown for "
    "it. The level itself is promised only if it was chosen before."
)


PROVED = {
    "exact": "Given the assumption this is proved, whatever the size of the table.",
    "average": "Given the assumption it is proved in the limit of many patients, simulated for tables of this size.",
    "confident": "Given the assumption and independent patients it is proved in the limit of many, simulated for "
    "tables of this size.",
}


def _limits(claim: ClaimName, promise: PromiseName, groups: tuple[str, ...] = ()) -> str:
    proved = PROVED["exact" if claim == "visits" else promise]
    one = (
        "It speaks for all values the rule releases in the long run: a single small batch may exceed the level."
        if promise == "confident"
        else "The share is an average over repetitions: a single release may exceed it."
    )
    other = ", and not other groups than those named" if groups else ", and not every subgroup"
    return f"{one} It covers all released values together, not a subset picked later{other}. {proved}"
