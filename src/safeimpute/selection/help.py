"""What would help where a calibration found nothing to promise; read after the fact, and said so."""

from collections.abc import Sequence

import numpy as np

from safeimpute.records.arrays import FloatArray
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.ledger import Entries, below, risk_grid
from safeimpute.selection.release import Decision, entries_of
from safeimpute.selection.what_if import AtTolerance
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


def next_step(settings: Settings, decision: Decision, elsewhere: Sequence[AtTolerance], advice: str) -> str:
    """Where nothing was released: the nearest level and the nearest tolerance that would have; empty where some was.

    Seen after looking at the errors, so not promised; `advice` is said where none would have.
    """
    if not len(decision.released) or decision.released.any():
        return ""
    own = elsewhere_at(elsewhere, settings)
    levels = [each for each in own.reaches if each.released and each.level > settings.fdr]
    wider = [
        (at.typed, reach.released)
        for at in elsewhere
        for reach in at.reaches
        if at.tolerance.allowed_more_than(own.tolerance) and reach.level == settings.fdr and reach.released
    ]
    said = [f"a level of {each.level:g} would have released {each.released:,}" for each in levels[:1]]
    said += [f"a tolerance of {typed} would have released {released:,}" for typed, released in wider[:1]]
    why = f" ({decision.refused})" if decision.refused else ""
    start = f"None of the {len(decision.released):,} missing values was released{why}."
    if not said:
        most = f"No level up to {own.reaches[-1].level:g} and no tolerance up to twice this one would have."
        return f"{start} {most} {advice}".strip()
    confident = " on average" if settings.promise == "confident" else ""
    return (
        f"{start} The nearest that would{confident}: {'; '.join(said)}. This is seen after looking at these errors "
        "and so not promised: a choice made now needs visits that were not looked at."
    )


def elsewhere_at(elsewhere: Sequence[AtTolerance], settings: Settings) -> AtTolerance:
    """What every level would release at the run's own tolerance."""
    return next(each for each in elsewhere if each.tolerance == settings.allowed_error)


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
