"""The visits with values filled in: the fitted table by its release, any other by the frozen model."""

from abc import ABC, abstractmethod
from typing import Any, Literal, Self

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import NotFittedError, OptionError, VisitsError
from safeimpute.records.arrays import BoolArray, FloatArray
from safeimpute.records.columns import ColumnChoice
from safeimpute.records.filled import fill_in
from safeimpute.records.new_visits import Reading, read_new_visits
from safeimpute.records.tables import as_kind, like, to_polars
from safeimpute.records.units import column_choice, require_same_units
from safeimpute.records.visits import Visits, row_keys, visits_of
from safeimpute.scoring.folder import SavedModel
from safeimpute.scoring.frozen import let_through, score_visits
from safeimpute.scoring.scorer import Scorer
from safeimpute.selection.calibrate import Calibrated
from safeimpute.settings import Settings

OutputKind = Literal["default", "pandas", "polars"]


class Filling(ABC):
    """Tables in, tables with values filled in out, as scikit-learn's pipelines expect."""

    settings_: Settings
    visits_: Visits
    reading_: Reading
    saved_: SavedModel
    calibrated_: Calibrated
    feature_names_in_: NDArray[np.object_]  # columns of the table of the fit
    n_features_in_: int
    _output: OutputKind = "default"

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
        self.current_settings()
        frame = to_polars(visits)
        return self._shown(
            self.filled(frame) if self.knows(visits) else self.filled_new(frame, frame), visits
        )

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

    def set_output(self, *, transform: OutputKind | None = None) -> Self:
        """Say which kind of table `transform` gives: "pandas", "polars", or "default", the kind it is given.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            None leaves it as it is.
        """
        if transform not in (None, "default", "pandas", "polars"):
            raise OptionError(f"output {transform!r} is not known: default, pandas or polars.")
        if transform is not None:
            self._output = transform
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Columns of the table that `transform` gives.

        Parameters
        ----------
        input_features : sequence of str, optional
            Must be the fitted table's columns; for scikit-learn's pipelines.
        """
        names = vars(self).get("feature_names_in_")
        if names is None:
            raise NotFittedError(
                "the columns of the fitted table are not known: call fit with a table first."
            )
        if input_features is not None and list(input_features) != names.tolist():
            raise ValueError(
                "input_features is not equal to feature_names_in_, the columns of the fitted table."
            )
        return np.array([*names, *self.columns_added()], dtype=object)

    def columns_added(self) -> list[str]:
        """What `transform` adds to a table's columns."""
        target = self.settings_.target
        return [f"{target}_released", *([f"{target}_not_promised"] if self._beyond_claim() else [])]

    def _beyond_claim(self) -> bool:
        """Whether `transform` can impute visits the claim does not cover; preset `paper` imputes only its own."""
        return self.settings_.claim == "visits" and self.settings_.preset == "best"

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
        rows = self.visits_.row_visit
        return self._flagged(frame, value[rows], np.zeros(len(rows), dtype=bool))

    def filled_new(self, frame: pl.DataFrame, into: pl.DataFrame) -> pl.DataFrame:
        """Rows of another table with what the frozen model releases filled in, and flagged.

        Parameters
        ----------
        frame : polars table
            The rows as they came.
        into : polars table
            The same rows, where other labs may be filled in already.
        """
        scorer, reading = self.scorer(), self.reading_
        new = read_new_visits(frame, reading)
        require_same_units(scorer.settings, new.arrays, scorer.typical())
        scored = score_visits(new.arrays, scorer.model)
        unsure = self._beyond_claim()
        through = let_through(scored, new.arrays, scorer.model) if unsure else scored.released
        value = np.where(through, scored.estimates.value, np.nan)
        rows = row_keys(frame, ColumnChoice(reading.target, reading.subject, reading.time)).visit
        return self._flagged(into, value[rows], (through & unsure)[rows])

    def knows(self, visits: Any) -> bool:
        """Whether a table is the one of the fit, which is then at hand.

        Parameters
        ----------
        visits : table
            Any table with the fitted columns.
        """
        if visits is vars(self).get("visits_"):
            return True
        try:
            given = visits_of(visits, column_choice(self.settings_))
        except VisitsError:  # as a table to learn from; as new visits it may do
            return False
        fitted = self.visits_.fingerprint if hasattr(self, "visits_") else self.saved_.fingerprint
        if given.fingerprint == fitted:
            self.meet(given)
        return given.fingerprint == fitted

    def _flagged(self, frame: pl.DataFrame, value: FloatArray, unsure: BoolArray) -> pl.DataFrame:
        filled = fill_in(frame, self.settings_.target, value)
        marks = self.columns_added()[1:]
        return filled.with_columns(pl.Series(name, unsure) for name in marks)

    def _shown(self, frame: pl.DataFrame, visits: Any) -> Any:
        return like(frame, visits) if self._output == "default" else as_kind(frame, self._output, visits)

    def _met(self, visits: Any) -> None:
        """Remember the columns of the table of a fit."""
        known = nw.from_native(visits, eager_only=True, pass_through=True)
        vars(self).pop("feature_names_in_", None)
        if isinstance(known, nw.DataFrame):
            self.feature_names_in_ = np.array(known.columns, dtype=object)
            self.n_features_in_ = len(known.columns)

    @abstractmethod
    def fit(self, visits: Any, y: None = None) -> Self:
        """Learn."""

    @abstractmethod
    def imputed(self) -> pl.DataFrame:
        """The imputation table of the fitted visits."""

    @abstractmethod
    def scorer(self) -> Scorer:
        """The frozen model."""

    @abstractmethod
    def meet(self, given: Visits) -> None:
        """Take checked visits for the fitted ones."""

    @abstractmethod
    def current_settings(self) -> Settings:
        """The fitted settings, checked."""
