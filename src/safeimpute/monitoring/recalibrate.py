"""A new cut-off from the night log, without a refit: the same rule on the errors measured since."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from safeimpute.errors import GuaranteeRefused
from safeimpute.model.betting import calibrate_bets, fit_chances, fit_line
from safeimpute.model.frozen import NO_SHIFT, shifted
from safeimpute.model.night_log import Entered, NightLog
from safeimpute.model.open_model import Recalibration, Status, in_force, status_of
from safeimpute.model.scorer import Scorer
from safeimpute.monitoring.monitor import require_nightly
from safeimpute.selection.calibrated import interval_errors
from safeimpute.selection.cutoff import Cutoff, Rule, find_cutoffs, rule_of
from safeimpute.selection.enough import enough, too_few
from safeimpute.selection.ledger import Ledger
from safeimpute.selection.release import SelectionData, divided, entries_of, ledgers_of
from safeimpute.visits.arrays import FloatArray


def recalibrate(scorer: Scorer, log: NightLog, since: float | None = None) -> Recalibration:
    """Set a new cut-off from the night log; scoring promises by it from then on, and the tests start anew.

    Parameters
    ----------
    scorer : Scorer
        Loaded from the model folder whose night log it is.
    log : NightLog
        What monitoring entered.
    since : float, optional
        First day to calibrate on; by default the day from which on the alarm's evidence grew.

    Raises
    ------
    GuaranteeRefused
        No alarm stands, or too little was measured since.
    """
    require_nightly(scorer, log)

    def work() -> Recalibration:
        status = status_of(log.events(scorer.identity))
        _require_reason(scorer, status)
        entered = log.entries(scorer.identity, scorer.settings.target)
        parts = tuple(scorer.model.cutoffs)
        found = recalibration(entered, status, rule_of(scorer.settings), since, parts)
        log.record(scorer.identity, "recalibrated", found.to_dict(), status.last_event)
        return found

    return log.settled(work)


def _require_reason(scorer: Scorer, status: Status) -> None:
    """A cut-off that holds is not replaced because another one would release more."""
    model = in_force(scorer.model, replace(status, alarm=None))
    if status.alarm is None and any(each.risk is not None for each in model.cutoffs.values()):
        raise GuaranteeRefused("no alarm stands: the cut-off in force is kept. Recalibrate after an alarm of monitor.")


def recalibration(
    entered: Entered, status: Status, rule: Rule, since: float | None = None, parts: Sequence[int] = (0,)
) -> Recalibration:
    """The cut-off that the entries since a day support; they follow the last recalibration."""
    if since is None and status.alarm is not None:
        since = status.alarm.told["began"]
    there = entered.number > status.first_entry
    if since is not None:
        there &= entered.day >= since
    some = entered.at(there & entered.inside & ~entered.strange)
    shift = fit_line(np.log(some.odds), ~some.measured)
    weight, measured = shifted(some.odds, shift), some.judged
    cutoffs = _cutoffs(some, weight, rule, parts)
    limit = {part: -np.inf if each.risk is None else each.risk for part, each in cutoffs.items()}
    below = measured & (some.risk <= np.array([limit.get(part, -np.inf) for part in some.part.tolist()]))
    night = weight + some.late
    exact = measured & ~np.isnan(some.ratio)
    data = interval_errors(some.ratio[exact], np.ones(int(exact.sum())), night[exact])
    before = NO_SHIFT if status.recalibration is None else status.recalibration.shift
    return Recalibration(
        cutoffs=cutoffs,
        shift=(shift[0] + shift[1] * before[0], shift[1] * before[1]),
        errors=fit_chances(some.risk[below], some.risky[below]),
        bet_calibration=calibrate_bets(night[below], some.risky[below]),
        ratio=tuple(data.ratio.tolist()),
        reached=tuple(data.reached.tolist()),
        since=float(some.day.min(initial=np.inf)),
        last_entry=int(entered.number.max(initial=0)),
        values=int(measured.sum()),
    )


def _cutoffs(some: Entered, weight: FloatArray, rule: Rule, parts: Sequence[int]) -> dict[int, Cutoff]:
    """As a fit decides; a group that is too small gets none, and all together must not be."""
    data = SelectionData(
        risk=some.risk,
        tie=np.zeros(len(some)),
        patient=some.patient.astype(np.int64),
        weight=weight,
        outside={},
        judged=some.judged,
        risky=some.risky,
        candidate=~some.measured,
        late=some.late & some.judged if (some.late & some.judged).any() else None,
    )
    effective_size = Ledger(entries_of(data), np.empty(0)).effective_size
    if not enough(effective_size, rule.alpha):
        raise GuaranteeRefused(
            f"{too_few(rule.alpha, effective_size)}. Nothing is promised until then: let monitor enter more values, "
            "choose an earlier --since, or fit anew."
        )
    return find_cutoffs(ledgers_of(divided(data, some.part, parts)), rule)[0]
