"""The paper's way: every method judged on the values that one preset released as shipped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from safeimpute.evaluation import metrics
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute_lab.benchmark.cell import HELD_OUT_VALUE, RELEASED, VALUE
from safeimpute_lab.benchmark.cells import Cell, CellName, Study
from safeimpute_lab.benchmark.result import SharedRow

# `best` releases test visits only; the draws of `paper` release calibration visits too, hidden in the second fit alone
VALUE_FOR = {"best": VALUE, "paper": HELD_OUT_VALUE}


@dataclass(frozen=True)
class OnRelease:
    """One method's errors on one split's releases at a level: means over draws."""

    fdp: float  # 0 where a draw releases nothing
    draws_released: float
    precision: float | None
    mae: float | None
    rmse: float | None


def errors_on_releases(
    cells: Mapping[CellName, Cell],
    whose: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    study: Study,
    visits: VisitArrays,
) -> dict[str, list[SharedRow]]:
    """By method, a row per level over the splits that it and the releasing preset finished."""
    per_split: dict[str, list[list[OnRelease]]] = {method: [] for method in methods}
    for seed in seeds:
        releasing = cells.get(CellName(seed, whose))
        if releasing is None:
            continue
        sets = np.unpackbits(releasing.arrays[RELEASED], axis=-1, count=len(visits)).astype(bool)
        for method in methods:
            cell = cells.get(CellName(seed, method))
            if cell is not None:
                value: FloatArray = cell.arrays[VALUE_FOR[whose]]
                per_split[method].append([_errors_on(at, value, study, visits) for at in sets])
    return {method: _rows(found, study) for method, found in per_split.items()}


def _errors_on(released: BoolArray, value: FloatArray, study: Study, visits: VisitArrays) -> OnRelease:
    """Errors on given sets of visits, one set per draw."""
    truth = visits.target_values
    known = ~np.isnan(truth)
    error = np.abs(np.where(known, value - truth, 0.0))
    risky = study.tolerance.risky(value, truth) & known
    counts = released.sum(axis=1)
    some = counts > 0
    drawn, sizes = released[some], counts[some]
    share = drawn @ risky.astype(np.float64) / sizes
    return OnRelease(
        fdp=float(np.sum(share)) / len(counts),
        draws_released=float(np.mean(some)),
        precision=float(np.mean(1 - share)) if some.any() else None,
        mae=float(np.mean(drawn @ error / sizes)) if some.any() else None,
        rmse=float(np.mean(np.sqrt(drawn @ error**2 / sizes))) if some.any() else None,
    )


def _rows(per_split: Sequence[Sequence[OnRelease]], study: Study) -> list[SharedRow]:
    """Means over splits, of errors over those in which something was released."""
    rows: list[SharedRow] = []
    for position, alpha in enumerate(study.levels):
        at = [found[position] for found in per_split]
        released = [each for each in at if each.draws_released > 0]
        rows.append(
            {
                "fdr": alpha,
                "fdp": metrics.mean_se([each.fdp for each in at]),
                "mae": _mean_se(each.mae for each in released),
                "rmse": _mean_se(each.rmse for each in released),
                "precision": _mean_se(each.precision for each in released),
                "splits_released": len(released),
                "draws_released": float(np.mean([each.draws_released for each in at])) if at else None,
            }
        )
    return rows


def _mean_se(values: Iterable[float | None]) -> metrics.MeanSe:
    return metrics.mean_se([value for value in values if value is not None])
