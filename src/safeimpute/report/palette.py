"""Colours and number formats shared by figures and report: both say the same thing the same way."""

import math

from safeimpute.machine.files import plain_text

# Okabe and Ito's palette: told apart under every common colour-vision deficiency, and by lightness in grey.
RELEASED = "#0072B2"
WITHHELD = "#98A2B0"  # neutral: a value not given is no alarm
CAUTION = "#E69F00"
ERROR = "#D55E00"
NEUTRAL = "#8A94A3"
INK = "#1F2933"
MUTED = "#55606E"
GRID = "#E1E5EA"
NOT_MEASURED = "#EEF0F3"
MEASURED = "#08527F"
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
NBSP = "\u00a0"
LONGEST_SENTENCE = 2000


def sentence(text: object) -> str:
    """A sentence from the summary as it is shown: a number stays with its percent sign."""
    return plain_text(text, LONGEST_SENTENCE).replace(" %", f"{NBSP}%")


def with_unit(name: str, unit: str | None, longest: int = 32) -> str:
    """An axis label: the quantity and its unit, or that the unit was not given."""
    return f"{plain_text(name, longest)} ({plain_text(unit, 16) if unit else 'in the table’s unit'})"


def percent(share: float) -> str:
    """A share for reading; neither 0 % nor 100 % unless it is exactly that."""
    if 0 < share < 0.005:
        return f"<{NBSP}1{NBSP}%"
    if 0.995 < share < 1:
        return f">{NBSP}99{NBSP}%"
    return f"{100 * share:.0f}{NBSP}%"


def number(value: float) -> str:
    """Three significant digits, never an exponent, whole numbers kept whole."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    if float(value).is_integer():
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def quantity(value: float, unit: str | None) -> str:
    return f"{number(value)}{NBSP}{plain_text(unit, 16)}" if unit else number(value)
