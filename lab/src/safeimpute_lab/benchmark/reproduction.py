"""Everything the paper reports, gathered from finished cells: its tables and curves as typed data (arrays only)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from safeimpute.evaluation import metrics
from safeimpute.evaluation.evaluate import Accuracy, Curve, ReleaseSummary, RiskGroup, summarise_release
from safeimpute.learning.roles import Role
from safeimpute.selection.questions import draw_roles
from safeimpute.visits.arrays import VisitArrays
from safeimpute_lab.benchmark.ablate import Ablation
from safeimpute_lab.benchmark.cell import HELD_OUT_VALUE, SHIPPED_OUTCOMES
from safeimpute_lab.benchmark.cells import Cell, CellName, Study, read_cell
from safeimpute_lab.benchmark.experiments import ALONE, EXPERIMENTS, gather_ablation, gather_alignment, gather_curves
from safeimpute_lab.benchmark.gather import training_note
from safeimpute_lab.benchmark.protocols import METHODS
from safeimpute_lab.benchmark.result import SharedRow, unpacked
from safeimpute_lab.benchmark.risks import RISKS, RiskRow, gather_risks
from safeimpute_lab.benchmark.shared import errors_on_releases

EVERY_METHOD = tuple(name for names in METHODS.values() for name in names)


class Reproduced(TypedDict):
    """The paper's tables and curves on other data."""

    note: str | None  # of a quick run
    repartitions: int
    seeds: list[int]
    states_of_code: int
    under_selection: dict[str, SharedRow]  # Table 1, by method
    splits_done: dict[str, int]
    alone: dict[str, Accuracy]  # Table 2
    release: dict[str, ReleaseSummary]  # of the presets as shipped, at the chosen level
    ablation: Ablation | None
    curves: list[Curve]
    alignment: list[RiskGroup]
    risks: dict[str, RiskRow]  # other ways to doubt, beside the proxy
    missing: dict[str, str]  # what has no complete result, and why


def cells_of(seeds: Sequence[int], methods: Sequence[str] = EVERY_METHOD) -> list[CellName]:
    """Split by split, the paper's own experiments first, other risks last."""
    return [CellName(seed, method) for seed in seeds for method in (EXPERIMENTS, *methods, RISKS)]


def gather_reproduction(
    folder: Path,
    study: Study,
    visits: VisitArrays,
    seeds: Sequence[int],
    target: str,
    tolerance: float | str,
    methods: Sequence[str] = EVERY_METHOD,
) -> Reproduced:
    """The tables from the cells that are there."""
    ended = {name: cell for name in cells_of(seeds, methods) if (cell := read_cell(folder, name)) is not None}
    good = {name: cell for name, cell in ended.items() if not cell.failed}
    own, doubts = (
        [good[name] for seed in seeds if (name := CellName(seed, which)) in good] for which in (EXPERIMENTS, RISKS)
    )
    plain = {name: cell for name, cell in good.items() if name.method in methods}
    shared = errors_on_releases(plain, "paper", methods, seeds, study, visits)
    done = {m: [plain[n] for seed in seeds if (n := CellName(seed, m)) in plain] for m in methods}
    return {
        "note": training_note(study.effort),
        "repartitions": study.repartitions,
        "seeds": list(seeds),
        "states_of_code": len({cell.content.get("code") for cell in good.values()}),
        "under_selection": {method: rows[0] for method, rows in shared.items() if done[method]},
        "splits_done": {method: len(found) for method, found in done.items()},
        "alone": _alone(done, own, study, visits),
        "release": {name: _shipped(done[name], study) for name in ("paper", "best") if done.get(name)},
        "ablation": gather_ablation(own, study, target, tolerance) if own else None,
        "curves": gather_curves(own, study) if own else [],
        "alignment": gather_alignment(own) if own else [],
        "risks": gather_risks(doubts, study),
        "missing": _missing(ended, seeds, methods),
    }


def _alone(done: dict[str, list[Cell]], own: Sequence[Cell], study: Study, visits: VisitArrays) -> dict[str, Accuracy]:
    """All hidden values under the paper's split; the paper's network without fallback edges."""
    found: dict[str, Accuracy] = {}
    for method, cells in done.items():
        used = own if method == "paper" else cells
        name = ALONE if method == "paper" else HELD_OUT_VALUE
        errors = []
        for cell in used:
            tested = draw_roles(visits, cell.content["seed"], study.test_fraction) == Role.TEST
            errors.append((cell.arrays[name][tested], visits.target_values[tested]))
        if errors:
            found[method] = {
                "mae": metrics.mean_se([metrics.mean_absolute_error(*pair) for pair in errors]),
                "rmse": metrics.mean_se([metrics.root_mean_squared_error(*pair) for pair in errors]),
            }
    return found


def _shipped(cells: Sequence[Cell], study: Study) -> ReleaseSummary:
    return summarise_release([unpacked(cell.arrays[SHIPPED_OUTCOMES])[0] for cell in cells], study.levels[0])


def _missing(ended: dict[CellName, Cell], seeds: Sequence[int], methods: Sequence[str]) -> dict[str, str]:
    """Per method the splits it lacks and why."""
    found: dict[str, str] = {}
    for method in (EXPERIMENTS, *methods, RISKS):
        whys: dict[str, int] = {}
        for seed in seeds:
            cell = ended.get(CellName(seed, method))
            if cell is None or cell.failed:
                why = "not run yet" if cell is None else cell.failure["text"]
                whys[why] = whys.get(why, 0) + 1
        if whys:
            found[method] = "; ".join(f"{count} of {len(seeds)} splits: {why}" for why, count in whys.items())
    return found
