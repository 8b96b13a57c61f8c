"""AnnData and EHRData as tables of visits, and back: variables are labs, `obs` holds patient, time and attributes.

An observation is a visit; in EHRData, whose layer `tem_data` is patients x variables x times, it is a patient.
"""

from typing import Any

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError

SUBJECT, TIME, OVER_TIME = "subject_id", "time", "tem_data"


def visits_of_anndata(data: Any) -> pl.DataFrame:
    """One row per visit: what `obs` says of it, and a column for every variable."""
    names, layers = [str(name) for name in data.var_names], dict(data.layers)
    obs = pl.from_pandas(data.obs, include_index=SUBJECT not in data.obs.columns)
    if obs.columns[0] not in data.obs.columns:
        obs = obs.rename({obs.columns[0]: SUBJECT})
    if OVER_TIME in layers:
        cells = np.asarray(layers[OVER_TIME], dtype=np.float64)
        obs = obs.drop(TIME, strict=False)[np.repeat(np.arange(len(obs)), cells.shape[2])]
        times = getattr(data, "tem", None)
        when = np.arange(cells.shape[2]) if times is None or TIME not in times else times[TIME].to_numpy()
        obs = obs.with_columns(pl.Series(TIME, np.tile(when, len(data.obs))))
        cells = cells.transpose(0, 2, 1).reshape(-1, len(names))
    else:
        cells = np.asarray(data.X.toarray() if hasattr(data.X, "toarray") else data.X, dtype=np.float64)
    if doubled := [name for name in names if name in obs.columns]:
        raise VisitsError(f"{doubled[0]!r} is a variable and a column of obs. Rename one of them.")
    if not {SUBJECT, TIME} <= set(obs.columns):
        raise VisitsError(f"obs needs the columns {SUBJECT!r} and {TIME!r}: one observation is one visit.")
    visits = pl.concat([obs, pl.DataFrame(cells, schema=names).fill_nan(None)], how="horizontal")
    return visits.filter(pl.any_horizontal(pl.col(names).is_not_null())) if OVER_TIME in layers else visits


def anndata_of(visits: pl.DataFrame, data: Any) -> Any:
    """Visits as AnnData, with the variables of `data`; any other table (imputations) as it stands."""
    names = [str(name) for name in data.var_names]
    if not set(names) <= set(visits.columns):
        return visits
    from anndata import AnnData

    obs = visits.drop(names).to_pandas()
    obs.index = data.obs_names if len(obs) == data.n_obs else obs.index.astype(str)
    return AnnData(visits.select(names).cast(pl.Float64).fill_null(np.nan).to_numpy(), obs=obs, var=data.var.copy())
