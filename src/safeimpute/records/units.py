"""What the settings say about a table: which column is what, the target's unit, what it can be in a living patient."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray, VisitArrays
from safeimpute.records.catalogue import load_catalogue
from safeimpute.records.columns import ColumnChoice
from safeimpute.records.unit_checks import require_units
from safeimpute.settings import Settings


def column_choice(settings: Settings) -> ColumnChoice:
    """Which column is what, as far as the user said it."""
    return ColumnChoice(
        settings.target,
        settings.subject,
        settings.time,
        settings.labs,
        settings.attributes,
        settings.exclude,
    )


@dataclass(frozen=True)
class TargetUnit:
    """The target's unit, and what it can be in a living patient; None where nobody says."""

    name: str | None
    plausible: tuple[float, float] | None
    decision_limits: tuple[float, ...]  # values at which a clinician decides; empty where nobody says


def unit_of(settings: Settings) -> TargetUnit:
    """All of it, looked up once for a whole run."""
    target, unit = settings.target, target_unit(settings)
    return TargetUnit(unit, plausible_range(target, unit), decision_limits(target, unit))


def target_unit(settings: Settings) -> str | None:
    """The target's unit: as given, else from the catalogue of labs."""
    known = load_catalogue().labs.get(settings.target)
    return settings.unit or (known.unit if known else None)


def plausible_range(target: str, unit: str | None) -> tuple[float, float] | None:
    """What the target can be in a living patient, where the catalogue knows it in this unit."""
    known = load_catalogue().labs.get(target)
    if known is None or unit != known.unit:
        return None
    return known.reject.low, known.reject.high


def decision_limits(target: str, unit: str | None) -> tuple[float, ...]:
    """Values at which a clinician decides, where the catalogue knows them in this unit."""
    known = load_catalogue().labs.get(target)
    return known.decision_limits.values if known and known.decision_limits and unit == known.unit else ()


def require_known_units(settings: Settings, visits: VisitArrays) -> None:
    """Refuse a table whose target or another lab is not in its unit, in all rows or in some, before any work."""
    unit = target_unit(settings)
    labs = dict(zip(visits.lab_names, visits.labs.T, strict=True))
    require_units(labs, {settings.target: unit})
    require_plausible(settings.target, unit, visits.target_values)


def require_same_units(
    settings: Settings, visits: VisitArrays, typical: Mapping[str, tuple[float, float]]
) -> None:
    """The same for new visits, held against what was typical at the fit: it decides alike for one row and for many."""
    labs = dict(zip(visits.lab_names, visits.labs.T, strict=True))
    require_units(labs, {settings.target: target_unit(settings)}, typical)


def require_plausible(target: str, unit: str | None, values: FloatArray) -> None:
    """Refuse a target (NaN where not measured) in another unit than the catalogue's, before any work."""
    limits = plausible_range(target, unit)
    measured = values[~np.isnan(values)]
    if limits is None or not len(measured):
        return
    outside = int(np.sum((measured < limits[0]) | (measured > limits[1])))
    if outside > len(measured) / 2:
        raise VisitsError(
            f"column {target!r} (target) lies outside {limits[0]:g} to {limits[1]:g} {unit} in {outside:,} of "
            f"{len(measured):,} measured rows. If it is in another unit, name it: --unit, or unit= in Python."
        )
