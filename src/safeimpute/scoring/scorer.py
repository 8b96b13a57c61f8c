"""Scorer: a fitted model kept warm; tables of new visits in, imputation tables out, without refitting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import polars as pl

from safeimpute.records.arrays import BoolArray
from safeimpute.records.imputations import imputation_table
from safeimpute.records.new_visits import NewVisits, Reading, read_new_visits
from safeimpute.records.tables import like, to_polars
from safeimpute.records.units import require_same_units, target_unit
from safeimpute.runtime.progress import Progress, silent
from safeimpute.scoring.account import Account
from safeimpute.scoring.frozen import FrozenModel, Scored, score_visits
from safeimpute.selection.claims import Promised, promise_in_words, without_promise
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.selection.several import as_part_of_several
from safeimpute.settings import Settings

if TYPE_CHECKING:
    from safeimpute.scoring.night_ledger import NightLedger
    from safeimpute.scoring.standing import Standing


class ScoredTable(NamedTuple):
    """One row per visit whose target is missing, and the account."""

    table: pl.DataFrame
    account: Account


@dataclass(frozen=True)
class Scorer:
    """Scores tables against one fitted model; nothing is learnt any more.

    Parameters
    ----------
    model : FrozenModel
        What was learnt, calibrated and decided at the fit.
    reading : Reading
        How the fitted table was read, column by column.
    settings : Settings
        What the fit was told.
    identity : str
        Checksum of the model's folder, by which a ledger of nights knows it; empty for a model not saved.
    standing : Standing, optional
        What an alarm or a recalibration left, where `load_watched` found one; it is in `model` already.
    """

    model: FrozenModel
    reading: Reading
    settings: Settings
    identity: str = ""  # of the model's folder; a ledger knows the model by it
    standing: "Standing | None" = None  # what the ledger that watches the model says

    @classmethod
    def load(cls, folder: str | Path, *, public_key: str | Path | None = None) -> Self:
        """A warm scorer from a saved model folder, which is verified first.

        Parameters
        ----------
        folder : path
            The model folder.
        public_key : path, optional
            PEM file of the Ed25519 key by whose owner the model must be signed.
        """
        from safeimpute.scoring.folder import load_model

        saved = load_model(Path(folder), None if public_key is None else Path(public_key))
        return cls(saved.frozen(), saved.reading, saved.settings, str(saved.manifest["checksum"]))

    @classmethod
    def load_watched(cls, folder: str | Path, *, public_key: str | Path | None = None) -> Self:
        """The same as it may be used tonight: silenced by an alarm, or recalibrated, if monitor watches the folder."""
        from safeimpute.scoring.standing import in_force, standing_in

        scorer = cls.load(folder, public_key=public_key)
        standing = standing_in(Path(folder), scorer.identity)
        if standing is None:
            return scorer
        return replace(scorer, model=in_force(scorer.model, standing), standing=standing)

    def score(self, visits: Any, without: Sequence[str] = (), ledger: "NightLedger | None" = None) -> Any:
        """One row per visit whose target is missing, as `SafeImputer.impute` gives them.

        Parameters
        ----------
        visits : table
            pandas, polars or pyarrow; the columns of the fitted table.
        without : sequence of str
            Labs or attributes the table lacks; nothing is promised then.
        ledger : NightLedger, optional
            Where decisions are kept: a visit decided on an earlier night stays decided.
        """
        return like(self.score_whole(visits, without, ledger).table, visits)

    def score_whole(
        self,
        visits: Any,
        without: Sequence[str] = (),
        ledger: "NightLedger | None" = None,
        progress: Progress = silent,
    ) -> ScoredTable:
        """The same with what is promised and what was left out, in words."""
        new = read_new_visits(to_polars(visits), self.reading, without)
        require_same_units(self.settings, new.arrays, self.typical())
        if ledger is None:
            scored = score_visits(new.arrays, self.model, promised=not without, progress=progress)
            return self._told(new, scored, without, 0)
        from safeimpute.scoring.decided_nights import score_with_ledger

        tonight, scored, earlier = score_with_ledger(self, new.arrays, ledger, promised=not without)
        return replace(self, model=tonight)._told(new, scored, without, earlier)

    def _told(self, new: NewVisits, scored: Scored, without: Sequence[str], earlier: int) -> ScoredTable:
        table = self.table(new, scored, scored.candidate)
        withheld = table.filter(~pl.col("released"))["reason"].value_counts(sort=True)
        account = self.account(
            without,
            earlier=earlier,
            visits=len(new.arrays),
            patients=int(new.arrays.patient[-1]) + 1,
            released=int(table["released"].sum()),
            withheld=dict(withheld.iter_rows()),
            ignored=new.ignored,
            unknown_levels=new.unknown_levels,
        )
        return ScoredTable(table, account)

    def account(self, without: Sequence[str] = (), **counted: Any) -> Account:
        """The counts of a scoring beside the promise they stand under."""
        words = self.promised(without)
        return Account(
            self.settings.target,
            words.promise,
            words.assumption,
            words.no_promise,
            **counted,
            advice=self._advice(counted["released"], counted["withheld"]),
        )

    def promised(self, without: Sequence[str] = ()) -> Promised:
        """What a release by this model promises, or why it promises nothing."""
        if without:
            return without_promise(
                f"the table lacks {', '.join(map(repr, without))}, which the fitted table had: visits are not seen as "
                "they were"
            )
        if self.model.no_promise:
            return without_promise(self.model.no_promise)
        measuring = self.model.measuring
        columns = () if measuring is None else measuring.columns
        said = promise_in_words(self.settings, target_unit(self.settings), columns)
        return as_part_of_several(said, self.settings)

    def _advice(self, released: int, withheld: dict[str, int]) -> str:
        """What would help where nothing was released."""
        if released or not withheld:
            return ""
        if self.model.help:
            return self.model.help
        if self.model.no_promise:
            return ""
        if next(iter(withheld)) == OUT_OF_SCOPE and self.model.calendar:
            return (
                "most visits lie outside what the fit could speak for, later than its last visit for instance: to "
                "score visits as they come in, fit with the claim 'later'."
            )
        return ""

    def typical(self) -> dict[str, tuple[float, float]]:
        """What most values of each lab lay between at the fit."""
        scaler, ends = self.model.system.models[0].source.units.labs, np.array([-2.0, 2.0])
        found = {name: scaler.in_unit(ends, place) for place, name in enumerate(self.reading.labs)}
        return {name: (float(low), float(high)) for name, (low, high) in found.items()}

    def table(self, new: NewVisits, scored: Scored, listed: BoolArray) -> pl.DataFrame:
        """The imputation table of the visits to be listed, in canonical order."""
        rows = np.flatnonzero(listed)
        return imputation_table(
            new.subject[rows],
            new.time[rows],
            self.settings.target,
            target_unit(self.settings),
            scored.estimates.value[rows],
            scored.half_width[rows],
            scored.estimates.risk[rows],
            scored.cutoff[rows],
            np.full(len(rows), np.nan),
            scored.released[rows],
            scored.reason[rows],
        )
