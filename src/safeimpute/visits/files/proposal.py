"""How a file should be read and which of its columns left out, proposed from its header and its cells' forms.

Nothing is applied in silence: every finding names the column, what was found and the flag that mends it. No cell is
shown, and what could mean two things is said, not decided.
"""

import csv
import gzip
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from safeimpute.errors import SafeImputeError
from safeimpute.machine.options import TableFormat
from safeimpute.visits import checks
from safeimpute.visits.catalogue import Lab, load_catalogue, normal_name, normal_unit
from safeimpute.visits.checks import Account
from safeimpute.visits.columns import COMPANIONS, clean_text, names_an_identifier
from safeimpute.visits.dates import YEAR_FIRST, shapes_in
from safeimpute.visits.files.long_results import PATIENTS, TIMES, long_columns
from safeimpute.visits.files.opened import read_files, rename_columns, with_decimal_commas
from safeimpute.visits.files.redcap import ONLY_REDCAP
from safeimpute.visits.limits import is_text, mostly_numbers, with_limits, words_by_kind

MORE_TIMES = (
    "visitdate",
    "dateofvisit",
    "days",
    "day",
    "untersuchungsdatum",
    "visittime",
    "encounterdate",
    "admittime",
)
UNIT_IN_BRACKETS = re.compile(r"(.+?)\s*[(\[]\s*([^()\[\]]+?)\s*[)\]]")
UNIT_AT_END = re.compile(r"(.+?)[_ .](mmol_?l?|umol_?l?|mg_?dl|g_?dl|g_?l|pct|percent|mmol_?mol)", re.IGNORECASE)
UNITS = {
    "mmol": "mmol/l", "mmoll": "mmol/l", "umol": "umol/l", "umoll": "umol/l", "mgdl": "mg/dl", "gdl": "g/dl",
    "gl": "g/l", "pct": "%", "percent": "%", "mmolmol": "mmol/mol",
}  # fmt: skip
# Columns that give answers away, are known only afterwards, or say who somebody is; the first that fits counts.
LEFT_OUT = {
    "a name or an address": r"(first|last|sur|family|given|middle|full|patient|vor|nach)?_?names?|anschrift|"
    r"geburtsname|.*(address|street|phone|e_?mail|zip_?code|postcode|ssn|social_security).*",
    "a visit counter": r"(visit|vis|seq|sequence|row|record|encounter|measurement)_?(no|num|nr|number|count|index|seq)|"
    r"seq(uence)?|index|counter|row|unnamed.*|lfd_?nr|visit",
    "follow-up time": r"fu_?time|follow_?up.*|time_to_.*|days_to_.*|survival.*|surv_?time|tstart|tstop|censor.*|"
    r".*_first_day|last_(contact|seen|visit).*|end_date",
    "status or outcome": r"(vital_?)?status|length_of_stay|(.*_)?(outcome|death|died|dead|deceased|mortality|expired|"
    r"endpoint|event|transplant|readmi[a-z]*|discharge_disposition|los)(_.*)?",
}
BIRTH = r"birth|dob|geb"
SLASHED = r"^(\d{1,2})([/.-])(\d{1,2})[/.-]\d{4}"


@dataclass(frozen=True)
class Finding:
    """What was found in a column (or in the file, where `column` is empty), and the flag that mends it."""

    column: str
    what: str
    mend: str = ""  # empty where it cannot be told without the user


@dataclass
class Proposal:
    """How to read a file, and what to leave out."""

    columns: dict[str, str]
    read_as: TableFormat
    exclude: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    def find(self, column: str, what: str, mend: str = "") -> None:
        """Enter a finding."""
        self.findings.append(Finding(column, what, mend))


def propose(
    path: Path,
    columns: Mapping[str, str],
    read_as: TableFormat,
    *,
    subject: str,
    time: str,
    named: Collection[str] = (),
) -> Proposal:
    """Everything found in one pass; `named` are columns whose use was said."""
    found = Proposal(dict(columns), read_as)
    _separator(path, found)
    identifiers = {theirs for theirs, ours in columns.items() if ours == subject} or {subject}
    try:
        raw = rename_columns(read_files(path, identifiers, found.read_as, Account()), columns)
    except SafeImputeError as error:
        found.find("", str(error))
        return found
    _decimal(raw, found)
    if not ONLY_REDCAP.isdisjoint(raw.columns):
        found.find("", "a REDCap export: events and instances become visits")
        return found
    raw = _times_by_shape(raw, time, found)
    long = long_columns(raw, subject, time)
    if long is not None:
        found.find("", "one row per result: made visits by day (--window says otherwise)")
        _date_format(raw[long.time], found)
        _identifiers(raw[long.patient], found)
        return found
    renamed = _keys(raw, subject, time, found)
    if time in renamed.columns:
        _date_format(renamed[time], found)
    if subject in renamed.columns:
        _identifiers(renamed[subject], found)
    if found.read_as.decimal == ",":
        renamed = with_decimal_commas(renamed, {subject, time})
    _labs(renamed, {subject, time, *named}, found)
    _left_out(renamed, {subject, time, *named}, found)
    _cells(renamed, {subject, time, *found.exclude}, found)
    return found


def _separator(path: Path, found: Proposal) -> None:
    """Another mark where the header is one column by this one."""
    if path.is_dir() or not path.name.lower().endswith((".csv", ".csv.gz")) or found.read_as.separator != ",":
        return
    try:
        with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rt", encoding="utf-8-sig") as file:
            header = next(csv.reader([file.readline(65_536)]), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error):
        return
    marks = {mark: header[0].count(mark) for mark in ";\t|" if header and mark in header[0]}
    if len(header) == 1 and marks:
        mark = max(marks, key=lambda each: marks[each])
        found.read_as = replace(found.read_as, separator=mark)
        found.find("", f"columns are separated by {'tabs' if mark == chr(9) else mark}", f"--separator {_typed(mark)}")


def _typed(mark: str) -> str:
    return "tab" if mark == "\t" else f"'{mark}'"


def _decimal(raw: pl.DataFrame, found: Proposal) -> None:
    """A decimal comma where text columns hold such numbers."""
    texts = [name for name in raw.columns if raw[name].dtype == pl.String]
    with_commas = [name for name in texts if checks.has_decimal_commas(raw[name])]
    if with_commas and found.read_as.decimal == ".":
        if found.read_as.separator == ",":
            found.find(", ".join(with_commas), "numbers with a decimal comma, in a file separated by commas")
        else:
            found.read_as = replace(found.read_as, decimal=",")
            found.find(", ".join(with_commas), "numbers with a decimal comma", "--decimal ,")


def _keys(raw: pl.DataFrame, subject: str, time: str, found: Proposal) -> pl.DataFrame:
    """The columns of patients and times, by their names."""
    for ours, known, what in ((subject, PATIENTS, "patients"), (time, (*TIMES, *MORE_TIMES), "visit times")):
        if ours in raw.columns:
            continue
        names = {normal_name(name): name for name in reversed(raw.columns)}
        theirs = next((names[each] for each in known if each in names), None)
        if theirs is None:
            found.find("", f"no column that looks like {what}", f"--columns THEIRS={ours} names it")
        else:
            found.columns[theirs] = ours
            found.find(theirs, f"the column of {what}, by its name", f"--columns '{theirs}={ours}'")
            raw = raw.rename({theirs: ours})
    return raw


def _times_by_shape(raw: pl.DataFrame, time: str, found: Proposal) -> pl.DataFrame:
    """Where no column is called as times are, the only one of dates, but for births."""
    if time in raw.columns or not {*TIMES, *MORE_TIMES}.isdisjoint(map(normal_name, raw.columns)):
        return raw
    dated = [name for name in raw.columns if not re.search(BIRTH, name.lower()) and _of_dates(raw[name])]
    if len(dated) != 1:
        return raw
    found.columns[dated[0]] = time
    found.find(dated[0], "the only column of dates", f"--columns '{dated[0]}={time}'")
    return raw.rename({dated[0]: time})


def _of_dates(column: pl.Series) -> bool:
    """Whether most of a column's entries have the form of a date."""
    if not is_text(column):
        return column.dtype.is_temporal()
    text = column.cast(pl.String).str.strip_chars().replace("", None).drop_nulls()
    dated = text.str.contains(YEAR_FIRST) | text.str.contains(SLASHED)
    return int(dated.sum()) > len(text) / 2


def _date_format(column: pl.Series, found: Proposal) -> None:
    """The order of day and month where the dates themselves tell it."""
    if not is_text(column) or found.read_as.date_format is not None:
        return
    text = column.cast(pl.String).str.strip_chars().replace("", None).drop_nulls()
    slashed = text.str.contains(SLASHED)
    if not slashed.any() or text.str.contains(YEAR_FIRST).any() or not slashed.all():
        forms = shapes_in(text)
        if slashed.any() or forms.count(" in ") > 1:
            found.find(column.name, f"dates in several forms ({forms}): write them all year first")
        return
    first, second = (text.str.extract(SLASHED, place).cast(pl.Int64).max() for place in (1, 3))
    marks = text.str.extract(SLASHED, 2).unique().to_list()
    clock = text.str.contains(r"\d{4} \d{2}:\d{2}$").all(), text.str.contains(r"\d{4} \d{2}:\d{2}:\d{2}$").all()
    ending = " HH:MM" if clock[0] else " HH:MM:SS" if clock[1] else ""
    day_first, month_first = isinstance(first, int) and first > 12, isinstance(second, int) and second > 12
    if len(marks) > 1 or (day_first and month_first):
        found.find(column.name, "dates of which some begin with the day and some with the month: write them year first")
    elif not day_first and not month_first and marks != ["."]:
        mark = marks[0]
        either = f"--date-format DD{mark}MM{mark}YYYY{ending} or MM{mark}DD{mark}YYYY{ending}"
        found.find(column.name, "dates that could begin with the day or the month; only you know", either)
    else:
        parts = ("MM", "DD") if month_first else ("DD", "MM")
        style = f"{marks[0].join((*parts, 'YYYY'))}{ending}"
        found.read_as = replace(found.read_as, date_format=style)
        found.find(column.name, f"dates written {style}", f"--date-format '{style}'")


def _identifiers(column: pl.Series, found: Proposal) -> None:
    """Identifiers that differ in nothing but case, blanks or leading zeros."""
    text = column.cast(pl.String).drop_nulls().unique()
    alike = text.str.to_lowercase().str.replace_all(r"\s+", "").str.strip_chars_start("0")
    if close := len(text) - alike.n_unique():
        found.find(
            column.name,
            f"identifiers that differ from another in nothing but case, blanks or leading zeros: {close:,}, kept apart",
        )


def _labs(frame: pl.DataFrame, apart: Collection[str], found: Proposal) -> None:
    """Labs under other names, and units that stand in headers."""
    taken = set(frame.columns)
    for name in frame.columns:
        if name in apart or name in load_catalogue().labs or names_an_identifier(name):
            continue
        lab, unit = _lab_and_unit(name)
        if lab is None or lab.name in taken or not _numeric(frame[name]):
            continue
        taken.add(lab.name)
        found.columns[name] = lab.name
        what = f"{lab.spoken}, the catalogue's {lab.name}" + (f", in {unit}" if unit else "")
        mend = f"--columns '{name}={lab.name}'"
        conversion = lab.conversions.get(normal_unit(unit)) if unit else None
        if unit and conversion is None:
            what += f", a unit the catalogue does not know for it ({lab.unit} is expected)"
        elif conversion is not None and conversion.changes:
            known = next(each for each in (lab.unit, *lab.units) if normal_unit(each) == normal_unit(unit or ""))
            found.read_as = replace(found.read_as, unit_of=(*found.read_as.unit_of, f"{lab.name}={known}"))
            mend += f" --unit-of {lab.name}={known}"
        found.find(name, what, mend)


def _lab_and_unit(name: str) -> tuple[Lab | None, str | None]:
    """The catalogue's lab that a header names, and the unit written beside it."""
    known = load_catalogue().by_name
    for pattern in (UNIT_IN_BRACKETS, UNIT_AT_END):
        if match := pattern.fullmatch(name.strip()):
            lab = known.get(normal_name(match[1]))
            if lab is not None:
                written = match[2].strip()
                return lab, UNITS.get(re.sub(r"[^a-z]", "", written.lower()), written)
    return known.get(normal_name(name)), None


def _numeric(column: pl.Series) -> bool:
    return column.dtype.is_numeric() or (is_text(column) and mostly_numbers(column.cast(pl.String)))


def _left_out(frame: pl.DataFrame, apart: Collection[str], found: Proposal) -> None:
    """Columns proposed for exclusion, by name or because they count a patient's visits."""
    for name in frame.columns:
        if name in apart or name in found.columns or any(name.endswith(ending) for ending in COMPANIONS):
            continue
        if frame[name].null_count() == len(frame):
            found.find(name, "empty in every row: not used")
            continue
        plain = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())).lower()
        why = next((what for what, pattern in LEFT_OUT.items() if re.fullmatch(pattern, plain)), None)
        why = why or ("a number of an encounter or a sample" if names_an_identifier(name) else None)
        if why is not None:
            found.exclude = (*found.exclude, name)
            found.find(name, f"{why}, by its name: as an input it may give answers away", f"--exclude '{name}'")


def _cells(frame: pl.DataFrame, apart: Collection[str], found: Proposal) -> None:
    """Words and other text among numbers, counted by kind."""
    for name in frame.columns:
        if name in apart or frame[name].dtype != pl.String:
            continue
        text = clean_text(frame[name])
        if not mostly_numbers(text):
            continue
        kinds = words_by_kind(text)
        if kinds:
            said = ", ".join(f"{rows:,} {kind}" for kind, rows in kinds.items())
            found.find(name, f"words in place of a result: {said}")
        exact = with_limits(text.to_frame(), [name])[name]
        strange = exact.drop_nulls().cast(pl.Float64, strict=False).null_count()
        if strange:
            found.find(name, f"text that is neither number nor a known word in {strange:,} rows: correct or empty them")
