"""MIMIC-IV, from its files to values a reader can judge: cohort, run, one patient's course.

    SAFEIMPUTE_DATA=FOLDER python examples/mimic4.py

FOLDER/mimic4_demo holds the open demo (100 patients) as PhysioNet publishes it. Creatinine is measured on most days and
missing on some; those are imputed. The cohort is built by the command line, which says what became of every row.
"""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
from looks import course, save, told, what_became

import safeimpute as si

WEEKS = timedelta(days=21)
LABS = "urea_nitrogen,potassium,sodium,chloride,bicarbonate,hemoglobin"


def main() -> None:
    chosen = told(__doc__, "mimic4")
    source = Path(os.environ["SAFEIMPUTE_DATA"]) / "mimic4_demo"
    visits = si.read_visits(cohort(source, chosen.out / "visits.parquet"))
    imputer = si.SafeImputer(
        target="creatinine", tolerance="20% or 0.2", fdr=0.2, attributes=("sex", "age"), best={"effort": "light"}
    )
    table = imputer.fit(visits).impute(visits)
    table.write_csv(chosen.out / "imputations.csv")
    print(imputer.promised().promise)
    print(imputer.bound_)
    draw(visits, table, chosen.figures)


def cohort(source: Path, visits: Path) -> Path:
    """Everybody in the source, a visit of every day with a result or an admission."""
    asked = ["cohort", "mimic4", str(source), "--target", "creatinine", "--labs", LABS]
    asked += ["--anchors", "any", "--diabetes", "none", "-o", str(visits), "--force"]
    subprocess.run([sys.executable, "-m", "safeimpute", *asked], check=True)
    return visits


def draw(visits: pl.DataFrame, table: pl.DataFrame, folder: Path) -> None:
    """What became of the missing values, and the three weeks in which most were released."""
    most = (-1, pl.lit(value=True))
    for patient, time in table.filter("released").select("subject_id", "time").iter_rows():
        span = (pl.col("subject_id") == patient) & pl.col("time").is_between(time - WEEKS / 2, time + WEEKS / 2)
        most = max(most, (int(table.filter(span)["released"].sum()), span), key=lambda each: each[0])
    start = visits.filter(most[1])["time"].min()
    days = ((pl.col("time") - start).dt.total_hours() / 24).alias("time")  # the demo's dates are shifted
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1, 1.3))
    what_became(left, table)
    measured, imputed = (each.filter(most[1]).with_columns(days) for each in (visits, table))
    course(right, measured, imputed, "creatinine")
    right.set_title("Three weeks of one patient")
    right.set_ylabel("creatinine, mg/dL")
    right.set_xlabel("day")
    right.set_ylim(0, None)
    save(figure, folder, "mimic4")


if __name__ == "__main__":
    main()
