"""Out again: every value filled in and marked, values as the lab reports them, Excel where it is asked for."""

from datetime import date, datetime
from pathlib import Path

import polars as pl
import pytest
from matplotlib.patches import Rectangle
from typer.testing import CliRunner

import safeimpute as si
from helpers.scored_cohorts import fit_visits, new_visits
from safeimpute.cli import app
from safeimpute.errors import NotFittedError, OptionError, VisitsError
from safeimpute.machine.options import TableFormat
from safeimpute.model.filling import as_reported, fill_labs
from safeimpute.visits.checks import Account
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.files.opened import read_file
from safeimpute.visits.imputations import at_usual_precision, decimals_of
from safeimpute.visits.tables import read_visits
from safeimpute.visits.visits import prepare_visits


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    return new_visits()


@pytest.fixture(scope="module")
def fitted(visits: pl.DataFrame) -> si.SafeImputer:
    return fit_visits(visits)


def test_every_value_is_filled_in_and_marked(fitted: si.SafeImputer, visits: pl.DataFrame) -> None:
    full, released = fitted.transform(visits, fill="all"), fitted.transform(visits)
    assert full["hba1c"].null_count() == 0
    assert full["hba1c__measured"].equals(visits["hba1c"].is_not_null(), check_names=False)
    assert full["hba1c__promised"].equals(released["hba1c_released"], check_names=False)
    assert (
        full["hba1c"]
        .filter(full["hba1c__promised"] | full["hba1c__measured"])
        .equals(released["hba1c"].drop_nulls(), check_names=False)
    )
    with pytest.raises(VisitsError, match="'hba1c__promised' says which values of 'hba1c' were imputed"):
        prepare_visits(full, ColumnChoice("hba1c"))
    with pytest.raises(OptionError, match="released, or all"):
        fitted.transform(visits, fill="every")  # type: ignore[arg-type]


def test_another_table_is_filled_in_alike(fitted: si.SafeImputer, visits: pl.DataFrame) -> None:
    other = visits.filter(pl.col("time") < visits["time"].median()).with_columns(pl.col("subject_id") + 10**6)
    full = fitted.transform(other, fill="all")
    assert full["hba1c"].null_count() == 0
    assert not (full["hba1c__measured"] & full["hba1c__promised"]).any()


def test_values_have_the_digits_a_lab_reports(fitted: si.SafeImputer, visits: pl.DataFrame) -> None:
    table = at_usual_precision(fitted.impute(visits))
    for name in ("value", "lower", "upper"):
        assert table[name].equals(table[name].round(1))
    full = as_reported(fill_labs(fitted.labs_, visits, "all"), fitted.labs_)
    assert full["hba1c"].equals(full["hba1c"].round(1))
    measured = visits["hba1c"].is_not_null()
    assert full["hba1c"].filter(measured).equals(visits["hba1c"].filter(measured))
    assert (decimals_of("glucose", "mg/dL"), decimals_of("glucose", "mmol/L"), decimals_of("odd", None)) == (
        0,
        None,
        None,
    )
    odd = pl.DataFrame({"lab": ["odd"], "unit": [None], "value": [1234.567], "lower": [0.00123456], "upper": [None]})
    assert at_usual_precision(odd.cast({"upper": pl.Float64})).row(0)[2:] == (1235.0, 0.001235, None)


def test_score_writes_excel_and_csv_as_reported(fitted: si.SafeImputer, visits: pl.DataFrame, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    visits.write_csv(tmp_path / "v.csv")
    for ending in ("xlsx", "csv", "parquet"):
        out = tmp_path / f"scored.{ending}"
        said = CliRunner().invoke(app, ["score", str(tmp_path / "model"), str(tmp_path / "v.csv"), "-o", str(out)])
        assert said.exit_code == 0, said.output
    excel, plain = (read_file(tmp_path / f"scored.{kind}", (), TableFormat(), Account()) for kind in ("xlsx", "csv"))
    with pytest.raises(VisitsError, match="holds imputed values"):
        read_visits(tmp_path / "scored.csv")
    assert excel["value"].to_list() == plain["value"].to_list() == plain["value"].round(1).to_list()
    assert excel["subject_id"].to_list() == plain["subject_id"].to_list()
    exact = pl.read_parquet(tmp_path / "scored.parquet")["value"]
    assert exact.round(1).to_list() == plain["value"].to_list()
    assert exact.to_list() != plain["value"].to_list()


def test_a_summary_in_words_and_a_picture(fitted: si.SafeImputer, visits: pl.DataFrame) -> None:
    said = fitted.summary()
    assert said["target"] == "hba1c (%)"
    assert int(said["released"].replace(",", "")) == fitted.impute(visits)["released"].sum()
    assert said["promise"]
    assert said["expect"] == fitted.results()["hba1c"].headline
    figure = fitted.plot()
    (panel,) = figure.axes
    assert panel.get_xlabel() == "Risk of hba1c"
    assert sum(bar.get_height() for bar in panel.patches if isinstance(bar, Rectangle)) == len(fitted.impute(visits))
    with pytest.raises(NotFittedError):
        si.SafeImputer(target="hba1c", tolerance=0.5, fdr=0.1).summary()


def test_a_pipeline_of_a_table_with_dates_and_text(visits: pl.DataFrame) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline

    days = pl.duration(days=pl.col("time")) + pl.lit(datetime(2001, 1, 1))
    table = visits.with_columns(time=days, birth=pl.lit(date(1960, 1, 1)), known=pl.lit(True), note=pl.lit("a b"))
    imputer = si.SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3, best={"folds": 3, "effort": "light"})
    model = make_pipeline(imputer.set_output(transform="numbers"), HistGradientBoostingRegressor(max_iter=5))
    given = table.to_pandas()
    model.fit(given, given["age"])
    assert len(model.predict(given)) == len(given)
    names = imputer.get_feature_names_out().tolist()
    numbers = imputer.transform(given)
    assert numbers.columns.tolist() == names
    assert {"time", "birth", "known", "hba1c", "hba1c_released"} <= set(names)
    assert not {"subject_id", "note", "sex"} & set(names)
    assert numbers["birth"].iloc[0] == (date(1960, 1, 1) - date(1970, 1, 1)).days
