"""docs/peers.md from the kept cells: `best` beside every package, ours of the same name beside theirs, releases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute_lab.evidence.peers import PACKAGES, read_cells
from safeimpute_lab.studies.selections import HERE

Cell = dict[str, Any]
Cells = Mapping[tuple[str, str], Mapping[int, Cell]]  # by data set and method, then by split
BEST = "best"
FEWEST_SPLITS = 3  # whose spread says something
LEVEL = 0.1  # shown; the cells hold others
OTHERS = {
    "mapie": "MAPIE's risk control, confidence 0.9",
    "nonconform": "nonconform, its pruning",
    "nonconform, random": "nonconform, random pruning",
}


def page(peer_cells: Path, selection_cells: Path) -> str:
    """The whole page."""
    lines = list(read_cells(peer_cells))
    good: dict[tuple[str, str], dict[int, Cell]] = {}
    for cell in lines:
        if "mae" in cell:
            good.setdefault((cell["data"], cell["method"]), {})[cell["seed"]] = cell
    parts = [
        "# Beside the packages themselves\n",
        _introduction(good),
        "## `best` against each package\n",
        *_against(good),
        "## Ours of the same name\n",
        *_same_name(good),
        "## Selection against selection\n",
        *_selections(list(read_cells(selection_cells))),
        "## What is missing\n",
        _missing(good, lines),
    ]
    return "\n".join(parts) + "\n"


def _introduction(good: Cells) -> str:
    commits = ", ".join(sorted({f"`{cell['commit']}`" for found in good.values() for cell in found.values()}))
    data = ", ".join(sorted({name for name, method in good if method == BEST}))
    return (
        "Other people's packages as they ship them, on the same splits: a fifth of the measured values is hidden, and "
        "every method sees all others. Each figure compares two methods on the splits both finished.\n\n"
        f"Data: {data or 'none yet'}. Code: {commits or 'none'}. Made by `python -m safeimpute_lab evidence peers run` "
        "and `write`, which go on where they stopped.\n"
    )


def _shared(good: Cells, one: str, other: str) -> dict[str, list[tuple[Cell, Cell]]]:
    """Per data set the splits that two methods finished."""
    found: dict[str, list[tuple[Cell, Cell]]] = {}
    for (name, method), cells in good.items():
        rival = good.get((name, other), {}) if method == one else {}
        if pairs := [(cells[seed], rival[seed]) for seed in sorted(cells.keys() & rival.keys())]:
            found[name] = pairs
    return found


def _ratio(found: Mapping[str, list[tuple[Cell, Cell]]]) -> str:
    """Mean over data sets of the ratio of MAE, with its standard error over them."""
    ratios = [np.mean([one["mae"] / other["mae"] for one, other in pairs]) for pairs in found.values()]
    mean = f"{np.mean(ratios):.3f}"
    return mean if len(ratios) < 2 else f"{mean} ± {np.std(ratios, ddof=1) / np.sqrt(len(ratios)):.3f}"


def _beyond(pairs: list[tuple[Cell, Cell]]) -> int:
    """-1 where the first is better by more than two paired standard errors, 1 where worse, else 0."""
    apart = np.array([one["mae"] - other["mae"] for one, other in pairs])
    if len(apart) < FEWEST_SPLITS:
        return 0
    error = apart.std(ddof=1) / np.sqrt(len(apart))
    return int(np.sign(apart.mean())) if abs(apart.mean()) > 2 * error else 0


def _compared(found: Mapping[str, list[tuple[Cell, Cell]]]) -> tuple[int, int, int]:
    """Splits, and data sets on which the first is better and worse beyond two standard errors."""
    signs = [_beyond(pairs) for pairs in found.values()]
    return sum(map(len, found.values())), signs.count(-1), signs.count(1)


def _against(good: Cells) -> list[str]:
    rows = []
    for name in ("mean", "lightgbm", *PACKAGES):
        if found := _shared(good, BEST, name):
            splits, wins, losses = _compared(found)
            ours, theirs = ([pair[place] for pairs in found.values() for pair in pairs] for place in (0, 1))
            cost = [_both(ours, theirs, key) for key in ("processor", "mib")]
            rows.append([f"`{name}`", f"{len(found)} ({splits})", _ratio(found), str(wins), str(losses), *cost])
    head = ["package", "data sets (splits)", "MAE of `best` / its", "`best` better", "worse"]
    head += ["processor seconds, its / `best`", "MiB"]
    note = (
        "\nBetter and worse: data sets whose paired difference over splits exceeds two standard errors (fewer than "
        "three splits: neither). `mice` is scikit-learn's `IterativeImputer`. Seconds are of the processor, children's "
        "included: the machine was shared.\n"
    )
    return [*_table(head, rows), note] if rows else ["Nothing was run yet.\n"]


def _both(ours: list[Cell], theirs: list[Cell], key: str) -> str:
    one, other = (float(np.mean([cell[key] for cell in cells])) for cells in (ours, theirs))
    return f"{other:,.0f} / {one:,.0f}"


def _same_name(good: Cells) -> list[str]:
    rows = []
    for name, ours in PACKAGES.items():
        if ours and (found := _shared(good, ours, name)):
            splits, wins, losses = _compared(found)
            rows.append([f"`{ours}`", f"`{name}`", f"{len(found)} ({splits})", _ratio(found), str(wins), str(losses)])
    head = ["ours", "theirs", "data sets (splits)", "MAE of ours / theirs", "ours better", "worse"]
    return [*_table(head, rows), ""] if rows else ["Not run yet.\n"]


def _selections(rows: list[Cell]) -> list[str]:
    if not rows:
        return ["Not run yet.\n"]
    words = {name: f"ours, {name}" if place < 2 else name for place, name in enumerate(HERE)} | OTHERS
    table = [
        [
            row["world"],
            words[row["rule"]],
            f"{row['pooled']:.3f} ± {row['pooled_se']:.3f}",
            f"{row['mean_fdp']:.3f} ± {row['mean_fdp_se']:.3f}",
            f"{row['exceeds']:.2f}",
            f"{row['power']:.2f}",
        ]
        for row in rows
        if row["alpha"] == LEVEL
    ]
    head = ["measuring", "rule", "share among all released", "mean FDP", "draws above", "power"]
    first = rows[0]
    note = (
        f"\nLevel {LEVEL:g}. The same values and risks in "
        f"{first['repetitions']} drawn cohorts of {first['patients']} patients, "
        "odds of measuring known. Made by `python -m safeimpute_lab selections`.\n"
    )
    absent = [words[name] for name in OTHERS if name not in {row["rule"] for row in rows}]
    return [*_table(head, table), note, *([f"Left out: {', '.join(absent)}.\n"] if absent else [])]


def _missing(good: Cells, lines: list[Cell]) -> str:
    ran = {method for _, method in good}
    why = {c["method"]: f"out of its budget of {c['over_budget']:g} s" for c in lines if "over_budget" in c}
    why |= {c["method"]: c["failed"] for c in lines if "failed" in c}
    named = [f"`{name}` ({why.get(name, 'not run')})" for name in PACKAGES if name not in ran]
    return f"{'; '.join(named)}." if named else "Every package has a cell; fewer splits are shown above."


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]
