"""Several labs scored at once: new visits in, one long imputation table out, each lab by its own frozen model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.records.arrays import VisitArrays
from safeimpute.records.known_values import refuse_known_values
from safeimpute.records.new_visits import read_new_visits
from safeimpute.records.tables import like, read_visits, to_polars
from safeimpute.runtime.progress import Progress, part_of, silent
from safeimpute.scoring.account import Account
from safeimpute.scoring.labs_folder import holds_several, read_labs
from safeimpute.scoring.night_ledger import NightLedger
from safeimpute.scoring.score_job import ScoreJob
from safeimpute.scoring.scorer import Scorer


@dataclass(frozen=True)
class SeveralScorer:
    """One scorer per lab; nothing is learnt any more.

    Parameters
    ----------
    scorers : mapping
        By lab.
    """

    scorers: Mapping[str, Scorer]

    def score(self, visits: Any, without: Sequence[str] = ()) -> Any:
        """One row per missing cell of any lab, lab by lab.

        Parameters
        ----------
        visits : table
            pandas, polars or pyarrow; the columns of the fitted table.
        without : sequence of str
            Labs or attributes the table lacks; nothing is promised then.
        """
        frame = to_polars(visits)
        tables = [scorer.score_whole(frame, without).table for scorer in self.scorers.values()]
        return like(pl.concat(tables), visits)


def scored_labs(
    job: ScoreJob, progress: Progress = silent
) -> tuple[pl.DataFrame, list[Account], VisitArrays]:
    """The table of one lab or of several, what each came to, and the visits read; one model in memory at a time."""
    places = list(read_labs(job.model).places.values()) if holds_several(job.model) else [job.model]
    if len(places) > 1 and job.ledger is not None:
        raise OptionError("a ledger of nights is of one lab: score each lab with its own model and ledger.")
    kept = None if job.ledger is None else NightLedger(job.ledger)
    table: pl.DataFrame | None = None
    tables, accounts = [], []
    for number, place in enumerate(places):
        heard = part_of(progress, number / len(places), (number + 1) / len(places))
        heard("reading the model and the visits", 0.0)
        load = Scorer.load_watched if job.ledger is None else Scorer.load
        scorer = load(place, public_key=job.public_key)
        if table is None:
            table = _read(job, scorer.reading.time)
        new = read_new_visits(table, scorer.reading, job.without)
        refuse_known_values(new.arrays, job.out, job.visits, Path(job.model).resolve().parent)
        result = scorer.score_whole(table, job.without, kept, part_of(heard, 0.1, 1.0))
        tables.append(result.table)
        accounts.append(result.account)
    return pl.concat(tables), accounts, new.arrays


def _read(job: ScoreJob, time: str) -> pl.DataFrame:
    told = job.read_as
    return read_visits(
        job.visits,
        job.columns,
        date_format=told.date_format,
        decimal=told.decimal,
        separator=told.separator,
        unit_of=told.units,
        time=time,
    )
