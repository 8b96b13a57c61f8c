"""What a recalibrated cut-off releases in the months after, over many simulated hospitals.

    python -m safeimpute_lab recalibration [--hospitals 120] [--scatter 0.5] [--level 0.3] [--promise confident]

One model (claim `later`, tolerance 0.8) is fitted once. In every hospital new patients are watched for 36
months, in which measured targets scatter more by so many points (with `--always` also those before). The first half of
what was watched recalibrates, the second half is judged: weighted share of unacceptable values over all
hospitals, by the old cut-off and by the new, and the mean balance per hospital with its standard error; beside it
the weight that the largest cut-off keeping the level over all hospitals would release, had it known every error.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

LAST_DAY, MONTHS, TOLERANCE = 1_300.0, 36, 0.8


def watched(patients: int, seed: int, scatter: float, always: bool) -> pl.DataFrame:
    """New patients of one hospital, their targets scattered."""
    from safeimpute.visits.examples import simulate

    rng = np.random.default_rng(seed)
    visits = simulate("mimic4", rng, patients=patients).visits
    visits = visits.filter(pl.col("time") <= LAST_DAY + 30.4 * MONTHS)
    visits = visits.with_columns(pl.col("subject_id") + 1_000_000 * (seed + 1))
    since = -np.inf if always else LAST_DAY
    noise = rng.normal(0.0, scatter, len(visits)) * (visits["time"].to_numpy() > since)
    return visits.with_columns((pl.col("hba1c") + pl.Series(noise)).clip(4, 16))


def fit(level: float, promise: str) -> Any:
    """The model all hospitals are scored by."""
    from safeimpute import SafeImputer
    from safeimpute.visits.examples import simulate

    visits = simulate("mimic4", np.random.default_rng(8), patients=500).visits
    told = {"target": "hba1c", "tolerance": TOLERANCE, "fdr": level, "promise": promise, "claim": "later"}
    return SafeImputer(**told).fit(visits.filter(pl.col("time") <= LAST_DAY))


def one(scorer: Any, visits: pl.DataFrame, log: Path) -> tuple[list[float], np.ndarray]:
    """Risky and released weight of the second half, by the old cut-off and the new; and risk, weight, errors of it."""
    from safeimpute.model.night_log import Event, NightLog
    from safeimpute.model.open_model import Status
    from safeimpute.monitoring.monitor import monitor
    from safeimpute.monitoring.recalibrate import recalibration
    from safeimpute.selection.cutoff import rule_of

    entered = monitor(scorer, visits, NightLog(log)).entered
    middle = np.median(entered.day)
    alarm = Status(Event(1, "2026-01-01", "alarm", {"found": ["x"], "began": None}), None, 1)
    anew = recalibration(entered.at(entered.day <= middle), alarm, rule_of(scorer.settings))
    rest = entered.at(entered.day > middle)
    found: list[float] = []
    for cutoff in (scorer.model.cutoffs[0].risk, anew.cutoffs[0].risk):
        out = rest.measured & rest.inside & (rest.risk <= (-np.inf if cutoff is None else cutoff))
        found += [float(rest.odds[out] @ rest.risky[out]), float(rest.odds[out].sum())]
    judged = rest.measured & rest.inside
    return found, np.array([rest.risk, rest.odds, rest.risky])[:, judged]


def reachable(judged: np.ndarray, level: float) -> float:
    """Weight below the largest risk up to which the share over all hospitals keeps the level."""
    _, weight, risky = judged[:, np.argsort(judged[0], kind="stable")]
    keeps = np.flatnonzero(np.cumsum(weight * risky) <= level * np.cumsum(weight))
    return float(np.cumsum(weight)[keeps[-1]]) if len(keeps) else 0.0


def main() -> None:
    """Fit once, then hospital after hospital."""
    from safeimpute.model.scorer import Scorer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hospitals", type=int, default=120)
    parser.add_argument("--patients", type=int, default=500)
    parser.add_argument("--scatter", type=float, default=0.5)
    parser.add_argument("--always", action="store_true")
    parser.add_argument("--level", type=float, default=0.25)
    parser.add_argument("--promise", choices=("average", "confident"), default="average")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        fit(told.level, told.promise).save(Path(place) / "model")
        lab = Scorer.load(Path(place) / "model").one
        scorer = Scorer({lab.settings.target: replace(lab, folder=None)})  # one model, a night log for each hospital
        found = [
            one(scorer, watched(told.patients, 100 + k, told.scatter, told.always), Path(place) / f"{k}.db")
            for k in range(told.hospitals)
        ]
    rows = np.array([each for each, _ in found])
    most = reachable(np.concatenate([each for _, each in found], axis=1), told.level) / told.hospitals
    for name, (risky, out) in (("old cut-off", rows[:, :2].T), ("recalibrated", rows[:, 2:].T)):
        balance = risky - told.level * out
        error = balance.std(ddof=1) / np.sqrt(len(balance))
        print(
            f"{name}: released in {int(np.sum(out > 0))} of {len(rows)}, weight {out.mean():.1f}, share "
            f"{risky.sum() / max(out.sum(), 1e-9):.3f}, balance {balance.mean():.2f} ± {error:.2f}"
        )
    print(f"weight that could be released: {most:.1f}")


if __name__ == "__main__":
    main()
