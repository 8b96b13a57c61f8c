"""Long tables, one row per result, as visits: recognised by shape, coded, converted; every row given a fate.

A visit is what a patient had within the window, a day unless told, and stands at the last of its results. Of several
results of a lab within a visit the last counts, of several at one moment their mean; a limit counts where no exact
value is.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from safeimpute.errors import OptionError, VisitsError
from safeimpute.machine.options import TableFormat
from safeimpute.visits import checks, marks
from safeimpute.visits.catalogue import Catalogue, normal_name, normal_unit
from safeimpute.visits.checks import Account
from safeimpute.visits.columns import ATTRIBUTE_NAMES, KNOWN, names_an_identifier
from safeimpute.visits.dates import kind_of
from safeimpute.visits.limits import DECIMAL_COMMA, HIGH, LOW, UNDETECTED, kinds_of_words, with_limits

# What exports call the columns, in normal spelling; the first that is there counts.
PATIENTS = (
    "subjectid", "patientid", "personid", "mrn", "patient", "subject", "recordid", "usubjid", "pid", "patnr",
    "patientnumber", "patientno", "patientmrn", "patientennummer", "id",
)  # fmt: skip
TIMES = (
    "time", "charttime", "collectiontime", "specimendatetime", "drawn", "datetime", "effectivedatetime", "lbdtc",
    "measurementdatetime", "measurementdate", "collectiondate", "collectiondatetime", "collecteddatetime",
    "collecteddate", "collectedtime", "collected", "collectedat", "drawdate", "drawtime", "drawnat", "sampledate",
    "sampletime", "specimendate", "specimencollected", "specimencollectiondate", "specimentakentime", "observationdate",
    "observationdatetime", "testdate", "labdate", "entnahmedatum", "abnahmedatum", "probendatum", "date", "datum",
    "resulttime", "resultdate",
)  # fmt: skip
KNOWN_TIMES = ("storetime", "resultedtime", "reporttime", "verifiedtime", "availabletime", "resulttime")
CODES = (
    "loinc", "loinccode", "itemid", "measurementconceptid", "code", "testcode", "lbtestcd", "lbloinc", "test",
    "testname", "analyte", "parameter", "labname", "lab", "component", "lbtest", "label", "analysis", "name",
    "variable", "untersuchung", "componentname", "labtest", "testdescription",
)  # fmt: skip
RESULTS = (
    "result", "value", "resultvalue", "valuesourcevalue", "lborres", "ergebnis", "wert", "valuenum", "valueasnumber",
    "numericresult", "valuenumeric", "lbstresn", "resulttext", "testresult", "ordvalue", "messwert",
)  # fmt: skip
NUMBERS = ("valuenum", "valueasnumber", "numericresult", "valuenumeric", "lbstresn")  # beside a result as text
OPERATORS = {4171756: "<", 4171754: "<=", 4172704: ">", 4171755: ">="}  # OMOP's, in operator_concept_id
UNITS = (
    "unit",
    "units",
    "valueuom",
    "uom",
    "unitsourcevalue",
    "lborresu",
    "lbstresu",
    "resultunit",
    "referenceunit",
    "einheit",
)
ELAPSED = r"^\d{1,4}:[0-5]\d$"  # hours and minutes since some start
MICROSECONDS = 86_400_000_000  # of a day
MOST_LABS = 300
FEWEST_PATIENTS = 2  # a name met in fewer is no lab
MOST_OUTSIDE = 0.5  # beyond this share of a lab outside what is possible, its unit is another
_HOURS = re.compile(r"([1-9]\d{0,3})h")


@dataclass(frozen=True)
class LongColumns:
    """Which column of a long table holds what."""

    patient: str
    time: str
    code: str
    result: str
    number: str | None
    unit: str | None
    known: str | None  # when a result became known

    @property
    def used(self) -> set[str | None]:
        return {self.patient, self.time, self.code, self.result, self.number, self.unit, self.known}


def long_columns(frame: pl.DataFrame, subject: str, time: str) -> LongColumns | None:
    """How a table is long, where it is: a patient, a time, a code or name and a result, met several times each."""
    names = {normal_name(name): name for name in reversed(frame.columns)}

    def first(known: tuple[str, ...], own: str = "") -> str | None:
        return own if own in frame.columns else next((names[each] for each in known if each in names), None)

    patient, when = first(PATIENTS, subject), first(TIMES, time)
    code, result = first(CODES), first(RESULTS)
    if patient is None or when is None or code is None or result is None or frame.is_empty():
        return None
    if len({patient, when, code, result}) < 4 or frame[code].dtype.is_float() or frame[code].dtype.is_temporal():
        return None
    if frame[code].n_unique() > max(2, len(frame) // 2):
        return None
    _refuse_imputed(frame.columns)
    number, known = first(NUMBERS), first(KNOWN_TIMES)
    if known is not None and (known == when or kind_of(frame[known]) != kind_of(frame[when])):
        known = None
    return LongColumns(patient, when, code, result, None if number == result else number, first(UNITS), known)


def _refuse_imputed(columns: Collection[str]) -> None:
    """Our own tables have one row per imputed value: nobody measured what stands in them."""
    ours = ({"lab", "value", "released", "cutoff"}, {"lab", "value", "draw"})
    if any(each <= set(columns) for each in ours) or any(name.endswith("__promised") for name in columns):
        raise VisitsError(
            "the table holds imputed values (columns lab, value and released or draw, or one that ends in "
            "__promised), not measured results. Give the table they were imputed from."
        )


def _imputed(frame: pl.DataFrame) -> pl.Expr:
    """Rows that carry the mark of an imputed value, by whichever program wrote them."""
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    marked = [pl.col(name).str.starts_with(marks.SOURCE).fill_null(False) for name in texts]
    if "measurement_type_concept_id" in frame.columns:
        kind = pl.col("measurement_type_concept_id").cast(pl.Int64, strict=False)
        marked.append(kind.is_in(marks.ALGORITHMS).fill_null(False))
    return pl.any_horizontal(pl.lit(False), *marked)


def read_lab_names(path: str | None) -> dict[str, tuple[str, str | None]]:
    """What a user's file says about names: theirs -> our lab, and the unit where the table has none."""
    if path is None:
        return {}
    try:
        table = pl.read_csv(Path(path), infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise OptionError(f"lab_names (--lab-names) {path!r} cannot be read ({type(error).__name__}).") from None
    if not {"name", "lab"} <= set(table.columns):
        raise OptionError(f"lab_names (--lab-names) {path!r} must have the columns name and lab (and may have unit).")
    if "unit" not in table.columns:
        table = table.with_columns(unit=pl.lit(None, pl.String))
    rows = table.select("name", "lab", "unit").drop_nulls(["name", "lab"]).iter_rows()
    return {normal_name(name): (lab.strip(), unit) for name, lab, unit in rows}


def visits_of_results(
    frame: pl.DataFrame,
    where: LongColumns,
    catalogue: Catalogue,
    *,
    window: str = "day",
    names: Mapping[str, tuple[str, str | None]] | None = None,
    decimal: str = ".",
    subject: str = "subject_id",
    time: str = "time",
) -> tuple[pl.DataFrame, Account]:
    """One row per visit with a column per lab, and what became of every result."""
    account = Account()
    rows, elapsed = _rows(frame, where, window, account)
    rows = _numbered(_named(rows, catalogue, names or {}, account), decimal, account)
    told = where.unit is not None
    rows = _plausible(_in_one_unit(rows, catalogue, told, account), catalogue, told, account)
    if rows.is_empty():
        raise VisitsError(f"the table has one row per result, but none can be used: {account.in_words()}.")
    rows = _once(rows, account).with_columns(visit=_visit(rows, window))
    wide = _wide(rows, account)
    attributes = _attributes(frame, where, window, {subject, time, *wide.columns}, account)
    wide = wide.join(attributes, on="patient", how="left", maintain_order="left")
    first = (wide["day"] if elapsed else frame[where.time][wide["row"]]).alias(time)
    patient = frame[where.patient][wide["row"]].alias(subject)
    if kind_of(first) == "dates":
        moments = (pl.col(f"^.*{KNOWN}$") * MICROSECONDS).round().cast(pl.Int64).cast(pl.Datetime("us"))
        wide = wide.with_columns(moments) if where.known else wide
    account.say(f"{len(frame):,} results made {len(wide):,} visits ({_window_in_words(window)})")
    return pl.DataFrame([patient, first, *wide.drop("patient", "visit", "row", "day").get_columns()]), account


def named_results(frame: pl.DataFrame, where: LongColumns, catalogue: Catalogue, read_as: TableFormat) -> pl.DataFrame:
    """The results of labs, each with its code, unit, day and row; the rest left out."""
    account = Account()
    rows, _ = _rows(frame, where, read_as.window, account)
    return _named(rows, catalogue, read_lab_names(read_as.lab_names), account)


def _rows(frame: pl.DataFrame, where: LongColumns, window: str, account: Account) -> tuple[pl.DataFrame, bool]:
    """Patient, code, result and unit as text, the day, the row in the file; and whether times count from a start."""
    if window != "day" and not _HOURS.fullmatch(window) and window not in frame.columns:
        raise OptionError(
            f"window (--window) {window!r} is neither day, nor hours such as 6h, nor a column of the table."
        )
    text = {"patient": where.patient, "code": where.code, "result": where.result, "time": where.time}
    text |= {"unit": where.unit} if where.unit else {}
    text |= {"encounter": window} if window in frame.columns else {}
    columns = {new: pl.col(name).cast(pl.String) for new, name in text.items()}
    if "operator_concept_id" in frame.columns:
        sign = pl.col("operator_concept_id").cast(pl.Int64, strict=False)
        columns["result"] = sign.replace_strict(OPERATORS, default="", return_dtype=pl.String) + columns["result"]
    number = pl.col(where.number).cast(pl.Float64, strict=False) if where.number else pl.lit(None, pl.Float64)
    rows = frame.select(**columns, number=number, row=pl.int_range(pl.len()), imputed=_imputed(frame))
    rows = account.keep(rows, ~pl.col("imputed"), "imputed, not measured").drop("imputed")
    rows = rows.with_columns(pl.col("code", "result", *(["unit"] if where.unit else [])).str.strip_chars())
    for column, reason in (("patient", "no patient"), ("time", "no time"), ("code", "no code or name")):
        rows = account.keep(rows, pl.col(column).str.strip_chars().fill_null("") != "", reason)
    if "encounter" in rows.columns:
        rows = account.keep(rows, pl.col("encounter").is_not_null(), f"no {window}")
    when = frame[where.time]
    given = when.gather(rows["row"])
    elapsed = given.dtype == pl.String and bool(given.str.strip_chars().str.contains(ELAPSED).all())
    if elapsed and len(given):
        account.say("times such as 07:30 were read as hours and minutes since each patient's start")
    if where.known:
        known = pl.Series(checks.days_or_empty(frame[where.known].gather(rows["row"])), nan_to_null=True)
        rows = rows.with_columns(known=known)
    return rows.with_columns(day=_elapsed(given) if elapsed else pl.Series(checks.days(given))), elapsed


def _elapsed(text: pl.Series) -> pl.Series:
    hours, minutes = (text.str.extract(r"(\d+):(\d+)", place).cast(pl.Float64) for place in (1, 2))
    return (hours + minutes / 60) / 24


def _named(
    rows: pl.DataFrame, catalogue: Catalogue, names: Mapping[str, tuple[str, str | None]], account: Account
) -> pl.DataFrame:
    """With the lab's name; codes and names nobody knows keep their own, where it is a name and several have it."""
    met = rows.group_by("code").agg(pl.col("patient").unique(), rows=pl.len())
    alike = pl.col("code").str.to_lowercase()  # one name in several spellings is one
    met = met.with_columns(patients=pl.col("patient").explode().n_unique().over(alike)).drop("patient")
    found = [_lab_of(code, count, catalogue, names) for code, count in met.select("code", "patients").iter_rows()]
    kinds = {"lab": pl.String, "said": pl.String, "fate": pl.String}
    met = met.hstack(pl.DataFrame(found, schema=kinds, orient="row"))
    known = {lab.name for lab in catalogue.labs.values()}
    others = met.filter(~pl.col("lab").is_in(list(known))).sort("rows", "code", descending=[True, False])
    few = others["lab"].drop_nulls().unique(maintain_order=True)[MOST_LABS:].to_list()
    rows = rows.join(met.select("code", "lab", "said", "fate"), on="code", how="left", maintain_order="left")
    for fate in ("an identifier, no result", "a code nobody knows", "a name only one patient has"):
        rows = account.keep(rows, pl.col("fate").ne_missing(fate), fate)
    return account.keep(rows, ~pl.col("lab").is_in(few), f"a lab beyond the {MOST_LABS} most frequent")


def _lab_of(
    code: str, patients: int, catalogue: Catalogue, names: Mapping[str, tuple[str, str | None]]
) -> tuple[str | None, str | None, str | None]:
    """A code's lab, the unit the user's file says it has, and why it is set aside."""
    plain = normal_name(code)
    if plain in names:
        return *names[plain], None
    lab = catalogue.by_name.get(code.lower().removeprefix("loinc").strip(" :/")) or catalogue.by_name.get(plain)
    if lab is not None:
        return lab.name, None, None
    if re.fullmatch(r"[\d.\-/\s]+", code):
        return None, None, "a code nobody knows"
    if names_an_identifier(code):
        return None, None, "an identifier, no result"
    own = re.sub(r"\W+", "_", code.strip().lower()).strip("_")
    if patients < FEWEST_PATIENTS or not own:
        return None, None, "a name only one patient has"
    return own, None, None


def _numbered(rows: pl.DataFrame, decimal: str, account: Account) -> pl.DataFrame:
    """With value, low and high; each text is read once."""
    levels = rows.select("result").unique(maintain_order=True).drop_nulls()
    text = levels["result"]
    commas = text.str.contains(DECIMAL_COMMA)
    if decimal == ",":
        text = text.str.replace(",", ".", literal=True)
    elif int(commas.sum()) > len(text) / 2:
        checks.refuse_decimal_commas(text.rename("result"))
    read = with_limits(text.rename("x").to_frame(), ["x"])
    ends = [
        read[name] if name in read.columns else pl.repeat(None, len(read), dtype=pl.Float64, eager=True)
        for name in ("x" + LOW, "x" + HIGH)
    ]
    kind = kinds_of_words(text)
    undetected = kind.eq(UNDETECTED).fill_null(False)
    unlimited = pl.repeat(float("inf"), len(read), dtype=pl.Float64, eager=True)
    levels = levels.with_columns(
        value=read["x"].cast(pl.Float64, strict=False),
        low=ends[0],
        high=unlimited.zip_with(undetected, ends[1]),
        kind=kind,
    )
    rows = rows.join(levels, on="result", how="left", maintain_order="left")
    nothing = pl.col("value").is_null() & pl.col("low").is_null() & pl.col("high").is_null()
    rows = rows.with_columns(value=pl.when(nothing & pl.col("number").is_finite()).then("number").otherwise("value"))
    rows = account.keep(rows, pl.col("result").fill_null("").ne("") | pl.col("value").is_not_null(), "no result")
    for word in sorted(set(levels["kind"].drop_nulls())):
        rows = account.keep(rows, pl.col("kind").ne_missing(word) | ~nothing, word)
    rows = account.keep(rows, ~nothing, "text that is no result")
    account.count("known only by a limit", rows["value"].null_count())
    return rows


def _in_one_unit(rows: pl.DataFrame, catalogue: Catalogue, told: bool, account: Account) -> pl.DataFrame:
    """Values in the catalogue's unit; of labs it does not know in the unit that most of their results have."""
    if not told:
        rows = rows.with_columns(unit=pl.lit(None, pl.String))
        account.say("the table has no column of units: values are taken for the catalogue's")
    unit = pl.coalesce(pl.when(pl.col("unit") != "").then("unit"), "said").str.to_lowercase()
    rows = rows.with_columns(unit=unit)
    known = list(catalogue.labs.values())
    rules = [
        (lab.name, normal_unit(each), rule.times, rule.plus) for lab in known for each, rule in lab.conversions.items()
    ]
    table = pl.DataFrame(rules, schema=["lab", "unit", "times", "plus"], orient="row").unique(["lab", "unit"])
    rows = rows.join(table, on=["lab", "unit"], how="left", maintain_order="left")
    ours = pl.col("lab").is_in([lab.name for lab in known])
    bare = pl.col("unit").is_null().all().over("lab")  # no result of the lab has a unit: nothing says it is another
    rows = account.keep(rows, ~ours | pl.col("unit").is_not_null() | bare, "no unit")
    rows = account.keep(rows, ~ours | pl.col("times").is_not_null() | pl.col("unit").is_null(), "unknown unit")
    usual = pl.col("unit").fill_null("").mode(maintain_order=True).first().over("lab")
    rows = account.keep(
        rows, ours | (pl.col("unit").fill_null("") == usual), "another unit than most results of the lab"
    )
    times, plus = pl.col("times").fill_null(1.0), pl.col("plus").fill_null(0.0)
    account.count("converted", int(rows.select(((times != 1.0) | (plus != 0.0)).sum()).item()), lost=False)
    return rows.with_columns(pl.col("value", "low", "high") * times + plus)


def _plausible(rows: pl.DataFrame, catalogue: Catalogue, told: bool, account: Account) -> pl.DataFrame:
    """Without what no living patient has; a lab mostly outside whose unit nobody told is in another."""
    ranges = [(lab.name, lab.reject.low, lab.reject.high) for lab in catalogue.labs.values()]
    table = pl.DataFrame(ranges, schema=["lab", "least", "most"], orient="row")
    rows = rows.join(table, on="lab", how="left", maintain_order="left")
    outside = ((pl.col("value") < pl.col("least")) | (pl.col("value") > pl.col("most"))).fill_null(False)
    shares = rows.group_by("lab").agg(outside.mean().alias("share"))
    strange = shares.filter(pl.col("share") > MOST_OUTSIDE)["lab"].sort()
    if len(strange) and not told:
        raise VisitsError(
            f"most results of {', '.join(strange)} lie outside what is possible in the catalogue's unit, and the table "
            "has no column of units. Add one, or name the unit: --lab-names FILE.csv."
        )
    return account.keep(rows, ~outside, "outside what is possible")


def _once(rows: pl.DataFrame, account: Account) -> pl.DataFrame:
    """Rows that repeat another in everything count once."""
    alike = ["patient", "day", "lab", "value", "low", "high", *(["encounter"] if "encounter" in rows.columns else [])]
    return account.keep(rows, pl.struct(alike).is_first_distinct(), "the same result twice")


def _visit(rows: pl.DataFrame, window: str) -> pl.Expr:
    """What tells a patient's visits apart."""
    if "encounter" in rows.columns:
        return pl.col("encounter")
    hours = _HOURS.fullmatch(window)
    per_day = 24 / int(hours[1]) if hours else 1.0
    return (pl.col("day") * per_day).floor().cast(pl.Int64)


def _wide(rows: pl.DataFrame, account: Account) -> pl.DataFrame:
    """One row per visit: of each lab the last value, the mean of several at one moment, or a limit."""
    key = ["patient", "visit"]
    exact = rows.filter(pl.col("value").is_not_null())
    known = {"known": pl.col("known").max()} if "known" in rows.columns else {}
    last = exact.filter(pl.col("day") == pl.col("day").max().over(*key, "lab")).sort("value")
    values = last.group_by(*key, "lab", maintain_order=True).agg(value=pl.col("value").mean(), rows=pl.len(), **known)
    account.count("an earlier result of the same visit and lab", len(exact) - len(last))
    account.count("several at one moment, of which the mean counts", int((values["rows"] - 1).sum()))
    limits = rows.filter(pl.col("value").is_null()).join(values, on=[*key, "lab"], how="anti")
    limits = limits.group_by(*key, "lab").agg(low=pl.col("low").max(), high=pl.col("high").min())
    at = rows.sort("day", "row").group_by(key, maintain_order=True).agg(pl.col("day", "row").last())
    wide = at.sort("patient", "day", "visit")
    cells_of = [(values, "value", ""), (limits, "low", LOW), (limits, "high", HIGH)]
    for table, column, ending in [*cells_of, *([(values, "known", KNOWN)] if known else [])]:
        some = table.filter(pl.col(column).is_not_null()).with_columns(pl.col("lab") + ending)
        if len(some):
            labs = some["lab"].unique().sort().to_list()
            cells = some.pivot("lab", index=key, values=column).select(*key, *labs)
            wide = wide.join(cells, on=key, how="left", maintain_order="left")
    return wide


def _attributes(
    frame: pl.DataFrame, where: LongColumns, window: str, taken: Collection[str], account: Account
) -> pl.DataFrame:
    """Other columns that say one thing about a patient, such as sex; the rest is left out, and said."""
    others = [name for name in frame.columns if name not in {*where.used, window}]
    table = pl.DataFrame([frame[where.patient].cast(pl.String).alias("patient"), *frame.select(others)])
    met = table.group_by("patient").agg(pl.col(others).drop_nulls().n_unique()).select(pl.col(others).max())
    kept = [name for name in others if name not in taken and _describes(table[name], int(met[name].item() or 0))]
    if left := [name for name in others if name not in kept]:
        account.say(f"columns of results not used: {', '.join(left)}")
    return table.group_by("patient", maintain_order=True).agg(pl.col(kept).drop_nulls().first())


def _describes(column: pl.Series, most: int) -> bool:
    """Whether a column, with so many entries within a patient at most, describes patients."""
    if ATTRIBUTE_NAMES.fullmatch(column.name):
        return True
    return most == 1 and column.n_unique() > 1 and not names_an_identifier(column.name)


def _window_in_words(window: str) -> str:
    if hours := _HOURS.fullmatch(window):
        return f"results of {hours[1]} hours make one"
    return "results of one day make one" if window == "day" else f"results of one {window} make one"
