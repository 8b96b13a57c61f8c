"""Imputed values: their table, and the release register by which released ones are known again, to the last digit.

Beside the output folders stands one file per run or scored table, with a 64-bit hash of patient, lab and value for each
released value; no value or identifier can be read from it. A table that holds such a value as if it were measured is
refused, though its marks were stripped. A second file keeps patient, lab, time and the value as the lab reports it: of
rounded values that stand in a table one is chance, most of many are not.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import SafeImputeError, VisitsError
from safeimpute.tolerance import Tolerance, chances_of_bands
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays, mix
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.dates import days
from safeimpute.visits.visits import patient_keys, subject_names

# Column -> its type in Spark's words; subject_id and time keep the types of the visits table.
SPARK_TYPES: dict[str, str] = {
    "lab": "string",
    "unit": "string",
    "value": "double",
    "lower": "double",
    "upper": "double",
    "risk": "double",
    "cutoff": "double",
    "p_value": "double",
    "released": "boolean",
    "reason": "string",
}
COLUMNS: tuple[str, ...] = ("subject_id", "time", *SPARK_TYPES)
BAND, CHANCE_OF_BAND = "band", "p_band_{}"  # where limits count: the value's band, and the chance of each, from 1 on
REGISTER = ".safeimpute-released"
TELLING_DIGITS = 5  # significant digits above which a value is no round number that is measured again by chance
CHANCE = 2  # so many values may agree to 32 bits by chance
FEWEST_ROUNDED, SHARE_ROUNDED = 10, 0.5  # rounded values that agree, and their share of the visits, which chance is not
PLACES = ".places"  # ends the second file's name
OTHER_DIGITS = 4  # significant ones, of labs whose usual precision nobody says
Hashes = NDArray[np.uint64]


def imputation_table(
    subject: pl.Series,
    time: pl.Series,
    lab: str,
    unit: str | None,
    value: FloatArray,
    half_width: FloatArray,
    risk: FloatArray,
    cutoff: FloatArray,
    p_value: FloatArray,
    released: BoolArray,
    reason: NDArray[np.str_],
    tolerance: Tolerance | None = None,
    above: FloatArray | None = None,
) -> pl.DataFrame:
    """The table of one lab's candidates; every argument but `lab` and `unit` has one entry per candidate.

    `half_width` is half the interval around the value, `cutoff` the risk up to which this value's group was released,
    `reason` why it is withheld ("" where it is not). What does not exist is NaN here and null in the table, which
    never holds NaN or infinity.
    `above` holds the chances of lying above each of the tolerance's limits, where it has any. Raises SafeImputeError
    where a value is released that is not a finite number.
    """
    _require_finite(lab, value[released])
    with np.errstate(all="ignore"):  # what comes out of NaN and infinity is null below
        lower, upper = value - half_width, value + half_width
    if tolerance and tolerance.levels:
        lower, upper = (np.where(np.isfinite(end), tolerance.settled(end), end) for end in (lower, upper))
    table = pl.DataFrame(
        {
            "subject_id": subject,
            "time": time,
            "lab": pl.Series([lab], dtype=pl.String).new_from_index(0, len(value)),
            "unit": pl.Series([unit], dtype=pl.String).new_from_index(0, len(value)),
            "value": _finite(value),
            "lower": _finite(lower),
            "upper": _finite(upper),
            "risk": _finite(risk),
            "cutoff": _finite(cutoff),
            "p_value": _finite(p_value),
            "released": pl.Series(released, dtype=pl.Boolean),
            "reason": pl.Series(reason, dtype=pl.String),
        }
    )
    return table.with_columns(**_bands(value, tolerance, above)) if tolerance and tolerance.limits else table


def band_types(limits: int) -> dict[str, str]:
    """The columns that so many limits add, with their types in Spark's words."""
    chances = {CHANCE_OF_BAND.format(place + 1): "double" for place in range(limits + 1)}
    return {BAND: "string"} | chances if limits else {}


def _bands(value: FloatArray, tolerance: Tolerance, above: FloatArray | None) -> dict[str, pl.Series]:
    above = np.full((len(value), len(tolerance.limits)), np.nan) if above is None else above
    chances = [_finite(each) for each in chances_of_bands(above).T]
    words = pl.Series(tolerance.bands, dtype=pl.String).gather(tolerance.band(value))
    columns = (words.set(pl.Series(~np.isfinite(value)), None), *chances)
    return dict(zip(band_types(len(tolerance.limits)), columns, strict=True))


def _require_finite(lab: str, released: FloatArray) -> None:
    unusable = int(np.sum(~np.isfinite(released)))
    if unusable:
        raise SafeImputeError(
            f"{unusable:,} values of {lab!r} were released that are no finite numbers. This is a fault of safeimpute; "
            "nothing was written. Please report it, with the output of safeimpute doctor."
        )


def _finite(values: FloatArray) -> pl.Series:
    """Null in place of NaN and infinity."""
    return pl.Series(np.where(np.isfinite(values), values, np.nan), dtype=pl.Float64, nan_to_null=True)


def decimals_of(lab: str, unit: str | None) -> int | None:
    """How many decimals a lab is usually reported with; None where the catalogue does not say it of this unit."""
    known = load_catalogue().labs.get(lab)
    return known.decimals if known is not None and unit in (None, known.unit) else None


def rounded(value: pl.Expr, decimals: int | None) -> pl.Expr:
    """Values as the lab reports them."""
    return value.round_sig_figs(OTHER_DIGITS) if decimals is None else value.round(decimals)


def at_usual_precision(table: pl.DataFrame, columns: Sequence[str] = ("value", "lower", "upper")) -> pl.DataFrame:
    """An imputation table with its numbers as their labs report them."""
    pairs = table.select("lab", "unit").unique().iter_rows()
    by_decimals: dict[int | None, list[str]] = {}
    for lab, unit in pairs:
        by_decimals.setdefault(decimals_of(lab, unit), []).append(lab)
    for name in columns:
        for decimals, labs in by_decimals.items():
            here = rounded(pl.col(name), decimals)
            table = table.with_columns(pl.when(pl.col("lab").is_in(labs)).then(here).otherwise(name).alias(name))
    return table


def register_beside(path: Path) -> Path:
    return path.resolve().parent / REGISTER


def refuse_known_values(visits: VisitArrays, *beside: Path) -> None:
    """Refuse visits in which values stand as measured that a known run released.

    `beside` are folders or files next to which registers may stand. Raises VisitsError with the lab and the count.
    """
    known = KnownValues(*beside)
    known.count(visits)
    known.refuse()


class KnownValues:
    """Values that earlier runs released, counted in a table batch by batch and refused by what the whole of it holds.

    Exactly known values are refused, and rounded ones where they stand at most visits that were asked about.
    """

    def __init__(self, *beside: Path) -> None:
        self.exact, self.places = known_hashes(*beside), _stored(beside, f"[!.]*{PLACES}")
        self.counts: dict[str, tuple[int, int]] = {}  # lab: known exactly, known to 32 bits
        self.rounded: dict[str, tuple[int, int]] = {}  # lab: visits asked about, rounded values that agree

    def count(self, visits: VisitArrays) -> None:
        if self.exact is not None:
            _add_up(self.counts, known_counts(visits, self.exact))
        if self.places is not None:
            _add_up(self.rounded, _known_places(visits, self.places))

    def refuse(self) -> None:
        refuse_counted(self.counts)
        for lab, (asked, agree) in self.rounded.items():
            if agree >= FEWEST_ROUNDED and agree > SHARE_ROUNDED * asked:
                raise VisitsError(
                    f"column {lab!r} holds {agree:,} values that an earlier run released, rounded, at {asked:,} visits "
                    "it was asked about: they are imputed, not measured. Use the table as it was before they were "
                    "filled in."
                )


def _add_up(counts: dict[str, tuple[int, int]], more: Mapping[str, tuple[int, int]]) -> None:
    for lab, (one, other) in more.items():
        before = counts.get(lab, (0, 0))
        counts[lab] = before[0] + one, before[1] + other


def _known_places(visits: VisitArrays, known: Hashes) -> dict[str, tuple[int, int]]:
    """Per lab the visits an earlier run was asked about, and those whose value is its rounded one."""
    found = {}
    for lab, values in zip(visits.lab_names, visits.labs.T, strict=True):
        rows = np.isfinite(values)
        place, same = _places(visits.visit_key[rows], lab, values[rows])
        found[lab] = int(np.isin(place, known[0]).sum()), int(np.isin(same, known[1]).sum())
    return found


def _places(visit: Hashes, lab: str, value: FloatArray) -> tuple[Hashes, Hashes]:
    """Hashes of patient, time and lab, and of these with the value."""
    name = patient_keys(pl.Series([lab]))[0]
    place = mix(visit ^ mix(np.full(len(visit), name)))
    single = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return place, mix(place + mix(single))


def known_hashes(*beside: Path) -> Hashes | None:
    """All that is known beside these folders or files, exact hashes and 32-bit ones; None where nothing is."""
    return _stored(beside, "[!.]*.npy")


def _stored(beside: Sequence[Path], pattern: str) -> Hashes | None:
    registers = {register_beside(path) for path in beside}
    files = sorted(file for place in registers if place.is_dir() for file in place.glob(pattern))
    known = [hashes for file in files if (hashes := read_register(file)) is not None]
    return np.concatenate(known, axis=1) if known else None


def known_counts(visits: VisitArrays, known: Hashes) -> dict[str, tuple[int, int]]:
    """Per lab the values that are known: exactly, and to 32 bits."""
    counts, (exact, single) = {}, known
    for lab, values in zip(visits.lab_names, visits.labs.T, strict=True):
        mine = _hashes_at(visits, lab, values, telling(values))
        counts[lab] = int(np.isin(mine[0], exact).sum()), int(np.isin(mine[1], single).sum())
    return counts


def refuse_counted(counts: Mapping[str, tuple[int, int]]) -> None:
    """Refuse where more values are known than chance explains."""
    for lab, (same, close) in counts.items():
        if same or close > CHANCE:
            raise VisitsError(
                f"column {lab!r} holds {max(same, close):,} values that an earlier run released for the same patients, "
                "to the last digit: they are imputed, not measured. Use the table as it was before they were filled "
                "in, or empty those cells."
            )


def read_register(file: Path) -> Hashes | None:
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
    labs = zip(visits.lab_names, visits.labs.T, strict=True)
    found = [_hashes_at(visits, lab, values, np.isfinite(values)) for lab, values in labs]
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _hashes_at(visits: VisitArrays, lab: str, values: FloatArray, rows: BoolArray) -> tuple[Hashes, Hashes]:
    here = int(rows.sum())
    return hashes_of(visits.patient_key[rows], pl.Series([lab]).new_from_index(0, here), values[rows])


def hashes_of(patient: Hashes, lab: pl.Series, value: FloatArray) -> tuple[Hashes, Hashes]:
    """Of patient, lab and value: of the whole value, and of its 32-bit form, which MEDS keeps."""
    who = mix(patient ^ mix(patient_keys(lab))) if len(lab) else patient
    exact = np.ascontiguousarray(value, dtype=np.float64).view(np.uint64)
    single = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return mix(who ^ mix(exact)), mix(who + mix(single))


def record_released(beside: Path, identity: str, table: pl.DataFrame, measured: VisitArrays | None = None) -> str:
    """Enter the released values of an imputation table in the release register beside a folder or file.

    Values that a patient's own measurements repeat (`measured`) tell nothing and are left out. Returns a warning to
    show where the release register cannot be written, else "".
    """
    return record_hashes(beside, identity, *released_hashes(table, measured))


def released_hashes(table: pl.DataFrame, measured: VisitArrays | None = None) -> tuple[Hashes, Hashes]:
    """What the release register keeps of an imputation table: values, and rounded values with their places."""
    given = table.filter(pl.col("released") & pl.col("value").is_not_null())
    keys = patient_keys(subject_names(given["subject_id"])) if len(given) else np.empty(0, np.uint64)
    values, labs = given["value"].to_numpy(), given["lab"]
    exact, single = hashes_of(keys, labs, values)
    kept = telling(values)
    if measured is not None:
        known = measured_hashes(measured)
        kept &= ~np.isin(exact, known[0]) & ~np.isin(single, known[1])
    return np.stack([exact[kept], single[kept]]), _rounded_places(given, keys)


def record_hashes(beside: Path, identity: str, values: Hashes, places: Hashes) -> str:
    """Enter them in the release register; a warning where it cannot be written, else ""."""
    place = register_beside(beside)
    try:
        _add(place / f"{identity[:16]}.npy", values)
        _add(place / f"{identity[:16]}{PLACES}", places)
    except OSError as error:
        return (
            f"the released values could not be entered in {place} ({type(error).__name__}): a table that holds them "
            "without their marks will not be recognised. Check the rights of that folder."
        )
    return ""


def _rounded_places(given: pl.DataFrame, keys: Hashes) -> Hashes:
    """Where released values stand, and with which rounded value."""
    if given.is_empty() or "time" not in given.columns:
        return np.empty((2, 0), np.uint64)
    if "unit" not in given.columns:
        given = given.with_columns(unit=pl.lit(None, pl.String))
    visit = mix(keys ^ mix(days(given["time"]).view(np.uint64)))
    value, labs = at_usual_precision(given, ("value",))["value"].to_numpy(), given["lab"].to_numpy()
    parts = [_places(visit[labs == lab], lab, value[labs == lab]) for lab in given["lab"].unique().sort()]
    return np.concatenate([np.stack(part) for part in parts], axis=1)


def _add(path: Path, hashes: Hashes) -> None:
    """To what is known already: an export of some of a run's values takes none of the others out."""
    path.parent.mkdir(exist_ok=True)
    earlier = read_register(path) if path.is_file() else None
    if earlier is not None:
        hashes = np.unique(np.concatenate([earlier, hashes], axis=1), axis=1)
    partial = path.with_name(f".{path.name}")
    with partial.open("wb") as file:
        np.save(file, hashes, allow_pickle=False)
    partial.replace(path)
