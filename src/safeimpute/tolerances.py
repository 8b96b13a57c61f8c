"""Tolerances as they are typed: limits and costs beside them, limits looked up later, and several labs' own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safeimpute.errors import OptionError
from safeimpute.tolerance import BY_SIZE, COST, LIMITS, LIMITS_FORM, Tolerance, parse_tolerance


def limits_to_look_up(given: object) -> bool:
    """Whether a tolerance speaks of limits without saying which: those of the catalogue."""
    match = LIMITS_FORM.match(given.partition(f" {COST} ")[0].strip()) if isinstance(given, str) else None
    return match is not None and not match["values"]


def with_limits(given: object, limits: Sequence[float]) -> str:
    """A tolerance that speaks of limits, with these."""
    base, said, cost = str(given).partition(f" {COST} ")
    match = LIMITS_FORM.match(base.strip())
    if match is None:
        raise OptionError(
            f"limits are given, and tolerance {given!r} does not speak of them. Write the tolerance as limits, or as "
            "0.5 and limits; of several labs each its own, as in hba1c=limits 5.7 6.5,ldl=10%."
        )
    text = f"{match['error']} and " if match["error"] else ""
    return f"{text}{LIMITS} {' '.join(f'{each:.12g}' for each in limits)}{said}{cost}"


def with_cost(given: object, cost: str) -> str:
    """A tolerance with costs beside it; one by size is a tolerance itself."""
    if not cost.startswith(BY_SIZE):
        return f"{given} {COST} {cost}"
    if str(given) != cost:
        raise OptionError(f"cost {cost!r} says what an error is worth, and so does tolerance {given!r}. Give only one.")
    return cost


def carrying(tolerance: object, limits: Sequence[float], cost: str) -> Any:
    """The tolerance as told, with the limits and costs that were told beside it."""
    if limits:
        tolerance = with_limits(tolerance, limits)
    return read_tolerance(with_cost(tolerance, cost) if cost else tolerance)


def words_of(target: str, tolerance: Any) -> tuple[str, ...]:
    """The classes of a target as words, where its tolerance says them."""
    said = parse_tolerances(tolerance).of(target) if by_lab(tolerance) else tolerance
    return () if said in (None, ALLOWABLE) or limits_to_look_up(said) else parse_tolerance(said).words


def counts_costs(tolerance: object) -> bool:
    """Whether errors count by what they cost, of some lab at least."""
    return any(mark in str(tolerance) for mark in (f" {COST} ", BY_SIZE))


def implied(limits: object, cost: object) -> dict[str, Any]:
    """The tolerance that limits or costs say by themselves, where none is given."""
    if str(cost or "").startswith(BY_SIZE):
        return {"tolerance": cost}
    return {"tolerance": LIMITS} if limits or cost else {}


ALLOWABLE = "allowable"  # each lab's own allowable error, from the catalogue of labs


@dataclass(frozen=True)
class Tolerances:
    """What was said for several labs: each lab's own tolerance, and one for the labs not named."""

    named: Mapping[str, str]
    rest: str | None  # a tolerance, or `allowable`; None: every lab must be named

    def of(self, lab: str) -> str | None:
        """What was said for a lab; None where nothing was."""
        return self.named.get(lab, self.rest)


def by_lab(given: object) -> bool:
    """Whether a tolerance speaks of labs by name, or of the catalogue."""
    return isinstance(given, str) and any(
        "=" in part or part.strip() == ALLOWABLE or limits_to_look_up(part) for part in given.split(",")
    )


def parse_tolerances(given: float | str) -> Tolerances:
    """Read `hba1c=0.5,ldl=10%`, `allowable`, or one tolerance for the labs not named among them."""
    named: dict[str, str] = {}
    rest: str | None = None
    for part in str(given).split(","):
        lab, equals, tolerance = (text.strip() for text in part.rpartition("="))
        if (lab in named) if equals else (rest is not None):
            what = f"lab {lab!r}" if equals else "the labs not named"
            raise OptionError(f"tolerance {given!r} speaks of {what} twice. Say it once.")
        if tolerance != ALLOWABLE and not limits_to_look_up(tolerance):
            parse_tolerance(tolerance)
        if equals:
            named[lab] = tolerance
        else:
            rest = tolerance
    return Tolerances(named, rest)


def tolerances_as_text(given: Mapping[str, float | str]) -> str:
    """A tolerance per lab as one text, the way it is typed."""
    for lab, tolerance in given.items():
        if any(mark in f"{lab}{tolerance}" for mark in ",="):
            raise OptionError(
                f"the tolerance of lab {lab!r} is not understood, or its name holds a comma or an equals sign. Write a "
                "number or a share, and rename such a column."
            )
    return ",".join(f"{lab}={tolerance}" for lab, tolerance in given.items())


def read_tolerance(given: Any) -> Any:
    """As options are told it: a plain number stays one, however it was typed; the other forms are kept as given."""
    text = tolerances_as_text(given) if isinstance(given, dict) else given
    if by_lab(text):
        parse_tolerances(text)
        return text
    tolerance = parse_tolerance(text)
    return tolerance.absolute if tolerance == Tolerance(tolerance.absolute) else text
