"""SafeImputer: the public estimator; a fit is a mapping of labs, one or several."""

from pathlib import Path
from typing import Any, Self

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import GuaranteeRefused, NotFittedError, VisitsError
from safeimpute.machine.progress import Progress, shown_in_notebook
from safeimpute.machine.state import Checkpoint
from safeimpute.model.filling import (
    Fill,
    Form,
    columns_added,
    completed,
    draw_values,
    explained,
    fill_labs,
    filled_new,
    imputed,
    long_draws,
)
from safeimpute.model.glance import AtAGlance
from safeimpute.model.labs import (
    FittedLab,
    check_labs,
    decide_if_they_score,
    decide_labs,
    fit_labs,
    meet_labs,
    opened_lab,
    promise_of_labs,
    results_of_labs,
    save_labs,
    scorer_of,
    tell_labs,
)
from safeimpute.model.open_model import open_model
from safeimpute.model.parameters import PARAMETERS, Parameterised
from safeimpute.model.scorer import Scorer
from safeimpute.selection.bounds import Bound
from safeimpute.selection.claims import Promised
from safeimpute.selection.result import RunResult
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.tables import as_kind, like, numbers_only, to_polars


class SafeImputer(AtAGlance, Parameterised):
    """Impute one lab or several in irregular visits and release what can be promised.

    Parameters are those of `run`, given by keyword; the site's page of options lists them with their ranges.
    The three without a default:

    Parameters
    ----------
    target : str or tuple of str
        Lab to impute, a column of the visits table; several of them, or `"all"`.
    tolerance : float, str or dict
        The error that counts as unacceptable: a number in the target's unit, a share of the true value (`"20%"`), or
        the larger of both (`"10% or 6"`). Of several labs each its own (`{"hba1c": 0.5, "ldl": "10%"}`), or
        `"allowable"` for the catalogue's.
    fdr : float
        Share of unacceptable errors tolerated among the released values.

    Attributes
    ----------
    settings_ : Settings
        What the fit was told; of one lab, resolved.
    labs_ : dict of FittedLab
        What was learnt and decided, by lab: `settings`, `visits`, `calibrated`, `decision`, `bound`.
    left_out_ : dict of str
        Labs of the target `"all"` that cannot be imputed, and why.
    bound_
        That of `labs_`, where there is one lab.
    """

    settings_: Settings
    labs_: dict[str, FittedLab]
    left_out_: dict[str, str]
    feature_names_in_: NDArray[np.object_]  # columns of the table of the fit
    n_features_in_: int
    _numeric_in: list[str]  # those that the output "numbers" keeps
    _told: Settings  # for which `labs_` were checked last

    def fit(
        self,
        visits: Any,
        y: None = None,  # noqa: ARG002
        *,
        progress: Progress | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Self:
        """Learn to impute, to rank risk and who gets measured; what cannot succeed is refused before that.

        Parameters
        ----------
        visits : table
            One row per visit (pandas, polars or pyarrow), or the `Visits` checked from it; of several labs, one
            `Visits` for each, by lab.
        y : None
            Ignored; for scikit-learn's pipelines.
        progress : callable, optional
            Told the stage in words and the share of the whole done. Without one a notebook shows a bar.
        checkpoint : Checkpoint, optional
            Folds that were finished before the same fit was stopped, and where to keep them.

        Raises
        ------
        VisitsError
            The table cannot be used, and why.
        GuaranteeRefused
            Nothing could be promised on it at this level.
        """
        told = make_settings(**self.get_params())
        shown = progress or shown_in_notebook()
        self._fitted(told, told, *fit_labs(told, check_labs(told, visits), shown, checkpoint))
        if progress is None:
            shown("fitted", 1.0)
        known = nw.from_native(visits, eager_only=True, pass_through=True)
        for stale in ("feature_names_in_", "n_features_in_"):
            vars(self).pop(stale, None)
        if isinstance(known, nw.DataFrame):
            self.feature_names_in_ = np.array(known.columns, dtype=object)
            self.n_features_in_ = len(known.columns)
            self._numeric_in = numbers_only(to_polars(visits), told.subject).columns
        return self

    def impute(self, visits: Any, draws: int | None = None) -> Any:
        """One row per visit and lab where it is missing: value, interval, risk, cut-off, released or why not.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on; another one is refused (`score` takes new visits).
        draws : int, optional
            Instead, so many draws of every missing value, released or not: the table of the method `draws`.
        """
        if draws is not None:
            return self.draws(visits, draws)
        labs = self._current()
        meet_labs(labs, visits)
        decide_labs(labs, self.settings_)
        return like(pl.concat([imputed(lab) for lab in labs.values()], how="diagonal"), visits)

    def transform(self, visits: Any, fill: Fill = "released") -> Any:
        """The visits with released values filled in; `<target>_released` flags them.

        Another table than the fitted one is imputed through the frozen model, which knows no patient of a fold it
        judges: what its cut-off releases is filled in. Where the claim does not cover such visits (`visits`), values
        are filled in all the same and `<target>_not_promised` marks them.

        Released values are no random sample of the missing ones: easy, mostly ordinary values are released first. Do
        not compute a mean, a share above a limit or a regression from this table; use `draws` and `safeimpute.pool`.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on, or any with its columns.
        fill : "released" or "all"
            all: every missing value, for tools that take no hole; `<target>__measured` and `<target>__promised` say
            which were measured and which imputed ones are released. Nothing is promised of the others.
        """
        labs, frame = self._current(), to_polars(visits)
        try:
            meet_labs(labs, visits)
        except (GuaranteeRefused, VisitsError):  # another table; as new visits it may do
            filled = frame
            for scorer in self.scorer().labs.values():
                filled = filled_new(scorer, frame, filled, fill)
        else:
            decide_labs(labs, self.settings_)
            filled = fill_labs(labs, frame, fill)
        if self._output == "numbers":
            return as_kind(numbers_only(filled, self.settings_.subject), "pandas", visits)
        return like(filled, visits) if self._output == "default" else as_kind(filled, self._output, visits)

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

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Columns of the table that `transform` gives.

        Parameters
        ----------
        input_features : sequence of str, optional
            Must be the fitted table's columns; for scikit-learn's pipelines.
        """
        names = vars(self).get("feature_names_in_")
        if names is None:
            raise NotFittedError("the columns of the fitted table are not known: call fit with a table first.")
        if input_features is not None and list(input_features) != names.tolist():
            raise ValueError("input_features is not equal to feature_names_in_, the columns of the fitted table.")
        added = [name for lab in self._current().values() for name in columns_added(lab.settings)]
        kept = names if self._output != "numbers" else self._numeric_in
        return np.array([*kept, *added], dtype=object)

    def explain(self, visits: Any) -> Any:
        """The visits that carried each imputation: own ones with gaps, other patients' with distances, weights.

        Of several labs, a column `lab` says whose.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        """
        labs = self._current()
        meet_labs(labs, visits)
        tables = {name: explained(lab) for name, lab in labs.items()}
        if self.settings_.target in tables:
            return like(tables[self.settings_.target], visits)
        named = [table.select(pl.lit(name).alias("lab"), pl.all()) for name, table in tables.items()]
        return like(pl.concat(named), visits)

    def draws(self, visits: Any, m: int = 20, *, delta: float = 0.0) -> Any:
        """Draws of every missing value, released or not: `subject_id, time, lab, unit, draw, value`, m rows for each.

        For means, shares, regressions: analyse the table completed by each draw, then `safeimpute.pool`. The draws come
        from errors at measured visits, weighted to stand for unmeasured ones; errors of one patient hang together; the
        doubt about the distribution itself is in them. Like the claim, they rest on measuring not following the value.
        Of several labs each is drawn for itself: what draws of two labs have in common beyond their values is not in
        them.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        m : int
            How many draws; the first of many are those of few.
        delta : float
            Added to every draw, in the target's unit: what if unmeasured values are higher (or lower) than draws say?
            Of one lab only.
        """
        labs = self._current() if not delta else {self._only().settings.target: self._only()}
        meet_labs(labs, visits)
        tables = [long_draws(lab, draw_values(lab, m, delta)) for lab in labs.values()]
        return like(pl.concat(tables), visits)

    def to_mice(self, visits: Any, m: int = 20, *, delta: float = 0.0, form: Form = "long") -> Any:
        """The visits completed by every draw of one lab, for R's mice and for statsmodels.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        m : int
            How many draws.
        delta : float
            Added to every draw, in the target's unit.
        form : "long" or "wide"
            long: the table as it came (`.imp` 0) and once per draw, with `.id`, as R's `as.mids` expects.
            wide: the table with one more column per draw, `TARGET_1` and so on.
        """
        lab = self._only()
        meet_labs(self.labs_, visits)
        drawn = draw_values(lab, m, delta)
        return like(completed(lab, to_polars(visits), drawn, form), visits)

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
        """The fit as a scorer to keep; the levels are fixed from here on.

        Of a model loaded from a folder, after an alarm of its monitor it releases nothing.
        """
        labs = self._current()
        decide_if_they_score(labs, self.settings_)
        return Scorer({name: scorer_of(lab) for name, lab in labs.items()})

    def promised(self) -> Promised:
        """What is promised, under which assumption, and what not; or why nothing is, after an alarm for instance.

        `results()` keeps what was promised of the fitted visits.
        """
        return promise_of_labs(self._current(), self.settings_)

    def results(self) -> dict[str, RunResult]:
        """Everything the release of the fitted visits came to, by lab: what summaries and reports are made from.

        With what other levels and odds would have released.
        """
        labs = self._current()
        decide_labs(labs, self.settings_)
        return results_of_labs(labs, self.settings_)

    def save(self, folder: str | Path, *, second_look: bool = False, sign: str | Path | None = None) -> None:
        """Write the fitted model (safetensors, JSON) to a new folder; of several labs, one folder each inside it.

        Parameters
        ----------
        folder : path
            Must not exist yet.
        second_look : bool
            The levels were chosen after an earlier look at the same visits: the model then promises nothing.
        sign : path, optional
            PEM file of an Ed25519 private key to sign the model with.
        """
        labs = self._current()
        seen, key_file = tuple(labs) if second_look else (), None if sign is None else Path(sign)
        save_labs(Path(folder), labs, self.settings_, second_looks=seen, key_file=key_file)

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
        opened = open_model(folder, public_key)
        settings, labs = opened.settings, {name: opened_lab(each) for name, each in opened.labs.items()}
        if settings.target in labs and settings.over == "cells":
            raise GuaranteeRefused(
                f"lab {settings.target!r} was released together with others: load the folder that holds them all, "
                f"{str(Path(folder).resolve().parent)!r}."
            )
        imputer = cls(**{name: getattr(settings, name) for name in PARAMETERS})
        imputer._fitted(make_settings(**imputer.get_params()), settings, labs, {})
        return imputer

    @property
    def bound_(self) -> Bound | None:
        """With the confidence, how many of the released values of one lab are unacceptable at most."""
        return self._only().bound

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` was called, or a fitted model loaded."""
        return hasattr(self, "labs_")

    def _fitted(self, told: Settings, settings: Settings, labs: dict[str, FittedLab], left_out: dict[str, str]) -> None:
        """Take over a fit."""
        one = labs.get(settings.target)
        self._told, self.settings_ = told, settings if one is None else one.settings
        self.labs_, self.left_out_ = labs, left_out

    def _current(self) -> dict[str, FittedLab]:
        """The fitted labs at today's levels, which may change only before the first look."""
        if not hasattr(self, "labs_"):
            raise NotFittedError("this SafeImputer is not fitted yet: call fit(visits) first.")
        told = make_settings(**self.get_params())
        if told != self._told:
            if (told.target, told.labs) != (self._told.target, self._told.labs):
                raise NotFittedError("parameters were changed since fit: call fit again.")
            tell_labs(self.labs_, told, self.left_out_)
            self._fitted(told, told, self.labs_, self.left_out_)
        return self.labs_

    def _only(self) -> FittedLab:
        """The lab of a fit of one lab; of several it has to be said which."""
        labs = self._current()
        if len(labs) > 1:
            raise VisitsError(
                f"this {type(self).__name__} holds {len(labs)} labs: ask one of them, as in "
                f"imputer.labs_[{next(iter(labs))!r}]."
            )
        return next(iter(labs.values()))
