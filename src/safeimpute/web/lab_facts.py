"""What the catalogue knows of a lab on the page: its name as it is said, limits and ranges in the run's own unit."""

from typing import TypedDict

from safeimpute.records.catalogue import DecisionLimits, Lab, load_catalogue, normal_unit
from safeimpute.records.catalogue_facts import lab_title


class Limit(TypedDict):
    """A value at which a clinician decides."""

    value: float
    name: str  # what begins there; empty where the source does not say


class Usual(TypedDict):
    """Between which values most healthy adults lie."""

    low: float
    high: float
    source: str
    verified: bool


class LabFacts(TypedDict):
    """What is drawn and said beside a lab's values."""

    title: str
    limits: list[Limit]
    limits_source: str
    usual: Usual | None


def lab_facts(name: str, unit: str | None) -> LabFacts:
    """The facts of a lab in `unit`; without a known unit no limit is drawn, since it would be in another one."""
    known = load_catalogue().labs.get(name)
    if known is None:
        return {"title": lab_title(name), "limits": [], "limits_source": "", "usual": None}
    rule = known.conversions.get(normal_unit(unit)) if unit else None

    def here(value: float) -> float:
        return float(f"{(value - rule.plus) / rule.times:.4g}") if rule else value

    limits = known.decision_limits if rule else None
    return {
        "title": lab_title(name),
        "limits": [
            {"value": here(value), "name": words}
            for value, words in zip(limits.values, _names(limits), strict=True)
        ]
        if limits
        else [],
        "limits_source": limits.source.partition(":")[0] if limits else "",
        "usual": _usual(known, here(known.reference.low), here(known.reference.high))
        if rule and known.reference
        else None,
    }


def _usual(lab: Lab, low: float, high: float) -> Usual:
    source = lab.reference.source if lab.reference else ""
    return {"low": low, "high": high, "source": source, "verified": "reference" in lab.verified}


def _names(limits: DecisionLimits) -> list[str]:
    """What begins at each limit, as the source lists it after its colon."""
    names = [each.strip() for each in limits.source.partition(":")[2].split(",")]
    return names if len(names) == len(limits.values) else [""] * len(limits.values)
