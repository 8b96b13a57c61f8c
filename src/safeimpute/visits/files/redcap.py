"""REDCap exports as visits: events and repeat instruments become rows of one time, what is given once is carried."""

import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.visits.catalogue import load_catalogue, normal_name
from safeimpute.visits.checks import Account
from safeimpute.visits.columns import ATTRIBUTE_NAMES
from safeimpute.visits.limits import is_text, mostly_numbers

EVENT, INSTRUMENT, INSTANCE = "redcap_event_name", "redcap_repeat_instrument", "redcap_repeat_instance"
ONLY_REDCAP = frozenset((EVENT, INSTRUMENT))  # columns that tell its exports
OWN = (EVENT, INSTRUMENT, INSTANCE, "redcap_data_access_group", "redcap_survey_identifier")
BOOKKEEPING = r"_complete$|^redcap_|_timestamp$"
DATE = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2})?)?$"


def visits_of_redcap(frame: pl.DataFrame, account: Account, *, subject: str, time: str) -> pl.DataFrame:
    """One row per event or instance that has a date; what a record has once stands in all of its rows, and is said."""
    record = subject if subject in frame.columns else frame.columns[0]  # REDCap writes the record's number first
    if record in (time, *OWN):
        raise VisitsError(
            f"the REDCap export does not begin with the record's number, and has no column {subject!r}. Name it: "
            "--subject COLUMN."
        )
    frame = _emptied(frame)
    when = _times(frame, time, record, account)
    table = frame.with_columns(when.alias(time)).rename({record: subject} if record != subject else {})
    left_out = [name for name in table.columns if pl.Series([name]).str.contains(BOOKKEEPING)[0] and name != time]
    fields = [name for name in table.columns if name not in {subject, time, *left_out}]
    dated = pl.col(time).is_not_null()
    once = _given_once(table, fields, subject, dated)
    carried = table.group_by(subject, maintain_order=True).agg(pl.col(once).drop_nulls().first())
    visits = table.filter(dated).select(subject, time, *[name for name in fields if name not in once])
    if visits.is_empty():
        raise VisitsError(f"no row of the REDCap export has a date in {time!r}. Name the column of dates: --time.")
    visits = visits.join(carried, on=subject, how="left", maintain_order="left")
    visits = visits.select(
        [name for name in visits.columns if name in (subject, time) or visits[name].null_count() < len(visits)]
    )
    account.say(f"a REDCap export: {len(frame):,} rows of {frame[record].n_unique():,} records, by event and instance")
    if once:
        account.say(f"given once in a record, carried to all of its visits: {', '.join(once)}")
    account.count(
        "rows of a record without a date, of which only what was given once is kept",
        int((~table.select(dated).to_series()).sum()),
        lost=True,
    )
    return visits


def _emptied(frame: pl.DataFrame) -> pl.DataFrame:
    """Empty text is no entry."""
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    return frame.with_columns(
        pl.when(pl.col(name).str.strip_chars() != "").then(pl.col(name)).alias(name) for name in texts
    )


def _times(frame: pl.DataFrame, time: str, record: str, account: Account) -> pl.Series:
    """The column of times that was named, else the one date each row has."""
    if time in frame.columns:
        return frame[time]
    dates = [name for name in frame.columns if name != record and _is_dated(frame[name])]
    several = frame.group_by(record).agg(pl.col(dates).drop_nulls().n_unique()) if dates else pl.DataFrame()
    dates = [name for name in dates if several.filter(pl.col(name) > 1).height]  # a birth is no visit
    if not dates:
        raise VisitsError("the REDCap export has no column of visit dates, year first. Name it: --time COLUMN.")
    filled = frame.select(pl.sum_horizontal(pl.col(name).is_not_null() for name in dates).max()).item()
    if filled > 1:
        raise VisitsError(
            f"rows of the REDCap export have several dates ({', '.join(dates)}). Name the visit's: --time COLUMN."
        )
    account.say(f"dates of visits are those of {', '.join(dates)}")
    return frame.select(pl.coalesce(pl.col(name).cast(pl.String) for name in dates)).to_series()


def _is_dated(column: pl.Series) -> bool:
    if column.dtype.is_temporal():
        return True
    filled = column.drop_nulls()
    return column.dtype == pl.String and len(filled) > 0 and bool(filled.str.contains(DATE).all())


def _given_once(table: pl.DataFrame, fields: list[str], subject: str, dated: pl.Expr) -> list[str]:
    """Fields that describe a record: at most one entry in each, in rows without a date or in the first visit.

    A result is never one of them: what was measured once was not measured at other visits. So no lab of the catalogue
    is, and of dated rows no number but age and the like.
    """
    counts = table.group_by(subject).agg(pl.col(name).is_not_null().sum().alias(name) for name in fields)
    undated = table.filter(~dated)
    early = pl.concat([undated, table.filter(dated).filter(pl.col(subject).is_first_distinct())])
    known = load_catalogue().by_name
    found = []
    for name in fields:
        entries = table[name].count()
        if not entries or counts.filter(pl.col(name) > 1).height or normal_name(name) in known:
            continue
        words = not (table[name].dtype.is_numeric() or (is_text(table[name]) and mostly_numbers(table[name])))
        in_first = entries == early[name].count() and (words or ATTRIBUTE_NAMES.fullmatch(name) is not None)
        if in_first or entries == undated[name].count():
            found.append(name)
    return found
