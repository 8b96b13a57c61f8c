"""Two tables of docs/evidence.md from the runs of `evidence results`: accuracy and release, each with its reading."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute_lab.studies.into_page import put_into

METHODS = ("mean", "locf", "patient_mean", "lightgbm", "paper", "best")
NEEDED = {"lightgbm", "best"}  # of a split to be shown
LEVELS = ("0.05", "0.1", "0.2")
RELEASES = (("on average", "release"), ("90 % confidence", "confident"))
Runs = dict[str, list[dict[str, Any]]]  # by data set


def write_page(lines: list[dict[str, Any]], page: Path) -> None:
    """Fill the page's two blocks."""
    runs = gathered(lines)
    commits = ", ".join(sorted({line["commit"] for found in runs.values() for line in found}))
    put_into(page, "accuracy", f"Cells of commit {commits}. {accuracy_reading(runs)}\n\n" + "\n".join(accuracy(runs)))
    put_into(page, "release", f"{release_reading(runs)}\n\n" + "\n".join(releases(runs)))


def gathered(lines: list[dict[str, Any]]) -> Runs:
    """Lines of one data set and split put together; splits on which the needed methods ran."""
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        if "methods" in line:
            key = line["data"], line["seed"]
            before = merged.get(key, {"methods": {}})
            merged[key] = line | {"methods": before["methods"] | line["methods"]}
    runs: Runs = defaultdict(list)
    for line in merged.values():
        if set(line["methods"]) >= NEEDED:
            runs[line["data"]].append(line)
    return {n: sorted(found, key=lambda line: line["seed"]) for n, found in sorted(runs.items(), key=_order)}


def _order(item: tuple[str, Any]) -> tuple[int, str]:
    families = ("PBC", "NAFLD", "MIMIC-III", "MIMIC-IV", "PhysioNet", "simulated")
    return next(i for i, family in enumerate(families) if item[0].startswith(family)), item[0]


def each(found: list[dict[str, Any]], method: str, *path: str) -> np.ndarray:
    """One figure of every split; NaN where the method did not run."""
    values = []
    for line in found:
        value: Any = line["methods"].get(method)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        values.append(np.nan if value is None else value)
    return np.array(values, dtype=float)


def mean_se(values: np.ndarray, digits: int = 3) -> str:
    """Over the splits on which the method ran."""
    found = values[~np.isnan(values)]
    if not len(found):
        return "–"
    mean = f"{found.mean():.{digits}g}"
    return mean if len(found) < 2 else f"{mean} ± {standard_error(found):.2g}"


def standard_error(values: np.ndarray) -> float:
    """Of a mean over splits; 0 for one split, which has none."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """In markdown."""
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]


def accuracy(runs: Runs) -> list[str]:
    """Mean absolute errors, the smallest in bold, and the ratio to gradient boosting."""
    shown = [method for method in METHODS if any(method in line["methods"] for f in runs.values() for line in f)]
    rows = []
    for name, found in runs.items():
        means = {method: each(found, method, "mae") for method in shown}
        best = min(shown, key=lambda method: np.nan_to_num(means[method].mean(), nan=np.inf))
        cells = [f"**{mean_se(means[m])}**" if m == best else mean_se(means[m]) for m in shown]
        splits = f"{found[0]['visits']:,} x {len(found)}"
        rows.append([name, splits, *cells, mean_se(means["best"] / means["lightgbm"])])
    return table(["data", "visits x splits", *(f"`{m}`" for m in shown), "`best` / `lightgbm`"], rows)


def accuracy_reading(runs: Runs) -> str:
    """One sentence computed from the runs."""
    ratios = {name: each(found, "best", "mae") / each(found, "lightgbm", "mae") for name, found in runs.items()}
    worse = [name for name, r in ratios.items() if len(r) > 1 and r.mean() - 1 > 2 * standard_error(r)]
    return (
        f"`best` has {np.mean([r.mean() for r in ratios.values()]):.3f} of LightGBM's error on average over these "
        f"{len(runs)} data sets; it is worse by more than two standard errors on: {', '.join(worse) or 'none'}."
    )


def releases(runs: Runs) -> list[str]:
    """Of `best`, per level: risky / released over all splits, and the share of good values released."""
    rows = []
    for name, found in runs.items():
        for place, (label, kind) in enumerate(RELEASES):
            cells = [f"{pooled(found, kind, level)}; {power(found, kind, level)}" for level in LEVELS]
            rows.append(["" if place else name, "" if place else f"{found[0]['tolerance']:g}", label, *cells])
    return table(["data", "tolerance", "promise", *(f"level {level}: share; power" for level in LEVELS)], rows)


def pooled(found: list[dict[str, Any]], kind: str, level: str) -> str:
    """All risky over all released, over splits."""
    risky, released = (sum(each(found, "best", kind, level, key)) for key in ("risky", "released"))
    return f"{risky / released:.3f} of {released:,.0f}" if released else "nothing"


def power(found: list[dict[str, Any]], kind: str, level: str) -> str:
    """Of the acceptable values the share released, on average over splits."""
    return f"{each(found, 'best', kind, level, 'power').mean():.2f}"


def release_reading(runs: Runs) -> str:
    """Which cells keep their level within three standard errors of the mean share, and the mean power."""
    above, cells = [], 0
    for name, found in runs.items():
        for label, kind in RELEASES:
            for level in LEVELS:
                fdp = each(found, "best", kind, level, "fdp")
                cells += 1
                if fdp.mean() > float(level) + 3 * standard_error(fdp):
                    above.append(f"{name}, {label}, {level} ({fdp.mean():.3f})")
    means = [
        f"{label} {' / '.join(f'{_mean_power(runs, kind, level):.2f}' for level in LEVELS)}" for label, kind in RELEASES
    ]
    kept = f"The mean share is at most the level plus three standard errors in {cells - len(above)} of {cells} cells"
    also = f" (not: {'; '.join(above)})" if above else ""
    return f"{kept}{also}. Mean power at {' / '.join(LEVELS)}: {'; '.join(means)}."


def _mean_power(runs: Runs, kind: str, level: str) -> float:
    return float(np.mean([each(found, "best", kind, level, "power").mean() for found in runs.values()]))
