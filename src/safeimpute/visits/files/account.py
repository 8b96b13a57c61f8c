"""What became of a file's rows: what was said about it, and how many were dropped, converted or merged, by reason."""

from dataclasses import dataclass, field

import polars as pl


@dataclass
class Account:
    """Sentences to show, and counts by reason; nothing of any value."""

    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # those of the counts whose rows are gone

    def say(self, sentence: str) -> None:
        """A sentence to show."""
        self.notes.append(sentence)

    def count(self, reason: str, rows: int, *, lost: bool = False) -> None:
        """Rows to which something happened; `lost`: they are not in the table."""
        if rows:
            self.counts[reason] = self.counts.get(reason, 0) + rows
            if lost:
                self.dropped[reason] = self.dropped.get(reason, 0) + rows

    def add(self, other: "Account") -> None:
        """What another account says, too."""
        self.notes += other.notes
        for reason, rows in other.counts.items():
            self.count(reason, rows, lost=reason in other.dropped)

    def keep(self, rows: pl.DataFrame, sound: pl.Expr, reason: str) -> pl.DataFrame:
        """The sound rows; the others are counted under the reason."""
        kept = rows.filter(sound)
        self.count(reason, len(rows) - len(kept), lost=True)
        return kept

    def in_words(self) -> str:
        """All counts in one line."""
        return "; ".join(f"{rows:,} {reason}" for reason, rows in self.counts.items()) or "no rows"

    def lines(self) -> list[str]:
        """What to show."""
        return [*self.notes, *(f"{rows:>12,}  {reason}" for reason, rows in self.counts.items())]
