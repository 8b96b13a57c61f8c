"""A new cut-off from the ledger of nights, without a refit: the same rule on the errors measured since."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from safeimpute.errors import GuaranteeRefused, OptionError
from safeimpute.records.arrays import FloatArray
from safeimpute.scoring.frozen import NO_SHIFT, shifted
from safeimpute.scoring.monitor import require_nightly
from safeimpute.scoring.night_ledger import Entered, LedgerMoved, NightLedger
from safeimpute.scoring.scorer import Scorer
from safeimpute.scoring.standing import Recalibration, Standing, in_force, standing_of
from safeimpute.selection.betting import fit_chances, fit_line, purse_of
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.intervals import interval_ground
from safeimpute.selection.late import smaller
from safeimpute.selection.ledger import Entries, risk_grid
from safeimpute.selection.release import Rule, cutoff_for, in_each, rule_of
from safeimpute.splits.enough import enough, too_few

TRIES = 20


def recalibrate(scorer: Scorer, ledger: NightLedger, since: float | None = None) -> Recalibration:
    """Set a new cut-off from the ledger; scoring promises by it from then on, and the tests start anew.

    Parameters
    ----------
    scorer : Scorer
        Loaded from the model folder whose ledger it is.
    ledger : NightLedger
        What monitoring entered.
    since : float, optional
        First day to calibrate on; by default the day from which on the alarm's evidence grew.

    Raises
    ------
    GuaranteeRefused
        No alarm stands, or too little was measured since.
    """
    require_nightly(scorer)
    for _ in range(TRIES):
        standing = standing_of(ledger.events(scorer.identity))
        _require_reason(scorer, standing)
        entered = ledger.entries(scorer.identity, scorer.settings.target)
        parts = tuple(scorer.model.cutoffs)
        found = recalibration(entered, standing, rule_of(scorer.settings), since, parts)
        try:
            ledger.record(scorer.identity, "recalibrated", found.told(), standing.last_event)
        except LedgerMoved:
            continue
        return found
    raise OptionError(f"the ledger {ledger.path.name!r} kept changing while it was used. Try again.")


def _require_reason(scorer: Scorer, standing: Standing) -> None:
    """A cut-off that holds is not replaced because another one would release more."""
    model = in_force(scorer.model, replace(standing, alarm=None))
    if standing.alarm is None and any(each.risk is not None for each in model.cutoffs.values()):
        raise GuaranteeRefused(
            "no alarm stands: the cut-off in force is kept. Recalibrate after an alarm of monitor."
        )


def recalibration(
    entered: Entered,
    standing: Standing,
    rule: Rule,
    since: float | None = None,
    parts: Sequence[int] = (0,),
) -> Recalibration:
    """The cut-off that the entries since a day support; they follow the last recalibration."""
    if since is None and standing.alarm is not None:
        since = standing.alarm.told["began"]
    there = entered.number > standing.first_entry
    if since is not None:
        there &= entered.day >= since
    some = entered.at(there & entered.inside & ~entered.strange)
    shift = fit_line(np.log(some.odds), ~some.measured)
    weight, measured = shifted(some.odds, shift), some.measured
    cutoffs = _cutoffs(some, weight, rule, parts)
    limit = {part: -np.inf if each.risk is None else each.risk for part, each in cutoffs.items()}
    below = measured & (some.risk <= np.array([limit.get(part, -np.inf) for part in some.part.tolist()]))
    night = weight + some.late
    ground = interval_ground(some.ratio[measured], np.ones(int(measured.sum())), night[measured])
    before = NO_SHIFT if standing.recalibration is None else standing.recalibration.shift
    return Recalibration(
        cutoffs=cutoffs,
        shift=(shift[0] + shift[1] * before[0], shift[1] * before[1]),
        errors=fit_chances(some.risk[below], some.risky[below]),
        purse=purse_of(night[below], some.risky[below]),
        ratio=tuple(ground.ratio.tolist()),
        reached=tuple(ground.reached.tolist()),
        since=float(some.day.min(initial=np.inf)),
        last_entry=int(entered.number.max(initial=0)),
        values=int(measured.sum()),
    )


def _cutoffs(some: Entered, weight: FloatArray, rule: Rule, parts: Sequence[int]) -> dict[int, Cutoff]:
    """Of every group; one that is too small gets none, and all together must not be."""
    whole = _entries(some, weight).worth
    if not enough(whole, rule.alpha):
        raise GuaranteeRefused(
            f"{too_few(rule.alpha, whole)}. Nothing is promised until then: let monitor enter more measured values, "
            "choose an earlier --since, or fit anew."
        )
    each = in_each(rule, len(parts))
    return {part: _cutoff(some.at(some.part == part), weight[some.part == part], each) for part in parts}


def _cutoff(some: Entered, weight: FloatArray, rule: Rule) -> Cutoff:
    """The stricter of two, as at the fit: for unmeasured visits alone, and with late results among them."""
    grid = risk_grid(some.risk)
    alone = _entries(some, weight)
    found = cutoff_for(alone, grid, rule)
    if (some.late & some.measured).any():
        found = smaller(found, cutoff_for(_entries(some, weight + some.late), grid, rule))
    return found


def _entries(some: Entered, weight: FloatArray) -> Entries:
    patient = np.unique(some.patient, return_inverse=True)[1].astype(np.int64)
    rows = some.measured
    return Entries(
        patient[rows], some.risk[rows], weight[rows], some.risky[rows], int(patient.max(initial=-1)) + 1
    )
