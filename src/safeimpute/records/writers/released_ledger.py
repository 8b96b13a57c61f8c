"""Entering released values in the ledger by which `records.known_values` recognises them later."""

from pathlib import Path

import numpy as np
import polars as pl

from safeimpute.records.arrays import VisitArrays
from safeimpute.records.known_values import (
    Hashes,
    hashes_of,
    ledger_beside,
    measured_hashes,
    read_ledger,
    telling,
)
from safeimpute.records.visits import patient_keys, subject_names


def record_released(
    beside: Path, identity: str, table: pl.DataFrame, measured: VisitArrays | None = None
) -> str:
    """Enter the released values of an imputation table in the ledger beside a folder or file.

    Values that a patient's own measurements repeat (`measured`) tell nothing and are left out. Returns a warning to
    show where the ledger cannot be written, else "".
    """
    given = table.filter(pl.col("released") & pl.col("value").is_not_null())
    keys = patient_keys(subject_names(given["subject_id"])) if len(given) else np.empty(0, np.uint64)
    values, labs = given["value"].to_numpy(), given["lab"]
    exact, single = hashes_of(keys, labs, values)
    kept = telling(values)
    if measured is not None:
        known = measured_hashes(measured)
        kept &= ~np.isin(exact, known[0]) & ~np.isin(single, known[1])
    place = ledger_beside(beside)
    try:
        _add(place / f"{identity[:16]}.npy", np.stack([exact[kept], single[kept]]))
    except OSError as error:
        return (
            f"the released values could not be entered in {place} ({type(error).__name__}): a table that holds them "
            "without their marks will not be recognised. Check the rights of that folder."
        )
    return ""


def _add(path: Path, hashes: Hashes) -> None:
    """To what is known already: an export of some of a run's values takes none of the others out."""
    path.parent.mkdir(exist_ok=True)
    earlier = read_ledger(path) if path.is_file() else None
    if earlier is not None:
        hashes = np.unique(np.concatenate([earlier, hashes], axis=1), axis=1)
    partial = path.with_name(f".{path.name}")
    with partial.open("wb") as file:
        np.save(file, hashes, allow_pickle=False)
    partial.replace(path)
