"""Releases by the rules of other packages, on worlds handed over as arrays; runs in their environment, by itself.

Called as: selections_worker.py RULE GIVEN.npz ANSWER.npz ALPHA [ALPHA ...]. Imports nothing of safeimpute.
`draw` says to which world a visit belongs; `candidate` visits are asked about, `calibration` ones have known errors.
"""

import sys
from typing import Any

import numpy as np

NEVER = -1e9  # the score of a good calibration visit: below every candidate's


def nonconform(world: dict[str, Any], alpha: float, pruning: str = "DETERMINISTIC") -> Any:
    """Weighted conformal selection, pruned; a candidate stands out the more, the lower its risk."""
    from nonconform.enums import Pruning  # type: ignore[import-not-found]
    from nonconform.fdr import weighted_false_discovery_control_from_arrays  # type: ignore[import-not-found]

    known, asked = world["calibration"], world["candidate"]
    score = np.where(world["risky"], -world["risk"], NEVER)[known]
    weight, own = world["weight"][known], world["weight"][asked]
    order = np.argsort(score)
    mass = np.r_[0.0, np.cumsum(weight[order])]
    above = mass[-1] - mass[np.searchsorted(score[order], -world["risk"][asked], side="left")]
    return weighted_false_discovery_control_from_arrays(
        p_values=(above + own) / (mass[-1] + own),
        test_scores=-world["risk"][asked],
        calib_scores=score,
        test_weights=own,
        calib_weights=weight,
        alpha=alpha,
        pruning=Pruning[pruning],
        seed=int(world["draw"][0]),
    )


def nonconform_random(world: dict[str, Any], alpha: float) -> Any:
    """As above, pruned by one random number for all, which keeps at least as much."""
    return nonconform(world, alpha, "HOMOGENEOUS")


def mapie(world: dict[str, Any], alpha: float) -> Any:
    """Learn then test at confidence 0.9: the thresholds whose precision is proved; it knows no weights."""
    from mapie.risk_control import BinaryClassificationController  # type: ignore[import-not-found]

    known, asked = world["calibration"], world["candidate"]
    controller = BinaryClassificationController(
        lambda risk: np.column_stack([risk, 1.0 - risk]), "precision", target_level=1.0 - alpha, confidence_level=0.9
    )
    controller.calibrate(world["risk"][known], (~world["risky"][known]).astype(int))
    if controller.best_predict_param is None:
        return np.zeros(int(asked.sum()), dtype=bool)
    return controller.predict(world["risk"][asked]).astype(bool)


def main(rule: str, given: str, answer: str, *alphas: str) -> None:
    release = {"nonconform": nonconform, "nonconform, random": nonconform_random, "mapie": mapie}[rule]
    with np.load(given) as stored:
        arrays = {name: stored[name] for name in stored.files}
    found = np.zeros((len(alphas), len(arrays["draw"])), dtype=bool)
    for draw in np.unique(arrays["draw"]):
        rows = np.flatnonzero(arrays["draw"] == draw)
        world = {name: column[rows] for name, column in arrays.items()}
        for place, alpha in enumerate(alphas):
            found[place, rows[world["candidate"]]] = release(world, float(alpha))
    np.savez(answer, released=found)


if __name__ == "__main__":
    main(*sys.argv[1:])
