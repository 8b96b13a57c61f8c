"""Results that are no plain number: limits ("<5"), numbers with a flag ("7.2 H"), words ("hemolyzed", "see comment").

A censored result is measured, but known only by a limit: never a candidate and never an exact value. It stands as text
in the lab's own column, or as a limit in LAB__low or LAB__high beside an empty cell. Words are counted by kind; where a
word says that there is a result, it is kept as a limit that excludes nothing, else the cell counts as empty.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

LOW, HIGH = "__low", "__high"  # LAB__low: the value of LAB lies at or above it; LAB__high: at or below it
BELOW = ("<", "≤", "⩽", "≦", "＜", "=<", "&lt;", "less than", "below", "under", "unter", "kleiner")
ABOVE = (">", "≥", "⩾", "≧", "＞", "=>", "&gt;", "greater than", "more than", "above", "over", "über", "größer")
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
UNIT = r"(?:\s*[\p{L}%/°][^<>≤≥]{0,30})?"  # "< 5.0 mg/dL"
SIGN = rf"(?:{'|'.join((*BELOW, *ABOVE))})\s*(?:or equal to\s*)?=?"
LIMIT = rf"(?i)^\s*{SIGN}\s*({NUMBER}){UNIT}\s*$"
FLAGGED = rf"^\s*({NUMBER})\s*(?:\(?(?:HH?|LL?|A)\)?|[*!#↑↓]+)\s*$"  # "7.2 H", "7.2*"
DECIMAL_COMMA = rf"(?i)^\s*(?:{SIGN}\s*)?[+-]?\d*,\d+{UNIT}\s*$"
WHOLE = rf"(?i)^\s*(?:{SIGN}\s*)?[+-]?\d+{UNIT}\s*$"
_BELOW = rf"(?i)^\s*(?:{'|'.join(BELOW)})"
# Words by what they say; the first kind that fits counts.
UNDETECTED = "below detection"
KINDS = {
    UNDETECTED: r"(below|under|less than)\s.*(detection|detectable|limit).*|.*\bundetect(ed|able).*"
    r"|not? detect(ed|able).*|bdl|<\s*(lod|loq|dl)|n\.?d\.?",
    "not measured": r"n\.?\s?/?\s?a\.?|nan|null|none|nil|missing|blank|unknown|-+|\.+|\?+|declined|refused|cancell?ed"
    r"|not (done|performed|available|applicable|measured|tested|ordered|collected|drawn|reported|taken|given)",
    "specimen unusable": r".*(ha?emoly[sz]|clot|lipa?emi|icteri|insufficient|unsatisfactory|contaminat|mislabel"
    r"|wrong tube|unsuitable|rejected|leak).*|qns|quantity not sufficient",
    "no result yet": r"pending|to follow|in (process|progress)|await.*|outstanding",
    "error": r"#.*|err(or)?|invalid|fail(ed|ure)?",
    "result elsewhere": r"(see|refer|cf)\b.*|comment.*|note.*|text",
    "result without a number": r"pos(itive)?|neg(ative)?|trace|(ab)?normal|detect(ed|able)"
    r"|(non[- ]?)?reactive|high|low|\++",
}
MEASURED = ("result elsewhere", "result without a number")  # a result is there, its value is not


def is_text(column: pl.Series) -> bool:
    """Whether a column may hold words at all."""
    return column.dtype in (pl.String, pl.Categorical, pl.Enum)


def kinds_of_words(text: pl.Series) -> pl.Series:
    """Per entry which kind of word it is; empty where it is none."""
    found = pl.Series([None], dtype=pl.String).new_from_index(0, len(text))
    for kind, pattern in KINDS.items():
        there = text.str.contains(rf"(?i)^\s*(?:{pattern})\s*$").fill_null(False) & found.is_null()
        found = pl.Series([kind], dtype=pl.String).new_from_index(0, len(text)).zip_with(there, found)
    return found


def words_by_kind(text: pl.Series) -> dict[str, int]:
    """How many entries there are of each kind of word; nothing of what they say."""
    levels = text.cast(pl.String).drop_nulls().value_counts()
    counts = levels.with_columns(kind=kinds_of_words(levels[text.name])).drop_nulls("kind")
    rows = counts.group_by("kind").agg(pl.col("count").sum()).sort("kind").iter_rows()
    return {str(kind): int(count) for kind, count in rows}


def mostly_numbers(text: pl.Series) -> bool:
    """Whether a text's entries, words aside, are mostly numbers; limits count where there are numbers beside them."""
    levels = text.rename("text").drop_nulls().value_counts()
    entries, rows = levels["text"], levels["count"]
    plain = entries.str.strip_chars().cast(pl.Float64, strict=False).is_not_null() | entries.str.contains(FLAGGED)
    if not plain.any():
        return False
    words = kinds_of_words(entries).is_not_null() & ~plain
    numbers = plain | entries.str.contains(LIMIT)
    return int(rows.filter(numbers).sum()) > 0.5 * int(rows.filter(~words).sum())


def with_limits(frame: pl.DataFrame, labs: Iterable[str]) -> pl.DataFrame:
    """The table with what is no plain number in these columns moved to LAB__low and LAB__high, the cells left empty.

    Flags are dropped from their numbers; text of no known kind is left as it stands.
    """
    for lab in labs:
        if lab in frame.columns and is_text(frame[lab]):
            frame = _moved(frame, lab)
    return frame


def _moved(frame: pl.DataFrame, lab: str) -> pl.DataFrame:
    text = frame[lab].cast(pl.String)
    text = pl.select(pl.coalesce(text.str.extract(FLAGGED, 1), text)).to_series()
    words = kinds_of_words(text)
    limited = text.str.contains(LIMIT).fill_null(False) & words.is_null()
    apart = limited | words.is_not_null()
    if not apart.any():
        return frame.with_columns(text.alias(lab))
    limit = text.str.extract(LIMIT, 1).cast(pl.Float64, strict=False)
    below = limited & text.str.contains(_BELOW).fill_null(False)
    nothing = pl.repeat(None, len(frame), dtype=pl.Float64, eager=True)
    high = limit.zip_with(below, nothing)
    detected = pl.Series([limit.filter(below).max() if below.any() else np.inf], dtype=pl.Float64)
    high = detected.new_from_index(0, len(frame)).zip_with(words.eq(UNDETECTED).fill_null(False), high)
    low = limit.zip_with(limited & ~below, nothing)
    any_value = pl.repeat(-np.inf, len(frame), dtype=pl.Float64, eager=True)
    low = any_value.zip_with(words.is_in(MEASURED).fill_null(False), low)
    columns = [text.zip_with(~apart, pl.repeat(None, len(frame), dtype=pl.String, eager=True)).alias(lab)]
    for name, found in ((lab + LOW, low), (lab + HIGH, high)):
        known = frame[name].cast(pl.Float64, strict=False) if name in frame.columns else nothing
        if found.null_count() < len(found) or name in frame.columns:
            columns.append(found.zip_with(found.is_not_null(), known).alias(name))
    return frame.with_columns(columns)


def limits_of_rows(frame: pl.DataFrame, lab: str) -> FloatArray:
    """Between what a lab's result lies, in every row of a table whose limits were moved; NaN without a limit."""
    found = np.full((len(frame), 2), np.nan)
    for side, name in enumerate((lab + LOW, lab + HIGH)):
        if name in frame.columns:
            found[:, side] = frame[name].cast(pl.Float64, strict=False).to_numpy()
    return _open_ended(found)


def limits_of_visits(rows: Sequence[FloatArray], visit: IntArray, exact: BoolArray) -> FloatArray | None:
    """The same per visit and lab: where its rows overlap. An exact value counts for more; None where no lab has any."""
    found = np.full((*exact.shape, 2), np.nan)
    for position, limits in enumerate(rows):
        np.fmax.at(found[:, position, 0], visit, limits[:, 0])
        np.fmin.at(found[:, position, 1], visit, limits[:, 1])
    found[found[..., 0] > found[..., 1]] = (-np.inf, np.inf)  # limits that contradict each other say nothing
    found[exact] = np.nan
    return None if np.isnan(found).all() else found


def _open_ended(limits: FloatArray) -> FloatArray:
    """With one limit alone, the other side is open."""
    known = ~np.isnan(limits).all(axis=1, keepdims=True)
    return np.where(np.isnan(limits) & known, np.array([-np.inf, np.inf]), limits)
