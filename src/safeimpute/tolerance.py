"""When an imputed value is unacceptable: by the size of its error, by a limit between it and the truth, or by both."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import OptionError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Risky = NDArray[Any]  # false or true; or what it costs, from 0 to 1
_FORM = re.compile(r"^\s*(?:(?P<share>[\d.eE+-]+)\s*%)?\s*(?:or)?\s*(?P<absolute>[\d.eE+-]+)?\s*$")
LIMITS = "limits"
LIMITS_FORM = re.compile(rf"^(?:(?P<error>.*\S)\s+and\s+)?{LIMITS}(?P<values>(?:\s+\S+)*)$")
CLASS, OTHER_CLASS = "class", "of another class than the true one"
BY_SIZE = "error up to "
COST, LOST = "cost", "lost to errors, each counted by its cost as a share of the largest"
_CLASS = re.compile(rf"^{CLASS}(?:\s+(?P<levels>\S.*))?$")
_WORD = re.compile(r"^[^,;=]{1,60}$")
MOST_LIMITS = 9
OFF = "off by the tolerance or more"  # an unacceptable value, where the tolerance was said before
LARGEST = 1e12  # no measured value is larger, in whatever unit
ROUNDING = 1e-12  # differences of decimals such as 6.6 - 6.1 fall a rounding error short of 0.5


@dataclass(frozen=True)
class Tolerance:
    """An error is risky when it reaches max(absolute, share x |true value|), or crosses one of the limits.

    With levels the target is a class, one of these numbers; the limits lie half-way between them.
    """

    absolute: float = 0.0  # in the target's unit
    share: float = 0.0  # of the true value
    limits: tuple[float, ...] = ()  # increasing; a value at a limit belongs to the band above it
    levels: tuple[float, ...] = ()  # increasing
    words: tuple[str, ...] = ()  # of the levels, where the column holds words; the levels are their places then
    cost: tuple[tuple[float, ...], ...] = ()  # of each true band (rows) where each band is imputed; none: all alike
    by_size: bool = False  # an error costs its size, up to what would be unacceptable

    @property
    def graded(self) -> bool:
        """Whether errors count by what they cost, and not as right or wrong."""
        return bool(self.cost) or self.by_size

    def state(self) -> dict[str, Any]:
        """As plain JSON."""
        said: dict[str, Any] = {"absolute": self.absolute, "share": self.share}
        said |= {"limits": list(self.limits)} if self.limits else {}
        said |= {"levels": list(self.levels)} if self.levels else {}
        said |= {"words": list(self.words)} if self.words else {}
        said |= {"cost": [list(row) for row in self.cost]} if self.cost else {}
        return said | {"by_size": True} if self.by_size else said

    @classmethod
    def from_state(cls, stored: Mapping[str, Any]) -> "Tolerance":
        """What `state` wrote."""
        cost = tuple(map(tuple, stored.get("cost", ())))
        return cls(
            **{**stored, **{name: tuple(stored.get(name, ())) for name in ("limits", "levels", "words")}, "cost": cost}
        )

    @property
    def of_error(self) -> "Tolerance | None":
        """What it says about the size of an error; None where that alone is never unacceptable."""
        return Tolerance(self.absolute, self.share, by_size=self.by_size) if self.absolute or self.share else None

    @property
    def of_any_unit(self) -> bool:
        """Whether it says the same whatever the unit."""
        return not self.absolute and not self.limits

    def allowed(self, truth: FloatArray) -> FloatArray:
        """The error that counts as unacceptable at each true value; infinite where only limits count."""
        if self.of_error is None:
            return np.where(np.isnan(truth), np.nan, np.inf)
        return np.maximum(self.absolute, self.share * np.abs(truth))

    @property
    def costs(self) -> FloatArray:
        """What each band costs where another is the true one (rows), as a share of the largest cost."""
        if not self.cost:
            return 1.0 - np.eye(len(self.limits) + 1)
        cost = np.array(self.cost)
        return np.asarray(cost / cost.max())

    def loss(self, value: FloatArray, truth: FloatArray) -> Risky:
        """What counts against the level: whether a value is risky, or with costs a number from 0 to 1."""
        if self.by_size:
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.abs(value - truth) / self.allowed(truth)
            return np.asarray(np.where(np.isnan(value + truth) | (value == truth), 0.0, np.minimum(part, 1.0)))
        if not self.cost:
            return self.risky(value, truth)
        found = self.costs[self.band(truth), self.band(value)]
        return np.asarray(np.where(np.isnan(value + truth), 0.0, found))

    def risky(self, value: FloatArray, truth: FloatArray) -> BoolArray:
        """|error| >= allowed, or another band; False where the truth is unknown (NaN). Equations 24 and 25."""
        allowed = self.allowed(truth)
        risky: BoolArray = np.abs(value - truth) >= allowed - ROUNDING * np.maximum(1.0, np.abs(truth))
        if self.limits:
            risky |= (self.band(value) != self.band(truth)) & ~np.isnan(value + truth)
        return risky

    def band(self, value: FloatArray) -> IntArray:
        """Between which limits values lie: 0 below the first."""
        return np.searchsorted(self.limits, value + ROUNDING * np.maximum(1.0, np.abs(value)), "right").astype(np.int64)

    @property
    def bands(self) -> tuple[str, ...]:
        """The bands in words, lowest first; none without limits."""
        if self.levels:
            return self.words or tuple(f"{each:g}" for each in self.levels)
        if not self.limits:
            return ()
        first, *_, last = (f"{each:g}" for each in (*self.limits, self.limits[-1]))
        between = (f"{low:g} to below {high:g}" for low, high in pairwise(self.limits))
        return (f"below {first}", *between, f"{last} or more")

    def settled(self, value: FloatArray) -> FloatArray:
        """Of classes, the nearest to each value; NaN where there is none. Other values stay."""
        if not self.levels:
            return value
        return np.where(np.isnan(value), np.nan, np.array(self.levels)[np.minimum(self.band(value), len(self.limits))])

    def chance(self, value: FloatArray, spread: FloatArray) -> FloatArray:
        """How likely a value is unacceptable, were errors Laplace with mean `spread`."""
        spread = np.maximum(spread, 1e-12)
        allowed = np.maximum(self.allowed(value), 1e-12)
        if self.by_size:
            return np.asarray(spread / allowed * -np.expm1(-allowed / spread), dtype=np.float64)
        if not self.limits:
            return np.asarray(np.exp(-allowed / spread), dtype=np.float64)
        edges, band = np.array([-np.inf, *self.limits, np.inf]), self.band(value)
        down, up = np.minimum(allowed, value - edges[band]), np.minimum(allowed, edges[band + 1] - value)
        return np.asarray((np.exp(-down / spread) + np.exp(-up / spread)) / 2, dtype=np.float64)

    def farthest_truth(self, value: FloatArray, truth: FloatArray, limits: FloatArray) -> FloatArray:
        """The true values, and where only limits are known the one between them that makes the imputation worst.

        On a side left open every imputation is risky.
        """
        far = 1e3 * (1.0 + np.abs(value) + self.absolute)
        low, high = (np.where(np.isinf(end), sign * far, end) for end, sign in zip(limits.T, (-1.0, 1.0), strict=True))
        if self.limits:  # every band between the two is met at its lower end, or at `low`
            ends = np.stack([low, high, *(np.clip(limit, low, high) for limit in self.limits)])
            dearest = np.argmax([self.loss(value, end) for end in ends], axis=0)
            worst = np.take_along_axis(ends, dearest[None], axis=0)[0]
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                below, above = (np.abs(value - end) / self.allowed(end) for end in (low, high))
            worst = np.where(below >= above, low, high)
        return np.where(np.isnan(limits[:, 0]), truth, worst)

    def largest_loss(self, value: FloatArray, truth: FloatArray, limits: FloatArray) -> Risky:
        """What counts against the level; of a result beyond a limit the most that it may hide."""
        return self.loss(value, self.farthest_truth(value, truth, limits))

    def acceptable_truth(self, value: float) -> tuple[float, float]:
        """The true values between which an imputed value is not risky; infinite where nothing ends them."""
        if value < 0:
            low, high = Tolerance(self.absolute, self.share).acceptable_truth(-value)
            low, high = -high, -low
        else:
            far = value / (1.0 - self.share) if self.share < 1.0 else np.inf
            low, high = min(value - self.absolute, value / (1.0 + self.share)), max(value + self.absolute, far)
        if not self.limits:
            return low, high
        edges, band = (-np.inf, *self.limits, np.inf), int(self.band(np.array([value]))[0])
        if self.of_error is None:
            return edges[band], edges[band + 1]
        return max(low, edges[band]), min(high, edges[band + 1])

    def allowed_more_than(self, other: "Tolerance") -> bool:
        """Whether it is the wider of two of one form."""
        return self.absolute + self.share > other.absolute + other.share

    def times(self, factor: float) -> "Tolerance":
        """A multiple of the error allowed; limits stay where they are."""
        return replace(self, absolute=self.absolute * factor, share=self.share * factor)

    def typed(self, digits: int = 12) -> str:
        """As a user would type it."""
        if self.by_size:
            return f"{BY_SIZE}{replace(self, by_size=False).typed(digits)}"
        if self.cost:
            rows = "; ".join(" ".join(f"{each:.12g}" for each in row) for row in self.cost)
            return f"{replace(self, cost=()).typed(digits)} {COST} {rows}"
        if self.levels:
            return f"{CLASS} {'<'.join(self.words or (f'{each:.12g}' for each in self.levels))}"
        share, absolute = f"{100 * self.share:.{digits}g}%", f"{self.absolute:.{digits}g}"
        error = f"{share} or {absolute}" if self.share and self.absolute else share if self.share else absolute
        limits = f"{LIMITS} {' '.join(f'{each:.12g}' for each in self.limits)}" if self.limits else ""
        return " and ".join(filter(None, (error if self.of_error else "", limits)))

    def describe(self, unit: str | None = None) -> str:
        """The tolerance in words."""
        if self.by_size:
            return f"{BY_SIZE}{self._error_in_words(unit)}"
        if self.cost:
            return f"{replace(self, cost=()).describe(unit)}, each error at its cost"
        if self.levels:
            return f"the class ({' < '.join(self.bands)})"
        limits = f"the limits {_listed(self.limits, unit)}" if self.limits else ""
        return " and ".join(filter(None, (self._error_in_words(unit), limits)))

    def fault(self, unit: str | None = None) -> str:
        """What an unacceptable value is, after "is" or "are"."""
        if self.by_size:
            return f"lost to errors, each counted by its size up to {self._error_in_words(unit)}"
        if self.cost:
            where = ", ".join(self.bands)
            return f"{LOST} ({max(map(max, self.cost)):g}; bands {where} {unit or ''}".rstrip() + ")"
        if self.levels:
            return f"{OTHER_CLASS} ({' < '.join(self.bands)})"
        error = f"off by {self._error_in_words(unit)} or more" if self.of_error else ""
        limits = f"on the wrong side of a limit ({_listed(self.limits, unit)})" if self.limits else ""
        return " or ".join(filter(None, (error, limits)))

    @property
    def in_short(self) -> str:
        """The same where the tolerance was said before."""
        if self.graded:
            return "lost to errors, each counted by its size" if self.by_size else LOST
        if self.levels:
            return OTHER_CLASS
        error = OFF if self.of_error else ""
        return " or ".join(filter(None, (error, "on the wrong side of a limit" if self.limits else "")))

    def _error_in_words(self, unit: str | None) -> str:
        share = f"{100 * self.share:g} % of the true value"
        # "1 %" of an HbA1c would read as a hundredth of it
        absolute = f"{self.absolute:g} {'percentage points' if unit == '%' else unit or ''}".strip()
        if self.share and self.absolute:
            return f"the larger of {share} and {absolute}"
        return share if self.share else absolute if self.absolute else ""


def _listed(limits: Sequence[float], unit: str | None) -> str:
    return f"{', '.join(f'{each:g}' for each in limits)} {unit or ''}".strip()


def chances_of_bands(above: FloatArray) -> FloatArray:
    """Chances of lying above each limit -> of lying in each band; they sum to one."""
    return np.asarray(-np.diff(np.column_stack([np.ones(len(above)), above, np.zeros(len(above))]), axis=1))


def parse_tolerance(given: float | str) -> Tolerance:
    """Read `0.5`, `"20%"`, `"10% or 6"`, `"limits 5.7 6.5"`, `"0.5 and limits 5.7 6.5"`, `"class 0<1"`, or words."""
    text = str(given).strip()
    base, said, cost = text.partition(f" {COST} ")
    if said:
        return _parse_cost(parse_tolerance(base), cost)
    if text.startswith(BY_SIZE):
        return replace(_parse_error(text.removeprefix(BY_SIZE)), by_size=True)
    if (found := _CLASS.match(text)) is not None:
        return _parse_class(found["levels"] or "")
    match = LIMITS_FORM.match(text)
    if match is None:
        return _parse_error(text)
    if not match["values"]:
        raise OptionError(
            f"tolerance {text!r} speaks of limits and does not say which. Give them: --limits 5.7,6.5, or within the "
            "tolerance, limits 5.7 6.5."
        )
    limits = _parse_limits(match["values"].split())
    error = _parse_error(match["error"]) if match["error"] else Tolerance()
    return Tolerance(error.absolute, error.share, limits)


def _parse_limits(given: Sequence[str]) -> tuple[float, ...]:
    try:
        limits = [float(each) for each in given]
    except ValueError:
        raise OptionError(f"limits {' '.join(given)!r} are not understood. Write numbers: limits 5.7 6.5.") from None
    if not np.isfinite(limits).all() or any(high <= low for low, high in pairwise(limits)):
        raise OptionError(f"limits {' '.join(given)!r} must be finite numbers, each larger than the one before.")
    if len(limits) > MOST_LIMITS:
        raise OptionError(f"limits: {len(limits)} are given, at most {MOST_LIMITS} can be. Leave some out.")
    return tuple(limits)


def _parse_cost(base: Tolerance, given: str) -> Tolerance:
    """Rows by the true band, from the lowest, divided by semicolons; in each what it costs to impute every band."""
    bands = len(base.limits) + 1
    if bands == 1 or base.of_error:
        raise OptionError("cost is of bands: write the tolerance as limits or class, without an error beside them.")
    try:
        cost = tuple(tuple(float(each) for each in row.split()) for row in given.split(";"))
    except ValueError:
        raise OptionError(f"cost {given!r} is not understood. Write numbers, a row per true band: 0 1; 5 0.") from None
    if len(cost) != bands or any(len(row) != bands for row in cost):
        raise OptionError(
            f"cost {given!r}: a cost is missing, or there are too many. {bands} bands need {bands} rows of {bands} "
            "numbers: by true band, what it costs to impute each."
        )
    found = np.array(cost)
    if not np.isfinite(found).all() or (found < 0).any():
        raise OptionError(
            f"cost {given!r}: costs are finite and not negative. Without a largest one no level can hold."
        )
    if np.diag(found).any() or not found.any():
        raise OptionError(f"cost {given!r}: the right band costs 0, and some other band costs something.")
    return replace(base, cost=cost)


def _parse_class(given: str) -> Tolerance:
    named = [each.strip() for each in given.split("<")]
    words = () if any(map(_is_number, named)) else tuple(named)
    if len(set(named)) < len(named) or not all((words and map(_WORD.match, words)) or map(_is_number, named)):
        raise OptionError(
            f"tolerance {CLASS} {given!r} does not say the classes in order, all as numbers or all as words. Write "
            f"{CLASS} 0<1, {CLASS} 1<2<3 or {CLASS} no<yes, as the column has them, each once; a word holds no comma, "
            "semicolon or equals sign. Classes without an order cannot be imputed."
        )
    levels = list(map(float, range(len(words)) if words else named))
    if not np.isfinite(levels).all() or any(high <= low for low, high in pairwise(levels)):
        raise OptionError(f"classes {given!r} must be finite numbers, each larger than the one before.")
    if not 2 <= len(levels) <= MOST_LIMITS + 1:
        raise OptionError(f"classes: {len(levels)} are given, 2 to {MOST_LIMITS + 1} can be.")
    return Tolerance(
        limits=tuple((low + high) / 2 for low, high in pairwise(levels)), levels=tuple(levels), words=words
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_error(text: str) -> Tolerance:
    match = _FORM.match(text)
    try:
        if match is None:
            raise ValueError
        share = float(match["share"]) / 100 if match["share"] else 0.0
        absolute = float(match["absolute"]) if match["absolute"] else 0.0
    except ValueError:
        raise OptionError(
            f"tolerance {text!r} is not understood. Write a number in the target's unit (0.5), "
            "a share of the true value (20%), or the larger of both (10% or 6)."
        ) from None
    if not (np.isfinite([share, absolute]).all() and share >= 0 and absolute >= 0 and share + absolute > 0):
        raise OptionError(f"tolerance {text!r} must be above 0: with 0 every imputation would count as an error.")
    if max(share, absolute) > LARGEST:
        raise OptionError(
            f"tolerance {text!r} is larger than any value can be, so that nothing would count as an error."
        )
    return Tolerance(absolute=absolute, share=share)
