"""One lab: visits in; for every missing target a value, a risk, and a decision that keeps its promise."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from safeimpute.errors import GuaranteeRefused, NotFittedError
from safeimpute.estimator.parameters import PARAMETERS, Parameterised
from safeimpute.records.asked import settings_of_one
from safeimpute.records.checks import require_same_clock
from safeimpute.records.filled import fill_in
from safeimpute.records.imputations import imputation_table
from safeimpute.records.new_visits import reading_of
from safeimpute.records.tables import like, to_polars
from safeimpute.records.units import (
    column_choice,
    decision_limits,
    plausible_range,
    require_known_units,
    target_unit,
)
from safeimpute.records.visits import Visits, prepare_visits
from safeimpute.runtime.devices import resolve_device
from safeimpute.runtime.progress import Progress, silent
from safeimpute.scoring.drawing import Drawing
from safeimpute.scoring.explained import explanation_table
from safeimpute.scoring.folder import ModelParts, SavedModel, load_model, save_model
from safeimpute.scoring.frozen import FrozenModel, freeze
from safeimpute.scoring.scorer import Scorer
from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrate import Calibrated, Range, fit_question
from safeimpute.selection.claims import Promised, promise_in_words, without_promise
from safeimpute.selection.promisable import require_promisable
from safeimpute.selection.release import Decision, Rule, rule_of
from safeimpute.settings import Settings, make_settings
from safeimpute.splits.questions import question_for
from safeimpute.systems.best.system import FrozenBest
from safeimpute.systems.protocol import Fitted

AFTER_FIT = (
    "fdr",
    "promise",
    "confidence",
    "interval",
    "gammas",
    "unit",
)  # may still change before the first look


@dataclass(frozen=True)
class Together:
    """A lab's part of a release that was decided over several labs, and what that promises."""

    decision: Decision
    promised: Promised


class LabImputer(Parameterised, Drawing):
    """Impute a lab in irregular visits and release what can be promised; parameters are those of `SafeImputer`."""

    settings_: Settings
    visits_: Visits
    fitted_: Fitted  # until saved: a loaded imputer has none
    calibrated_: Calibrated
    decision_: Decision
    bound_: Bound
    saved_: SavedModel  # of a loaded imputer
    scorer_: Scorer  # once new visits were scored
    looked_: Rule | None
    together_: Together | None = None  # where several labs were decided together

    def fit(
        self,
        visits: Any,
        y: None = None,  # noqa: ARG002
        *,
        progress: Progress = silent,
        on_visits: Callable[[Visits], None] | None = None,
    ) -> Self:
        """Learn to impute, to rank risk and who gets measured; what cannot succeed is refused before that.

        Parameters
        ----------
        visits : table
            One row per visit (pandas, polars or pyarrow).
        y : None
            Ignored; for scikit-learn's pipelines.
        progress : callable
            Told the stage in words and the share of it done.
        on_visits : callable, optional
            Told the checked table before anything is learnt: what each column was taken for.

        Raises
        ------
        VisitsError
            The table cannot be used, and why.
        GuaranteeRefused
            Nothing could be promised on it at this level.
        """
        settings = self._settings()
        prepared = prepare_visits(visits, column_choice(settings))
        if on_visits is not None:
            on_visits(prepared)
        require_known_units(settings, prepared.arrays)
        require_same_clock(settings.since, prepared.time)
        require_promisable(prepared.arrays, settings)
        return self.fit_prepared(prepared, progress)

    def fit_prepared(self, prepared: Visits, progress: Progress = silent) -> Self:
        """Learn from checked visits that are known to suffice.

        Parameters
        ----------
        prepared : Visits
            Checked, with this imputer's target.
        progress : callable
            Told the stage in words and the share of it done.
        """
        settings, arrays = self._settings(), prepared.arrays
        fitted, calibrated = fit_question(
            arrays,
            question_for(arrays, settings),
            settings,
            _plausible(settings),
            resolve_device(settings.device),
            progress,
            decision_limits(settings.target, target_unit(settings)),
        )
        self.settings_, self.visits_, self.looked_ = settings, prepared, None
        self.fitted_, self.calibrated_ = fitted, calibrated
        for stale in ("saved_", "scorer_", "decision_", "bound_", "predictive_"):
            vars(self).pop(stale, None)
        return self

    def impute(self, visits: Any, draws: int | None = None) -> Any:
        """One row per visit whose target is missing: value, interval, risk, cut-off, released or why not.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on; another one is refused (`score` takes new visits).
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
        self.decision_ = decision = self._release(settings)
        self.bound_ = calibrated.bound(settings.allowed_error, rule_of(settings), decision)
        rows, estimates = calibrated.candidates, calibrated.estimates
        return imputation_table(
            self.visits_.subject[rows],
            self.visits_.time[rows],
            settings.target,
            target_unit(settings),
            estimates.value[rows],
            calibrated.half_widths(settings.interval),
            estimates.risk[rows],
            decision.cutoff,
            decision.p_value,
            decision.released,
            decision.reason,
        )

    def transform(self, visits: Any) -> Any:
        """The visits with released values filled in; `<target>_released` flags them.

        Released values are no random sample of the missing ones: easy, mostly ordinary values are released first. Do
        not compute a mean, a share above a limit or a regression from this table; use `draws` and `safeimpute.pool`.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        """
        self.current_settings()
        self._require_fitted_table(visits)
        return like(self.filled(to_polars(visits)), visits)

    def filled(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of the fitted table with released values filled in, and a column that flags them.

        Parameters
        ----------
        frame : polars table
            The rows the fitted visits were made from.
        """
        released = self.calibrated_.candidates[self.imputed()["released"].to_numpy()]
        value = np.full(len(self.visits_), np.nan)
        value[released] = self.calibrated_.estimates.value[released]
        return fill_in(frame, self.settings_.target, value[self.visits_.row_visit])

    def fit_transform(self, visits: Any, y: None = None) -> Any:  # noqa: ARG002
        """Fit, then fill in what is released.

        Parameters
        ----------
        visits : table
            One row per visit.
        y : None
            Ignored; for scikit-learn's pipelines.
        """
        return self.fit(visits).transform(visits)

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
        reading = reading_of(self.visits_, column_choice(settings), past_only=settings.past_only)
        self.scorer_ = Scorer(frozen, reading, settings)
        return self.scorer_

    def promised(self) -> Promised:
        """What the release promises, under which assumption, and what not; or why it promises nothing."""
        settings = self.current_settings()
        decision = getattr(self, "decision_", None)
        if decision is not None and decision.refused:
            return without_promise(decision.refused)
        if self.together_ is not None:
            return self.together_.promised
        measuring = self.calibrated_.measuring
        return promise_in_words(
            settings.claim,
            settings.promise,
            settings.confidence,
            settings.target,
            settings.allowed_error.describe(target_unit(settings)),
            settings.fdr,
            () if measuring is None else measuring.columns,
            settings.groups,
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
            unit=target_unit(settings),
            reading=reading_of(self.visits_, column_choice(settings), past_only=settings.past_only),
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
        return settings_of_one(make_settings(**self.get_params()))

    def _release(self, settings: Settings) -> Decision:
        """Use the measured errors, once: the levels are fixed from here on."""
        self.looked_ = rule_of(settings)
        if self.together_ is not None:
            return self.together_.decision
        return self.calibrated_.release(settings.allowed_error, rule_of(settings))

    def _freeze(self, settings: Settings) -> FrozenModel | None:
        """What scores new visits; None for a preset that cannot."""
        system = self.fitted_.frozen
        if not isinstance(system, FrozenBest):
            return None
        decision = self._release(settings)
        return freeze(system, self.calibrated_, decision, settings, _plausible(settings))

    def _require_fitted_table(self, visits: Any) -> None:
        """The release speaks for the fitted table only; a loaded model meets its table here again."""
        self.meet(prepare_visits(visits, column_choice(self.settings_)))

    def meet(self, given: Visits) -> None:
        """Take checked visits for the fitted ones, or refuse them.

        Parameters
        ----------
        given : Visits
            Checked, with this imputer's target.
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


def _plausible(settings: Settings) -> Range | None:
    return plausible_range(settings.target, target_unit(settings))
