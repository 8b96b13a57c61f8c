"""The ledger of released values: a table whose marks were stripped is still known by its values, to the last digit.

Beside the output folders stands one file per run or scored table, with a 64-bit hash of patient, lab and value for each
released value; no value or identifier can be read from it. A table that holds such a value as if it were measured is
refused.
"""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray, VisitArrays, mix
from safeimpute.records.visits import patient_keys

LEDGER = ".safeimpute-released"
TELLING_DIGITS = (
    5  # significant digits above which a value is no round number that is measured again by chance
)
CHANCE = 2  # so many values may agree to 32 bits by chance
Hashes = NDArray[np.uint64]


def ledger_beside(path: Path) -> Path:
    return path.resolve().parent / LEDGER


def refuse_known_values(visits: VisitArrays, *beside: Path) -> None:
    """Refuse visits in which values stand as measured that a known run released.

    `beside` are folders or files next to which ledgers may stand. Raises VisitsError with the lab and the count.
    """
    ledgers = {ledger_beside(path) for path in beside}
    files = sorted(file for place in ledgers if place.is_dir() for file in place.glob("[!.]*.npy"))
    known = [hashes for file in files if (hashes := read_ledger(file)) is not None]
    if not known:
        return
    exact, single = np.concatenate(known, axis=1)
    for position, lab in enumerate(visits.lab_names):
        values = visits.labs[:, position]
        rows = np.flatnonzero(telling(values))
        mine = hashes_of(
            visits.patient_key[rows], pl.Series([lab]).new_from_index(0, len(rows)), values[rows]
        )
        same, close = (int(np.isin(own, of).sum()) for own, of in zip(mine, (exact, single), strict=True))
        if same or close > CHANCE:
            raise VisitsError(
                f"column {lab!r} holds {max(same, close):,} values that an earlier run released for the same patients, "
                "to the last digit: they are imputed, not measured. Use the table as it was before they were filled "
                "in, or empty those cells."
            )


def read_ledger(file: Path) -> Hashes | None:
    try:
        found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    sound = found.dtype == np.uint64 and found.ndim == 2 and len(found) == 2
    return found if sound else None


def telling(values: FloatArray) -> NDArray[np.bool_]:
    """Numbers that are written with more digits than anybody measures."""
    finite = np.isfinite(values) & (values != 0)
    size = np.where(finite, np.abs(values), 1.0)
    step = 10.0 ** (np.floor(np.log10(size)) - (TELLING_DIGITS - 1))
    rounded = np.round(size / step) * step
    telling: NDArray[np.bool_] = finite & (np.abs(size - rounded) > 1e-9 * size)
    return telling


def measured_hashes(visits: VisitArrays) -> tuple[Hashes, Hashes]:
    found = []
    for position, lab in enumerate(visits.lab_names):
        values = visits.labs[:, position]
        rows = np.flatnonzero(np.isfinite(values))
        found.append(
            hashes_of(visits.patient_key[rows], pl.Series([lab]).new_from_index(0, len(rows)), values[rows])
        )
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def hashes_of(patient: Hashes, lab: pl.Series, value: FloatArray) -> tuple[Hashes, Hashes]:
    """Of patient, lab and value: of the whole value, and of its 32-bit form, which MEDS keeps."""
    who = mix(patient ^ mix(_lab_keys(lab)))
    exact = np.ascontiguousarray(value, dtype=np.float64).view(np.uint64)
    single = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return mix(who ^ mix(exact)), mix(who + mix(single))


def _lab_keys(lab: pl.Series) -> Hashes:
    return patient_keys(lab) if len(lab) else np.empty(0, np.uint64)
