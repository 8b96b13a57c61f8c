"""Scorer: a fitted model kept warm; tables of new visits in, imputation tables out, without refitting."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import polars as pl

from safeimpute.errors import OptionError
from safeimpute.records.arrays import BoolArray
from safeimpute.records.new_visits import NewVisits, Reading, read_new_visits
from safeimpute.records.tables import like, to_polars
from safeimpute.scoring.frozen import (
    NewDecision,
    NewScores,
    ScoringModel,
    decide_by_cutoff,
    decide_jointly,
    explained,
    half_widths,
    score_new,
)
from safeimpute.selection.claims import long_run_promise, promise_in_words
from safeimpute.settings import Config

Rule = Literal["cutoff", "bh"]


@dataclass(frozen=True)
class Account:
    """What a scoring came to and what it promises, in words and counts."""

    target: str
    promise: str  # empty: no guarantee
    assumption: str
    no_promise: str  # why there is no guarantee; empty where there is one
    visits: int
    patients: int
    known_patients: int  # the fit has met them: outside the promise
    released: int
    withheld: dict[str, int]  # by reason, most frequent first
    ignored: tuple[str, ...]  # columns the model does not know
    unknown_levels: dict[str, int]  # category -> rows with a level never met at fit


class ScoredTable(NamedTuple):
    """One row per visit whose target is missing, and the account."""

    table: pl.DataFrame
    account: Account


@dataclass(frozen=True)
class Scorer:
    """Scores tables against one fitted model; nothing is learnt any more."""

    model: ScoringModel
    reading: Reading
    config: Config

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A warm scorer from a saved model folder, which is verified first."""
        from safeimpute.scoring.folder import load_model

        saved = load_model(Path(folder))
        return cls(saved.scoring(), saved.reading, saved.config)

    def score(self, visits: Any, rule: Rule = "cutoff", without: Sequence[str] = ()) -> Any:
        """One row per visit whose target is missing, as `SafeImputer.impute` gives them."""
        return like(self.score_whole(visits, rule, without).table, visits)

    def score_whole(self, visits: Any, rule: Rule = "cutoff", without: Sequence[str] = ()) -> ScoredTable:
        """The same with what is promised and what was left out, in words."""
        new = read_new_visits(to_polars(visits), self.reading, without)
        scores = score_new(new.arrays, self.model)
        table = self.table(new, scores, self.decide(scores, check_rule(rule), without), scores.candidate)
        withheld = table.filter(~pl.col("released"))["reason"].value_counts(sort=True)
        account = self.account(
            rule,
            without,
            visits=len(new.arrays),
            patients=int(new.arrays.patient[-1]) + 1,
            known_patients=len(np.unique(scores.patient[scores.known])),
            released=int(table["released"].sum()),
            withheld=dict(withheld.iter_rows()),
            ignored=new.ignored,
            unknown_levels=new.unknown_levels,
        )
        return ScoredTable(table, account)

    def account(self, rule: Rule, without: Sequence[str], **counted: Any) -> Account:
        """The counts of a scoring beside the promise they stand under."""
        no_promise = self.no_promise(rule, without)
        promise, assumption = ("", "") if no_promise else self.promise(rule)
        return Account(self.config.target, promise, assumption, no_promise, **counted)

    def decide(self, scores: NewScores, rule: Rule, without: Sequence[str] = ()) -> NewDecision:
        """Release by the rule; nothing where columns are missing that the calibration patients had."""
        if without:
            return explained(scores, np.zeros(len(scores.risk), dtype=bool), everybody_outside=True)
        return (
            decide_by_cutoff(scores, self.model) if rule == "cutoff" else decide_jointly(scores, self.model)
        )

    def no_promise(self, rule: Rule, without: Sequence[str] = ()) -> str:
        """Why nothing is promised; empty where something is."""
        if without:
            return (
                f"the table lacks {', '.join(map(repr, without))}, which the calibration patients had: new patients "
                "are not seen as they were"
            )
        return self.model.without_promise(rule)

    def table(
        self, new: NewVisits, scores: NewScores, decision: NewDecision, listed: BoolArray
    ) -> pl.DataFrame:
        """The imputation table of the visits to be listed, in canonical order."""
        rows = np.flatnonzero(listed)
        value, half = scores.value[rows], half_widths(scores, self.model)[rows]
        return pl.DataFrame(
            {
                "subject_id": new.subject[rows],
                "time": new.time[rows],
                "lab": pl.repeat(self.config.target, len(rows), eager=True),
                "unit": pl.repeat(self.config.unit_known, len(rows), dtype=pl.String, eager=True),
                "value": value,
                "lower": pl.Series(value - half).fill_nan(None),
                "upper": pl.Series(value + half).fill_nan(None),
                "risk": scores.risk[rows],
                "p_value": pl.Series([None] * len(rows), dtype=pl.Float64),
                "released": decision.released[rows],
                "reason": pl.Series(decision.reason[rows], dtype=pl.String),
            }
        )

    def promise(self, rule: Rule) -> tuple[str, str]:
        """What a rule promises with this model, and what that rests on."""
        config = self.config
        tolerance = config.allowed_error.describe(config.unit_known)
        words = promise_in_words(config.promise, config.target, tolerance, config.fdr)
        if rule == "cutoff" and self.model.cutoff is not None:
            cutoff = self.model.cutoff
            words["promise"] = long_run_promise(cutoff, config.target, tolerance, config.fdr)
        records = (
            "A visit's record reaches as far as a calibration patient's did at that visit."
            if config.past_only
            else "Records are as long and as complete as the calibration patients'; to score visits as they come in, "
            "fit with past_only."
        )
        return words["promise"], f"{words['assumption']} {records}"


def check_rule(rule: str) -> Rule:
    if rule == "cutoff":
        return "cutoff"
    if rule == "bh":
        return "bh"
    raise OptionError(f"rule {rule!r} is not known: cutoff (visit by visit) or bh (the whole table at once).")
