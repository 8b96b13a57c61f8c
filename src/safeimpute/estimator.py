"""SafeImputer: visits in; for every missing target a value, a risk, and a decision that keeps its promise."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from safeimpute.errors import GuaranteeRefused, NotFittedError, VisitsError
from safeimpute.records.checks import numbers, require_same_clock
from safeimpute.records.imputations import imputation_table
from safeimpute.records.new_visits import Reading, reading_of
from safeimpute.records.tables import like, to_polars
from safeimpute.records.units import TargetUnit, column_choice, require_known_units, unit_of
from safeimpute.records.visits import Visits, prepare_visits
from safeimpute.runtime.devices import resolve_device
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
from safeimpute.settings import Settings, make_settings, parameters_of
from safeimpute.splits.enough import require_promisable
from safeimpute.splits.questions import question_for
from safeimpute.systems.best.system import FrozenBest
from safeimpute.systems.protocol import Fitted

AFTER_FIT = ("fdr", "promise", "confidence", "interval", "gammas")  # may still change before the first look
PARAMETERS = {parameter.name: parameter for parameter in parameters_of(Settings)}


class SafeImputer(Drawing):
    """Impute a lab in irregular visits and release what can be promised.

    Parameters are those of the command line's `run`, given by keyword; docs/options.md lists them with their ranges.
    The three without a default:

    Parameters
    ----------
    target : str
        Lab to impute, a column of the visits table.
    tolerance : float or str
        The error that counts as unacceptable: a number in the target's unit, a share of the true value (`"20%"`), or
        the larger of both (`"10% or 6"`).
    fdr : float
        Share of unacceptable errors tolerated among the released values.

    Attributes
    ----------
    settings_ : Settings
        What the fit was told, resolved.
    visits_ : Visits
        The fitted table, checked and in canonical order.
    calibrated_ : Calibrated
        Estimates, weights and scope of every visit.
    decision_ : Decision
        Of the last `impute`.
    bound_ : Bound
        With the confidence, how many of the values it released are unacceptable at most.
    """

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

    def __init__(self, **parameters: Any) -> None:
        bound = _SIGNATURE.bind(self, **parameters)
        bound.apply_defaults()
        for name in PARAMETERS:
            setattr(self, name, bound.arguments[name])

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The constructor's parameters, as scikit-learn asks."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; an unknown name is an error."""
        for name, value in params.items():
            if name not in PARAMETERS:
                raise ValueError(
                    f"{name!r} is no parameter of SafeImputer. Parameters: {', '.join(PARAMETERS)}."
                )
            setattr(self, name, value)
        return self

    def fit(self, visits: Any, y: None = None, *, progress: Progress = silent) -> Self:  # noqa: ARG002
        """Learn to impute, to rank risk and who gets measured; what cannot succeed is refused before that.

        Parameters
        ----------
        visits : table
            One row per visit (pandas, polars or pyarrow), or the `Visits` checked from it.
        y : None
            Ignored; for scikit-learn's pipelines.
        progress : callable
            Told the stage in words and the share of it done.

        Raises
        ------
        VisitsError
            The table cannot be used, and why.
        GuaranteeRefused
            Nothing could be promised on it at this level.
        """
        settings = make_settings(**self.get_params())
        checked, unit = _checked(visits, settings), unit_of(settings)
        arrays, reading = checked.arrays, reading_of(checked, checked.choice, past_only=settings.past_only)
        require_known_units(settings, arrays)
        require_same_clock(settings.since, checked.time)
        require_promisable(arrays, settings)
        question, device = question_for(arrays, settings), resolve_device(settings.device)
        self.fitted_, self.calibrated_ = fit_question(
            arrays, question, settings, unit.plausible, device, progress, unit.decision_limits
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
        settings = self.current_settings()
        self._require_fitted_table(visits)
        calibrated, decision = self.calibrated_, self._decide(settings)
        rows, estimates = calibrated.candidates, calibrated.estimates
        table = imputation_table(
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
        return like(table, visits)

    def transform(self, visits: Any) -> Any:
        """The visits with released values filled in; `<target>_released` flags them.

        Released values are no random sample of the missing ones: easy, mostly ordinary values are released first. Do
        not compute a mean, a share above a limit or a regression from this table; use `draws` and `safeimpute.pool`.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        """
        table = to_polars(self.impute(to_polars(visits)))
        filled = np.full(len(self.visits_), np.nan)
        released = self.calibrated_.candidates[table["released"].to_numpy()]
        filled[released] = self.calibrated_.estimates.value[released]
        per_row = pl.Series(filled[self.visits_.row_visit]).fill_nan(None)
        frame, target = to_polars(visits), self.settings_.target
        name = f"{target}_released"
        if name in frame.columns:
            raise VisitsError(
                f"the table already has a column {name!r}, which transform would overwrite. Rename it."
            )
        measured = pl.Series(numbers(frame[target], "target")).fill_nan(None)
        flag = per_row.is_not_null().alias(name)
        return like(frame.with_columns(measured.fill_null(per_row).alias(target), flag), visits)

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
        self.scorer_ = Scorer(frozen, self.reading_, settings)
        return self.scorer_

    def promised(self) -> Promised:
        """What the release promises, under which assumption, and what not; or why it promises nothing."""
        settings = self.current_settings()
        return promised_by(settings, self.unit_.name, self.calibrated_, getattr(self, "decision_", None))

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
            settings, unit.name, unit.decision_limits, self.calibrated_, decision, self.bound_, seconds
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
        settings = make_settings(**self.get_params())
        if self.looked_ not in (None, rule_of(settings)):
            raise GuaranteeRefused(
                "fdr, promise or confidence was changed after impute had used the measured errors: the promise would "
                "no longer hold. Keep them, or fit on visits not looked at."
            )
        if replace(settings, **{name: getattr(self.settings_, name) for name in AFTER_FIT}) != self.settings_:
            raise NotFittedError("parameters were changed since fit: call fit again.")
        return settings

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
            self.decision_ = self.calibrated_.release(tolerance, rule)
            self.bound_ = self.calibrated_.bound(tolerance, rule, self.decision_)
        return self.decision_

    def _require_fitted_table(self, visits: Any) -> None:
        """The release speaks for the fitted table only; a loaded model meets its table here again."""
        if visits is getattr(self, "visits_", None):
            return
        given = _checked(visits, self.settings_)
        fitted = self.visits_.fingerprint if hasattr(self, "visits_") else self.saved_.fingerprint
        if given.fingerprint != fitted:
            raise GuaranteeRefused(
                "impute was given another table than the one it was fitted on; the promise covers only that one. "
                "Fit on this table, or score it as new visits."
            )
        self.visits_ = given
        if not hasattr(self, "calibrated_"):
            self.calibrated_ = self.saved_.calibrated(given.arrays)


_SIGNATURE = inspect.Signature(
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *PARAMETERS.values()]
)
vars(SafeImputer.__init__)["__signature__"] = _SIGNATURE


def _checked(visits: Any, settings: Settings) -> Visits:
    """The visits of a table, or those checked before from the same columns."""
    choice = column_choice(settings)
    if not isinstance(visits, Visits):
        return prepare_visits(visits, choice)
    if visits.choice != choice:
        raise VisitsError(
            "these visits were read with other columns than the imputer was told. Give the table itself."
        )
    return visits
