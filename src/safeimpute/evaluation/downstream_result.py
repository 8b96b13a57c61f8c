"""The result of `downstream` as typed data: what downstream.json, its table and its figure are made from."""

from typing import TypedDict

from safeimpute.evaluation.metrics import MeanSe


class WayOutcome(TypedDict):
    """One quantity by one way: means over splits with standard errors."""

    estimate: MeanSe
    off: MeanSe  # from the same analysis with nothing missing
    lower: float | None  # mean ends of the 95 % intervals, where the quantity has one
    upper: float | None
    covers: float | None  # share of splits whose interval holds what nothing missing says
    width: float | None  # of the interval, times that with nothing missing
    spoken_for: float  # share of the visits the way has a value for


class QuantityOutcome(TypedDict):
    """One quantity by every way, and what to use for it."""

    quantity: str
    kind: str  # estimate, or performance (larger is better), or error (smaller is better)
    ways: dict[str, WayOutcome]
    advice: str


class Downstream(TypedDict):
    """Everything `downstream` measures."""

    splits: int
    visits: int  # the quantities are computed from, mean over splits
    hidden: float  # share of them without a visible value
    released: float  # share of the hidden that was released
    quantities: list[QuantityOutcome]
