"""Your own csv, written the German way: semicolons, decimal commas, 31.12.2023, cholesterol in mmol/L.

    python examples/own_csv.py

Nothing is guessed about a file: `read_visits` is told how it is written. The visits are those of the demo, in other
clothes. On the command line the same is

    safeimpute run besuche.csv --separator ';' --decimal , --date-format DD.MM.YYYY \
        --columns 'Patient=subject_id,Datum=time,Cholesterin=cholesterol' --unit-of cholesterol=mmol/L \
        --target cholesterol --tolerance 20% --fdr 0.2
"""

from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
from looks import course, save, told, what_became

import safeimpute as si
from safeimpute.visits.examples import load_pbc

MMOL = 38.67  # mg/dL of cholesterol in one mmol/L


def main() -> None:
    chosen = told(__doc__, "own_csv")
    file = german_csv(chosen.out / "besuche.csv")
    visits = si.read_visits(
        file,
        {"Patient": "subject_id", "Datum": "time", "Cholesterin": "cholesterol"},
        separator=";",
        decimal=",",
        date_format="DD.MM.YYYY",
        unit_of={"cholesterol": "mmol/L"},
    )
    imputer = si.SafeImputer(target="cholesterol", tolerance="20%", fdr=0.2, best={"effort": "light"})
    table = imputer.fit(visits).impute(visits)
    table.write_csv(chosen.out / "imputations.csv")
    print(imputer.promised().promise)
    print(table["reason"].value_counts(sort=True))
    draw(visits, table, chosen.figures)


def german_csv(path: Path) -> Path:
    """The bundled visits as a German laboratory's export; the first visit of everybody in 2004."""
    visits = load_pbc().with_columns(
        (pl.date(2004, 1, 7) + pl.duration(days=pl.col("time").round().cast(pl.Int64)))
        .dt.strftime("%d.%m.%Y")
        .alias("time"),
        (pl.col("cholesterol") / MMOL).round(2),
    )
    german = visits.rename({"subject_id": "Patient", "time": "Datum", "cholesterol": "Cholesterin"})
    german.write_csv(path, separator=";", decimal_comma=True)
    return path


def draw(visits: pl.DataFrame, table: pl.DataFrame, folder: Path) -> None:
    """What became of the missing values, and the patient in whose course both kinds are easiest to see."""
    both = table.group_by("subject_id").agg(pl.col("released").sum().alias("good"), pl.len().alias("all"))
    both = both.with_columns(pl.min_horizontal("good", pl.col("all") - pl.col("good")).alias("least"))
    patient = both.sort("least", "all", "subject_id", descending=True)["subject_id"][0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1, 1.3))
    what_became(left, table)
    of_patient = pl.col("subject_id") == patient
    course(right, visits.filter(of_patient), table.filter(of_patient), "cholesterol")
    right.set_title("One patient's course")
    right.set_ylabel("cholesterol, mg/dL")
    right.tick_params(axis="x", rotation=30)
    save(figure, folder, "own_csv")


if __name__ == "__main__":
    main()
