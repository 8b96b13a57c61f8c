"""Dates are never guessed: what could mean two days is refused by its form; national formats work when named."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeimpute.errors import OptionError, SafeImputeError, VisitsError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.dates import days, days_or_empty, format_of, kind_of, read_dates
from safeimpute.visits.new_visits import read_new_visits, reading_of
from safeimpute.visits.tables import read_visits
from safeimpute.visits.visits import prepare_visits

pytestmark = pytest.mark.surface("dates")
DAYS = st.dates(date(1900, 1, 1), date(2026, 1, 1))


def column(*texts: str | None) -> pl.Series:
    return pl.Series("time", texts, dtype=pl.String)


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (("15-03-24", "16-03-24"), "a year of two digits in 2 rows"),  # once read as 24 March of the year 15
        (("2024-03-15", "15-03-24"), "a year of two digits in 1 rows"),
        (("24-3-1",), "a year of two digits"),
        (("03/01/2024", "13/01/2024"), "DD/MM/YYYY or MM/DD/YYYY in 2 rows"),
        (("31.03.2024",), "DD.MM.YYYY"),
        (("03-01-2024",), "DD-MM-YYYY or MM-DD-YYYY"),
        (("2024/03/01",), "YYYY/MM/DD"),
        (("2024-03-01", "soon"), "something else in 1 rows"),
        (("2024-03-01", "45000"), "a number in 1 rows"),
        (("2024-02-30",), "YYYY-MM-DD in 1 rows"),
        (("20240-03-01",), "something else"),
    ],
)
def test_what_could_mean_two_days_is_refused_by_its_form(texts: tuple[str, ...], form: str) -> None:
    with pytest.raises(VisitsError, match="cannot be read") as caught:
        days(column(*texts))
    assert form in str(caught.value)
    assert "--date-format" in str(caught.value)
    assert not any(text in str(caught.value) for text in texts)


@pytest.mark.parametrize(
    ("dates", "early", "late"),
    [
        ([date(1899, 12, 31), date(2020, 1, 1)], 1, 0),
        ([date(2020, 1, 1), date(2020, 1, 2), date(2199, 1, 1)], 0, 1),
        ([date(1, 1, 1)], 1, 0),
        ([date(9999, 1, 1)], 0, 1),
    ],
)
def test_implausible_years_are_named(dates: list[date], early: int, late: int) -> None:
    for kind in (pl.Date, pl.Datetime("ms"), pl.Datetime("us")):
        with pytest.raises(VisitsError, match=f"before 1900 in {early} and after .* in {late} of {len(dates)} rows"):
            days(pl.Series("time", dates).cast(kind))


def test_next_year_is_plausible_and_the_one_after_is_not() -> None:
    year = datetime.now(UTC).year
    days(pl.Series("time", [date(2020, 1, 1), date(year + 1, 12, 31)]))
    with pytest.raises(VisitsError, match=f"after {year + 1} in 1 of 3 rows"):
        days(pl.Series("time", [date(2020, 1, 1), date(2020, 1, 1), date(year + 2, 1, 1)]))


def test_a_record_shifted_whole_for_privacy_is_taken_as_it_is() -> None:
    assert len(days(pl.Series("time", [date(2110 + k, 1, 1) for k in range(90)]))) == 90


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("ticks", [2**62, -(2**62), 10**17, -(10**16)])
def test_timestamps_out_of_range_are_refused_not_wrapped_around(unit: str, ticks: int) -> None:
    given_ticks = pl.Series("time", [0, 0, ticks]).cast(pl.Datetime(unit))  # type: ignore[arg-type]
    years = 1970 + ticks / {"ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}[unit] / 365.25
    if 1900 < years < 2027:
        assert np.isfinite(days(given_ticks)).all()
    else:
        with pytest.raises(VisitsError, match="year"):
            days(given_ticks)


@given(DAYS)
def test_every_kind_of_table_gives_the_same_day(day: date) -> None:
    expected = float((day - date(1970, 1, 1)).days)
    texts = [day.isoformat(), f"{day.isoformat()} 00:00", f"{day.isoformat()}T00:00:00.000"]
    assert days(column(*texts)).tolist() == [expected] * 3
    for kind in (pl.Date, pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns")):
        assert days(pl.Series("time", [day]).cast(kind)).tolist() == [expected]


@given(st.lists(DAYS, min_size=1, max_size=6), st.sampled_from(["DD.MM.YYYY", "MM/DD/YYYY", "YYYY/MM/DD", "%d-%b-%Y"]))
def test_a_named_format_gives_the_day_that_was_meant(meant: list[date], form: str) -> None:
    written = column(*(each.strftime(format_of(form)) for each in meant))
    assert read_dates(written, form).to_list() == meant


@settings(max_examples=300)
@given(st.text(alphabet="0123456789-/.T: Z+", max_size=19))
def test_any_text_is_read_as_itself_or_refused(text: str) -> None:
    """What is read at all is read as the day that stands there, year first; nothing else passes."""
    try:
        found = days(column(text, text))
    except VisitsError:
        return
    stripped = text.strip()
    try:
        assert found[0] == float(stripped)
    except ValueError:
        moment = datetime.fromisoformat(stripped.replace("Z", "+00:00"))
        offset = moment.utcoffset() or timedelta()
        naive = moment.replace(tzinfo=None) - offset
        assert found[0] == pytest.approx((naive - datetime(1970, 1, 1)) / timedelta(days=1))


@pytest.mark.parametrize(
    "form", ["DD.MM.YY", "%d.%m.%y", "banana", "", "YYYY", "%Y-%m", "%s", "%D", "DD.MM", "%Y-%m-%d %Z"]
)
def test_formats_that_leave_a_day_open_are_refused(form: str) -> None:
    with pytest.raises(OptionError, match="--date-format"):
        format_of(form)


def test_rows_in_another_format_are_counted(tmp_path: Path) -> None:
    with pytest.raises(VisitsError, match=r"not written DD\.MM\.YYYY in 1 of 3 rows.*YYYY-MM-DD in 1 rows"):
        read_dates(column("31.03.2024", "01.04.2024", "2024-04-02"), "DD.MM.YYYY")


def german(tmp_path: Path) -> Path:
    path = tmp_path / "besuche.csv"
    rows = [f"P{i // 4};{1 + i % 28:02}.{1 + i % 4:02}.2024;{6 + i * 7 % 30 // 10},{i * 7 % 10};m" for i in range(120)]
    path.write_text("\n".join(["subject_id;time;hba1c;sex", *rows]) + "\n")
    return path


def test_german_tables_work_when_they_are_described(tmp_path: Path) -> None:
    path = german(tmp_path)
    with pytest.raises(VisitsError, match="--separator ';'"):
        read_visits(path)
    with pytest.raises(VisitsError, match=r"--decimal , if numbers have a comma"):
        prepare_visits(read_visits(path, separator=";", date_format="DD.MM.YYYY"), ColumnChoice("hba1c"))
    table = read_visits(path, separator=";", decimal=",", date_format="DD.MM.YYYY")
    assert table.schema["hba1c"] == pl.Float64
    assert table["time"][0] == date(2024, 1, 1)
    assert table["time"][1] == date(2024, 2, 2)
    assert table["hba1c"][1] == 6.7


def test_american_dates_work_when_they_are_named(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("subject_id,time,hba1c,hba1c__known\nP1,03/04/2024,7.1,03/05/2024\nP1,12/31/2024,7.3,\n")
    table = read_visits(path, date_format="MM/DD/YYYY")
    assert table["time"].to_list() == [date(2024, 3, 4), date(2024, 12, 31)]
    assert table["hba1c__known"].to_list() == [date(2024, 3, 5), None]


def test_scoring_reads_dates_by_the_same_rule() -> None:
    rows = 80
    visits = pl.DataFrame(
        {
            "subject_id": [f"P{i // 4}" for i in range(rows)],
            "time": [str(date(2020, 1, 1) + timedelta(days=i)) for i in range(rows)],
            "hba1c": [6 + i % 7 / 10 for i in range(rows)],
            "glucose": [100.0 + i % 11 for i in range(rows)],
        }
    )
    reading = reading_of(prepare_visits(visits, ColumnChoice("hba1c")), ColumnChoice("hba1c"))
    with pytest.raises(VisitsError, match="two digits"):
        read_new_visits(visits.with_columns(time=pl.col("time").str.slice(2)), reading)


@given(st.lists(st.one_of(st.none(), st.floats(0, 4000), st.just(float("nan"))), min_size=1, max_size=5))
def test_empty_times_stay_empty(values: list[float | None]) -> None:
    found = days_or_empty(pl.Series("hba1c__known", values, dtype=pl.Float64))
    assert [None if np.isnan(each) else each for each in found] == [
        None if each is None or np.isnan(each) else each for each in values
    ]


@pytest.mark.parametrize(
    ("given_column", "kind"),
    [
        (pl.Series([1.0, None]), "days"),
        (pl.Series(["3", " 4.5 "]), "days"),
        (pl.Series([date(2024, 1, 1)]), "dates"),
        (pl.Series(["2024-01-01", ""]), "dates"),
        (pl.Series([None, None]), ""),
        (pl.Series(["", " "]), ""),
    ],
)
def test_days_and_dates_are_told_apart(given_column: pl.Series, kind: str) -> None:
    assert kind_of(given_column) == kind


def test_only_errors_made_on_purpose_leave_the_reader(tmp_path: Path) -> None:
    for raw in (b"", b"\xff\xfe\x00", b"subject_id,time\n", b"a" * 100, b'subject_id,"time\n1,2\n'):
        path = tmp_path / "x.csv"
        path.write_bytes(raw)
        try:
            read_visits(path)
        except SafeImputeError:
            continue
