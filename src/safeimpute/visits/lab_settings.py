"""Which labs a run is asked for, and what it was told about each: from one set of options to every lab's own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from safeimpute.errors import OptionError
from safeimpute.settings import Settings
from safeimpute.tolerance import LIMITS, parse_tolerance
from safeimpute.tolerances import (
    ALLOWABLE,
    Tolerances,
    by_lab,
    limits_to_look_up,
    parse_tolerances,
    read_tolerance,
    with_limits,
    words_of,
)
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.catalogue import AllowableError, load_catalogue
from safeimpute.visits.columns import read_columns
from safeimpute.visits.tables import to_polars
from safeimpute.visits.units import column_choice, decision_limits, require_units_of, target_unit
from safeimpute.visits.visits import row_keys

ALL = "all"


def asks_for_several(settings: Settings, columns: Sequence[str]) -> bool:
    """Whether the target names several labs of a table; a column of that very name is one lab."""
    return settings.target not in columns and (settings.target == ALL or "," in settings.target)


def labs_asked(settings: Settings, table: Any) -> tuple[str, ...]:
    """The labs to impute in a table, in the order given; for `all`, every column taken for a lab."""
    frame = to_polars(table)
    if not asks_for_several(settings, frame.columns):
        return (settings.target,)
    if settings.target == ALL:
        choice = replace(column_choice(settings), target="")
        keys = row_keys(frame, choice)
        roles = read_columns(frame, choice, keys.patient, keys.visit).roles
        labs = tuple(sorted(name for name, each in roles.items() if each.role == "lab"))
        if not labs:
            raise OptionError("target 'all': the table has no column that was taken for a lab. Name labs: --labs.")
        return labs
    labs = tuple(name.strip() for name in settings.target.split(",") if name.strip())
    if twice := [name for name in labs if labs.count(name) > 1]:
        raise OptionError(f"target names the lab {twice[0]!r} twice. Name it once.")
    return labs


def settings_of_one(settings: Settings) -> Settings:
    """The settings of a run of one lab, its tolerance looked up where it was given by name."""
    if by_lab(settings.tolerance):
        settings = replace(settings, tolerance=tolerances_of(settings, (settings.target,))[settings.target])
    return replace(settings, best=settings.best.resolved(several=False))


def settings_of_labs(settings: Settings, labs: Sequence[str]) -> dict[str, Settings]:
    """Each lab's own settings, in a run of several: tolerance, unit, folds, and the others as labs."""
    tolerances, units = tolerances_of(settings, labs), units_of(settings, labs)
    best = settings.best.resolved(several=True)
    names = tuple(dict.fromkeys((*settings.labs, *labs)))
    return {
        lab: replace(settings, target=lab, tolerance=tolerances[lab], unit=units.get(lab), labs=names, best=best)
        for lab in labs
    }


def tolerances_of(settings: Settings, labs: Sequence[str]) -> dict[str, float | str]:
    """Each lab's tolerance; a lab without one is an error that names it."""
    said = parse_tolerances(settings.tolerance)
    _refuse_strangers("tolerance", said.named, labs)
    if len(labs) > 1 and not _fits_any(said.rest):
        raise OptionError(
            f"tolerance {said.rest!r} is in no lab's unit: of several labs, say each lab's ({labs[0]}=0.5,…), a share "
            "of the true value for all of them (20%), allowable, or limits."
        )
    if missing := [lab for lab in labs if said.of(lab) is None]:
        raise OptionError(
            f"tolerance: none is given for {_listed(missing)}. Write it as {missing[0]}=0.5 or {missing[0]}=10%, or "
            "give one for the labs not named (20%, allowable)."
        )
    found = {lab: read_tolerance(_looked_up(lab, said, settings, labs)) for lab in labs}
    if len(labs) > 1 and (worded := [lab for lab in labs if words_of(lab, found[lab])]):
        raise OptionError(
            f"tolerance: of several labs classes are numbers, and those of {_listed(worded)} are words. Write them as "
            "their places in the order (0<1) in the table, or impute that lab by itself."
        )
    return found


def _fits_any(tolerance: str | None) -> bool:
    """Whether a tolerance can be that of any lab, whatever its unit."""
    if tolerance is None or tolerance in (ALLOWABLE, LIMITS):
        return True
    return not limits_to_look_up(tolerance) and parse_tolerance(tolerance).of_any_unit


def units_of(settings: Settings, labs: Sequence[str]) -> dict[str, str]:
    """Units given by lab."""
    if settings.unit is None:
        return {}
    pairs = [part.partition("=") for part in settings.unit.split(",")]
    if any(not equals or not lab.strip() or not unit.strip() for lab, equals, unit in pairs):
        raise OptionError(
            f"unit {settings.unit!r} does not say of which lab: of several labs, write it as {labs[0]}=mg/dL."
        )
    named = {lab.strip(): unit.strip() for lab, _, unit in pairs}
    _refuse_strangers("unit", named, labs)
    return named


def require_units_of_labs(told: Mapping[str, Settings], visits: VisitArrays) -> None:
    """Refuse a table whose labs are not in their units, in all rows or in some, before any work."""
    require_units_of(visits, {lab: target_unit(own) for lab, own in told.items()})


def _refuse_strangers(option: str, named: Any, labs: Sequence[str]) -> None:
    if strange := [lab for lab in named if lab not in labs]:
        raise OptionError(f"{option} names {_listed(strange)}, which is not imputed here ({_listed(labs)}).")


def _looked_up(lab: str, said: Tolerances, settings: Settings, labs: Sequence[str]) -> str:
    """A lab's tolerance as a text, out of the catalogue where it was asked for."""
    given = str(said.of(lab))
    unit = units_of(settings, labs).get(lab) if len(labs) > 1 else settings.unit
    if limits_to_look_up(given):
        return with_limits(given, _limits_of(lab, unit))
    if given != ALLOWABLE:
        return given
    without = [each for each in labs if said.of(each) == ALLOWABLE and _allowable(each) is None]
    if without:
        raise OptionError(
            f"tolerance allowable: the catalogue of labs has no allowable error for {_listed(without)}. Give theirs: "
            f"--tolerance 'allowable,{without[0]}=10%'."
        )
    found, known = _allowable(lab), load_catalogue().labs[lab]
    assert found is not None  # else refused above
    if found.absolute and unit not in (None, known.unit):
        raise OptionError(
            f"tolerance allowable: the allowable error of {lab!r} is known in {known.unit}, not in {unit}. Give it in "
            f"your unit: --tolerance 'allowable,{lab}=…'."
        )
    share, absolute = f"{found.percent:g}%" if found.percent else "", f"{found.absolute or 0:g}"
    return f"{share} or {absolute}" if share and found.absolute else share or absolute


def _allowable(lab: str) -> AllowableError | None:
    known = load_catalogue().labs.get(lab)
    return None if known is None else known.allowable_error


def _limits_of(lab: str, unit: str | None) -> Sequence[float]:
    known = load_catalogue().labs.get(lab)
    found = decision_limits(lab, unit or (known.unit if known else None))
    if not found:
        here = f" in {unit}" if known and known.decision_limits else ""
        raise OptionError(
            f"tolerance limits: the catalogue of labs has no decision limits for {lab!r}{here}. Give them: --limits "
            f"5.7,6.5; of several labs, --tolerance '{lab}=limits 5.7 6.5,…'."
        )
    return found


def _listed(labs: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(lab) for lab in labs[:most])
    return shown if len(labs) <= most else f"{shown} and {len(labs) - most} more"
