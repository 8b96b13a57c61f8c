"""Every method on the same splits: finished cells become the paper's tables, fair ones beside them (arrays only)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.benchmark.cell import PRESETS, RELEASED
from safeimpute.benchmark.cells import Cell, CellName, Study, read_cell
from safeimpute.benchmark.compare import corrected_p_value, mean_ranks
from safeimpute.benchmark.published import published_figures
from safeimpute.benchmark.registry import METHODS, method_named
from safeimpute.errors import OptionError
from safeimpute.evaluation import metrics
from safeimpute.records.arrays import BoolArray, FloatArray, VisitArrays

Cells = Mapping[CellName, Cell]
OURS = "best"  # whose release "our release" means first


@dataclass(frozen=True)
class Field:
    """Who takes part, on which splits."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]

    def cells(self) -> list[CellName]:
        """Split by split, so that a run cut short still compares all methods on the splits it finished."""
        return [CellName(seed, method) for seed in self.seeds for method in self.methods]


def methods_asked_for(text: str) -> tuple[str, ...]:
    """`all`, or names separated by commas, in the registry's order."""
    asked = [part.strip() for part in text.split(",") if part.strip()]
    if not asked:
        raise OptionError("--methods names no method. Write all, or names such as mean,locf,best.")
    if asked == ["all"]:
        return tuple(METHODS)
    for name in asked:
        method_named(name)
    return tuple(name for name in METHODS if name in asked)


def training_note(effort: float) -> str | None:
    """What every output of a quick run says."""
    if effort == 1.0:
        return None
    return (
        f"Quick run: methods that train in rounds trained for {effort:g} of the published rounds. "
        "Not comparable with a full run."
    )


def gather(folder: Path, study: Study, visits: VisitArrays, field: Field) -> dict[str, Any]:
    """The benchmark's result from the cells that are there."""
    found = {name: read_cell(folder, name) for name in field.cells()}
    ended = {name: cell for name, cell in found.items() if cell is not None}
    good = {name: cell for name, cell in ended.items() if not cell.failed}
    errors = {m: _per_split(good, field, m, lambda cell: cell.content["mae"]) for m in field.methods}
    shared = _on_our_release(good, study, visits, field)
    ranks = mean_ranks({name: found for name, found in errors.items() if found}, field.seeds)
    rivals = _rivals(errors)
    ratio = float(np.mean([cell.content["test_to_training"] for cell in good.values()])) if good else 0.0
    methods = {
        method: {
            **_summarise(good, study, field, method),
            "error": _error(ended, field, method),
            "mean_rank": ranks.get(method),
            "against": {rival: _paired(errors[method], errors[rival], ratio) for rival in rivals},
            "on_release_of": {whose: rows[method] for whose, rows in shared.items()},
        }
        for method in field.methods
    }
    return {
        "effort": study.effort,
        "note": training_note(study.effort),
        "repartitions": study.repartitions,
        "states_of_code": len({cell.content.get("code") for cell in good.values()}),
        "rivals": rivals,
        "methods": methods,
        "published": published_figures(),
    }


def _per_split(
    cells: Cells, field: Field, method: str, read: Callable[[Cell], float | None]
) -> dict[int, float]:
    """A figure of a method at every split that has it."""
    at = {seed: cells.get(CellName(seed, method)) for seed in field.seeds}
    figures = {seed: read(cell) for seed, cell in at.items() if cell is not None}
    return {seed: figure for seed, figure in figures.items() if figure is not None}


def _summarise(cells: Cells, study: Study, field: Field, method: str) -> dict[str, Any]:
    done = [cells[name] for name in field.cells() if name.method == method and name in cells]
    contents = [cell.content for cell in done]
    summary: dict[str, Any] = {
        "imputation": {name: metrics.mean_se([c[name] for c in contents]) for name in ("mae", "rmse")},
        "release": _releases(contents, study),
        "risk_auc": metrics.mean_se([c["auc"] for c in contents if c["auc"] is not None]),
        "seconds": _seconds(contents),
        "peak_mib": _mean([c["peak_mib"] for c in contents]),
        "gpu_peak_mib": _mean([c["gpu_peak_mib"] for c in contents if c["gpu_peak_mib"] is not None]),
        "devices": sorted({c["device"] for c in contents}),
        "splits_done": len(contents),
    }
    if method in PRESETS:
        validation = [c["validation_risk"] for c in contents]
        summary["validation_risk"] = {
            "release": _releases(validation, study),
            "risk_auc": metrics.mean_se([v["auc"] for v in validation if v["auc"] is not None]),
        }
    return summary


def _releases(contents: Sequence[Mapping[str, Any]], study: Study) -> list[dict[str, Any]]:
    """Releases over splits, in the form `evaluate` gives them."""
    rows = []
    for position, level in enumerate(study.levels):
        at = [content["release"][position] for content in contents]
        released = [scores for scores in at if scores["mae"] is not None]
        rows.append(
            {
                "fdr": level,
                **{n: metrics.mean_se([s[n] for s in at]) for n in ("fdp", "power", "acceptance")},
                **{n: metrics.mean_se([s[n] for s in released]) for n in ("mae", "rmse")},
                "splits_released": len(released),
            }
        )
    return rows


def _seconds(contents: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    stages = {s: _mean([c["seconds"].get(s, 0.0) for c in contents]) for s in ("graph", "fit", "risk")}
    return {**stages, "total": _mean([sum(c["seconds"].values()) for c in contents])}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _error(ended: Cells, field: Field, method: str) -> str | None:
    """Why a method has no result, or fewer splits than the others."""
    reasons: dict[str, list[int]] = {}
    for number, seed in enumerate(field.seeds):
        cell = ended.get(CellName(seed, method))
        if cell is None:
            reasons.setdefault("not run yet", []).append(number + 1)
        elif cell.failed:
            reasons.setdefault(cell.content["error"]["text"], []).append(number + 1)
    if not reasons:
        return None
    if len(reasons) == 1 and sum(map(len, reasons.values())) == len(field.seeds):
        return next(iter(reasons))
    return "; ".join(f"split {', '.join(map(str, where))}: {why}" for why, where in reasons.items())


def _rivals(errors: Mapping[str, Mapping[int, float]]) -> list[str]:
    """Whom everybody is compared with: `best`, and the most accurate other method among those with most splits."""
    most = max((len(found) for name, found in errors.items() if name not in PRESETS), default=0)
    plain = {
        name: float(np.mean(list(found.values())))
        for name, found in errors.items()
        if name not in PRESETS and len(found) == most > 0
    }
    ours = [OURS] if errors.get(OURS) else []
    return [*ours, *([min(plain, key=lambda name: plain[name])] if plain else [])]


def _paired(
    own: Mapping[int, float], other: Mapping[int, float], test_to_training: float
) -> dict[str, Any] | None:
    """Difference and ratio of MAE over the splits both finished; None where there is none."""
    both = sorted(own.keys() & other.keys())
    if not both:
        return None
    differences = [own[seed] - other[seed] for seed in both]
    return {
        "difference": metrics.mean_se(differences),
        "ratio": float(np.mean([own[seed] for seed in both]) / np.mean([other[seed] for seed in both])),
        "p_value": corrected_p_value(differences, test_to_training),
        "splits": len(both),
    }


def _on_our_release(
    cells: Cells, study: Study, visits: VisitArrays, field: Field
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The paper's way: every method judged on the values one preset's risk released."""
    shared = {}
    for whose in (OURS, "paper"):
        if whose not in field.methods:
            continue
        per_split: dict[str, list[list[dict[str, Any]]]] = {method: [] for method in field.methods}
        for seed in field.seeds:
            releasing = cells.get(CellName(seed, whose))
            if releasing is None:
                continue
            sets = _unpacked(releasing, len(visits))
            for method in field.methods:
                cell = cells.get(CellName(seed, method))
                if cell is not None:
                    value = cell.arrays["released_value" if method in PRESETS else "value"]
                    per_split[method].append(_scores_on(sets, value, study, visits))
        shared[whose] = {method: _shared_rows(found, study) for method, found in per_split.items()}
    return shared


def _unpacked(cell: Cell, visits: int) -> BoolArray:
    """Levels x re-partitions x visits."""
    return np.unpackbits(cell.arrays[RELEASED], axis=-1, count=visits).astype(bool)


def _scores_on(sets: BoolArray, value: FloatArray, study: Study, visits: VisitArrays) -> list[dict[str, Any]]:
    """Errors of one method on given sets of visits, one row per level, means over re-partitions."""
    truth = visits.target_values
    known = ~np.isnan(truth)
    error = np.abs(np.where(known, value - truth, 0.0))
    bad = study.tolerance.risky(value, truth) & known
    rows = []
    for at_level in sets:
        counts = at_level.sum(axis=1)
        some = counts > 0
        drawn, sizes = at_level[some], counts[some]
        wrong = drawn @ bad.astype(np.float64) / sizes
        rows.append(
            {
                "fdp": float(np.sum(wrong)) / len(counts),  # 0 where a draw releases nothing
                "precision": float(np.mean(1 - wrong)) if some.any() else None,
                "draws_released": float(np.mean(some)),
                "mae": float(np.mean(drawn @ error / sizes)) if some.any() else None,
                "rmse": float(np.mean(np.sqrt(drawn @ error**2 / sizes))) if some.any() else None,
            }
        )
    return rows


def _shared_rows(per_split: Sequence[Sequence[Mapping[str, Any]]], study: Study) -> list[dict[str, Any]]:
    rows = []
    for position, level in enumerate(study.levels):
        at = [found[position] for found in per_split]
        released = [scores for scores in at if scores["mae"] is not None]
        rows.append(
            {
                "fdr": level,
                "fdp": metrics.mean_se([scores["fdp"] for scores in at]),
                **{n: metrics.mean_se([s[n] for s in released]) for n in ("mae", "rmse", "precision")},
                "splits_released": len(released),
                "draws_released": _mean([scores["draws_released"] for scores in at]),
            }
        )
    return rows
