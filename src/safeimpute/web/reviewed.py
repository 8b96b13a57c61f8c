"""What reviewers decided about a run's values, as one row per imputation; for exports, without the page itself."""

from pathlib import Path

import polars as pl

from safeimpute.records.writers.exported import ACCEPTED, REJECTED, REVIEW
from safeimpute.web.decisions import DecisionLog, log_beside
from safeimpute.web.review_state import MARKS, ReviewState

WORDS = dict(zip(("accepted", "rejected"), (ACCEPTED, REJECTED), strict=True))


def reviewed(folder: Path, identity: str, imputations: int) -> pl.DataFrame | None:
    """The decisions that stand, from the log beside a run's folder; None where nobody reviewed it."""
    path = log_beside(folder.resolve())
    if not path.is_file():
        return None
    state = ReviewState(DecisionLog(path, identity), imputations)
    marks = state.marks()
    said: dict[str, list[str | None]] = {name: [None] * imputations for name in REVIEW}
    for number in (marks != 0).arg_true().to_list():
        word = WORDS[MARKS[marks[number]]]
        standing = state.standing(number)
        last = [row for row in standing if row.kind in ("accept", "reject")][-1]
        comments = "; ".join(f"{row.reviewer}: {row.comment}" for row in standing if row.comment)
        for name, told in zip(REVIEW, (word, last.reviewer, last.at, comments), strict=True):
            said[name][number] = told
    return pl.DataFrame(said, schema=REVIEW)
