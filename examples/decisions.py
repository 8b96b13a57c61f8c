"""What people decide on: the side of a limit, what an error costs, and a class.

    python examples/decisions.py

HbA1c of simulated patients, so that the truth is known where nobody measured: is it 6.5 or more? Once every wrong side
counts alike, once missing a high value costs five times a false alarm. Then the same as a class that the table holds in
words, good, fair or poor control, with the chance of each.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from looks import LEVEL, RELEASED, WITHHELD, save, told

import safeimpute as si
from safeimpute.visits.examples import simulate

LIGHT = {"effort": "light"}
KEYS = ["subject_id", "time"]
LIMIT = 6.5
CONTROL = ("good", "fair", "poor")  # below 7, below 9, from 9


def main() -> None:
    chosen = told(__doc__, "decisions")
    visits, truth = simulate("mimic3", np.random.default_rng(3), patients=600, shift="covariate")
    ways = {"every wrong side alike, 10 %": (None, 0.1), "missing a high value costs 5, 5 %": ("0 1; 5 0", 0.05)}
    sides = {name: crossed(visits, truth, *way) for name, way in ways.items()}
    draw(sides, classes(visits, truth), chosen.figures)


def crossed(visits: pl.DataFrame, truth: pl.DataFrame, cost: str | None, level: float) -> dict[str, float]:
    """Released values on the wrong side of the limit, in percent of the released."""
    imputer = si.SafeImputer(target="hba1c", tolerance="limits", limits=(LIMIT,), cost=cost, fdr=level, best=LIGHT)
    table = imputer.fit(visits).impute(visits)
    both = table.filter("released").join(truth.rename({"hba1c": "truth"}), on=KEYS)
    high, said = both["truth"] >= LIMIT, both["band"] == "6.5 or more"
    found = {"missed": 100 * (high & ~said).mean(), "false alarm": 100 * (said & ~high).mean()}
    print(f"\n{imputer.promised().promise}")
    print(f"{len(both):,} of {len(table):,} released;", ", ".join(f"{k} {v:.1f} %" for k, v in found.items()))
    return found


def as_words(table: pl.DataFrame) -> pl.DataFrame:
    """Control of the sugar in words, in place of the HbA1c."""
    hba1c = pl.col("hba1c")
    control = pl.when(hba1c < 7).then(pl.lit("good")).when(hba1c < 9).then(pl.lit("fair")).otherwise(pl.lit("poor"))
    return table.with_columns(control=pl.when(hba1c.is_not_null()).then(control)).drop("hba1c")


def classes(visits: pl.DataFrame, truth: pl.DataFrame) -> pl.DataFrame:
    """The class where nobody measured, with what it was."""
    table = as_words(visits)
    imputer = si.SafeImputer(target="control", tolerance=f"class {'<'.join(CONTROL)}", fdr=0.2, best=LIGHT)
    found: pl.DataFrame = imputer.fit(table).impute(table)
    found = found.join(as_words(truth).rename({"control": "truth"}), on=KEYS)
    out = found.filter("released")
    print(f"\n{imputer.promised().promise}")
    print(f"{len(out):,} of {len(found):,} released, {(out['band'] != out['truth']).sum():,} of another class")
    return found


def draw(sides: dict[str, dict[str, float]], found: pl.DataFrame, folder: Path) -> None:
    """Errors on either side of the limit, and whether chances come true."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    for place, (name, shares) in enumerate(sides.items()):
        spots = np.arange(len(shares)) + 0.38 * place - 0.19
        bars = left.bar(spots, list(shares.values()), width=0.36, color=(WITHHELD, RELEASED)[place], label=name)
        left.bar_label(bars, [f"{share:.1f}" for share in shares.values()], padding=2, fontsize=8.5)
    left.set_xticks(range(2), ["missed: 6.5 or more", "false alarm: below 6.5"])
    left.set_ylabel("% of released values")
    left.set_title("HbA1c at a limit of 6.5 (simulated, truth known)")
    left.margins(y=0.4)
    left.legend(loc="upper right", fontsize=8.5)
    right.plot([0, 1], [0, 1], color=LEVEL, linewidth=1)
    chance = np.concatenate([found[f"p_band_{place}"].to_numpy() for place in (1, 2, 3)])
    true = np.concatenate([(found["truth"] == each).to_numpy() for each in CONTROL])
    for low, high in ((0, 0.05), (0.05, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 0.95), (0.95, 1.01)):
        inside = (chance >= low) & (chance < high)
        if inside.any():
            right.plot(chance[inside].mean(), true[inside].mean(), "o", color=RELEASED)
    right.set_xlabel("chance said of a class")
    right.set_ylabel("share of which it was that class")
    right.set_title("Chances of good, fair and poor control")
    save(figure, folder, "decisions")


if __name__ == "__main__":
    main()
