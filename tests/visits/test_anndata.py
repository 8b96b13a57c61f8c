"""AnnData and EHRData in, AnnData out."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from helpers.scored_cohorts import cohort_of, fit_visits
from safeimpute.errors import VisitsError
from safeimpute.visits.tables import to_polars

anndata = pytest.importorskip("anndata")
LABS = ["hba1c", "glucose", "cholesterol"]


def as_anndata(visits: pl.DataFrame) -> Any:
    obs = visits.drop(LABS).to_pandas()
    obs.index = [f"visit {row}" for row in range(len(obs))]
    values = visits.select(LABS).cast(pl.Float64).fill_null(np.nan).to_numpy()
    import pandas as pd

    return anndata.AnnData(values, obs=obs, var=pd.DataFrame(index=LABS))


def test_visits_in_and_filled_in_visits_out() -> None:
    visits = cohort_of(250)
    given = as_anndata(visits)
    assert to_polars(given).select(LABS).equals(visits.select(LABS))
    imputer = fit_visits(given)
    assert isinstance(imputer.impute(given), pl.DataFrame)
    filled, plain = imputer.transform(given), fit_visits(visits).transform(visits)
    assert filled.obs_names.tolist() == given.obs_names.tolist()
    assert np.array_equal(filled[:, "hba1c"].X[:, 0], plain["hba1c"].fill_null(np.nan).to_numpy(), equal_nan=True)
    assert filled.obs["hba1c_released"].to_numpy().sum() == plain["hba1c_released"].sum()
    assert np.isnan(given[:, "hba1c"].X).any(), "what was given stays as it is"


def test_patients_over_time_are_visits() -> None:
    cells = np.full((2, 3, 4), np.nan)
    cells[0, 0, 1], cells[1, 2, 3] = 7.0, 190.0
    given = as_anndata(cohort_of(250)[:2].drop("time", "subject_id"))
    given.layers["tem_data"] = cells
    found = to_polars(given)
    assert found.select("subject_id", "time", "hba1c", "cholesterol").rows() == [
        ("visit 0", 1, 7.0, None),
        ("visit 1", 3, None, 190.0),
    ]


def test_what_is_no_table_of_visits_is_said() -> None:
    with pytest.raises(VisitsError, match="'time'"):
        to_polars(as_anndata(cohort_of(250).drop("time")))
