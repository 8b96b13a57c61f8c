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
from safeimpute.learning.roles import fold_of, require_learnable
from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.claims import Promised, promise_about
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.enough import EffectiveSize, calibrated_on, enough, require_promisable, require_sides, too_few
from safeimpute.selection.release import Decision, SelectionData, bound_of, decide
from safeimpute.selection.what_if import (
    LEVELS,
    TOLERANCE_FACTORS,
    AtTolerance,
    Division,
    Stability,
    UnderDoubt,
    WhatIf,
    stability_of,
    tolerances_around,
)
from safeimpute.settings import OverName, Settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays

PER_VISIT = ("risk", "tie", "patient", "weight", "judged", "risky", "candidate")
PER_CANDIDATE = ("released", "reason", "cutoff", "p_value")
WITHIN_CELLS = "The level is kept over the cells of all labs together: a single lab may exceed it."
EACH_LAB = "The level is kept in each lab by itself: it does not cover a lab picked after looking."


def decide_together(data_by_lab: Mapping[str, SelectionData], rule: Rule) -> dict[str, Decision]:
    """Release the candidates of every lab up to one risk, so that the level holds over all released cells.

    All speak of the same visits in the same order.
    """
    whole = decide(join_selection_data(list(data_by_lab.values())), rule)
    ends = np.cumsum([int(data.candidate.sum()) for data in data_by_lab.values()])[:-1]
    parts = zip(*(np.split(getattr(whole, name), ends) for name in PER_CANDIDATE), strict=True)
    return {
        lab: replace(whole, **dict(zip(PER_CANDIDATE, part, strict=True)))
        for lab, part in zip(data_by_lab, parts, strict=True)
    }


def join_selection_data(data_by_lab: Sequence[SelectionData]) -> SelectionData:
    """The cells of several labs as one table; patients keep their numbers, which all labs share."""
    names = dict.fromkeys(name for data in data_by_lab for name in data.outside)
    nobody = [np.zeros(len(data.risk), dtype=bool) for data in data_by_lab]
    outside = {
        name: np.concatenate([g.outside.get(name, none) for g, none in zip(data_by_lab, nobody, strict=True)])
        for name in names
    }
    rest = {name: np.concatenate([getattr(data, name) for data in data_by_lab]) for name in PER_VISIT}
    late = [none if g.late is None else g.late for g, none in zip(data_by_lab, nobody, strict=True)]
    whole = None if all(g.late is None for g in data_by_lab) else np.concatenate(late)
    return SelectionData(outside=outside, late=whole, **rest)


def bound_together(
    data_by_lab: Mapping[str, SelectionData], rule: Rule, decisions: Mapping[str, Decision], over: OverName = "labs"
) -> Bound:
    """With the rule's confidence, how many of all released cells are risky at most.

    Labs with a cut-off each divide the doubt between them.
    """
    if over == "cells":  # one cut-off: the cells of all labs are one release
        return bound_of(join_selection_data(list(data_by_lab.values())), rule, next(iter(decisions.values())))
    each = rule.in_each_of(len(data_by_lab))
    parts = [bound_of(data, each, decisions[lab]) for lab, data in data_by_lab.items()]
    return replace(reduce(add, parts), confidence=rule.confidence)


def what_if_together(
    labs: Mapping[str, Calibrated], tolerances: Mapping[str, Tolerance], rule: Rule, gammas: Sequence[float]
) -> dict[str, WhatIf]:
    """What other levels, tolerances (of all labs times one factor) and odds would release of each lab, together."""
    levels = sorted({*LEVELS, rule.alpha})
    around = {lab: tolerances_around(each) for lab, each in tolerances.items()}
    elsewhere: dict[str, list[AtTolerance]] = {lab: [] for lab in labs}
    doubts: dict[str, list[UnderDoubt]] = {}
    for number, factor in enumerate(TOLERANCE_FACTORS):
        parts = {lab: Division(each.selection_data(around[lab][number][0]), None) for lab, each in labs.items()}
        joint = Division(join_selection_data([each.data for each in parts.values()]), None)
        rules = [replace(rule, alpha=level) for level in levels]
        limits = [joint.limits(each) for each in rules]
        for lab, part in parts.items():
            if factor != 1.0 and around[lab][number][0] == tolerances[lab]:  # limits have no multiples
                continue
            reaches = (part.reach(*each, bounded=factor == 1.0) for each in zip(limits, rules, strict=True))
            elsewhere[lab].append(AtTolerance(*around[lab][number], tuple(reaches)))
        if factor == 1.0:
            doubted = [(float(gamma), joint.limits(replace(rule, gamma=gamma))) for gamma in gammas]
            for lab, part in parts.items():
                doubts[lab] = [UnderDoubt(gamma, part.reach(each, rule).released) for gamma, each in doubted]
    stability = _stability_together(
        {lab: each.selection_data(tolerances[lab]) for lab, each in labs.items()}, labs, rule
    )
    return {lab: WhatIf(tuple(elsewhere[lab]), doubts[lab], stability[lab]) for lab in labs}


def _stability_together(
    data_by_lab: Mapping[str, SelectionData], labs: Mapping[str, Calibrated], rule: Rule
) -> dict[str, Stability]:
    """How much each lab's part of the joint release hangs on which patients decide it; all labs share the folds."""
    fold = next(iter(labs.values())).question.fold
    without = [
        {lab: replace(data, judged=data.judged & (fold != number)) for lab, data in data_by_lab.items()}
        for number in np.unique(fold)
    ]
    whole, *others = (decide_together(each, rule) for each in (data_by_lab, *without))
    return {lab: stability_of(whole[lab].released, [other[lab].released for other in others]) for lab in data_by_lab}


def refusal(visits: VisitArrays, settings: Settings) -> str:
    """Why a lab of several cannot be imputed under its own promise; empty where it can. Reads no error."""
    if why := unlearnable(visits, settings):
        return why
    try:
        if settings.over == "labs" or (np.isfinite(visits.target_values) | visits.target_censored).all():
            require_promisable(visits, settings)
    except (GuaranteeRefused, VisitsError) as error:
        return str(error)
    return ""


def unlearnable(visits: VisitArrays, settings: Settings) -> str:
    """Why too little is measured of a lab to learn it; empty where enough is."""
    fold = fold_of(visits.patient_key, settings.random_state, settings.best.folds)
    try:
        require_learnable(settings.target, visits.patient, ~np.isnan(visits.target_values), fold)
        require_sides(settings.target, visits.target_values, settings.allowed_error)
    except VisitsError as error:
        return str(error)
    return ""


def require_promisable_together(labs: Sequence[VisitArrays], settings: Settings) -> None:
    """Refuse labs that together could not bear the level even at equal weights."""
    measured = [~np.isnan(each.target_values) & calibrated_on(each, settings) for each in labs]
    patient = np.concatenate([each.patient[rows] for each, rows in zip(labs, measured, strict=True)])
    effective_size = EffectiveSize(float(len(patient)), float(len(np.unique(patient))))
    if not enough(effective_size, settings.fdr):
        raise GuaranteeRefused(f"{too_few(settings.fdr, effective_size)}.")


def as_part_of_several(promised: Promised, settings: Settings) -> Promised:
    """One lab's promise, where it was decided together with others."""
    if settings.over != "cells":
        return promised
    start = "Over the cells of all labs of the run together, of which this is one:"
    return Promised(f"{start} {promised.promise}", promised.assumption, f"{promised.limits} {WITHIN_CELLS}")


def promise_of_several(settings: Settings, labs: Mapping[str, str], columns: tuple[str, ...]) -> Promised:
    """What a release of several labs promises; `labs` gives each lab's tolerance in words."""
    said = promise_about(settings, _listed(tuple(labs)), "off by its lab's tolerance or more", "each lab", columns)
    if settings.over == "cells":
        start, end = f"Over all {len(labs)} labs together:", WITHIN_CELLS
    else:
        start, end = f"For each of {len(labs)} labs by itself:", EACH_LAB
    tolerances = "; ".join(f"{lab} {words}" for lab, words in labs.items())
    return Promised(f"{start} {said.promise} Tolerances: {tolerances}.", said.assumption, f"{said.limits} {end}")


def _listed(labs: tuple[str, ...], most: int = 6) -> str:
    if len(labs) > most:
        return f"{', '.join(labs[:most])} and {len(labs) - most} more labs"
    return f"{', '.join(labs[:-1])} and {labs[-1]}" if len(labs) > 1 else labs[0]
