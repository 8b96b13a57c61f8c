"""One lab: visits in; for every missing target a value, a risk, and a decision that keeps its promise."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from safeimpute.errors import GuaranteeRefused, NotFittedError
from safeimpute.estimator.filling import Filling
from safeimpute.estimator.parameters import PARAMETERS, Parameterised
from safeimpute.estimator.showing import Showing
from safeimpute.records.asked import settings_of_one
from safeimpute.records.checks import require_same_clock
from safeimpute.records.imputations import imputation_table
from safeimpute.records.new_visits import Reading, reading_of
from safeimpute.records.tables import like
from safeimpute.records.units import TargetUnit, column_choice, require_known_units, unit_of
from safeimpute.records.visits import Visits, visits_of
from safeimpute.runtime.devices import resolve_device
from safeimpute.runtime.kept import Kept
from safeimpute.runtime.progress import Progress, silent
from safeimpute.scoring.drawing import Drawing
from safeimpute.scoring.explained import explanation_table
from safeimpute.scoring.folder import ModelParts, SavedModel, load_model, save_model
from safeimpute.scoring.frozen import FrozenModel, freeze
from safeimpute.scoring.scorer import Scorer
from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrate import Calibrated, fit_question
from safeimpute.selection.claims import Promised
from safeimpute.selection.help import what_would_help
from safeimpute.selection.reference import learn_reference
from safeimpute.selection.release import Decision, Rule, rule_of
from safeimpute.selection.result import RunResult, promised_by, result_of
from safeimpute.settings import Settings, make_settings
from safeimpute.splits.enough import require_promisable
from safeimpute.splits.questions import question_for
from safeimpute.systems.best.system import FrozenBest
from safeimpute.systems.protocol import Fitted

AFTER_FIT = ("fdr", "promise", "confidence", "interval", "gammas")  # may still change before the first look


@dataclass(frozen=True)
class Together:
    """A lab's part of a release that was decided over several labs, and what that promises."""

    decision: Decision
    promised: Promised


class LabImputer(Parameterised, Filling, Showing, Drawing):
    """Impute a lab in irregular visits and release what can be promised; parameters are those of `SafeImputer`."""

    settings_: Settings
    visits_: Visits
    unit_: TargetUnit
    reading_: Reading
    fitted_: Fitted  # until saved: a loaded imputer has none
    calibrated_: Calibrated
    decision_: Decision
    bound_: Bound
    saved_: SavedModel  # of a loaded imputer
    scorer_: Scorer  # once new visits were scored
    looked_: Rule | None
    _told: Settings | None = None
    _resolved: Settings
    together_: Together | None = None  # where several labs were decided together

    def fit(
        self,
        visits: Any,
        y: None = None,  # noqa: ARG002
        *,
        progress: Progress = silent,
        kept: Kept | None = None,
    ) -> Self:
        """Learn to impute, to rank risk and who gets measured; what cannot succeed is refused before that.

        Parameters
        ----------
        visits : table
            One row per visit (pandas, polars or pyarrow), or the `Visits` checked from it.
        y : None
            Ignored; for scikit-learn's pipelines.
        progress : callable
            Told the stage in words and the share of the whole done.
        kept : Kept, optional
            Folds that were finished before the same fit was stopped, and where to keep them.

        Raises
        ------
        VisitsError
            The table cannot be used, and why.
        GuaranteeRefused
            Nothing could be promised on it at this level.
        """
        settings = self._settings()
        checked = visits_of(visits, column_choice(settings))
        self._met(visits)
        require_known_units(settings, checked.arrays)
        require_same_clock(settings.since, checked.time)
        return self.fit_checked(checked, progress, kept, alone=True)

    def fit_checked(
        self,
        checked: Visits,
        progress: Progress = silent,
        kept: Kept | None = None,
        *,
        alone: bool = False,
    ) -> Self:
        """Learn from checked visits.

        Parameters
        ----------
        checked : Visits
            With this imputer's target.
        progress : callable
            Told the stage in words and the share of the whole done.
        kept : Kept, optional
            Folds that were finished before the same fit was stopped, and where to keep them.
        alone : bool
            Refuse what could promise nothing by itself; labs of several were asked that before.
        """
        settings, arrays = self._settings(), checked.arrays
        unit, reading = unit_of(settings), reading_of(checked, checked.choice, past_only=settings.past_only)
        if alone:
            require_promisable(arrays, settings)
        question, device = question_for(arrays, settings), resolve_device(settings.device)
        own = None if kept is None else kept.of(checked.fingerprint, repr(settings), device)
        self.fitted_, self.calibrated_ = fit_question(
            arrays, question, settings, unit.plausible, device, progress, unit.decision_limits, own
        )
        self.settings_, self.visits_, self.unit_, self.reading_ = settings, checked, unit, reading
        self.looked_ = None
        for stale in ("saved_", "scorer_", "decision_", "bound_", "predictive_"):
            vars(self).pop(stale, None)
        return self

    def impute(self, visits: Any, draws: int | None = None) -> Any:
        """One row per visit whose target is missing: value, interval, risk, cut-off, released or why not.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on, or its checked `Visits`; another one is refused (`score` takes new
            visits).
        draws : int, optional
            Instead, so many draws of every missing value, released or not: the table of the method `draws`.
        """
        if draws is not None:
            return self.draws(visits, draws)
        self.current_settings()
        self._require_fitted_table(visits)
        return like(self.imputed(), visits)

    def imputed(self) -> pl.DataFrame:
        """The imputation table of the fitted visits, which are at hand."""
        settings, calibrated = self.current_settings(), self.calibrated_
        decision = self._decide(settings)
        rows, estimates = calibrated.candidates, calibrated.estimates
        return imputation_table(
            self.visits_.subject[rows],
            self.visits_.time[rows],
            settings.target,
            self.unit_.name,
            estimates.value[rows],
            calibrated.half_widths(settings.interval),
            estimates.risk[rows],
            decision.cutoff,
            decision.p_value,
            decision.released,
            decision.reason,
        )

    def explain(self, visits: Any) -> Any:
        """The visits that carried each imputation: own ones with gaps, other patients' with distances, weights.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        """
        self.current_settings()
        self._require_fitted_table(visits)
        fitted = getattr(self, "fitted_", None)
        support = None if fitted is None else fitted.explain(self.calibrated_.candidates)
        if support is None:
            raise NotFittedError(
                "only a freshly fitted preset 'best' can explain its imputations: call fit first."
            )
        return like(explanation_table(self.visits_, support), visits)

    def score(self, visits: Any, without: tuple[str, ...] = ()) -> Any:
        """Impute and release visits that came in since, against this fit; one row per visit whose target is missing.

        Parameters
        ----------
        visits : table
            New visits, of patients known or new, with the columns of the fitted table.
        without : tuple of str
            Labs or attributes the table lacks; nothing is promised then.
        """
        return self.scorer().score(visits, without)

    def scorer(self) -> Scorer:
        """The fit as a scorer to keep; the levels are fixed from here on."""
        settings = self.current_settings()
        if hasattr(self, "scorer_") and self.scorer_.settings == settings:
            return self.scorer_
        if hasattr(self, "saved_"):
            if settings != self.saved_.settings:
                raise NotFittedError(
                    "a loaded model scores at the levels it was saved with: fit again for others."
                )
            self.scorer_ = Scorer(self.saved_.frozen(), self.saved_.reading, settings)
            return self.scorer_
        frozen = self._freeze(settings)
        if frozen is None:
            raise GuaranteeRefused(
                "the preset 'paper' cannot score new visits: its network knows only the visits of the graph it was "
                "trained on. Fit the preset 'best'."
            )
        self.scorer_ = Scorer(frozen, self.reading_, settings)
        return self.scorer_

    def promised(self) -> Promised:
        """What the release promises, under which assumption, and what not; or why it promises nothing."""
        settings = self.current_settings()
        decision = getattr(self, "decision_", None)
        if self.together_ is not None and not (decision is not None and decision.refused):
            return self.together_.promised
        return promised_by(settings, self.unit_.name, self.calibrated_, decision)

    def result(self) -> RunResult:
        """Everything the last `impute` came to, as data, and what other levels and odds would have released.

        Returns
        -------
        RunResult
            What summaries and reports are made from.
        """
        settings, fitted = self.current_settings(), getattr(self, "fitted_", None)
        seconds = {} if fitted is None else fitted.seconds
        decision, unit = self._decide(settings), self.unit_
        return result_of(
            settings,
            unit.name,
            unit.decision_limits,
            self.calibrated_,
            decision,
            self.promised(),
            self.bound_,
            seconds,
        )

    def save(self, folder: str | Path, *, second_look: bool = False, sign: str | Path | None = None) -> None:
        """Write the fitted model (safetensors, JSON) to a new folder.

        Parameters
        ----------
        folder : path
            Must not exist yet.
        second_look : bool
            The levels were chosen after an earlier look at the same visits: the model then promises nothing.
        sign : path, optional
            PEM file of an Ed25519 private key to sign the model with.
        """
        settings = self.current_settings()
        if hasattr(self, "saved_"):
            raise NotFittedError("this model was loaded from a folder: copy that folder, or fit again.")
        frozen = self._freeze(settings)
        if frozen is not None and second_look:
            frozen = replace(frozen, no_promise="the levels were chosen after looking at the same visits")
        parts = ModelParts(
            settings=settings,
            unit=self.unit_.name,
            reading=self.reading_,
            fingerprint=self.visits_.fingerprint,
            patients=self.visits_.patients,
            calibrated=self.calibrated_,
            seconds=dict(self.fitted_.seconds),
            network=self.fitted_.arrays(),
            frozen=frozen,
            looked=self.looked_ is not None,
            key_file=None if sign is None else Path(sign),
        )
        save_model(Path(folder), parts)

    @classmethod
    def load(cls, folder: str | Path, *, public_key: str | Path | None = None) -> Self:
        """A fitted imputer from a saved folder; it imputes the table it was fitted on, and scores new visits.

        Parameters
        ----------
        folder : path
            As `save` wrote it; a damaged one is refused.
        public_key : path, optional
            PEM file of the Ed25519 key by whose owner the model must be signed.
        """
        saved = load_model(Path(folder), None if public_key is None else Path(public_key))
        imputer = cls(**{name: getattr(saved.settings, name) for name in PARAMETERS})
        imputer.settings_, imputer.saved_ = saved.settings, saved
        imputer.unit_, imputer.reading_ = unit_of(saved.settings), saved.reading
        imputer.looked_ = rule_of(saved.settings) if saved.looked else None
        return imputer

    def current_settings(self) -> Settings:
        """The fitted settings at today's levels, which may change only before the first look."""
        if not hasattr(self, "settings_"):
            raise NotFittedError("this SafeImputer is not fitted yet: call fit(visits) first.")
        settings = self._settings()
        if self.looked_ not in (None, rule_of(settings)):
            raise GuaranteeRefused(
                "fdr, promise or confidence was changed after impute had used the measured errors: the promise would "
                "no longer hold. Keep them, or fit on visits not looked at."
            )
        if replace(settings, **{name: getattr(self.settings_, name) for name in AFTER_FIT}) != self.settings_:
            raise NotFittedError("parameters were changed since fit: call fit again.")
        return settings

    def _settings(self) -> Settings:
        """What was told, resolved; the catalogue is looked into once, until something is told otherwise."""
        told = make_settings(**self.get_params())
        if told != self._told:
            self._told, self._resolved = told, settings_of_one(told)
        return self._resolved

    def _freeze(self, settings: Settings) -> FrozenModel | None:
        """What scores new visits; None for a preset that cannot."""
        system = self.fitted_.frozen
        if not isinstance(system, FrozenBest):
            return None
        calibrated, decision = self.calibrated_, self._decide(settings)
        reference = learn_reference(calibrated, decision, settings)
        help_ = what_would_help(calibrated, decision, settings)
        return freeze(system, calibrated, decision, settings, self.unit_.plausible, reference, help_)

    def _decide(self, settings: Settings) -> Decision:
        """The release; the levels are fixed from here on."""
        self.looked_ = rule_of(settings)
        if not hasattr(self, "decision_"):
            tolerance, rule = settings.allowed_error, self.looked_
            together = self.together_
            self.decision_ = (
                self.calibrated_.release(tolerance, rule) if together is None else together.decision
            )
            self.bound_ = self.calibrated_.bound(tolerance, rule, self.decision_)
        return self.decision_

    def _require_fitted_table(self, visits: Any) -> None:
        """The release speaks for the fitted table only; a loaded model meets its table here again."""
        if visits is not getattr(self, "visits_", None):
            self.meet(visits_of(visits, column_choice(self.settings_)))

    def meet(self, given: Visits) -> None:
        """Take checked visits for the fitted ones, or refuse them.

        Parameters
        ----------
        given : Visits
            With this imputer's target.
        """
        fitted = self.visits_.fingerprint if hasattr(self, "visits_") else self.saved_.fingerprint
        if given.fingerprint != fitted:
            raise GuaranteeRefused(
                "impute was given another table than the one it was fitted on; the promise covers only that one. "
                "Fit on this table, or score it as new visits."
            )
        self.visits_ = given
        if not hasattr(self, "calibrated_"):
            self.calibrated_ = self.saved_.calibrated(given.arrays)
