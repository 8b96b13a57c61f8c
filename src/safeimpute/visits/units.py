"""The units of labs: what settings and catalogue say, conversion, and the one check that a table keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from safeimpute.errors import OptionError, VisitsError
from safeimpute.settings import Settings
from safeimpute.tolerances import words_of
from safeimpute.visits.arrays import FloatArray, VisitArrays
from safeimpute.visits.catalogue import Conversion, Lab, load_catalogue, normal_unit
from safeimpute.visits.checks import Faults, numbers
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.limits import HIGH, LOW, with_limits

Typical = tuple[float, float]  # what most values of a lab lie between, in the unit the model knows
FEWEST, SMALLEST_SHARE = (5, 0.005)  # rows in another unit that make a mixture; fewer may be faults of single results
TOLD_APART = 3.0  # factor between units below which values alone cannot tell them
MODES_FROM, MODE_SHARE, VALLEY_SHARE, SAME_PLACE = 50, 0.03, 0.02, 0.35


def column_choice(settings: Settings) -> ColumnChoice:
    """Which column is what, as far as the user said it."""
    named = settings.labs, settings.attributes, settings.exclude
    words = words_of(settings.target, settings.tolerance)
    return ColumnChoice(settings.target, settings.subject, settings.time, *named, words)


@dataclass(frozen=True)
class TargetUnit:
    """The target's unit, and what it can be in a living patient; None where nobody says."""

    name: str | None
    plausible: tuple[float, float] | None
    decision_limits: tuple[float, ...]  # values at which a clinician decides; empty where nobody says


def unit_of(settings: Settings) -> TargetUnit:
    """All of it, looked up once for a whole run."""
    target, unit = settings.target, target_unit(settings)
    limits = settings.allowed_error.limits or decision_limits(target, unit)
    return TargetUnit(unit, plausible_range(target, unit), limits)


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


def converted(frame: pl.DataFrame, unit_of: Mapping[str, str]) -> pl.DataFrame:
    """The table with the named labs in the catalogue's units; result x times + plus, as the catalogue says."""
    columns = []
    frame = with_limits(frame, unit_of)
    for lab, unit in unit_of.items():
        known = load_catalogue().lab(lab)
        conversion = known.conversions.get(normal_unit(unit))
        if conversion is None:
            raise OptionError(
                f"unit_of (--unit-of): {unit!r} is no unit of {lab!r} in the catalogue. It knows {known.unit}"
                f"{''.join(f', {each}' for each in known.units)}."
            )
        if lab not in frame.columns:
            raise VisitsError(f"column {lab!r}, named in --unit-of, is not in the table.")
        numbers(frame[lab], "named in --unit-of")  # refuses text
        for name in (each for each in (lab, lab + LOW, lab + HIGH) if each in frame.columns):
            columns.append(pl.col(name).cast(pl.Float64) * conversion.times + conversion.plus)
    return frame.with_columns(columns)


# ---- the check: labs in another unit than they are taken for, in all rows or in some, by ranges and by modes


def require_known_units(settings: Settings, visits: VisitArrays) -> None:
    """Refuse a table whose target or another lab is not in its unit, in all rows or in some, before any work."""
    require_units_of(visits, {settings.target: target_unit(settings)})


def require_same_units(settings: Settings, visits: VisitArrays, typical: Mapping[str, Typical]) -> None:
    """The same for new visits, held against what was typical at the fit: it decides alike for one row and for many."""
    require_units_of(visits, {settings.target: target_unit(settings)}, typical)


def require_units_of(
    visits: VisitArrays, units: Mapping[str, str | None], typical: Mapping[str, Typical] | None = None
) -> None:
    """Refuse visits whose labs are not in their units; without a model, targets must be plausible."""
    labs, faults = dict(zip(visits.lab_names, visits.labs.T, strict=True)), Faults()
    with faults.noted():
        require_units(labs, units, typical)
    for target, unit in units.items() if typical is None and not faults.found else ():
        with faults.noted():
            require_plausible(target, unit, labs[target])
    faults.refuse()


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


@dataclass(frozen=True)
class UnitRule:
    """Where values of a lab that are taken for one unit lie if they are in another."""

    lab: Lab
    unit: str  # what the column is taken for
    name: str  # of the other unit
    own: Conversion
    other: Conversion
    low: float  # what is typical, in the catalogue's unit
    high: float

    def out_of_place(self, measured: FloatArray) -> int:
        """Rows beyond what the lab usually is, whose value in the other unit would be typical."""
        ours, theirs = _through(self.own, measured), _through(self.other, measured)
        usual = (ours >= self.lab.flag.low) & (ours <= self.lab.flag.high)
        return int(np.sum(~usual & (theirs >= self.low) & (theirs <= self.high)))

    def require_few(self, rows: int, measured: int) -> None:
        """Refuse where so many rows are no fault of single results."""
        if not rows or (rows <= measured / 2 and rows < max(FEWEST, SMALLEST_SHARE * measured)):
            return
        lab, other = self.lab.name, self.name
        rule = f"{other} x {self.other.times:g}" + (f" + {self.other.plus:g}" if self.other.plus else "")
        if rows > measured / 2:
            remedy = f"If the column is in {other}, say so: --unit-of {lab}={other} converts it"
        else:
            remedy = f"Two units are mixed: convert the rows in {other}"
        raise VisitsError(
            f"column {lab!r} should be in {self.unit}, but {rows:,} of {measured:,} measured rows lie where values in "
            f"{other} would. {remedy} ({rule} = {self.lab.unit}). If it is another quantity, rename the column."
        )


def unit_rules(typical: Mapping[str, Typical], units: Mapping[str, str | None]) -> list[UnitRule]:
    """The rules for labs of the catalogue, by what is typical of each in the unit it is taken for."""
    known, rules = load_catalogue().labs, []
    for name, ends in typical.items():
        lab = known.get(name)
        unit = units.get(name) or (lab.unit if lab else "")
        own = lab.conversions.get(normal_unit(unit)) if lab else None
        if lab is None or own is None:
            continue
        low, high = _through(own, np.array(ends))
        others = {normal_unit(each): each for each in (lab.unit, *lab.units)}
        rules += [
            UnitRule(lab, unit, others[each], own, other, float(low), float(high))
            for each, other in lab.conversions.items()
            if other != own
        ]
    return rules


def require_units(
    labs: Mapping[str, FloatArray], units: Mapping[str, str | None], typical: Mapping[str, Typical] | None = None
) -> None:
    """Refuse a table with a lab of the catalogue in another unit than it is taken for, in all rows or in some.

    `labs` has NaN where nothing was measured, `units` the unit of labs that are not in the catalogue's, `typical` what
    most values of a lab lie between where a model knows it; else the table itself says so.
    """
    measured = {name: values[np.isfinite(values)] for name, values in labs.items()}
    ends = {name: (typical or {}).get(name) or _typical_here(name, units, each) for name, each in measured.items()}
    faults = Faults()
    for rule in unit_rules({name: each for name, each in ends.items() if each is not None}, units):
        values = measured[rule.lab.name]
        rows = max(rule.out_of_place(values), _second_mode(rule.own, rule.other, values))
        with faults.noted():
            rule.require_few(rows, len(values))
    faults.refuse()


def _typical_here(name: str, units: Mapping[str, str | None], measured: FloatArray) -> Typical | None:
    """What most values in a table lie between, or the catalogue's usual range where most lie beyond it."""
    lab = load_catalogue().labs.get(name)
    own = lab.conversions.get(normal_unit(units.get(name) or lab.unit)) if lab else None
    if lab is None or own is None or not len(measured):
        return None
    ours = _through(own, measured)
    usual = (ours >= lab.flag.low) & (ours <= lab.flag.high)
    if usual.mean() <= 0.5:
        return ((lab.flag.low - own.plus) / own.times, (lab.flag.high - own.plus) / own.times)
    low, high = np.quantile(measured[usual], [0.025, 0.975])
    return float(low), float(high)


def _second_mode(own: Conversion, other: Conversion, measured: FloatArray) -> int:
    """Rows of the mode that converting would lay upon the other one, with nearly nothing between the two."""
    ours, theirs = _through(own, measured), _through(other, measured)
    sound = (ours > 0) & (theirs > 0)
    if sound.sum() < MODES_FROM:
        return 0
    ours, theirs = np.log(ours[sound]), np.log(theirs[sound])
    cut = _valley(ours)
    lower, upper = ours <= cut, ours > cut
    if lower.all() or upper.all():  # one value throughout
        return 0
    low, high = float(np.median(ours[lower])), float(np.median(ours[upper]))
    foreign, home = (lower, high) if np.median(theirs) > np.median(ours) else (upper, low)
    moved = float(np.median(theirs[foreign]))
    if high - low < np.log(TOLD_APART) or abs(moved - home) > SAME_PLACE:
        return 0
    third = (high - low) / 3
    between = np.mean((ours > low + third) & (ours < high - third))
    smaller = min(lower.mean(), upper.mean())
    return int(foreign.sum()) if between < min(VALLEY_SHARE, smaller / 4) and smaller >= MODE_SHARE else 0


def _valley(values: FloatArray) -> float:
    """Where two groups part best: the cut with the largest variance between them."""
    ordered = np.sort(values)
    count = np.arange(1, len(ordered))
    before = np.cumsum(ordered)[:-1]
    between = (before / count - (ordered.sum() - before) / (len(ordered) - count)) ** 2 * count * (len(ordered) - count)
    place = int(np.argmax(between))
    return float((ordered[place] + ordered[place + 1]) / 2)


def _through(conversion: Conversion, values: FloatArray) -> FloatArray:
    """To the catalogue's unit."""
    return values * conversion.times + conversion.plus
