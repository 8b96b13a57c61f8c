"""The visits that ship with the package, for the demo and for tests; used like any user's table."""

from importlib import resources

import polars as pl

PBC_UNITS = {
    "bilirubin": "mg/dL",
    "cholesterol": "mg/dL",
    "albumin": "g/dL",
    "alkaline_phosphatase": "U/L",
    "ast": "U/mL",
    "platelets": "10^3/uL",
    "protime": "s",
}

PBC_SCHEMA = {
    "subject_id": pl.Int64,
    "time": pl.Float64,
    **dict.fromkeys(PBC_UNITS, pl.Float64),
    "age": pl.Float64,
    "sex": pl.String,
    "treatment": pl.String,
}


def load_pbc() -> pl.DataFrame:
    """Mayo Clinic PBC follow-up: 1,945 visits of 312 patients, cholesterol missing at 42 % of them.

    Time is in days since enrolment; age, sex and treatment are those at entry. Source, licence (LGPL-2 or
    later) and changes stand in `data/NOTICE-pbc.md`.
    """
    packed = resources.files("safeimpute.records") / "data" / "pbc_visits.csv.gz"
    return pl.read_csv(packed.read_bytes(), schema=PBC_SCHEMA)
