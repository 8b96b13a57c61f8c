"""Scoring and calibrating on a table that stays in its database: batch by batch, merged exactly, memory bounded.

Beside one batch and the model, 32 bytes are kept for each released value, by which it is known again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.model.account import Account
from safeimpute.model.frozen import score_visits
from safeimpute.model.scorer import LabScorer
from safeimpute.model.whole_table import TableDiagnosis, TableSums, calibratable, save_with, summed, table_sums
from safeimpute.sources.readers.patients import opened_patients
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.imputations import Hashes, KnownValues, released_hashes
from safeimpute.visits.new_visits import columns_read, read_new_visits
from safeimpute.visits.units import target_unit, unit_rules

if TYPE_CHECKING:
    import pyarrow.parquet as pa_parquet

Write = Callable[[pl.DataFrame], None]


class DatabaseScoring:
    """One lab of a database's table, scored while a file is being written; what is refused is refused at its end."""

    def __init__(self, lab: LabScorer, known: KnownValues, without: Sequence[str] = ()) -> None:
        self.lab, self.known, self.without = lab.tonight(), known, tuple(without)
        self.rules = unit_rules(lab.typical(), {lab.settings.target: target_unit(lab.settings)})
        self.strange = np.zeros((len(self.rules), 2), np.int64)  # rows out of place, and measured
        self.counts: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.released: list[tuple[Hashes, Hashes]] = []

    def run(self, place: str, columns: Mapping[str, str], write: Write) -> Account:
        """Every batch of whole patients; what it came to. Raises VisitsError where the table is refused."""
        with opened_patients(place, columns) as patients:
            for frame in patients.batches(self.lab.reading, self.without):
                write(self._scored(frame))
            used = columns_read(patients.columns, self.lab.reading)
            ignored = tuple(name for name in patients.columns if name not in used)
        if not self.counts["visits"]:
            raise VisitsError("the table has no rows: there is nothing to score.")
        for rule, (rows, measured) in zip(self.rules, self.strange.tolist(), strict=True):
            rule.require_few(rows, measured)
        self.known.refuse()
        return self.lab.account(
            self.without,
            visits=self.counts["visits"],
            patients=self.counts["patients"],
            released=self.counts["released"],
            withheld=dict(self.withheld.most_common()),
            ignored=ignored,
            unknown_levels=dict(self.unknown),
        )

    def _scored(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A batch's imputation table, counted on the way."""
        new = read_new_visits(frame, self.lab.reading, self.without)
        self._count_units(new.arrays)
        self.known.count(new.arrays)
        scored = score_visits(new.arrays, self.lab.model, promised=not self.without)
        table = self.lab.table(new, scored, scored.candidate)
        withheld = table.filter(~pl.col("released"))["reason"].value_counts()
        self.withheld.update(dict(withheld.iter_rows()))
        self.unknown.update(new.unknown_levels)
        patients, released = int(new.arrays.patient[-1]) + 1, int(table["released"].sum())
        self.counts.update(visits=len(new.arrays), patients=patients, released=released)
        self.released.append(released_hashes(table, new.arrays))
        return table

    def _count_units(self, visits: VisitArrays) -> None:
        labs = dict(zip(visits.lab_names, visits.labs.T, strict=True))
        for number, rule in enumerate(self.rules):
            values = labs[rule.lab.name]
            measured = values[np.isfinite(values)]
            self.strange[number] += rule.out_of_place(measured), len(measured)


def merged_hashes(parts: Sequence[tuple[Hashes, Hashes]]) -> tuple[Hashes, Hashes]:
    """What the release register keeps, of all batches."""
    values, places = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    return values, places


class ParquetParts:
    """A parquet file written part by part."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer: pa_parquet.ParquetWriter | None = None

    def write(self, part: pl.DataFrame) -> None:
        from pyarrow import parquet

        table = part.to_arrow(compat_level=pl.CompatLevel.oldest())
        if self.writer is None:
            self.writer = parquet.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table.cast(self.writer.schema))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def calibrate_database(
    model: Path, place: str, out: Path, *, columns: Mapping[str, str] | None = None, force: bool = False
) -> TableDiagnosis:
    """As `whole_table.calibrate_files`, for a table in a database."""
    saved, frozen = calibratable(model)
    known = KnownValues(out, model, model.resolve().parent)
    parts: list[TableSums] = []
    with opened_patients(place, columns or {}) as patients:
        for frame in patients.batches(saved.reading):
            visits = read_new_visits(frame, saved.reading).arrays
            known.count(visits)
            parts = [summed([*parts, table_sums(visits, frozen, saved.settings)])]
    if not parts:
        raise VisitsError("the table has no rows: there is nothing to calibrate on.")
    known.refuse()
    return save_with(saved, frozen, parts[0], out, force=force)
