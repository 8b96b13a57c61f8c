"""How large an error is clinically unacceptable: a number, a share of the true value, or the larger of both."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import OptionError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
_FORM = re.compile(r"^\s*(?:(?P<share>[\d.eE+-]+)\s*%)?\s*(?:or)?\s*(?P<absolute>[\d.eE+-]+)?\s*$")


@dataclass(frozen=True)
class Tolerance:
    """An error is risky when it reaches max(absolute, share x |true value|)."""

    absolute: float = 0.0  # in the target's unit
    share: float = 0.0  # of the true value

    def allowed(self, truth: FloatArray) -> FloatArray:
        """The error that counts as unacceptable at each true value."""
        return np.maximum(self.absolute, self.share * np.abs(truth))

    def risky(self, value: FloatArray, truth: FloatArray) -> BoolArray:
        """|error| >= allowed; False where the truth is unknown (NaN). Equations 24 and 25."""
        # Differences of decimals such as 6.6 - 6.1 fall a rounding error short of 0.5: count them as reaching it.
        allowed = self.allowed(truth)
        return np.abs(value - truth) >= allowed - 1e-12 * np.maximum(1.0, np.abs(truth))

    def farthest_truth(self, value: FloatArray, truth: FloatArray, limits: FloatArray) -> FloatArray:
        """The true values, and where only limits are known the one between them that makes the imputation worst.

        On a side left open every imputation is risky.
        """
        far = 1e3 * (1.0 + np.abs(value) + self.absolute)
        low, high = (np.where(np.isinf(end), sign * far, end) for end, sign in zip(limits.T, (-1.0, 1.0), strict=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            below, above = (np.abs(value - end) / self.allowed(end) for end in (low, high))
        return np.where(np.isnan(limits[:, 0]), truth, np.where(below >= above, low, high))

    def acceptable_truth(self, value: float) -> tuple[float, float]:
        """The true values between which an imputed value is not risky; infinite where the share is 100 % or more."""
        if value < 0:
            low, high = self.acceptable_truth(-value)
            return -high, -low
        far = value / (1.0 - self.share) if self.share < 1.0 else np.inf
        return min(value - self.absolute, value / (1.0 + self.share)), max(value + self.absolute, far)

    def allowed_more_than(self, other: "Tolerance") -> bool:
        """Whether it is the wider of two of one form."""
        return self.absolute + self.share > other.absolute + other.share

    def describe(self, unit: str | None = None) -> str:
        """The tolerance in words."""
        share = f"{100 * self.share:g} % of the true value"
        # "1 %" of an HbA1c would read as a hundredth of it
        absolute = f"{self.absolute:g} {'percentage points' if unit == '%' else unit or ''}".strip()
        if self.share and self.absolute:
            return f"the larger of {share} and {absolute}"
        return share if self.share else absolute


def parse_tolerance(given: float | str) -> Tolerance:
    """Read `0.5`, `"20%"` or `"10% or 6"`."""
    text = str(given)
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
    return Tolerance(absolute=absolute, share=share)


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
    return isinstance(given, str) and any("=" in part or part.strip() == ALLOWABLE for part in given.split(","))


def parse_tolerances(given: float | str) -> Tolerances:
    """Read `hba1c=0.5,ldl=10%`, `allowable`, or one tolerance for the labs not named among them."""
    named: dict[str, str] = {}
    rest: str | None = None
    for part in str(given).split(","):
        lab, equals, tolerance = (text.strip() for text in part.rpartition("="))
        if (lab in named) if equals else (rest is not None):
            what = f"lab {lab!r}" if equals else "the labs not named"
            raise OptionError(f"tolerance {given!r} speaks of {what} twice. Say it once.")
        if tolerance != ALLOWABLE:
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
    return text if tolerance.share else tolerance.absolute
