"""Every method on the same splits: finished cells become the paper's tables, fair ones beside them (arrays only)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.evaluation import metrics
from safeimpute.evaluation.evaluate import ReleaseSummary, summarise_release
from safeimpute.visits.arrays import VisitArrays
from safeimpute_lab.benchmark.cell import OUTCOMES, PRESETS, SHIPPED_OUTCOMES
from safeimpute_lab.benchmark.cells import Cell, CellName, Study, read_cell
from safeimpute_lab.benchmark.compare import corrected_p_value, mean_ranks
from safeimpute_lab.benchmark.published import published_figures
from safeimpute_lab.benchmark.result import CellFigures, Gathered, MethodRow, Paired, SharedRow, unpacked
from safeimpute_lab.benchmark.shared import errors_on_releases
from safeimpute_lab.registry import METHODS, method_named

Cells = Mapping[CellName, Cell]
Errors = Mapping[str, Mapping[int, float]]  # MAE by method and split
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


def gather(folder: Path, study: Study, visits: VisitArrays, field: Field) -> Gathered:
    """The benchmark's result from the cells that are there."""
    found = {name: read_cell(folder, name) for name in field.cells()}
    ended = {name: cell for name, cell in found.items() if cell is not None}
    good = {name: cell for name, cell in ended.items() if not cell.failed}
    errors = {m: _per_split(good, field, m, lambda cell: cell.figures["mae"]) for m in field.methods}
    rivals = _rivals(errors)
    ratios = [cell.figures["test_to_training"] for cell in good.values()]
    against = {
        method: {rival: _paired(errors[method], errors[rival], _mean(ratios) or 0.0) for rival in rivals}
        for method in field.methods
    }
    ranks = mean_ranks({name: found for name, found in errors.items() if found}, field.seeds)
    shared = {
        whose: errors_on_releases(good, whose, field.methods, field.seeds, study, visits)
        for whose in (OURS, "paper")
        if whose in field.methods
    }
    return {
        "effort": study.effort,
        "note": training_note(study.effort),
        "repartitions": study.repartitions,
        "states_of_code": len({cell.content.get("code") for cell in good.values()}),
        "rivals": rivals,
        "methods": {
            method: _row(
                _done(good, field, method),
                study,
                method,
                error=_error(ended, field, method),
                rank=ranks.get(method),
                against=against[method],
                shared={whose: rows[method] for whose, rows in shared.items()},
            )
            for method in field.methods
        },
        "published": published_figures(),
    }


def _per_split(cells: Cells, field: Field, method: str, read: Callable[[Cell], float | None]) -> dict[int, float]:
    """A figure of a method at every split that has it."""
    at = {seed: cells.get(CellName(seed, method)) for seed in field.seeds}
    figures = {seed: read(cell) for seed, cell in at.items() if cell is not None}
    return {seed: figure for seed, figure in figures.items() if figure is not None}


def _done(cells: Cells, field: Field, method: str) -> list[Cell]:
    return [cells[name] for name in field.cells() if name.method == method and name in cells]


def _row(
    done: Sequence[Cell],
    study: Study,
    method: str,
    *,
    error: str | None,
    rank: float | None,
    against: dict[str, Paired | None],
    shared: dict[str, list[SharedRow]],
) -> MethodRow:
    """Everything about one method; a preset's release is the one it ships."""
    figures, preset = [cell.figures for cell in done], method in PRESETS
    alike, areas = _releases(done, study, OUTCOMES), metrics.mean_se(_there([f["auc"] for f in figures]))
    own = metrics.mean_se(_there([f["shipped_auc"] for f in figures]))
    return {
        "imputation": {
            "mae": metrics.mean_se([f["mae"] for f in figures]),
            "rmse": metrics.mean_se([f["rmse"] for f in figures]),
        },
        "release": _releases(done, study, SHIPPED_OUTCOMES) if preset else alike,
        "risk_auc": own if preset else areas,
        "validation_risk": {"release": alike, "risk_auc": areas} if preset else None,
        "seconds": _seconds(figures),
        "peak_mib": _mean([f["peak_mib"] for f in figures]),
        "gpu_peak_mib": _mean(_there([f["gpu_peak_mib"] for f in figures])),
        "devices": sorted({f["device"] for f in figures}),
        "splits_done": len(figures),
        "error": error,
        "mean_rank": rank,
        "against": against,
        "on_release_of": shared,
    }


def _releases(done: Sequence[Cell], study: Study, which: str) -> list[ReleaseSummary]:
    """Releases over splits, in the form `evaluate` gives them."""
    per_cell = [unpacked(cell.arrays[which]) for cell in done]
    return [
        summarise_release([levels[position] for levels in per_cell], alpha)
        for position, alpha in enumerate(study.levels)
    ]


def _seconds(figures: Sequence[CellFigures]) -> dict[str, float | None]:
    stages = {s: _mean([f["seconds"].get(s, 0.0) for f in figures]) for s in ("graph", "fit", "risk")}
    return {**stages, "total": _mean([sum(f["seconds"].values()) for f in figures])}


def _there(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


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
            reasons.setdefault(cell.failure["text"], []).append(number + 1)
    if not reasons:
        return None
    if len(reasons) == 1 and sum(map(len, reasons.values())) == len(field.seeds):
        return next(iter(reasons))
    return "; ".join(f"split {', '.join(map(str, where))}: {why}" for why, where in reasons.items())


def _rivals(errors: Errors) -> list[str]:
    """Whom everybody is compared with: `best`, and the most accurate other method among those with most splits."""
    most = max((len(found) for name, found in errors.items() if name not in PRESETS), default=0)
    plain = {
        name: float(np.mean(list(found.values())))
        for name, found in errors.items()
        if name not in PRESETS and len(found) == most > 0
    }
    ours = [OURS] if errors.get(OURS) else []
    return [*ours, *([min(plain, key=lambda name: plain[name])] if plain else [])]


def _paired(own: Mapping[int, float], other: Mapping[int, float], test_to_training: float) -> Paired | None:
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
