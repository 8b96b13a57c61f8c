"""Time and memory of the best preset's array core on a simulated cohort.

python bench/best_speed.py [--patients N] [--shape mimic4] [--device cpu|cuda]
"""

import argparse
import resource
import time

import numpy as np

from safeimpute.imputers.blend import BlendImputer
from safeimpute.records.simulate import simulate
from safeimpute.records.visits import ColumnChoice, prepare_visits
from safeimpute.risk.learned import fit_risk, prepare_risk
from safeimpute.splits import Role, hide, split_visits
from safeimpute.tolerance import Tolerance


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--patients", type=int)
    options.add_argument("--shape", default="mimic4")
    options.add_argument("--device", default="cpu")
    chosen = options.parse_args()
    table = simulate(chosen.shape, np.random.default_rng(0), patients=chosen.patients).visits
    visits = prepare_visits(table, ColumnChoice("hba1c")).arrays
    roles = split_visits(~np.isnan(visits.target_values), np.random.default_rng(1), test_fraction=0.2)
    task, rng = hide(visits, roles), np.random.default_rng(2)
    start = time.perf_counter()
    fit = BlendImputer().fit_whole(task, rng, chosen.device)
    fitted = time.perf_counter()
    imputation = fit.imputation
    risk = fit_risk(prepare_risk(task, fit.evidence, fit.out_of_sample, rng), Tolerance(absolute=0.5), seed=3)
    score = risk.score(fit.evidence, imputation)
    done = time.perf_counter()
    test = roles == Role.TEST
    error = np.abs(imputation.value - visits.target_values)[test]
    print(f"visits {len(visits)}, labs {visits.labs.shape[1]}, weights {fit.fitted.weights}")
    print(f"fit {fitted - start:.1f} s, risk {done - fitted:.1f} s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    print(f"MAE {error.mean():.4f}, mean risk of good and bad imputations", end=" ")
    print(f"{score[test][error < 0.5].mean():.3f} {score[test][error >= 0.5].mean():.3f}")


if __name__ == "__main__":
    main()
