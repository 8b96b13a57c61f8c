"""The labs of a fit, one or several: fitted or opened, decided lab by lab or all together, and what that promises."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safeimpute.draws.predictive import Predictive
from safeimpute.errors import GuaranteeRefused, NotFittedError
from safeimpute.learning.best.system import FrozenBest
from safeimpute.learning.protocol import Fitted
from safeimpute.machine.progress import Progress, SideBySide
from safeimpute.machine.resources import resolve_device, side_by_side
from safeimpute.machine.state import Checkpoint
from safeimpute.model.fit import fit_question
from safeimpute.model.folder import ModelParts, save_models
from safeimpute.model.frozen import FrozenModel, freeze, learn_reference
from safeimpute.model.open_model import OpenedLab, status_in
from safeimpute.model.scorer import LabScorer
from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.claims import SECOND_LOOK, Promised, promise_in_words, without_promise
from safeimpute.selection.cutoff import Rule, rule_of
from safeimpute.selection.enough import require_promisable
from safeimpute.selection.questions import question_for
from safeimpute.selection.release import Decision, SelectionData
from safeimpute.selection.result import RunResult, result_of, what_would_help
from safeimpute.selection.several import (
    bound_together,
    decide_together,
    promise_of_several,
    refusal,
    require_promisable_together,
    what_if_together,
)
from safeimpute.selection.what_if import WhatIf
from safeimpute.settings import Settings
from safeimpute.visits.checks import require_same_clock
from safeimpute.visits.lab_settings import ALL, labs_asked, require_units_of_labs, settings_of_labs, settings_of_one
from safeimpute.visits.new_visits import Reading, reading_of
from safeimpute.visits.tables import to_polars
from safeimpute.visits.units import TargetUnit, column_choice, require_known_units, unit_of
from safeimpute.visits.visits import Visits, prepare_targets, visits_of


@dataclass(repr=False)
class FittedLab:
    """One lab of a fit."""

    settings: Settings  # the lab's own, at the levels told last
    unit: TargetUnit
    reading: Reading  # how the fitted table was read
    fingerprint: str  # of the fitted visits
    visits: Visits = field(init=False)  # of an opened lab: once it has met them, like the next
    calibrated: Calibrated = field(init=False)  # estimates, weights and scope of every visit
    fitted: Fitted | None = None  # of a fresh fit
    opened: OpenedLab | None = None  # of a saved one
    looked: Rule | None = None  # the levels at which errors were used, fixed from then on
    decision: Decision | None = None
    bound: Bound | None = None
    together: Promised | None = None  # of all labs, where they were decided together
    predictive: Predictive | None = None  # once draws were asked for
    scorer: LabScorer | None = None  # once new visits were

    @property
    def measuring_columns(self) -> tuple[str, ...]:
        """What the model of who gets measured looked at."""
        opened = self.opened
        model = self.calibrated.measuring if opened is None else opened.saved.measuring()
        return () if model is None else model.columns

    def meet(self, visits: Visits) -> None:
        """Take checked visits for the fitted ones, or refuse them."""
        if visits.fingerprint != self.fingerprint:
            raise GuaranteeRefused(
                "impute was given another table than the one it was fitted on; the promise covers only that one. "
                "Fit on this table, or score it as new visits."
            )
        self.visits = visits
        if self.opened is not None and "calibrated" not in vars(self):
            self.calibrated = self.opened.saved.calibrated(visits.arrays)


Labs = Mapping[str, FittedLab]


def fit_lab(
    settings: Settings, checked: Visits, progress: Progress, checkpoint: Checkpoint | None, *, alone: bool = False
) -> FittedLab:
    """Learn one lab from checked visits that have it as their target; `alone` refuses what could promise nothing."""
    arrays, unit = checked.arrays, unit_of(settings)
    reading = reading_of(checked, checked.choice, past_only=settings.past_only)
    if alone:
        require_promisable(arrays, settings)
    question, device = question_for(arrays, settings), resolve_device(settings.device)
    own = None if checkpoint is None else checkpoint.of(checked.fingerprint, repr(settings), device)
    fitted, calibrated = fit_question(
        arrays, question, settings, unit.plausible, device, progress, unit.decision_limits, own
    )
    lab = FittedLab(settings, unit, reading, checked.fingerprint, fitted=fitted)
    lab.visits, lab.calibrated = checked, calibrated
    return lab


def opened_lab(opened: OpenedLab) -> FittedLab:
    """One lab of a saved model."""
    saved, settings = opened.saved, opened.saved.settings
    looked = rule_of(settings) if saved.looked else None
    unit = unit_of(settings)
    return FittedLab(settings, unit, saved.reading, saved.fingerprint, opened=opened, looked=looked)


def decided(lab: FittedLab) -> Decision:
    """The lab's release, which was decided before."""
    if lab.decision is None:
        raise NotFittedError("nothing is released yet: call impute first.")
    return lab.decision


def promise_of(lab: FittedLab) -> Promised:
    """What the lab's release of the fitted table promises; or why it promises nothing."""
    if lab.opened is not None and lab.opened.saved.manifest["second_look"]:
        return without_promise(SECOND_LOOK)
    if lab.decision is not None and lab.decision.refused:
        return without_promise(lab.decision.refused)
    if lab.together is not None:
        return lab.together
    return promise_in_words(lab.settings, lab.unit.name, lab.measuring_columns)


def lab_result(lab: FittedLab, what_if: WhatIf | None = None) -> RunResult:
    """Everything the lab's release came to, as data; `what_if` where labs were decided together."""
    decision, unit = decided(lab), lab.unit
    assert lab.bound is not None  # made with the decision
    return result_of(
        lab.settings,
        unit.name,
        lab.calibrated,
        decision,
        promise_of(lab),
        lab.bound,
        {} if lab.fitted is None else lab.fitted.seconds,
        what_if,
    )


def can_score(lab: FittedLab) -> bool:
    """Whether a fresh fit knows more than its own visits."""
    return lab.fitted is not None and isinstance(lab.fitted.frozen, FrozenBest)


def _frozen(lab: FittedLab) -> FrozenModel | None:
    """What scores new visits, of a fresh fit that was decided; None for a preset that cannot."""
    system = None if lab.fitted is None else lab.fitted.frozen
    if not isinstance(system, FrozenBest):
        return None
    calibrated, decision, settings = lab.calibrated, decided(lab), lab.settings
    reference = learn_reference(calibrated, decision, settings)
    help_ = what_would_help(calibrated, decision, settings)
    return freeze(system, calibrated, decision, settings, lab.unit.plausible, reference, help_)


def scorer_of(lab: FittedLab) -> LabScorer:
    """The lab's frozen model, made once: of a fresh fit that was decided, or as it was opened."""
    if lab.scorer is None or lab.scorer.settings != lab.settings:
        lab.scorer = _fresh_scorer(lab) if lab.opened is None else _opened_scorer(lab, lab.opened)
    return lab.scorer


def _fresh_scorer(lab: FittedLab) -> LabScorer:
    frozen = _frozen(lab)
    if frozen is None:
        raise GuaranteeRefused(
            "the preset 'paper' cannot score new visits: its network knows only the visits of the graph it was "
            "trained on. Fit the preset 'best'."
        )
    return LabScorer(frozen, lab.reading, lab.settings)


def _opened_scorer(lab: FittedLab, opened: OpenedLab) -> LabScorer:
    if lab.settings != opened.saved.settings:
        raise NotFittedError("a loaded model scores at the levels it was saved with: fit again for others.")
    return LabScorer.of(opened)


def parts_to_save(lab: FittedLab, *, second_look: bool, key_file: Path | None) -> ModelParts:
    """What a lab's folder holds; after a second look it promises nothing."""
    if lab.fitted is None:
        raise NotFittedError("this model was loaded from a folder: copy that folder, or fit again.")
    frozen = _frozen(lab)
    if frozen is not None and second_look:
        frozen = replace(frozen, no_promise=SECOND_LOOK)
    return ModelParts(
        settings=lab.settings,
        unit=lab.unit.name,
        reading=lab.reading,
        fingerprint=lab.fingerprint,
        patients=lab.visits.patients,
        calibrated=lab.calibrated,
        seconds=dict(lab.fitted.seconds),
        network=lab.fitted.arrays(),
        frozen=frozen,
        looked=lab.looked is not None,
        second_look=second_look,
        key_file=key_file,
    )


AFTER_FIT = ("fdr", "promise", "confidence", "interval", "gammas")  # may still change before the first look


def check_labs(settings: Settings, table: Any) -> dict[str, Visits]:
    """The visits of a table once for each lab asked for, as its target; or those checked before."""
    if isinstance(table, Mapping):
        return dict(table)
    if isinstance(table, Visits):
        return {settings.target: visits_of(table, column_choice(settings))}
    frame = to_polars(table)
    return prepare_targets(frame, column_choice(settings), labs_asked(settings, frame))


def settings_by_lab(settings: Settings, labs: Collection[str]) -> dict[str, Settings]:
    """What the fit of each lab is told; one lab by itself has no others to share a level with."""
    if settings.target in labs:
        return {settings.target: replace(settings_of_one(settings), over="labs")}
    return settings_of_labs(settings, tuple(labs))


def fit_labs(
    settings: Settings, checked: Mapping[str, Visits], progress: Progress, checkpoint: Checkpoint | None
) -> tuple[dict[str, FittedLab], dict[str, str]]:
    """Refuse what cannot succeed, then fit every lab, several at once where each is small.

    Also gives the labs of `all` that cannot be imputed, and why.
    """
    told = settings_by_lab(settings, checked)
    if settings.target in checked:
        own, visits = told[settings.target], checked[settings.target]
        require_known_units(own, visits.arrays)
        require_same_clock(own.since, visits.time)
        return {settings.target: fit_lab(own, visits, progress, checkpoint, alone=True)}, {}
    left_out = _left_out(settings, told, checked)
    labs = [lab for lab in checked if lab not in left_out]
    if settings.over == "cells":
        require_promisable_together([checked[lab].arrays for lab in labs], settings)
    together = SideBySide(progress, len(labs))

    def fitted(job: tuple[int, str]) -> FittedLab:
        number, lab = job
        heard = together.job(number, f"{lab}, {number + 1} of {len(labs)} labs: ")
        return fit_lab(told[lab], checked[lab], heard, checkpoint)

    found = side_by_side(fitted, list(enumerate(labs)), len(checked[labs[0]]))
    return dict(zip(labs, found, strict=True)), left_out


def _left_out(settings: Settings, told: Mapping[str, Settings], checked: Mapping[str, Visits]) -> dict[str, str]:
    """Labs of `all` that cannot be imputed, and why; a lab asked for by name is refused, and so is a table without."""
    first = next(iter(checked.values()))
    require_units_of_labs(told, first.arrays)
    require_same_clock(settings.since, first.time)
    reasons = {lab: refusal(checked[lab].arrays, own) for lab, own in told.items()}
    left_out = {lab: why for lab, why in reasons.items() if why}
    lab, why = next(iter(left_out.items()), ("", ""))
    if left_out and settings.target != ALL:
        raise GuaranteeRefused(why if repr(lab) in why else f"lab {lab!r}: {why}")
    if len(left_out) == len(told):
        raise GuaranteeRefused(f"no lab of the table can be imputed; {lab!r} for instance: {why}")
    return left_out


def tell_labs(labs: Labs, told: Settings, left_out: Collection[str] = ()) -> None:
    """Tell every lab today's levels, which may change only before the first look."""
    asked = settings_by_lab(told, (*labs, *left_out))
    each = {name: replace(asked[name], labs=lab.settings.labs) for name, lab in labs.items()}
    for name, lab in labs.items():
        _require_changeable(lab, each[name])
    for name, lab in labs.items():
        lab.settings = each[name]


def _require_changeable(lab: FittedLab, told: Settings) -> None:
    """Refuse other levels after a look at the errors, and other parameters than levels at any time."""
    if lab.looked not in (None, rule_of(told)):
        raise GuaranteeRefused(
            "fdr, promise or confidence was changed after impute had used the measured errors: the promise would "
            "no longer hold. Keep them, or fit on visits not looked at."
        )
    if replace(told, **{name: getattr(lab.settings, name) for name in AFTER_FIT}) != lab.settings:
        raise NotFittedError("parameters were changed since fit: call fit again.")


def meet_labs(labs: Labs, visits: Any) -> None:
    """Take a table, or the visits checked from it, for the fitted one; or refuse it."""
    first = next(iter(labs.values()))
    if isinstance(visits, Visits):
        visits = {first.settings.target: visits_of(visits, column_choice(first.settings))}
    if not isinstance(visits, Mapping):
        visits = prepare_targets(visits, column_choice(first.settings), tuple(labs))
    for name, lab in labs.items():
        lab.meet(visits[name])


def decide_labs(labs: Labs, settings: Settings) -> None:
    """Release every lab, all together where one level holds over them; the levels are fixed from here on."""
    if any("calibrated" not in vars(lab) for lab in labs.values()):
        raise NotFittedError("a loaded model decides once it has met its table: call impute with it first.")
    for lab in labs.values():
        lab.looked = rule_of(lab.settings)
    if all(lab.decision is not None for lab in labs.values()):
        return
    decisions, promised = {}, None
    if settings.over == "cells":
        decisions = decide_together(_data_by_lab(labs), rule_of(settings))
        promised = promise_of_several(settings, tolerances_in_words(labs), _measuring_columns(labs))
    for name, lab in labs.items():
        tolerance, rule = lab.settings.allowed_error, rule_of(lab.settings)
        lab.decision = decisions.get(name) or lab.calibrated.release(tolerance, rule)
        lab.bound = lab.calibrated.bound(tolerance, rule, lab.decision)
        lab.together = promised


def bound_of_labs(labs: Labs, settings: Settings) -> Bound:
    """With the confidence, how many of all released values are unacceptable at most."""
    decisions = {name: decided(lab) for name, lab in labs.items()}
    return bound_together(_data_by_lab(labs), rule_of(settings), decisions, settings.over)


def results_of_labs(labs: Labs, settings: Settings) -> dict[str, RunResult]:
    """Everything the release came to, by lab; other choices are decided together where the release was."""
    if settings.over != "cells" or settings.target in labs:
        return {name: lab_result(lab) for name, lab in labs.items()}
    tolerances = {name: lab.settings.allowed_error for name, lab in labs.items()}
    calibrated = {name: lab.calibrated for name, lab in labs.items()}
    found = what_if_together(calibrated, tolerances, rule_of(settings), settings.gammas)
    return {name: lab_result(lab, found[name]) for name, lab in labs.items()}


def promise_of_labs(labs: Labs, settings: Settings) -> Promised:
    """What the labs promise by now; or why they promise nothing, after an alarm of a saved model for instance."""
    each = {name: _promise_by_now(lab) for name, lab in labs.items()}
    if settings.target in each:
        return each[settings.target]
    refused = {lab: said.no_promise for lab, said in each.items() if said.no_promise}
    if len(refused) == len(each):
        return without_promise(next(iter(refused.values())))
    still = {lab: words for lab, words in tolerances_in_words(labs).items() if lab not in refused}
    said = promise_of_several(settings, still, _measuring_columns(labs))
    if not refused:
        return said
    nothing = f"Nothing is promised for {', '.join(refused)}."
    return Promised(said.promise, said.assumption, f"{nothing} {said.limits}")


def _promise_by_now(lab: FittedLab) -> Promised:
    opened = lab.opened
    alarm = "" if opened is None else status_in(opened.folder, opened.saved.identity).no_promise
    return without_promise(alarm) if alarm else promise_of(lab)


def decide_if_they_score(labs: Labs, settings: Settings) -> None:
    """Fresh fits are frozen at their cut-off, which is a look at the measured errors; opened ones have theirs."""
    if any(can_score(lab) for lab in labs.values()):
        decide_labs(labs, settings)


def save_labs(
    folder: Path, labs: Labs, settings: Settings, *, second_looks: Collection[str] = (), key_file: Path | None = None
) -> None:
    """Write every lab's model; those of `second_looks` promise nothing."""
    decide_if_they_score(labs, settings)
    parts = {
        name: parts_to_save(lab, second_look=name in second_looks, key_file=key_file) for name, lab in labs.items()
    }
    save_models(folder, settings, parts)


def tolerances_in_words(labs: Labs) -> dict[str, str]:
    """Each lab's tolerance."""
    return {name: lab.settings.allowed_error.describe(lab.unit.name) for name, lab in labs.items()}


def _data_by_lab(labs: Labs) -> dict[str, SelectionData]:
    return {name: lab.calibrated.selection_data(lab.settings.allowed_error) for name, lab in labs.items()}


def _measuring_columns(labs: Labs) -> tuple[str, ...]:
    """What the models of measuring looked at, over all labs."""
    return tuple(dict.fromkeys(name for lab in labs.values() for name in lab.measuring_columns))
