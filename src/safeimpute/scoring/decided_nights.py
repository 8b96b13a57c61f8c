"""Scoring with a ledger: what holds tonight decides, what was decided before stays decided."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.records.arrays import VisitArrays
from safeimpute.scoring.frozen import FrozenModel, Scored, score_visits
from safeimpute.scoring.night_ledger import Decided, LedgerMoved, NightLedger
from safeimpute.scoring.standing import in_force, standing_of

if TYPE_CHECKING:
    from safeimpute.scoring.scorer import Scorer

TRIES = 20  # events are rare: one or two is what it takes


def score_with_ledger(
    scorer: "Scorer", visits: VisitArrays, ledger: NightLedger, *, promised: bool
) -> tuple[FrozenModel, Scored, int]:
    """The model as it stands tonight, the visits as decided, and how many were decided before.

    Where nothing is promised nothing is decided either: such visits can still be decided on a later night.
    """
    if not scorer.identity:
        raise OptionError(
            "a ledger keeps the decisions of a saved model: save it, and load the scorer from there."
        )
    lab = scorer.settings.target
    for _ in range(TRIES):
        standing = standing_of(ledger.events(scorer.identity))
        model = in_force(scorer.model, standing)
        scored = score_visits(visits, model, promised=promised)
        candidate = np.flatnonzero(scored.candidate)
        decided = _decided_of(visits, scored).at(candidate)
        fresh = decided if promised and not model.no_promise else decided.at(np.empty(0, np.int64))
        try:
            found, earlier = ledger.decide(
                scorer.identity, lab, fresh, visits.visit_key[candidate], standing.last_event
            )
        except LedgerMoved:
            continue
        return model, _as_decided(visits, scored, found), earlier
    raise OptionError(f"the ledger {ledger.path.name!r} kept changing while it was used. Try again.")


def _decided_of(visits: VisitArrays, scored: Scored) -> Decided:
    return Decided(
        visit=visits.visit_key,
        patient=visits.patient_key,
        day=visits.time,
        value=scored.estimates.value,
        half_width=scored.half_width,
        risk=scored.estimates.risk,
        cutoff=scored.cutoff,
        released=scored.released,
        reason=scored.reason,
    )


def _as_decided(visits: VisitArrays, scored: Scored, found: Decided) -> Scored:
    """The visits with what stands in the ledger."""
    order = np.argsort(visits.visit_key, kind="stable")
    rows = order[np.searchsorted(visits.visit_key[order], found.visit)]

    def put(now: np.ndarray, then: np.ndarray) -> np.ndarray:
        whole = now.astype(object) if now.dtype.kind == "U" else now.copy()
        whole[rows] = then
        return whole.astype(np.str_) if now.dtype.kind == "U" else whole

    estimates = replace(
        scored.estimates,
        value=put(scored.estimates.value, found.value),
        risk=put(scored.estimates.risk, found.risk),
    )
    return replace(
        scored,
        estimates=estimates,
        half_width=put(scored.half_width, found.half_width),
        released=put(scored.released, found.released),
        reason=put(scored.reason, found.reason),
        cutoff=put(scored.cutoff, found.cutoff),
    )
