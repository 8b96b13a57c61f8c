"""For R: the completed tables and the released values as csv, and an R script that reads them.

    python examples/r/write_for_r.py         # writes mice_long.csv and imputations.csv, runs analysis.R where R is
    Rscript examples/r/analysis.R FOLDER     # the same by hand

`mice_long.csv` has the form of R's mice (`.imp`, `.id`; 0 is the table as it was): `as.mids(read.csv(...))` takes it.
The script needs no package: it pools by Rubin's rules in ten lines of base R.
"""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import matplotlib.pyplot as plt
import polars as pl
from looks import MEASURED, RELEASED, save, told

import safeimpute as si
from safeimpute.visits.examples import load_pbc

SCRIPT = Path(__file__).with_name("analysis.R")


def main() -> None:
    chosen = told(__doc__, "r")
    visits = load_pbc()
    imputer = si.SafeImputer(target="cholesterol", tolerance="20%", fdr=0.2, best={"effort": "light"}).fit(visits)
    table = imputer.impute(visits)
    table.write_csv(chosen.out / "imputations.csv")
    imputer.to_mice(visits, 20).write_csv(chosen.out / "mice_long.csv")
    print(f"written: {chosen.out / 'mice_long.csv'} and {chosen.out / 'imputations.csv'}")
    rscript = shutil.which("Rscript")
    if rscript is None:
        print("Rscript is not on the path: run examples/r/analysis.R where R is")
    else:
        subprocess.run([rscript, str(SCRIPT), str(chosen.out)], check=True)
    draw(visits, chosen.out / "mice_long.csv", chosen.figures)


def draw(visits: pl.DataFrame, long: Path, folder: Path) -> None:
    """What R reads: measured values, and all drawn ones over the twenty completed tables."""
    drawn = pl.read_csv(long, infer_schema_length=None).filter(pl.col(".imp") > 0)
    missing = visits.with_row_index("row").filter(pl.col("cholesterol").is_null())["row"] + 1
    values = drawn.filter(pl.col(".id").is_in(missing.to_list()))["cholesterol"].to_numpy()
    figure, axes = plt.subplots(figsize=(7.5, 3))
    bins = range(100, 801, 25)
    measured = visits["cholesterol"].drop_nulls().to_numpy()
    axes.hist(measured, bins=bins, density=True, color=MEASURED, alpha=0.35, label="measured")
    axes.hist(values, bins=bins, density=True, histtype="step", color=RELEASED, linewidth=2, label="drawn, 20 tables")
    axes.set_xlabel("cholesterol, mg/dL")
    axes.set_yticks([])
    axes.set_title(f"{len(measured):,} measured values, and {len(missing)} missing ones drawn 20 times")
    axes.legend()
    save(figure, folder, "r")


if __name__ == "__main__":
    main()
