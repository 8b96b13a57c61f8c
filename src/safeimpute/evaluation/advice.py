"""One sentence per quantity: which way to use for it, from what was measured on the user's own data."""

from collections.abc import Mapping

from safeimpute.evaluation.downstream_result import WayOutcome
from safeimpute.evaluation.ways import DRAWN, FILLED, NOTHING_MISSING, RELEASED, WAYS

NEAR = 0.25  # of the interval's half width with nothing missing: a difference nobody would act on
HELD = 0.9  # share of splits whose interval must hold the value
SAME = 0.01  # performances this close are alike


def advise(quantity: str, kind: str, ways: Mapping[str, WayOutcome]) -> str:
    """What to use for a quantity, and what not; `ways` are outcomes by way."""
    there = [way for way in WAYS if way in ways]
    if not there or NOTHING_MISSING not in ways:
        return f"{quantity}: too little to say anything."
    return (_estimate if kind == "estimate" else _performance)(quantity, kind, ways, there)


def _estimate(quantity: str, _kind: str, ways: Mapping[str, WayOutcome], there: list[str]) -> str:
    whole = ways[NOTHING_MISSING]
    half = 0.0 if whole["upper"] is None or whole["lower"] is None else (whole["upper"] - whole["lower"]) / 2
    good = [way for way in there if _holds(ways[way], half)]
    pick = DRAWN if DRAWN in good else min(good or there, key=lambda way: _off(ways[way]))
    wide = ways[pick]["width"] or 0.0
    said = f"{quantity}: use {pick} (off by {_signed(ways[pick])}, interval {wide:.2f} times that with nothing missing)"
    if not good:
        return f"{said}, and say that no way came close."
    worst = max(there, key=lambda way: _off(ways[way]))
    named = RELEASED if RELEASED in there and RELEASED not in good else worst
    if named in good:
        return f"{said}; the other ways do no worse here."
    return f"{said}; {named} is off by {_signed(ways[named])}."


def _holds(outcome: WayOutcome, half: float) -> bool:
    near = max(NEAR * half, 2 * (outcome["off"]["se"] or 0.0))
    return _off(outcome) <= near and (outcome["covers"] is None or outcome["covers"] >= HELD)


def _performance(quantity: str, kind: str, ways: Mapping[str, WayOutcome], there: list[str]) -> str:
    sign = 1.0 if kind == "performance" else -1.0
    everywhere = [way for way in there if ways[way]["spoken_for"] > 0.99] or there
    there = everywhere if kind == "error" else there  # who says nothing raises no false alarm
    score = {way: sign * _mean(ways[way]) for way in there}
    alike = [way for way in there if score[way] >= max(score.values()) - SAME]
    pick = next((way for way in (FILLED, DRAWN) if way in alike), alike[0])
    whole = _mean(ways[NOTHING_MISSING])
    said = f"{quantity}: use {pick} ({_mean(ways[pick]):.2f}; {whole:.2f} with nothing missing)"
    if RELEASED in ways and RELEASED not in alike:
        spoken = ways[RELEASED]["spoken_for"]
        said += f"; {RELEASED}: {_mean(ways[RELEASED]):.2f}, with a value at {100 * spoken:.0f} % of visits"
    return f"{said}."


def _mean(outcome: WayOutcome) -> float:
    return outcome["estimate"]["mean"] or 0.0


def _off(outcome: WayOutcome) -> float:
    return abs(outcome["off"]["mean"] or 0.0)


def _signed(outcome: WayOutcome) -> str:
    return f"{outcome['off']['mean']:+.2g}"
