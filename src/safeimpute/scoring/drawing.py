"""What `SafeImputer` offers beside one value per visit: draws of every missing value, as long or completed tables."""

from abc import ABC, abstractmethod
from typing import Any, Literal

import polars as pl

from safeimpute.errors import GuaranteeRefused, OptionError
from safeimpute.records.arrays import FloatArray
from safeimpute.records.checks import numbers
from safeimpute.records.draws_table import completed_long, completed_wide, draws_table, spread_over_rows
from safeimpute.records.tables import like, to_polars
from safeimpute.records.units import plausible_range, target_unit
from safeimpute.records.visits import Visits
from safeimpute.runtime.devices import resolve_device
from safeimpute.scoring.folder import SavedModel
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.draws import draws_of, learn_predictive
from safeimpute.selection.predictive import Predictive
from safeimpute.settings import Settings
from safeimpute.systems.protocol import Fitted, Frozen

MOST_DRAWS = 1_000


class Drawing(ABC):
    """Draws from the predictive distribution of a fitted imputer."""

    settings_: Settings
    visits_: Visits
    fitted_: Fitted
    saved_: SavedModel
    calibrated_: Calibrated
    predictive_: Predictive  # once asked for

    def draws(self, visits: Any, m: int = 20, *, delta: float = 0.0) -> Any:
        """Draws of every missing value, released or not: `subject_id, time, lab, unit, draw, value`, m rows for each.

        For means, shares, regressions: analyse the table completed by each draw, then `safeimpute.pool`. The draws come
        from errors at measured visits, weighted to stand for unmeasured ones; errors of one patient hang together; the
        doubt about the distribution itself is in them. Like the claim, they rest on measuring not following the value.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        m : int
            How many draws; the first of many are those of few.
        delta : float
            Added to every draw, in the target's unit: what if unmeasured values are higher (or lower) than draws say?
        """
        drawn = self.draw_values(visits, m, delta)
        rows, settings = self.calibrated_.candidates, self.settings_
        table = draws_table(
            self.visits_.subject[rows], self.visits_.time[rows], settings.target, target_unit(settings), drawn
        )
        return like(table, visits)

    def to_mice(
        self,
        visits: Any,
        m: int = 20,
        *,
        delta: float = 0.0,
        form: Literal["long", "wide"] = "long",
    ) -> Any:
        """The visits completed by every draw, for R's mice and for statsmodels.

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
        if form not in ("long", "wide"):
            raise OptionError(f"form {form!r} is not known: long, or wide.")
        drawn, frame, target = self.draw_values(visits, m, delta), to_polars(visits), self.settings_.target
        per_row = spread_over_rows(drawn, self.calibrated_.candidates, self.visits_.row_visit)
        measured = pl.Series(numbers(frame[target], "target")).fill_nan(None)
        make = completed_long if form == "long" else completed_wide
        return like(make(frame, target, measured, per_row), visits)

    def draw_values(self, visits: Any, m: int, delta: float = 0.0) -> FloatArray:
        """The same as `draws`, as an array: missing values in the order of `impute`, by draws.

        Parameters
        ----------
        visits : table
            The table the imputer was fitted on.
        m : int
            How many draws.
        delta : float
            Added to every draw, in the target's unit.
        """
        if not 1 <= m <= MOST_DRAWS:
            raise OptionError(f"{m:,} draws cannot be made: ask for 1 to {MOST_DRAWS:,}. Twenty are usual.")
        settings = self.current_settings()
        self._require_fitted_table(visits)
        if not hasattr(self, "predictive_"):
            self.predictive_ = learn_predictive(
                self.calibrated_,
                self._system(),
                plausible_range(settings.target, target_unit(settings)),
                settings.random_state,
                resolve_device(settings.device),
            )
        return draws_of(self.predictive_, m, settings.random_state, delta)

    def _system(self) -> Frozen | None:
        """What can impute visits once more, with more of them hidden; None for a preset that cannot."""
        if hasattr(self, "fitted_"):
            return self.fitted_.frozen
        try:
            return self.saved_.frozen().system
        except GuaranteeRefused:
            return None

    @abstractmethod
    def current_settings(self) -> Settings:
        """The fitted settings, checked."""

    @abstractmethod
    def _require_fitted_table(self, visits: Any) -> None: ...
