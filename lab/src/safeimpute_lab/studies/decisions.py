"""Limits and classes of real tables: right class, Brier score and release, beside LightGBM under the same rule.

    python -m safeimpute_lab decisions [--tables "PBC stage" …] [--splits 3]

A fifth of the measured values is hidden. `best` (a light fit) releases under the claim `unmeasured`. `held out` are the
values of `best` and of LightGBM once more under the claim `visits`, by one rule for both: 70 % of the rest are visible,
a risk is learnt from the errors at 15 %, and the other 15 % calibrate. A number becomes the class nearest to it.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.evaluation.evaluate import outcome
from safeimpute.evaluation.trials import TEST_FRACTION, Trial, run_trials
from safeimpute.selection.questions import draw_roles
from safeimpute.settings import BestSettings, make_settings
from safeimpute.tolerance import chances_of_bands
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import prepare_visits
from safeimpute_lab.benchmark.hold_out import hold_out_trial, impute_held_out
from safeimpute_lab.evidence.datasets import DATA_SETS, DataSet, icu_stays, pbc_clinic
from safeimpute_lab.methods.best import BestImputer
from safeimpute_lab.registry import Imputer, make_imputer

ALPHAS = (0.05, 0.1, 0.2)
PBC = ("age", "sex", "trt")


@dataclass(frozen=True)
class Asked:
    """A table, and what is decided with its target."""

    data: DataSet
    tolerance: str


TABLES = {
    "PBC ascites": Asked(DataSet(pbc_clinic, "ascites", "", PBC), "class 0<1"),
    "PBC oedema": Asked(DataSet(pbc_clinic, "oedema", "", PBC), "class 0<0.5<1"),
    "PBC stage": Asked(DataSet(pbc_clinic, "stage", "", PBC), "class 1<2<3<4"),
    "HbA1c bands, simulated MIMIC-IV shape": Asked(DATA_SETS["simulated, MIMIC-IV shape"], "limits 5.7 6.5 8"),
    "potassium bands, PhysioNet 2012": Asked(DataSet(icu_stays, "K", "mmol/L", ("Age", "Gender")), "limits 3.5 5"),
    "potassium bands, MIMIC-III demo": Asked(DATA_SETS["MIMIC-III demo potassium"], "limits 3.5 5"),
    "potassium bands, MIMIC-IV demo": Asked(DATA_SETS["MIMIC-IV demo potassium"], "limits 3.5 5"),
}


def trials_of(visits: VisitArrays, asked: Asked, seed: int) -> Iterator[tuple[str, Trial]]:
    """One split by every method."""
    target, light = asked.data.target, BestSettings(effort="light").resolved(several=False)
    settings = make_settings(target=target, tolerance=asked.tolerance, fdr=ALPHAS[0], best=light, random_state=seed)
    yield "best", run_trials(visits, settings, 1)[0]
    held_out = replace(settings, claim="visits")
    roles = draw_roles(visits, seed, TEST_FRACTION)
    methods: dict[str, Imputer] = {"best": BestImputer(light), "lightgbm": make_imputer("lightgbm")}
    for name, method in methods.items():
        found = impute_held_out(method, visits, roles, seed, stops=name == "lightgbm")
        found = replace(found, value=settings.allowed_error.settled(found.value))
        yield f"{name}, held out", hold_out_trial(visits, found, roles, held_out)


def figures(trial: Trial) -> list[float]:
    """Right, right were all the commonest, Brier score, that of the shares alone; then risky and released by level."""
    tolerance, rows = trial.settings.allowed_error, trial.tested
    band = tolerance.band(trial.truth[rows])
    happened = np.eye(len(tolerance.bands))[band]
    right = float(np.mean(tolerance.band(trial.estimates.value[rows]) == band))
    shares = happened.mean(axis=0)
    assert trial.estimates.above is not None
    chances = chances_of_bands(trial.estimates.above[rows])
    brier = [float(np.mean(np.sum((each - happened) ** 2, axis=1))) for each in (chances, shares)]
    released = [outcome(trial, tolerance, alpha) for alpha in ALPHAS]
    return [
        right,
        float(shares.max()),
        *brier,
        *(each.fdp for each in released),
        *(each.acceptance for each in released),
    ]


def main() -> None:
    """One line a table and method, means over splits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--splits", type=int, default=3)
    told = parser.parse_args()
    print("| target | method | right (commonest) | Brier score (shares alone) | wrong among the released | released |")
    print("|---|---|---|---|---|---|")
    for name in told.tables:
        asked = TABLES[name]
        choice = ColumnChoice(asked.data.target, attributes=asked.data.attributes)
        visits = prepare_visits(asked.data.load(), choice).arrays
        found: dict[str, list[list[float]]] = {}
        for seed in range(told.splits):
            for method, trial in trials_of(visits, asked, seed):
                found.setdefault(method, []).append(figures(trial))
        for method, rows in found.items():
            right, common, brier, alone, *rest = np.mean(rows, axis=0)
            wrong, released = rest[: len(ALPHAS)], rest[len(ALPHAS) :]
            told_of = f"{right:.3f} ({common:.3f}) | {brier:.3f} ({alone:.3f})"
            shares = " | ".join(
                ", ".join(f"{each:.{digits}f}" for each in one) for one, digits in ((wrong, 3), (released, 2))
            )
            print(f"| {name} | {method} | {told_of} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
