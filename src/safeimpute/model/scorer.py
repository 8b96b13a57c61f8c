"""Scorer: a fitted model kept warm; tables of new visits in, imputation tables out, without refitting."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl

from safeimpute.errors import OptionError, VisitsError
from safeimpute.machine.progress import Progress, part_of, silent
from safeimpute.model.account import Account
from safeimpute.model.frozen import FrozenModel, Scored, score_visits
from safeimpute.model.night_log import Decided, NightLog
from safeimpute.model.open_model import OpenedLab, Status, in_force, open_model, require_log, status_in, status_of
from safeimpute.selection.claims import Promised, promise_in_words, without_promise
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.selection.several import as_part_of_several
from safeimpute.settings import Settings
from safeimpute.visits.arrays import BoolArray, VisitArrays
from safeimpute.visits.imputations import imputation_table
from safeimpute.visits.new_visits import NewVisits, Reading, read_new_visits
from safeimpute.visits.tables import like, to_polars
from safeimpute.visits.units import require_same_units, target_unit


class ScoredTable(NamedTuple):
    """One row per visit and lab where it is missing, and what each lab came to."""

    table: pl.DataFrame
    accounts: tuple[Account, ...]


@dataclass(frozen=True)
class LabScorer:
    """One lab's frozen model, and what stands of it."""

    fitted: FrozenModel  # as it was fitted and saved
    reading: Reading  # how the fitted table was read, column by column
    settings: Settings  # what the fit was told
    identity: str = ""  # of the model's folder, by which a night log knows it; empty for a model not saved
    status: Status = field(default_factory=Status)  # what an alarm or a recalibration left
    folder: Path | None = None  # of the model; None for one not saved

    @classmethod
    def of(cls, opened: OpenedLab) -> Self:
        """Of a model that was opened."""
        saved = opened.saved
        return cls(saved.frozen(), saved.reading, saved.settings, saved.identity, opened.status, opened.folder)

    @cached_property
    def model(self) -> FrozenModel:
        """The model as it may be used, as far as its status is known here."""
        return in_force(self.fitted, self.status)

    def tonight(self) -> Self:
        """The same with what the night log that watches the model says by now; one small read."""
        if self.folder is None:
            return self
        status = status_in(self.folder, self.identity)
        return self if status == self.status else replace(self, status=status)

    def score(
        self,
        visits: pl.DataFrame,
        without: Sequence[str] = (),
        log: NightLog | None = None,
        progress: Progress = silent,
    ) -> tuple[pl.DataFrame, Account]:
        """The lab's imputation table, and what it came to."""
        new = read_new_visits(visits, self.reading, without)
        require_same_units(self.settings, new.arrays, self.typical())
        if log is None:
            now = self.tonight()
            scored = score_visits(new.arrays, now.model, promised=not without, progress=progress)
            return now._told(new, scored, without, 0)
        status, scored, earlier = score_with_log(self, new.arrays, log, promised=not without)
        return replace(self, status=status)._told(new, scored, without, earlier)

    def _told(
        self, new: NewVisits, scored: Scored, without: Sequence[str], earlier: int
    ) -> tuple[pl.DataFrame, Account]:
        table = self.table(new, scored, scored.candidate)
        withheld = Counter(scored.reason[scored.candidate & ~scored.released].tolist())
        account = self.account(
            without,
            earlier=earlier,
            visits=len(new.arrays),
            patients=int(new.arrays.patient[-1]) + 1,
            released=int(scored.released.sum()),
            withheld=dict(withheld.most_common()),
            ignored=new.ignored,
            unknown_levels=new.unknown_levels,
        )
        return table, account

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
            self.settings.allowed_error,
            None if scored.estimates.above is None else scored.estimates.above[rows],
        )


@dataclass(frozen=True)
class Scorer:
    """Scores tables against a fitted model of one lab or several; nothing is learnt any more.

    Parameters
    ----------
    labs : mapping
        Each lab's frozen model, by lab.
    """

    labs: Mapping[str, LabScorer]

    @classmethod
    def load(cls, folder: str | Path, *, public_key: str | Path | None = None, status: Status | None = None) -> Self:
        """A warm scorer from a saved model folder, which is verified first.

        It is silent after an alarm of the monitor that watches the folder, and decides by the new cut-off after a
        recalibration; also where these come while it is kept.

        Parameters
        ----------
        folder : path
            The model folder.
        public_key : path, optional
            PEM file of the Ed25519 key by whose owner the model must be signed.
        status : Status, optional
            What stands at the start, where the caller knows it; by default the night log that watches the folder is
            asked. `score` asks it anew in any case.
        """
        opened = open_model(folder, public_key, status)
        return cls({lab: LabScorer.of(each) for lab, each in opened.labs.items()})

    def score(self, visits: Any, without: Sequence[str] = (), log: NightLog | None = None) -> Any:
        """One row per visit and lab where it is missing, as `SafeImputer.impute` gives them.

        Parameters
        ----------
        visits : table
            pandas, polars or pyarrow; the columns of the fitted table.
        without : sequence of str
            Labs or attributes the table lacks; nothing is promised then.
        log : NightLog, optional
            Where decisions are kept: a visit decided on an earlier night stays decided. Another log than the one that
            watches the model is refused.
        """
        return like(self.score_whole(visits, without, log).table, visits)

    def score_whole(
        self, visits: Any, without: Sequence[str] = (), log: NightLog | None = None, progress: Progress = silent
    ) -> ScoredTable:
        """The same with what is promised and what was left out, in words."""
        if len(self.labs) > 1 and log is not None:
            raise OptionError("a night log is of one lab: score each lab with its own model and log.")
        frame, count = to_polars(visits), len(self.labs)
        scored = [
            lab.score(frame, without, log, part_of(progress, place / count, (place + 1) / count))
            for place, lab in enumerate(self.labs.values())
        ]
        tables, accounts = zip(*scored, strict=True)
        return ScoredTable(pl.concat(tables, how="diagonal"), accounts)

    @property
    def one(self) -> LabScorer:
        """The only lab; of several it has to be said which."""
        if len(self.labs) > 1:
            raise VisitsError(
                f"this model holds {len(self.labs)} labs: take the folder of one of them, or its scorer, as in "
                f"scorer.labs[{next(iter(self.labs))!r}]."
            )
        return next(iter(self.labs.values()))

    @property
    def fitted(self) -> FrozenModel:
        """The only lab's model as it was fitted."""
        return self.one.fitted

    @property
    def model(self) -> FrozenModel:
        """The only lab's model as it may be used, as far as its status is known here."""
        return self.one.model

    @property
    def reading(self) -> Reading:
        """How the only lab's table was read."""
        return self.one.reading

    @property
    def settings(self) -> Settings:
        """What the only lab's fit was told."""
        return self.one.settings

    @property
    def identity(self) -> str:
        """Of the only lab's folder."""
        return self.one.identity


def score_with_log(
    scorer: LabScorer, visits: VisitArrays, log: NightLog, *, promised: bool
) -> tuple[Status, Scored, int]:
    """What stands tonight, the visits as decided, and how many were decided before.

    Where nothing is promised nothing is decided either: such visits can still be decided on a later night.
    """
    if not scorer.identity:
        raise OptionError("a night log keeps the decisions of a saved model: save it, and load the scorer from there.")
    require_log(scorer.folder, scorer.identity, log)

    def work() -> tuple[Status, Scored, int]:
        status = status_of(log.events(scorer.identity))
        model = in_force(scorer.fitted, status)
        scored = score_visits(visits, model, promised=promised)
        candidate = np.flatnonzero(scored.candidate)
        decided = _decided_of(visits, scored).at(candidate)
        fresh = decided if promised and not model.no_promise else decided.at(np.empty(0, np.int64))
        wanted = visits.visit_key[candidate]
        found, earlier = log.decide(scorer.identity, scorer.settings.target, fresh, wanted, status.last_event)
        return status, _as_decided(visits, scored, found), earlier

    return log.settled(work)


def _decided_of(visits: VisitArrays, scored: Scored) -> Decided:
    return Decided(
        visit=visits.visit_key,
        patient=visits.patient_key,
        day=visits.time,
        value=scored.estimates.value,
        half_width=scored.half_width,
        risk=scored.estimates.risk,
        cutoff=scored.cutoff,
        released=scored.released,
        reason=scored.reason,
    )


def _as_decided(visits: VisitArrays, scored: Scored, found: Decided) -> Scored:
    """The visits with what stands in the night log."""
    order = np.argsort(visits.visit_key, kind="stable")
    rows = order[np.searchsorted(visits.visit_key[order], found.visit)]

    def put(now: np.ndarray, then: np.ndarray) -> np.ndarray:
        whole = now.astype(object) if now.dtype.kind == "U" else now.copy()
        whole[rows] = then
        return whole.astype(np.str_) if now.dtype.kind == "U" else whole

    now = scored.estimates
    estimates = replace(now, value=put(now.value, found.value), risk=put(now.risk, found.risk))
    if now.above is not None:  # tonight's chances do not speak of another night's value
        estimates = replace(estimates, above=np.where((estimates.risk == now.risk)[:, None], now.above, np.nan))
    return replace(
        scored,
        estimates=estimates,
        half_width=put(scored.half_width, found.half_width),
        released=put(scored.released, found.released),
        reason=put(scored.reason, found.reason),
        cutoff=put(scored.cutoff, found.cutoff),
    )
