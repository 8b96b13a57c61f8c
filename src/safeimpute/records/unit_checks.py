"""Labs in another unit than they are taken for, in all rows or in some: seen by the catalogue's ranges and by modes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray
from safeimpute.records.catalogue import Conversion, Lab, load_catalogue, normal_unit

Typical = tuple[float, float]  # what most values of a lab lie between, in the unit the model knows
FEWEST, SMALLEST_SHARE = (
    5,
    0.005,
)  # rows in another unit that make a mixture; fewer may be faults of single results
TOLD_APART = 3.0  # factor between units below which values alone cannot tell them
MODES_FROM, MODE_SHARE, VALLEY_SHARE, SAME_PLACE = 50, 0.03, 0.02, 0.35


@dataclass(frozen=True)
class Suspicion:
    """Rows of a lab that lie where values in another unit would."""

    lab: Lab
    unit: str  # what the column was taken for
    other: str
    rows: int
    measured: int

    def refusal(self) -> VisitsError:
        """What was found, the conversion, and what to do."""
        name, conversion = self.lab.name, self.lab.conversions[normal_unit(self.other)]
        found = f"{self.rows:,} of {self.measured:,} measured rows lie where values in {self.other} would"
        rule = f"{self.other} x {conversion.times:g}"
        rule += f" + {conversion.plus:g}" if conversion.plus else ""
        if self.rows > self.measured / 2:
            remedy = f"If the column is in {self.other}, say so: --unit-of {name}={self.other} converts it"
        else:
            remedy = f"Two units are mixed: convert the rows in {self.other}"
        return VisitsError(
            f"column {name!r} should be in {self.unit}, but {found}. {remedy} ({rule} = {self.lab.unit}). If "
            "it is another quantity, rename the column."
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
        if rows and (rows > measured / 2 or rows >= max(FEWEST, SMALLEST_SHARE * measured)):
            raise Suspicion(self.lab, self.unit, self.name, rows, measured).refusal()


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
    labs: Mapping[str, FloatArray],
    units: Mapping[str, str | None],
    typical: Mapping[str, Typical] | None = None,
) -> None:
    """Refuse a table with a lab of the catalogue in another unit than it is taken for, in all rows or in some.

    `labs` has NaN where nothing was measured, `units` the unit of labs that are not in the catalogue's, `typical` what
    most values of a lab lie between where a model knows it; else the table itself says so.
    """
    measured = {name: values[np.isfinite(values)] for name, values in labs.items()}
    ends = {
        name: (typical or {}).get(name) or _typical_here(name, units, each) for name, each in measured.items()
    }
    for rule in unit_rules({name: each for name, each in ends.items() if each is not None}, units):
        values = measured[rule.lab.name]
        rows = max(rule.out_of_place(values), _second_mode(rule.own, rule.other, values))
        rule.require_few(rows, len(values))


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
    between = (
        (before / count - (ordered.sum() - before) / (len(ordered) - count)) ** 2
        * count
        * (len(ordered) - count)
    )
    place = int(np.argmax(between))
    return float((ordered[place] + ordered[place + 1]) / 2)


def _through(conversion: Conversion, values: FloatArray) -> FloatArray:
    """To the catalogue's unit."""
    return values * conversion.times + conversion.plus
