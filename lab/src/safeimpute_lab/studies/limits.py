"""Results cut at a detection limit: what their limits are worth, beside other ways to treat them.

    python -m safeimpute_lab limits [--draws 4] [--patients 250] [--shares 0.05,0.15,0.3] [--labs]

Simulated HbA1c with the truth known everywhere. The lowest share of its values is written as a limit (`<5.6`), with
`--labs` those of the other labs too, and the table is fitted four ways: the limits as they stand (`limits`), a word in
their place that tells only of a result (`words`), the cells emptied (`dropped`), half the limit written as a number
(`half`). Judged at the visits nobody measured, whatever their truth: mean absolute error, power and the share of
unacceptable values among all released of all draws; and how many measured visits became candidates.
"""

import argparse

import numpy as np
import polars as pl

WAYS = ("limits", "words", "dropped", "half")
TOLERANCE, LEVEL = 0.6, 0.2


def cut(visits: pl.DataFrame, lab: str, share: float, way: str) -> pl.DataFrame:
    """The table with the lowest share of a lab's values treated one way."""
    limit = round(float(visits[lab].quantile(share) or 0.0), 2)
    text = pl.col(lab).cast(pl.String)
    written = {
        "limits": pl.lit(f"<{limit}"), "words": pl.lit("see comment"),
        "dropped": pl.lit(None, pl.String), "half": pl.lit(str(limit / 2)),
    }[way]  # fmt: skip
    table = visits.with_columns(pl.when(pl.col(lab) < limit).then(written).otherwise(text).alias(lab))
    return table if way in ("limits", "words") else table.cast({lab: pl.Float64})


def one(patients: int, share: float, way: str, seed: int, others: bool) -> np.ndarray:
    """Absolute errors summed, candidates, released, risky among them, acceptable ones, measured visits asked about."""
    from safeimpute import SafeImputer
    from safeimpute.visits.examples import simulate

    drawn = simulate("mimic4", np.random.default_rng(seed), patients=patients, shift="covariate")
    table = drawn.visits
    for lab in ("hba1c", "glucose", "cholesterol") if others else ("hba1c",):
        table = cut(table, lab, share, way)
    imputed = SafeImputer(target="hba1c", tolerance=TOLERANCE, fdr=LEVEL, random_state=seed).fit(table).impute(table)
    keys = ["subject_id", "time"]
    truth = drawn.truth.select(*keys, truth="hba1c")
    asked = drawn.visits.select(*keys, measured=pl.col("hba1c").is_not_null())
    found = imputed.join(truth, on=keys).join(asked, on=keys)
    missing = found.filter(~pl.col("measured"))
    error = (missing["value"] - missing["truth"]).abs().to_numpy()
    released, risky = missing["released"].to_numpy(), error >= TOLERANCE - 1e-9
    counts = len(error), released.sum(), (released & risky).sum(), (~risky).sum(), found["measured"].sum()
    return np.array([error.sum(), *counts], dtype=np.float64)


def main() -> None:
    """One line for every share and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--patients", type=int, default=250)
    parser.add_argument("--shares", default="0.05,0.15,0.3")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--labs", action="store_true", help="the other labs are cut as well")
    told = parser.parse_args()
    print("| cut | way | MAE | released | risky | power | measured visits asked about |\n|---|---|---|---|---|---|---|")
    for share in map(float, told.shares.split(",")):
        for way in told.ways.split(","):
            drawn = np.array([one(told.patients, share, way, seed, told.labs) for seed in range(told.draws)])
            error, asked, released, risky, good, measured = drawn.sum(axis=0)
            share_risky, power = risky / max(released, 1), (released - risky) / good
            told_of = f"{error / asked:.3f} | {released:.0f} | {share_risky:.3f} | {power:.3f} | {measured:.0f}"
            print(f"| {share:.0%} | {way} | {told_of} |", flush=True)


if __name__ == "__main__":
    main()
