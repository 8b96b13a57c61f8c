"""One level over all values, or the level within each group: what it changes, judged by the truth.

    python examples/groups.py

Simulated patients, so that the truth is known where nobody measured. With one cut-off, unacceptable errors gather in
patients who were never measured; `groups=("history",)` gives patients without, with 1 to 2 and with 3 or more own
values a cut-off each. A group in which nothing can be promised gets no release.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from looks import LEVEL, RELEASED, WITHHELD, save, told

import safeimpute as si
from safeimpute.visits.examples import simulate

TOLERANCE, ALLOWED = 1.0, 0.2
BANDS = {"no own value": (0, 1), "1 to 2 own values": (1, 3), "3 or more": (3, 999)}  # of the patient, anywhere


def main() -> None:
    chosen = told(__doc__, "groups")
    visits, truth = simulate("mimic3", np.random.default_rng(3), patients=900, shift="covariate")
    found = {}
    for name, groups in (("one cut-off", ()), ("a cut-off per group", ("history",))):
        imputer = si.SafeImputer(
            target="hba1c", tolerance=TOLERANCE, fdr=ALLOWED, groups=groups, best={"effort": "light"}
        )
        table = imputer.fit(visits).impute(visits)
        found[name] = judged(table, truth, visits)
        print(f"\n{name}: {imputer.promised().promise}")
        print(found[name])
    draw(found, chosen.figures)


def judged(table: pl.DataFrame, truth: pl.DataFrame, visits: pl.DataFrame) -> pl.DataFrame:
    """Released values per group, and how many of them are off by the tolerance or more."""
    own = visits.group_by("subject_id").agg(pl.col("hba1c").count().alias("own"))
    both = table.join(truth.rename({"hba1c": "truth"}), on=["subject_id", "time"]).join(own, on="subject_id")
    wrong = (pl.col("value") - pl.col("truth")).abs() >= TOLERANCE
    rows = []
    for band, (low, high) in BANDS.items():
        out = both.filter(pl.col("released") & (pl.col("own") >= low) & (pl.col("own") < high))
        rows.append({"group": band, "released": len(out), "wrong": out.filter(wrong).height})
    return pl.DataFrame(rows)


def draw(found: dict[str, pl.DataFrame], folder: Path) -> None:
    """The share of unacceptable values in every group, under both rules."""
    figure, axes = plt.subplots(figsize=(7.5, 3.4))
    for place, (name, table) in enumerate(found.items()):
        shares = [100 * wrong / out if out else 0.0 for _, out, wrong in table.iter_rows()]
        spots = np.arange(len(table)) + 0.38 * place - 0.19
        bars = axes.bar(spots, shares, width=0.36, color=(WITHHELD, RELEASED)[place], label=name)
        counts = [f"{wrong} of {out}" if out else "none\nreleased" for _, out, wrong in table.iter_rows()]
        axes.bar_label(bars, counts, padding=3, fontsize=8.5)
    axes.axhline(100 * ALLOWED, color=LEVEL, linewidth=1.2)
    axes.annotate("level 20 %", (1, 100 * ALLOWED), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                  color=LEVEL, xytext=(-4, 2), textcoords="offset points")  # fmt: skip
    axes.set_xticks(range(len(BANDS)), list(BANDS))
    axes.set_xlabel("own HbA1c values of the patient")
    axes.set_ylabel("off by 1 point or more, % of released")
    axes.set_title("Unacceptable values among the released (simulated patients, truth known)")
    axes.margins(y=0.2)
    axes.legend(loc="upper right")
    save(figure, folder, "groups")


if __name__ == "__main__":
    main()
