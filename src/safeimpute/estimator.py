"""SafeImputer: visits in; for every missing target a value, a risk, and a decision that keeps its promise."""

import inspect
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from safeimpute.errors import GuaranteeRefused, NotFittedError, VisitsError
from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.records.checks import numbers
from safeimpute.records.new_visits import reading_of
from safeimpute.records.tables import like, to_polars
from safeimpute.records.visits import Visits, prepare_visits
from safeimpute.runtime.progress import Progress, silent
from safeimpute.scoring.folder import SavedModel, load_model, save_model
from safeimpute.scoring.frozen import ScoringModel, freeze
from safeimpute.scoring.scorer import Rule, Scorer
from safeimpute.selection.intervals import conformal_radii
from safeimpute.selection.pipeline import Scored, release, score_split, split_for
from safeimpute.selection.release import Decision
from safeimpute.settings import Config, make_config
from safeimpute.splits.roles import Role, Roles
from safeimpute.systems.presets import BestSettings, PaperSettings, VisitScores


class SafeImputer:
    """Impute a lab in irregular visits and release what can be promised.

    Parameters mirror the command line's `run`. `tolerance` is the error that counts as unacceptable: a number in
    the target's unit, a share of the true value (`"20%"`), or the larger of both (`"10% or 6"`). `fdr` is the
    share of unacceptable errors tolerated among the released values.
    """

    config_: Config
    visits_: Visits
    scored_: Scored
    decision_: Decision
    saved_: SavedModel  # of a loaded imputer, until it meets its table
    scorer_: Scorer  # once new visits were scored
    levels_used_: tuple[float | str, float] | None

    def __init__(
        self,
        *,
        target: str,
        tolerance: float | str,
        fdr: float,
        preset: str = "best",
        claim: str = "unmeasured",
        labs: tuple[str, ...] = (),
        attributes: tuple[str, ...] = (),
        exclude: tuple[str, ...] = (),
        subject: str = "subject_id",
        time: str = "time",
        unit: str | None = None,
        past_only: bool = False,
        interval: float = 0.9,
        gammas: tuple[float, ...] = (1.0, 1.25, 1.5, 2.0, 3.0),
        random_state: int = 0,
        device: str = "auto",
        paper: PaperSettings | None = None,
        best: BestSettings | None = None,
    ) -> None:
        self.target = target
        self.tolerance = tolerance
        self.fdr = fdr
        self.preset = preset
        self.claim = claim
        self.labs = labs
        self.attributes = attributes
        self.exclude = exclude
        self.subject = subject
        self.time = time
        self.unit = unit
        self.past_only = past_only
        self.interval = interval
        self.gammas = gammas
        self.random_state = random_state
        self.device = device
        self.paper = paper
        self.best = best

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The constructor's parameters, as scikit-learn asks."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; an unknown name is an error."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name!r} is no parameter of SafeImputer. Parameters: {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def fit(self, visits: Any, y: None = None, *, progress: Progress = silent) -> Self:  # noqa: ARG002
        """Learn to impute and to rank risk, and set calibration visits aside."""
        config = self._config()
        prepared = prepare_visits(visits, config.columns)
        config.require_plausible(prepared.arrays.target_values)
        split = split_for(config.promise, prepared.arrays, config.random_state)
        scored = score_split(
            prepared.arrays, split, config.promise, config.plan(), config.plausible_range, progress
        )
        self.config_, self.visits_, self.scored_, self.levels_used_ = config, prepared, scored, None
        for stale in ("saved_", "scorer_"):
            vars(self).pop(stale, None)
        return self

    def impute(self, visits: Any) -> Any:
        """One row per visit whose target is missing: value, interval, risk, p-value, released or why not."""
        config = self.current_config()
        self._require_fitted_table(visits)
        scored, truth = self.scored_, self.visits_.arrays.target_values
        candidates = scored.candidates()
        decision = release(scored, config.allowed_error, config.fdr, candidates, truth)
        self.decision_ = decision
        self.levels_used_ = (config.tolerance, config.fdr)  # a refusal above has used nothing
        half_width = self._half_width(candidates, truth)
        value = scored.scores.value[candidates]
        table = pl.DataFrame(
            {
                "subject_id": self.visits_.subject[candidates],
                "time": self.visits_.time[candidates],
                "lab": pl.repeat(config.target, len(candidates), eager=True),
                "unit": pl.repeat(config.unit_known, len(candidates), dtype=pl.String, eager=True),
                "value": value,
                "lower": value - half_width,
                "upper": value + half_width,
                "risk": scored.scores.risk_at(config.allowed_error)[candidates],
                "p_value": pl.Series(decision.p_value).fill_nan(None),
                "released": decision.released,
                "reason": pl.Series(decision.reason, dtype=pl.String),
            }
        )
        return like(table, visits)

    def transform(self, visits: Any) -> Any:
        """The visits with released values filled in; `<target>_released` flags them."""
        table = to_polars(self.impute(to_polars(visits)))
        filled = np.full(len(self.visits_), np.nan)
        released = self.scored_.candidates()[table["released"].to_numpy()]
        filled[released] = self.scored_.scores.value[released]
        per_row = pl.Series(filled[self.visits_.row_visit]).fill_nan(None)
        frame = to_polars(visits)
        name = f"{self.target}_released"
        if name in frame.columns:
            raise VisitsError(
                f"the table already has a column {name!r}, which transform would overwrite. Rename it."
            )
        target = pl.Series(numbers(frame[self.target], "target")).fill_nan(None)
        flag = per_row.is_not_null().alias(name)
        return like(frame.with_columns(target.fill_null(per_row).alias(self.target), flag), visits)

    def fit_transform(self, visits: Any, y: None = None) -> Any:  # noqa: ARG002
        return self.fit(visits).transform(visits)

    def explain(self, visits: Any) -> Any:
        """The visits that carried each imputation: own ones with gaps, other patients' with distances, weights."""
        self.current_config()
        self._require_fitted_table(visits)
        if self.scored_.scores.support is None:
            raise NotFittedError(
                "only a freshly fitted preset 'best' can explain its imputations: call fit first."
            )
        support = self.scored_.scores.support(self.scored_.candidates())
        table = pl.DataFrame(
            {
                "subject_id": self.visits_.subject[support.visit],
                "time": self.visits_.time[support.visit],
                "carried_by": np.where(support.own, "own visit", "another patient's visit"),
                "weight": support.weight,
                "value": support.target,
                "gap_days": pl.Series(support.gap_days).fill_nan(None),
                "value_distance": pl.Series(support.value_distance).fill_nan(None),
                "trend_distance": pl.Series(support.trend_distance).fill_nan(None),
            }
        )
        return like(table, visits)

    def score(self, visits: Any, rule: Rule = "cutoff", without: tuple[str, ...] = ()) -> Any:
        """Impute and release visits that came in since, against this fit; one row per visit whose target is missing.

        `rule` decides visit by visit at the stored cut-off (`cutoff`) or over the whole table at once (`bh`, at least
        100 candidates). Labs or attributes the table lacks are named in `without`; nothing is promised then.
        """
        return self.scorer().score(visits, rule, without)

    def scorer(self) -> Scorer:
        """The fit as a scorer to keep; where it promises something, the levels are fixed from here on."""
        config = self.current_config()
        if hasattr(self, "scorer_") and self.scorer_.config == config:
            return self.scorer_
        if hasattr(self, "saved_"):
            if config != self.saved_.config:
                raise NotFittedError(
                    "a loaded model scores at the levels it was saved with: fit again for others."
                )
            self.scorer_ = Scorer(self.saved_.scoring(), self.saved_.reading, config)
        else:
            self.scorer_ = Scorer(self._freeze(config), reading_of(self.visits_, config.columns), config)
        return self.scorer_

    def _freeze(self, config: Config, doubt: str = "") -> ScoringModel:
        levels = config.allowed_error, config.fdr, config.interval
        truth = self.visits_.arrays.target_values
        model = freeze(self.scored_, *levels, truth, config.plausible_range, doubt)
        if model.calibration is not None:
            self.levels_used_ = (config.tolerance, config.fdr)
        return model

    def save(self, folder: str | Path, *, chosen_after_looking: bool = False) -> None:
        """Write the fitted model (safetensors, JSON, parquet) to a new folder.

        A model whose level was chosen after looking at its calibration visits promises nothing to new ones.
        """
        config = self.current_config()
        if hasattr(self, "saved_"):
            raise NotFittedError("this model was loaded from a folder: copy that folder, or fit again.")
        doubt = "the level was chosen after looking at the calibration visits" if chosen_after_looking else ""
        scoring = self._freeze(config, doubt) if config.preset == "best" else None
        if scoring is not None:
            self.scorer_ = Scorer(scoring, reading_of(self.visits_, config.columns), config)
        looked = self.levels_used_ is not None
        save_model(Path(folder), config, self.visits_, self.scored_, scoring, looked=looked)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A fitted imputer from a saved folder; it imputes the table it was fitted on."""
        saved = load_model(Path(folder))
        imputer = cls(**saved.config.model_dump(exclude={"paper", "best"}))
        imputer.set_params(paper=saved.config.paper, best=saved.config.best)
        imputer.config_, imputer.saved_ = saved.config, saved
        levels = (saved.config.tolerance, saved.config.fdr)
        imputer.levels_used_ = levels if saved.looked else None
        return imputer

    @property
    def roles_(self) -> Roles:
        """What each visit was used for."""
        return self.scored_.split.roles

    @property
    def scores_(self) -> VisitScores:
        """Value and risk of every visit."""
        return self.scored_.scores

    def _config(self) -> Config:
        given = {name: value for name, value in self.get_params().items() if value is not None}
        return make_config(**given)

    def current_config(self) -> Config:
        """The fitted configuration at today's levels, which may change only before the first look."""
        self._require_fitted()
        config = self._config()
        if self.levels_used_ not in (None, (config.tolerance, config.fdr)):
            raise GuaranteeRefused(
                "tolerance or fdr was changed after impute had used the calibration visits: the promise would no "
                "longer hold. Fit again with another random_state on visits not looked at, or keep the levels."
            )
        levels = {"tolerance", "fdr", "interval", "gammas", "unit"}
        if config.model_copy(update={k: getattr(self.config_, k) for k in levels}) != self.config_:
            raise NotFittedError("parameters were changed since fit: call fit again.")
        return config

    def _require_fitted(self) -> None:
        if not hasattr(self, "config_"):
            raise NotFittedError("this SafeImputer is not fitted yet: call fit(visits) first.")

    def _require_fitted_table(self, visits: Any) -> None:
        """Calibration speaks for the fitted table only; a loaded model meets its table here again."""
        given = prepare_visits(visits, self.config_.columns)
        fitted = self.visits_.fingerprint if hasattr(self, "visits_") else self.saved_.fingerprint
        if given.fingerprint != fitted:
            raise GuaranteeRefused(
                "impute was given another table than the one it was fitted on; the promise covers only that one. "
                "Fit on this table."
            )
        self.visits_ = given
        if not hasattr(self, "scored_"):
            self.scored_ = self.saved_.scored(given.arrays)

    def _half_width(self, candidates: IntArray, truth: FloatArray) -> FloatArray:
        """Half the width of each candidate's interval, from the calibration errors."""
        scored = self.scored_
        rows = scored.split.rows(Role.CALIBRATION)
        error, spread = np.abs(scored.scores.value[rows] - truth[rows]), scored.scores.spread
        radii = conformal_radii(
            error, spread[rows], self.interval, scored.weight[rows], scored.weight[candidates]
        )
        return radii * spread[candidates]
