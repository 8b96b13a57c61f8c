"""Speed and memory of draws: 100,000 missing values, 20 draws each, after the fit.

    python -m safeimpute_lab speed draws [--missing 100000] [--draws 20]

The imputations are made up; what is timed is all that `draws` does with them, the visits imputed once more included.
"""

import argparse
import resource
import time

import numpy as np

from safeimpute.draws.drawing import draws_of, learn_predictive
from safeimpute.learning.protocol import Estimates
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.groups import Grouping
from safeimpute.selection.questions import Question
from safeimpute.visits.arrays import VisitArrays, mix


def made(missing: int, labs: int, rng: np.random.Generator) -> Calibrated:
    """Twice as many visits as missing values, eight per patient, imputed with an error of one."""
    visits = 2 * missing
    patient = np.arange(visits) // 8
    truth = rng.normal(7.0, 1.5, visits) + rng.standard_normal(patient[-1] + 1)[patient]
    hidden = rng.random(visits) < 0.5
    key = mix(patient.astype(np.uint64))
    arrays = VisitArrays(
        patient=patient,
        time=np.asarray(np.arange(visits) % 8 * 90.0, dtype=np.float64),
        labs=np.column_stack([np.where(hidden, np.nan, truth), rng.standard_normal((visits, labs))]),
        lab_names=("target", *(f"lab {k}" for k in range(labs))),
        target=0,
        attributes=rng.standard_normal((visits, 4)),
        attribute_names=("a", "b", "c", "d"),
        patient_key=key,
        visit_key=mix(key ^ np.arange(visits).astype(np.uint64)),
    )
    nothing = np.zeros(visits, dtype=bool)
    estimates = Estimates(truth + rng.standard_normal(visits), rng.random(visits), np.ones(visits), nothing)
    nobody = np.full(visits, np.nan)
    question = Question(arrays, ~hidden, hidden, nobody, np.zeros(visits, np.int64), np.zeros(visits), ~nothing)
    return Calibrated(question, arrays.target_values, estimates, np.ones(visits), {}, Grouping((), False))


class Again:
    """Imputes once more as far off as before."""

    def estimate(self, visits: VisitArrays, device: str = "cpu") -> Estimates:  # noqa: ARG002
        n = len(visits)
        return Estimates(np.full(n, 7.0), np.zeros(n), np.ones(n), np.zeros(n, dtype=bool))


def main() -> None:
    """Time it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--missing", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--labs", type=int, default=12)
    told = parser.parse_args()
    calibrated = made(told.missing, told.labs, np.random.default_rng(0))
    before, start = _peak(), time.process_time()
    drawn = draws_of(learn_predictive(calibrated, Again(), None, 0), told.draws, 0)
    seconds = time.process_time() - start
    print(
        f"{drawn.shape[0]:,} values x {drawn.shape[1]}: {seconds:.1f} CPU s, peak {_peak():,.0f} MiB "
        f"({before:,.0f} before)"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
