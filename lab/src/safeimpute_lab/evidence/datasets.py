"""The data sets results are reported on, as visits tables: real open data, and simulated cohorts.

Real data are read from the folder named by SAFEIMPUTE_DATA; nothing of them is kept in the project.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from safeimpute.visits.examples import Shape, load_pbc, simulate

# Chemistry and blood count of the MIMIC demos: itemid -> lab.
PANEL = {
    50912: "creatinine",
    51006: "urea_nitrogen",
    50983: "sodium",
    50971: "potassium",
    50902: "chloride",
    50882: "bicarbonate",
    50931: "glucose",
    50893: "calcium",
    50960: "magnesium",
    50970: "phosphate",
    51265: "platelets",
    51301: "white_cells",
    51222: "haemoglobin",
}
ICU_LABS = [
    "BUN",
    "Creatinine",
    "Glucose",
    "HCO3",
    "HCT",
    "K",
    "Mg",
    "Na",
    "Platelets",
    "WBC",
    "HR",
    "Temp",
    "SysABP",
    "MAP",
    "GCS",
    "Urine",
    "pH",
    "Weight",
    "Lactate",
]


@dataclass(frozen=True)
class DataSet:
    """A table, its target, and which columns are attributes."""

    load: Callable[[], pl.DataFrame]
    target: str
    unit: str
    attributes: tuple[str, ...] = ()


def data_folder() -> Path:
    folder = os.environ.get("SAFEIMPUTE_DATA")
    if not folder:
        raise SystemExit("set SAFEIMPUTE_DATA to the folder of open clinical data")
    return Path(folder)


def nafld(patients: int | None) -> pl.DataFrame:
    """HDL and systolic pressure of the Mayo NAFLD cohort; its duplicated columns and impossible pressures left out."""
    table = pl.read_parquet(data_folder() / "mayo_nafld" / "nafld_visits.parquet")
    if patients is not None:
        first = table["id"].unique(maintain_order=True).head(patients)
        table = table.filter(pl.col("id").is_in(first.implode()))
    return table.select(
        subject_id="id",
        time="days",
        hdl="hdl",
        sbp=pl.when(pl.col("sbp") < 300).then(pl.col("sbp")),
        age="age_at_visit",
        male="male",
        weight="weight",
        height="height",
        bmi="bmi",
    )


def pbc_clinic() -> pl.DataFrame:
    """Every visit of the Mayo PBC follow-up with what was seen at it: ascites, oedema, stage; how it ended left out."""
    path = data_folder() / "mayo_pbc" / "pbcseq_visits.csv.gz"
    table = pl.read_csv(path, null_values="NA", infer_schema_length=None)
    return table.rename({"id": "subject_id", "day": "time", "edema": "oedema"}).drop("futime", "status", "visit_no")


def mimic_days(version: int) -> pl.DataFrame:
    """Patient-days of a MIMIC demo: the mean of each lab of the panel that day."""
    names = {
        3: ("mimic3_demo/LABEVENTS.csv.gz", "mimic3_demo/PATIENTS.csv.gz"),
        4: ("mimic4_demo/hosp/labevents.csv.gz", "mimic4_demo/hosp/patients.csv.gz"),
    }
    events, people = (
        pl.read_csv(data_folder() / name, infer_schema_length=None).rename(str.lower) for name in names[version]
    )
    long = (
        events.filter(pl.col("itemid").is_in(list(PANEL)))
        .drop_nulls("valuenum")
        .with_columns(
            lab=pl.col("itemid").replace_strict(PANEL), time=pl.col("charttime").str.slice(0, 10).str.to_date()
        )
        .group_by("subject_id", "time", "lab")
        .agg(pl.col("valuenum").mean())
    )
    wide = long.pivot(on="lab", index=["subject_id", "time"], values="valuenum")
    return wide.join(people.select("subject_id", sex="gender"), on="subject_id", how="left")


def icu_stays(hours: int = 6, labs: Sequence[str] = ICU_LABS) -> pl.DataFrame:
    """PhysioNet 2012 set A: means of labs and vital signs in bins of six hours."""
    long = pl.read_csv(data_folder() / "physionet2012" / "set-a_long.csv.gz")
    clock = pl.col("Time").str.split(":")
    long = long.with_columns(hour=clock.list.get(0).cast(pl.Float64) + clock.list.get(1).cast(pl.Float64) / 60)
    fixed = (
        long.filter(pl.col("Parameter").is_in(["Age", "Gender"]) & (pl.col("Value") >= 0))
        .group_by("RecordID", "Parameter")
        .agg(pl.col("Value").first())
        .pivot(on="Parameter", index="RecordID", values="Value")
    )
    binned = (
        long.filter(pl.col("Parameter").is_in(list(labs)) & (pl.col("Value") >= 0))
        .with_columns(time=((pl.col("hour") / hours).floor() + 0.5) * hours / 24)
        .group_by("RecordID", "time", "Parameter")
        .agg(pl.col("Value").mean())
        .pivot(on="Parameter", index=["RecordID", "time"], values="Value")
    )
    return binned.join(fixed, on="RecordID", how="left").rename({"RecordID": "subject_id"})


def simulated(shape: Shape) -> pl.DataFrame:
    return simulate(shape, np.random.default_rng(2026)).visits


BODY = ("age", "male", "weight", "height", "bmi")
DATA_SETS: dict[str, DataSet] = {
    "PBC cholesterol": DataSet(load_pbc, "cholesterol", "mg/dL"),
    "PBC albumin": DataSet(load_pbc, "albumin", "g/dL"),
    "PBC bilirubin": DataSet(load_pbc, "bilirubin", "mg/dL"),
    "PBC platelets": DataSet(load_pbc, "platelets", "10^3/uL"),
    "NAFLD HDL, 3,000 patients": DataSet(lambda: nafld(3000), "hdl", "mg/dL", BODY),
    "MIMIC-III demo creatinine": DataSet(lambda: mimic_days(3), "creatinine", "mg/dL"),
    "MIMIC-III demo haemoglobin": DataSet(lambda: mimic_days(3), "haemoglobin", "g/dL"),
    "MIMIC-III demo potassium": DataSet(lambda: mimic_days(3), "potassium", "mmol/L"),
    "MIMIC-IV demo creatinine": DataSet(lambda: mimic_days(4), "creatinine", "mg/dL"),
    "MIMIC-IV demo haemoglobin": DataSet(lambda: mimic_days(4), "haemoglobin", "g/dL"),
    "MIMIC-IV demo potassium": DataSet(lambda: mimic_days(4), "potassium", "mmol/L"),
    "PhysioNet 2012 haematocrit": DataSet(icu_stays, "HCT", "%", ("Age", "Gender")),
    "PhysioNet 2012 creatinine": DataSet(icu_stays, "Creatinine", "mg/dL", ("Age", "Gender")),
    "simulated, Mayo shape": DataSet(lambda: simulated("mayo"), "hba1c", "%"),
    "simulated, MIMIC-III shape": DataSet(lambda: simulated("mimic3"), "hba1c", "%"),
    "simulated, MIMIC-IV shape": DataSet(lambda: simulated("mimic4"), "hba1c", "%"),
    "NAFLD HDL, all patients": DataSet(lambda: nafld(None), "hdl", "mg/dL", BODY),
}
