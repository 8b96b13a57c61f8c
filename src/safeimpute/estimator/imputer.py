"""SafeImputer: the public estimator; one lab it imputes itself, several it hands to one imputer each."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from safeimpute.errors import GuaranteeRefused
from safeimpute.estimator.one_lab import LabImputer
from safeimpute.estimator.parameters import PARAMETERS
from safeimpute.estimator.several import SeveralLabs, check_labs, require_one
from safeimpute.records.arrays import FloatArray
from safeimpute.records.asked import asks_for_several
from safeimpute.records.tables import like, to_polars
from safeimpute.records.units import column_choice
from safeimpute.records.visits import Visits, prepare_visits
from safeimpute.runtime.kept import Kept
from safeimpute.runtime.progress import Progress, silent
from safeimpute.scoring.labs_folder import holds_several
from safeimpute.scoring.scorer import Scorer
from safeimpute.selection.claims import Promised
from safeimpute.settings import Settings, make_settings


class SafeImputer(LabImputer):
    """Impute one lab or several in irregular visits and release what can be promised.

    Parameters are those of the command line's `run`, given by keyword; docs/options.md lists them with their ranges.
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
        What the fit was told, resolved.
    visits_ : Visits
        The fitted table, checked and in canonical order.
    calibrated_ : Calibrated
        Estimates, weights and scope of every visit.
    decision_ : Decision
        Of the last `impute`.
    labs_ : SeveralLabs
        Where several labs were asked for: an imputer for each, which has the attributes above.
    """

    labs_: SeveralLabs

    def fit(
        self, visits: Any, y: None = None, *, progress: Progress = silent, kept: Kept | None = None
    ) -> Self:
        """Learn to impute, to rank risk and who gets measured; what cannot succeed is refused before that.

        Parameters
        ----------
        visits : table
            One row per visit (pandas, polars or pyarrow), or the `Visits` checked from it; of several labs, one
            `Visits` for each, by lab.
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
        settings = make_settings(**self.get_params())
        checked = visits if isinstance(visits, Visits | Mapping) else _checked(visits, settings)
        if isinstance(checked, Visits):
            vars(self).pop("labs_", None)
            super().fit(checked, y, progress=progress, kept=kept)
            self._met(visits)
            return self
        several = SeveralLabs.fit(settings, checked, progress, kept)
        for stale in (
            "visits_",
            "fitted_",
            "calibrated_",
            "decision_",
            "bound_",
            "saved_",
            "scorer_",
            "predictive_",
        ):
            vars(self).pop(stale, None)
        self.labs_, self.settings_, self.looked_ = several, settings, None
        self._met(visits)
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
        several = self._several()
        if several is None or draws is not None:
            return super().impute(visits, draws)
        several.meet(visits)
        return like(several.impute(), visits)

    def transform(self, visits: Any) -> Any:
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
        """
        several = self._several()
        return (
            super().transform(visits) if several is None else self._shown(several.transform(visits), visits)
        )

    def columns_added(self) -> list[str]:
        """What `transform` adds to a table's columns."""
        several = self._several()
        return super().columns_added() if several is None else several.columns_added()

    def fitted_in_words(self) -> dict[str, str]:
        """The labs and the visits they were learnt from."""
        several = self._several()
        return super().fitted_in_words() if several is None else several.fitted_in_words()

    def release_in_words(self) -> dict[str, str]:
        """How many values of every lab were released and withheld by the last `impute`."""
        several = self._several()
        return super().release_in_words() if several is None else several.release_in_words()

    def explain(self, visits: Any) -> Any:
        """The visits that carried each imputation: own ones with gaps, other patients' with distances, weights.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        """
        several = self._several()
        return super().explain(visits) if several is None else like(several.explain(visits), visits)

    def draws(self, visits: Any, m: int = 20, *, delta: float = 0.0) -> Any:
        """Draws of every missing value, released or not: `subject_id, time, lab, unit, draw, value`, m rows for each.

        For means, shares, regressions: analyse the table completed by each draw, then `safeimpute.pool`. Of several
        labs each is drawn for itself: what draws of two labs have in common beyond their values is not in them.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        m : int
            How many draws; the first of many are those of few.
        delta : float
            Added to every draw, in the target's unit; of one lab only.
        """
        several = self._several()
        if several is None or delta:
            require_one(self, several)
            return super().draws(visits, m, delta=delta)
        each = [imputer.draws(to_polars(visits), m) for imputer in several.imputers.values()]
        return like(pl.concat(each), visits)

    def draw_values(self, visits: Any, m: int, delta: float = 0.0) -> FloatArray:
        """The draws of one lab as an array: missing values in the order of `impute`, by draws.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        m : int
            How many draws.
        delta : float
            Added to every draw, in the target's unit.
        """
        require_one(self, self._several())
        return super().draw_values(visits, m, delta)

    def score(self, visits: Any, without: tuple[str, ...] = ()) -> Any:
        """Impute and release visits that came in since, against this fit; one row per visit whose target is missing.

        Parameters
        ----------
        visits : table
            New visits, of patients known or new, with the columns of the fitted table.
        without : tuple of str
            Labs or attributes the table lacks; nothing is promised then.
        """
        several = self._several()
        return super().score(visits, without) if several is None else several.scorer().score(visits, without)

    def scorer(self) -> Scorer:
        """The fit of one lab as a scorer to keep; the levels are fixed from here on."""
        require_one(self, self._several())
        return super().scorer()

    def promised(self) -> Promised:
        """What the release promises, under which assumption, and what not; or why it promises nothing."""
        several = self._several()
        return super().promised() if several is None else several.promised()

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
        several = self._several()
        if several is None:
            super().save(folder, second_look=second_look, sign=sign)
        else:
            seen = tuple(several.imputers) if second_look else ()
            several.save(Path(folder), second_looks=seen, sign=sign)

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
        if not holds_several(Path(folder)):
            one = super().load(folder, public_key=public_key)
            if one.settings_.over == "cells":
                raise GuaranteeRefused(
                    f"lab {one.settings_.target!r} was released together with others: load the folder that holds them "
                    f"all, {str(Path(folder).resolve().parent)!r}."
                )
            return one
        several = SeveralLabs.load(Path(folder), public_key)
        imputer = cls(**{name: getattr(several.settings, name) for name in PARAMETERS})
        imputer.labs_, imputer.settings_, imputer.looked_ = several, several.settings, None
        return imputer

    def current_settings(self) -> Settings:
        """The fitted settings at today's levels, which may change only before the first look."""
        several = self._several()
        return super().current_settings() if several is None else several.settings

    def _settings(self) -> Settings:
        """Of one lab, which has no others to share a level with."""
        return replace(super()._settings(), over="labs")

    def _several(self) -> SeveralLabs | None:
        """The labs' imputers, told what was changed since; None where there is one lab."""
        several = vars(self).get("labs_")
        if several is not None:
            several.told(make_settings(**self.get_params()))
        return several


def _checked(table: Any, settings: Settings) -> Visits | dict[str, Visits]:
    """The visits of a table, once for each lab where several are asked for."""
    if asks_for_several(settings, to_polars(table).columns):
        return check_labs(settings, table)
    return prepare_visits(table, column_choice(settings))
