"""The catalogue's facts one by one: where each comes from, and whether it was checked; what docs and reports tell."""

from collections.abc import Iterator
from typing import NamedTuple

from safeimpute.errors import OptionError
from safeimpute.records.catalogue import Catalogue, Lab, Vocabulary, load_catalogue, normal_unit

CODES: tuple[Vocabulary, ...] = ("mimic", "loinc", "omop")


class Fact(NamedTuple):
    """One code, factor, range or limit of a lab."""

    lab: str
    name: str  # "loinc 4548-4", "unit mmol/L", "reject", "flag", "allowable_error", "decision_limits", "reference"
    value: str
    source: str
    verified: bool


class Allowable(NamedTuple):
    """The error a regulator allows an analyser, as a tolerance."""

    tolerance: str  # as `parse_tolerance` reads it
    source: str
    verified: bool


def allowable_error(lab: str, unit: str | None = None, catalogue: Catalogue | None = None) -> Allowable:
    """The allowable error of a lab as a tolerance in `unit` (the catalogue's unless told), its source, and whether
    that was verified.

    Raises OptionError for a lab that is not in the catalogue, that no regulator limits, or in a unit in which the
    limit is not known.
    """
    known = (catalogue or load_catalogue()).lab(lab)
    allowed = known.allowable_error
    if allowed is None:
        raise OptionError(f"no regulator limits the error of {lab!r}: name a tolerance for it.")
    parts = [] if allowed.percent is None else [f"{allowed.percent:g}%"]
    if allowed.absolute is not None:
        rule = known.conversions.get(normal_unit(unit or known.unit))
        if rule is None:
            raise OptionError(
                f"the allowable error of {lab!r} is known in {known.unit}, not in {unit!r}: name a tolerance for it."
            )
        parts.append(f"{allowed.absolute / rule.times:.6g}")
    return Allowable(" or ".join(parts), allowed.source, "allowable_error" in known.verified)


def lab_title(name: str, catalogue: Catalogue | None = None) -> str:
    """A lab's name as people write it: the catalogue's title, or the column's own name without its underscores."""
    known = (catalogue or load_catalogue()).labs.get(name)
    text = known.spoken if known else name.replace("_", " ").strip() or name
    return text[:1].upper() + text[1:]


def facts(lab: Lab, catalogue: Catalogue) -> Iterator[Fact]:
    """Every fact of a lab's entry."""
    for name, value in _named(lab):
        kind = name.partition(" ")[0]
        source = catalogue.sources[kind][0]
        if not source:  # the entry names its own
            source = getattr(lab, kind).source
        yield Fact(lab.name, name, value, source, name in lab.verified)


def _named(lab: Lab) -> Iterator[tuple[str, str]]:
    for vocabulary in CODES:
        for code in lab.codes_in(vocabulary):
            yield f"{vocabulary} {code}", "code"
        for code in getattr(lab.derivatives, vocabulary):
            yield f"{vocabulary} {code}", "code of what is calculated from it"
    for unit, rule in lab.units.items():
        shift = f" + {rule.plus:g}" if rule.plus else ""
        yield f"unit {unit}", f"x {rule.times:g}{shift} = {lab.unit}" if rule.changes else f"= {lab.unit}"
    for name in ("reject", "flag"):
        limits = getattr(lab, name)
        yield name, f"{limits.low:g} to {limits.high:g} {lab.unit}"
    if lab.allowable_error is not None:
        yield "allowable_error", lab.allowable_error.describe(lab.unit)
    if lab.decision_limits is not None:
        yield (
            "decision_limits",
            ", ".join(f"{limit:g}" for limit in lab.decision_limits.values) + f" {lab.unit}",
        )
    if lab.reference is not None:
        yield "reference", f"{lab.reference.low:g} to {lab.reference.high:g} {lab.unit}"


def unverified(catalogue: Catalogue) -> list[Fact]:
    """The facts nobody checked."""
    return [fact for lab in catalogue.labs.values() for fact in facts(lab, catalogue) if not fact.verified]
