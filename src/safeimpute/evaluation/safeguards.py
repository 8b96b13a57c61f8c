"""What watches a model and what may change it, read from the code that does it; a hospital's review prints it."""

import math
from typing import TypedDict

from safeimpute.model.betting import TIMES_ALPHA, WITHIN_ERRORS, WITHIN_ODDS
from safeimpute.model.frozen import LONGEST_WAIT, WAITED_FOR
from safeimpute.monitoring.watch import ERROR, LOOKED_BACK, MARGIN
from safeimpute.selection.enough import RISKY_PATIENTS, RISKY_VISITS

WATCHED_CLAIM = "later"  # the one that monitor and recalibrate --log take
TABLE_CLAIM = "visits"  # the one that no table can calibrate anew


class Safeguards(TypedDict):
    """For one level and claim."""

    watched: bool  # monitor takes the model
    from_table: bool  # recalibrate --visits takes it
    tests: list[tuple[str, str, str, str]]  # test, what it asks, alarm or warning, chance of a false one, ever
    waits: str
    needed_visits: int  # of equal weight, below which no new cut-off is set
    needed_patients: int


def safeguards(claim: str, fdr: float) -> Safeguards:
    shares = ", ".join(f"{100 * times * fdr:.3g} %" for times in TIMES_ALPHA if times * fdr < 1)
    asked = {
        "share": f"is the share of unacceptable values below the cut-off above {100 * fdr:.3g} %? (made for {shares})",
        "errors": f"are errors more frequent at the same risk, in odds more than {WITHIN_ERRORS:g} times?",
        "measuring": f"are other visits measured than before, in odds by more than a factor {WITHIN_ODDS:g}?",
        "inputs": f"has a lab's mean rank moved by more than {MARGIN:g}?",
    }
    tests = [
        (name, question, "warning" if name == "inputs" else "alarm", f"{100 * ERROR[name]:.3g} %")
        for name, question in asked.items()
    ]
    units = f"do most of a lab's latest values (tonight's, or the last {LOOKED_BACK}) lie where another unit would?"
    return {
        "watched": claim == WATCHED_CLAIM,
        "from_table": claim != TABLE_CLAIM,
        "tests": [*tests, ("unit", units, "alarm", "not bounded by proof")],
        "waits": f"until {100 * WAITED_FOR:.3g} % of the fit's results had come in, at most {LONGEST_WAIT:g} days",
        "needed_visits": math.ceil(RISKY_VISITS / fdr),
        "needed_patients": math.ceil(RISKY_PATIENTS / fdr),
    }
