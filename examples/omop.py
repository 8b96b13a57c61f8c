"""OMOP in, OMOP out, and what the program says when a table is too small to promise anything.

    SAFEIMPUTE_DATA=FOLDER python examples/omop.py

FOLDER/omop_synthea27nj holds an OMOP CDM 5.4 extract of 28 synthetic people. Body weight is missing at a third of the
visits. At a level of 20 % the measured visits that resemble the unmeasured ones are worth too few patients: nothing is
released, and the run says how many would do. Every missing value still goes back as a row of provenance, without value.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
from looks import LEVEL, MEASURED, WITHHELD, save, told

LABS = "glucose,creatinine,potassium,systolic_pressure,diastolic_pressure,heart_rate,cholesterol,hba1c"


def main() -> None:
    chosen = told(__doc__, "omop")
    source, visits = Path(os.environ["SAFEIMPUTE_DATA"]) / "omop_synthea27nj", chosen.out / "visits.parquet"
    choice = ["--target", "weight", "--labs", LABS, "--anchors", "any", "--diabetes", "none"]
    safeimpute("cohort", "omop", source, *choice, "-o", visits)
    (chosen.out / "light.toml").write_text('[best]\neffort = "light"\n')
    safeimpute(
        "run", visits, "--target", "weight", "--tolerance", "10%", "--fdr", "0.2",
        "--config", chosen.out / "light.toml", "--out", chosen.out / "run",
    )  # fmt: skip
    safeimpute("export", chosen.out / "run", "--to", "omop", "-o", chosen.out / "back")
    back = pl.read_parquet(chosen.out / "back" / "safeimpute_provenance.parquet")
    print(f"{len(back)} rows of provenance, for values released and withheld")
    draw(visits, json.loads((chosen.out / "run" / "summary.json").read_text()), chosen.figures)


def safeimpute(*asked: object) -> None:
    """One command, as typed."""
    subprocess.run([sys.executable, "-m", "safeimpute", *map(str, asked), "--force"], check=True)


def draw(visits: Path, summary: dict[str, object], folder: Path) -> None:
    """How often each lab was measured, and why nothing could be promised."""
    table = pl.read_parquet(visits)
    labs = ["weight", *LABS.split(",")]
    shares = [100 * float(table[lab].is_not_null().mean() or 0) for lab in labs]  # type: ignore[arg-type]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1.3, 1))
    bars = left.barh([lab.replace("_", " ") for lab in labs], shares, color=[MEASURED] + [WITHHELD] * len(LABS))
    left.bar_label(bars, fmt="%.0f %%", padding=4)
    left.invert_yaxis()
    left.set_title(f"Measured at … of {len(table)} visits")
    left.set_xlim(0, 112)
    said = re.search(r"patients worth (\d+); these are worth \d+ and (\d+)", json.dumps(summary))
    if said is None:
        raise SystemExit("something was promised here, or the summary says otherwise why not")
    needed, there = int(said[1]), int(said[2])
    bars = right.bar(["needed at\nlevel 20 %", "there"], [needed, there], color=[LEVEL, WITHHELD], width=0.55)
    right.bar_label(bars, padding=3)
    right.set_title("Why nothing was released:\npatients that can vouch")
    right.margins(y=0.15)
    save(figure, folder, "omop")


if __name__ == "__main__":
    main()
