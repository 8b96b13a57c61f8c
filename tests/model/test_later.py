"""The claim `later` at a fit: results on their way, and calibration on what came since a date."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from helpers.scored_cohorts import cohort_of, fit_visits
from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused, OptionError, VisitsError
from safeimpute.model.labs import decided
from safeimpute.selection.calibrated import late_results
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.settings import make_settings


def with_clocks(visits: pl.DataFrame, seed: int = 5) -> pl.DataFrame:
    """A third of the results come in days or months late."""
    rng = np.random.default_rng(seed)
    delay = rng.choice([0.0, 3.0, 200.0], len(visits), p=[0.6, 0.25, 0.15])
    known = pl.when(pl.col("hba1c").is_not_null()).then(pl.col("time") + pl.Series(delay))
    return visits.with_columns(hba1c__known=known)


@pytest.fixture(scope="module")
def delayed() -> tuple[SafeImputer, pl.DataFrame]:
    visits = with_clocks(cohort_of(250))
    return fit_visits(visits, "later"), visits


def test_late_results_count_as_at_night(delayed: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = delayed
    late = imputer.labs_["hba1c"].calibrated.late
    assert late is not None
    expected = (visits["hba1c__known"] > visits["time"]).sum()
    assert late.sum() == expected > 100
    assert imputer.score(visits).equals(imputer.impute(visits))
    arrays = imputer.labs_["hba1c"].visits.arrays
    assert late_results(arrays, make_settings(target="hba1c", tolerance=1, fdr=0.2)) is None


def test_a_night_gives_what_the_whole_record_gives_later(delayed: tuple[SafeImputer, pl.DataFrame]) -> None:
    """Visits scored with their results on their way, and after the results came in: the same values and risks."""
    imputer, visits = delayed
    scorer = imputer.scorer()
    night = float(visits["time"].quantile(0.6) or 0)
    then = visits.filter(pl.col("time") <= night).with_columns(
        pl.when(pl.col("hba1c__known") <= night).then(pl.col("hba1c", "hba1c__known"))
    )
    there = scorer.score(then)
    at_night = there.join(scorer.score(visits), on=["subject_id", "time"], suffix="_later")
    for column in ("value", "risk", "released", "reason"):
        assert at_night[column].equals(at_night[f"{column}_later"].alias(column))
    on_the_way = len(there) - len(at_night)
    assert on_the_way > 15, "results on their way were candidates that night"


def test_a_model_that_counts_on_clocks_asks_for_them(delayed: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = delayed
    with pytest.raises(VisitsError, match=r"'hba1c__known'.*became known"):
        imputer.score(visits.drop("hba1c__known"))


def test_calibrated_since_a_date() -> None:
    visits = cohort_of(250)
    start = float(visits["time"].quantile(0.5) or 0)
    whole, recent = fit_visits(visits, "later"), fit_visits(visits, "later", since=start)
    every, some = whole.labs_["hba1c"], recent.labs_["hba1c"]
    assert np.array_equal(every.calibrated.estimates.risk, some.calibrated.estimates.risk)
    table = recent.impute(visits)
    assert set(table.filter(pl.col("time") < start)["reason"]) == {OUT_OF_SCOPE}
    assert table.filter(pl.col("time") >= start)["released"].any()
    assert recent.score(visits).equals(table)
    whole.impute(visits)
    one, other = (decided(each).cutoffs[0] for each in (some, every))
    assert one.visits < 0.7 * other.visits
    errors = some.calibrated.selection_data(recent.settings_.allowed_error)
    before = some.visits.arrays.time < start
    assert not (errors.inside & before).any()


@pytest.mark.full
def test_since_is_written_as_the_table_counts_time() -> None:
    numbers = cohort_of(250)
    dated = numbers.with_columns(
        time=pl.Series([date(2010, 1, 1) + timedelta(days=int(day)) for day in numbers["time"]])
    )
    start = 1200
    given = (date(2010, 1, 1) + timedelta(days=start)).isoformat()
    by_date = fit_visits(dated, "later", since=given)
    by_number = fit_visits(numbers, "later", since=start)
    assert by_date.impute(dated)["released"].equals(by_number.impute(numbers)["released"])
    with pytest.raises(VisitsError, match="holds dates"):
        fit_visits(dated, "later", since=start)
    with pytest.raises(VisitsError, match="numbers of days"):
        fit_visits(numbers, "later", since=given)


def test_since_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(OptionError, match="claim 'later'"):
        make_settings(target="hba1c", tolerance=1, fdr=0.2, since=10)
    with pytest.raises(OptionError, match="a date such as"):
        make_settings(target="hba1c", tolerance=1, fdr=0.2, claim="later", since="yesterday")
    visits = cohort_of(250)
    with pytest.raises(GuaranteeRefused, match="needs measured visits"):
        fit_visits(visits, "later", since=float(visits["time"].to_numpy().max()))
