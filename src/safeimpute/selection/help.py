"""What would help where a calibration found nothing to promise; read after the fact, and said so."""

import numpy as np

from safeimpute.records.arrays import FloatArray
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.ledger import Entries, below, risk_grid
from safeimpute.selection.release import Decision, entries_of
from safeimpute.settings import Settings
from safeimpute.splits.enough import RISKY_VISITS


def what_would_help(calibrated: Calibrated, decision: Decision, settings: Settings) -> str:
    """Empty where something is released, or where the claim itself is the reason."""
    if settings.claim == "visits" or calibrated.measuring is None:
        return ""
    if any(each.risk is not None for each in decision.cutoffs.values()):
        return ""
    entries = entries_of(calibrated.ground(settings.allowed_error))
    if not len(entries.risk):
        return "no measured visit lies within the promise: give more patients with measured values."
    worth, alpha = entries.worth, settings.fdr
    if decision.refused:
        return (
            f"about {max(2.0, RISKY_VISITS / alpha / max(worth.visits, 1.0)):.0f} times as many patients, or a higher "
            "level."
        )
    share, size = _least_share(entries, alpha)
    error = np.abs(calibrated.estimates.value - calibrated.truth)[calibrated.question.judged]
    return (
        f"of the {size:,.0f} least risky measured values {100 * share:.0f} % were off by the tolerance or more, and no "
        f"more than {100 * alpha:g} % may be. A level above that, a wider tolerance (half of all errors are below "
        f"{np.nanmedian(error):.3g}), a longer history or labs that go with the target would help; more patients make "
        "the proof easier, not the values better. A level chosen now needs visits that were not looked at."
    )


def _least_share(entries: Entries, alpha: float) -> tuple[float, float]:
    """The smallest share of risky values below any threshold that leaves enough to count."""
    grid = risk_grid(entries.risk)
    weight = below(entries.risk, entries.weight, grid)
    risky = below(entries.risk, entries.weight * entries.risky, grid)
    count = below(entries.risk, np.ones(len(entries.risk)), grid)
    enough = _effective(entries, grid) >= RISKY_VISITS / alpha
    if not enough.any():
        return float(risky[-1] / weight[-1]), float(count[-1])
    share = np.where(enough, risky / np.maximum(weight, 1e-12), np.inf)
    place = int(np.argmin(share))
    return float(share[place]), float(count[place])


def _effective(entries: Entries, grid: FloatArray) -> FloatArray:
    weight = below(entries.risk, entries.weight, grid)
    square = below(entries.risk, np.square(entries.weight), grid)
    return np.asarray(np.divide(weight**2, square, out=np.zeros_like(weight), where=square > 0))
