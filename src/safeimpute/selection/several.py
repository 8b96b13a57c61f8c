"""Several labs at once: one level over the released cells of all labs together, or what each lab's own level says.

A cell is one lab at one visit. A patient's balance over several labs is the sum of its balances in each (every lab's
odds, risks and errors are its own); its mean over patients is the expected excess of risky cells among the released
unmeasured ones, by adding up the identity lab by lab, whatever the dependence between labs: patients are the units.
So one threshold of risk on the entries of all labs, with a patient's number the same in each, keeps one level over all
released cells, by the same functions that keep it for one lab.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from safeimpute.errors import GuaranteeRefused, VisitsError
from safeimpute.records.arrays import VisitArrays
from safeimpute.selection.bounds import Bound
from safeimpute.selection.claims import Promised, promise_about
from safeimpute.selection.release import Decision, Ground, Rule, bound_of, decide, in_each
from safeimpute.settings import OverName, Settings
from safeimpute.splits.enough import Worth, enough, require_promisable, too_few
from safeimpute.splits.folds import fold_of, require_learnable

PER_VISIT = ("risk", "tie", "patient", "weight", "judged", "risky", "candidate")
PER_CANDIDATE = ("released", "reason", "cutoff", "p_value")
WITHIN_CELLS = "The level is kept over the cells of all labs together: a single lab may exceed it."
EACH_LAB = "The level is kept in each lab by itself: it does not cover a lab picked after looking."


def decide_together(grounds: Mapping[str, Ground], rule: Rule) -> dict[str, Decision]:
    """Release the candidates of every lab up to one risk, so that the level holds over all released cells.

    The grounds speak of the same visits in the same order.
    """
    whole = decide(join_grounds(list(grounds.values())), rule)
    ends = np.cumsum([int(ground.candidate.sum()) for ground in grounds.values()])[:-1]
    parts = zip(*(np.split(getattr(whole, name), ends) for name in PER_CANDIDATE), strict=True)
    return {
        lab: replace(whole, **dict(zip(PER_CANDIDATE, part, strict=True)))
        for lab, part in zip(grounds, parts, strict=True)
    }


def join_grounds(grounds: Sequence[Ground]) -> Ground:
    """The cells of several labs as one ground; patients keep their numbers, which all labs share."""
    names = dict.fromkeys(name for ground in grounds for name in ground.outside)
    nobody = [np.zeros(len(ground.risk), dtype=bool) for ground in grounds]
    outside = {
        name: np.concatenate([g.outside.get(name, none) for g, none in zip(grounds, nobody, strict=True)])
        for name in names
    }
    rest = {name: np.concatenate([getattr(ground, name) for ground in grounds]) for name in PER_VISIT}
    return Ground(outside=outside, **rest)


def bound_together(
    grounds: Mapping[str, Ground], rule: Rule, decisions: Mapping[str, Decision], over: OverName = "labs"
) -> Bound:
    """With the rule's confidence, how many of all released cells are risky at most.

    Labs with a cut-off each divide the doubt between them.
    """
    if over == "cells":  # one cut-off: the cells of all labs are one release
        return bound_of(join_grounds(list(grounds.values())), rule, next(iter(decisions.values())))
    each = in_each(rule, len(grounds))
    parts = [bound_of(ground, each, decisions[lab]) for lab, ground in grounds.items()]
    return replace(reduce(add, parts), confidence=rule.confidence)


def refusal(visits: VisitArrays, settings: Settings) -> str:
    """Why a lab of several cannot be imputed under its own promise; empty where it can. Reads no error."""
    if why := unlearnable(visits, settings):
        return why
    try:
        if settings.over == "labs" or np.isfinite(visits.target_values).all():
            require_promisable(visits, settings)
    except (GuaranteeRefused, VisitsError) as error:
        return str(error)
    return ""


def unlearnable(visits: VisitArrays, settings: Settings) -> str:
    """Why too little is measured of a lab to learn it; empty where enough is."""
    fold = fold_of(visits.patient_key, settings.random_state, settings.best.folds)
    try:
        require_learnable(settings.target, visits.patient, ~np.isnan(visits.target_values), fold)
    except VisitsError as error:
        return str(error)
    return ""


def require_promisable_together(labs: Sequence[VisitArrays], settings: Settings) -> None:
    """Refuse labs that together could not bear the level even at equal weights."""
    patient = np.concatenate([each.patient[~np.isnan(each.target_values)] for each in labs])
    worth = Worth(float(len(patient)), float(len(np.unique(patient))))
    if not enough(worth, settings.fdr):
        raise GuaranteeRefused(f"{too_few(settings.fdr, worth)}.")


def as_part_of_several(promised: Promised, settings: Settings) -> Promised:
    """One lab's promise, where it was decided together with others."""
    if settings.over != "cells":
        return promised
    start = "Over the cells of all labs of the run together, of which this is one:"
    return Promised(f"{start} {promised.promise}", promised.assumption, f"{promised.limits} {WITHIN_CELLS}")


def promise_of_several(settings: Settings, labs: Mapping[str, str], columns: tuple[str, ...]) -> Promised:
    """What a release of several labs promises; `labs` gives each lab's tolerance in words."""
    said = promise_about(settings, _listed(tuple(labs)), "its lab's tolerance", "each lab", columns)
    if settings.over == "cells":
        start, end = f"Over all {len(labs)} labs together:", WITHIN_CELLS
    else:
        start, end = f"For each of {len(labs)} labs by itself:", EACH_LAB
    tolerances = "; ".join(f"{lab} {words}" for lab, words in labs.items())
    return Promised(
        f"{start} {said.promise} Tolerances: {tolerances}.", said.assumption, f"{said.limits} {end}"
    )


def _listed(labs: tuple[str, ...], most: int = 6) -> str:
    if len(labs) > most:
        return f"{', '.join(labs[:most])} and {len(labs) - most} more labs"
    return f"{', '.join(labs[:-1])} and {labs[-1]}" if len(labs) > 1 else labs[0]
