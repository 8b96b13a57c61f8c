"""Two checks of the core: the demo's release over ten seeds, and a stored cut-off in shifted cohorts.

    python bench/core_checks.py demo [--jobs 2]
    python bench/core_checks.py score [--jobs 2]      20 cohorts of 3,000 patients, their new patients scored

One line per cell, then the means.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

NEW_SUBJECTS = 1_000_000
PROMISES, LEVELS = ("average", "confident"), (0.1, 0.2, 0.3)
TOLERANCE = 0.45


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("check", choices=("demo", "score"))
    parser.add_argument("--jobs", type=int, default=2)
    told = parser.parse_args()
    with ProcessPoolExecutor(told.jobs) as pool:
        if told.check == "demo":
            released = np.array(list(pool.map(demo, range(10))))
            print(f"released {released.tolist()}: mean {released.mean():.1f}, sd {released.std(ddof=1):.1f}")
            return
        rows = np.array(list(pool.map(score, range(20))), dtype=np.float64)
    for place, (promise, level) in enumerate(product(PROMISES, LEVELS)):
        cutoff, risky, released, good = rows[:, place].T
        above = int(np.sum(risky > level * released))
        print(
            f"{promise}, level {level}: cut-off in {int(cutoff.sum())} of {len(rows)}, pooled share "
            f"{risky.sum() / max(released.sum(), 1):.3f}, power {np.mean((released - risky) / good):.2f}, "
            f"above the level in {above}"
        )


def demo(seed: int) -> int:
    """Released values of the demo at one seed."""
    from safeimpute import SafeImputer
    from safeimpute.records.bundled import load_pbc

    imputer = SafeImputer(
        target="cholesterol", tolerance="20%", fdr=0.2, unit="mg/dL", random_state=seed, device="cpu"
    )
    return int(imputer.fit_transform(load_pbc())["cholesterol_released"].sum())


def score(cohort: int) -> list[tuple[int, int, int, int]]:
    """Per promise and level: whether there is a cut-off; risky, released and good values of new patients."""
    import polars as pl

    from safeimpute import SafeImputer
    from safeimpute.records.simulate import simulate
    from safeimpute.tolerance import Tolerance

    fitted, new = (
        simulate("mimic4", np.random.default_rng([cohort, stream]), patients=3000, shift="covariate")
        for stream in (1, 2)
    )
    visits, truth = (each.with_columns(pl.col("subject_id") + NEW_SUBJECTS) for each in new)
    found = []
    imputer = SafeImputer(
        target="hba1c", tolerance=TOLERANCE, fdr=0.3, claim="patients", random_state=cohort, device="cpu"
    ).fit(fitted.visits)
    for promise, level in product(PROMISES, LEVELS):
        for decided in ("decision_", "bound_", "scorer_"):  # all are judged by the truth, none is promised
            vars(imputer).pop(decided, None)
        imputer.looked_ = None
        imputer.set_params(promise=promise, fdr=level)
        scored = imputer.score(visits).join(
            truth.rename({"hba1c": "truth"}), on=["subject_id", "time"], maintain_order="left"
        )
        risky = Tolerance(TOLERANCE).risky(scored["value"].to_numpy(), scored["truth"].to_numpy())
        out = scored["released"].to_numpy()
        has = imputer.scorer().model.cutoffs[0].risk is not None
        found.append((int(has), int(np.sum(out & risky)), int(out.sum()), int(np.sum(~risky))))
    return found


if __name__ == "__main__":
    main()
