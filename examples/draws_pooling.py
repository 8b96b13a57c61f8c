"""A mean, a share and their intervals from a table with holes: draws and pooling, against released values.

    python examples/draws_pooling.py

Simulated patients whose doctors measure by what the table shows, so that the truth is known. Three ways: the
measured values only, measured and released values together, and twenty draws of every missing value, pooled by Rubin's
rules. Standard errors count patients, not visits.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from looks import LEVEL, MEASURED, RELEASED, WITHHELD, save, told

import safeimpute as si
from safeimpute.visits.examples import simulate

DRAWS, LIMIT = 20, 8.0  # HbA1c of 8 % or more: how many visits?
Interval = tuple[float, float, float]
SHARE = (pl.col("^hba1c.*$") >= LIMIT) * 100.0


def main() -> None:
    chosen = told(__doc__, "draws_pooling")
    visits, truth = simulate("mayo", np.random.default_rng(5), patients=250, shift="covariate")
    imputer = si.SafeImputer(target="hba1c", tolerance=1.0, fdr=0.2, best={"effort": "light"}).fit(visits)
    filled = imputer.transform(visits).drop("hba1c_released")
    wide = imputer.to_mice(visits, DRAWS, form="wide")
    found = {}
    for quantity, of in (("mean HbA1c, %", pl.all()), (f"HbA1c of {LIMIT:g} % or more, % of visits", SHARE)):
        found[quantity] = {
            "measured values only": plain(visits.with_columns(of)),
            "measured and released": plain(filled.with_columns(of)),
            f"{DRAWS} draws, pooled": pooled(wide.with_columns(of)),
            "nothing missing": plain(truth.with_columns(of)),
        }
        for way, (estimate, low, high) in found[quantity].items():
            print(f"{quantity}: {way:24} {estimate:6.2f}  ({low:.2f} to {high:.2f})")
    draw(found, chosen.figures)


def mean_and_variance(table: pl.DataFrame, column: str) -> tuple[float, float]:
    """Mean over visits and its variance, patients being the independent units."""
    per_patient = table.drop_nulls(column).group_by("subject_id").agg(pl.col(column).sum(), pl.len())
    total, visits = per_patient[column].to_numpy(), per_patient["len"].to_numpy()
    mean = total.sum() / visits.sum()
    return float(mean), float(((total - mean * visits) ** 2).sum() / visits.sum() ** 2)


def plain(table: pl.DataFrame) -> Interval:
    """As if what is there were everything."""
    mean, variance = mean_and_variance(table, "hba1c")
    half = 1.96 * variance**0.5
    return mean, mean - half, mean + half


def pooled(wide: pl.DataFrame) -> Interval:
    """The same analysis of every completed table, put together."""
    each = [mean_and_variance(wide, f"hba1c_{draw}") for draw in range(1, DRAWS + 1)]
    patients = wide["subject_id"].n_unique()
    found = si.pool([mean for mean, _ in each], [variance for _, variance in each], df=patients - 1)
    return found.estimate, found.lower, found.upper


def draw(found: dict[str, dict[str, Interval]], folder: Path) -> None:
    """Each quantity in three ways with their intervals, against the same with nothing missing."""
    figure, both = plt.subplots(1, 2, figsize=(9, 2.7), sharey=True)
    for axes, (quantity, ways) in zip(both, found.items(), strict=True):
        *shown, (_, (true, _, _)) = ways.items()
        for place, (_, (estimate, low, high)) in enumerate(shown):
            colour = (MEASURED, WITHHELD, RELEASED)[place]
            axes.plot([low, high], [place, place], color=colour, linewidth=2.4)
            axes.plot(estimate, place, "o", color=colour, markersize=8)
        axes.axvline(true, color=LEVEL, linewidth=1.2)
        axes.annotate("nothing missing", (true, 0.98), xycoords=("data", "axes fraction"), color=LEVEL,
                      va="top", xytext=(5, 0), textcoords="offset points", fontsize=8.5)  # fmt: skip
        axes.set_yticks(range(len(shown)), [way for way, _ in shown])
        axes.set_ylim(2.5, -0.8)
        axes.set_title(quantity)
        axes.set_xlabel("estimate, 95 % interval")
    save(figure, folder, "draws_pooling")


if __name__ == "__main__":
    main()
