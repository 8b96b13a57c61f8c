"""docs/results.md from the runs of `evidence results`: tables with standard errors, and a plain reading."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute_lab.evidence.datasets import DATA_SETS

METHODS = ("mean", "locf", "patient_mean", "lightgbm", "paper", "best")
NEEDED = {"lightgbm", "best"}  # of a split to be shown
LEVELS = ("0.05", "0.1", "0.2", "0.35")
RELEASES = (  # label, method, which of its releases
    ("`paper`", "paper", "release"),
    ("`best`", "best", "release"),
    ("`best`, confident", "best", "confident"),
)

HEAD = """# Results

Every figure below was made by `python -m safeimpute_lab evidence results export`, `run` and `write` (data sets:
`evidence/datasets.py` of the laboratory; real data from the open sources named there, simulated cohorts from
`safeimpute simulate`). {scope} Five random splits by visits, seeds 0–4, the same for all methods: 20 % of the measured
targets are the test. Plain methods and `best` have all other values; `paper` has its own split, 70/15/15 of the rest
for training, validation and calibration, and its accuracy is that without fallback edges. `±` is one standard error
over splits. `lightgbm` is gradient boosting on lag features (`methods/boosted_lags.py` there), `paper` the published
system by the letter, `best` the default.

The tolerance of each data set makes about 37.5 % of `paper`'s imputations risky on the validation visits of a pilot
split (seed 1000), rounded to two digits. Releases: `paper` under claim `visits`, means over 200 re-partitions of
calibration and test per fit; `best` under claim `unmeasured`, one release per split, on average and with 90 %
confidence. A release of nothing counts as FDP 0 and power 0. The learned risk of `paper`'s imputations was learnt
with bins of ten rows (now three).
"""


def write_page(lines: list[dict[str, Any]], folder: Path) -> None:
    """The page."""
    ordered = gathered(lines)
    short = [f"{name} ({len(found)})" for name, found in ordered.items() if len(found) < 5]
    absent = [name for name in DATA_SETS if name not in ordered]
    scope = f"Fewer than five splits were run for: {'; '.join(short)}. " if short else ""
    scope += f"Not run yet, for want of time: {'; '.join(absent)}. " if absent else ""
    partly = [
        f"{name} ({sum('paper' in line['methods'] for line in found)})"
        for name, found in ordered.items()
        if any("paper" not in line["methods"] for line in found)
    ]
    scope += f"Splits that `paper` ran on, where fewer: {'; '.join(partly)}. " if partly else ""
    sections = {
        "Reading": reading,
        "Imputation: mean absolute error": lambda runs: accuracy(runs, "mae"),
        "Imputation: root mean squared error": lambda runs: accuracy(runs, "rmse"),
        "MAE of `best`, as a ratio, paired over splits": ratios,
        "Release: achieved FDP and power": releases,
        "Ranking: AUC of the risk": ranking,
    }
    parts = [HEAD.format(scope=scope)]
    for title, section in sections.items():
        parts += [f"## {title}\n", *section(ordered), ""]
    (folder / "results.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def gathered(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Lines of one data set and split put together; splits on which the needed methods ran."""
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        if "methods" in line:
            key = line["data"], line["seed"]
            before = merged.get(key, {"methods": {}})
            merged[key] = line | {"methods": before["methods"] | line["methods"]}
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in merged.values():
        if set(line["methods"]) >= NEEDED:
            runs[line["data"]].append(line)
    return {n: sorted(found, key=lambda line: line["seed"]) for n, found in sorted(runs.items(), key=_order)}


def _order(item: tuple[str, Any]) -> tuple[int, str]:
    families = ("PBC", "NAFLD", "MIMIC-III", "MIMIC-IV", "PhysioNet", "simulated")
    return next(i for i, family in enumerate(families) if item[0].startswith(family)), item[0]


def each(found: list[dict[str, Any]], method: str, *path: str) -> np.ndarray:
    values = []
    for line in found:
        value: Any = line["methods"].get(method)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        values.append(np.nan if value is None else value)
    return np.array(values, dtype=float)


def there(values: np.ndarray) -> np.ndarray:
    """Those of splits on which the method ran."""
    return np.asarray(values[~np.isnan(values)])


def mean_se(values: np.ndarray, digits: int = 3) -> str:
    found = there(values)
    if not len(found):
        return "–"
    mean = f"{found.mean():.{digits}g}"
    return mean if len(found) < 2 else f"{mean} ± {standard_error(found):.2g}"


def standard_error(values: np.ndarray) -> float:
    """Of a mean over splits; 0 for one split, which has none."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]


def accuracy(runs: dict[str, Any], metric: str) -> list[str]:
    rows = []
    for name, found in runs.items():
        means = {method: each(found, method, metric) for method in METHODS}
        best = min(METHODS, key=lambda method: np.nan_to_num(means[method].mean(), nan=np.inf))
        cells = [f"**{mean_se(means[m])}**" if m == best else mean_se(means[m]) for m in METHODS]
        rows.append([name, f"{found[0]['visits']:,}", *cells])
    return table(["data", "visits", *(f"`{method}`" for method in METHODS)], rows)


def ratios(runs: dict[str, Any]) -> list[str]:
    rows = []
    for name, found in runs.items():
        best = each(found, "best", "mae")
        cells = [mean_se(best / each(found, other, "mae")) for other in ("lightgbm", "paper", "locf")]
        rows.append([name, *cells])
    return table(["data", "to `lightgbm`", "to `paper`", "to `locf`"], rows)


def releases(runs: dict[str, Any]) -> list[str]:
    """`paper`, `best` on average, `best` with confidence."""
    rows = []
    for name, found in runs.items():
        shown = [release for release in RELEASES if any(release[1] in line["methods"] for line in found)]
        for place, (label, method, kind) in enumerate(shown):
            cells = []
            for level in LEVELS:
                fdp, power = (each(found, method, kind, level, key) for key in ("fdp", "power"))
                cells += [mean_se(fdp, 2), mean_se(power, 2), pooled(found, method, kind, level)]
            rows.append(["" if place else name, f"{found[0]['tolerance']:g}", label, *cells])
    head = ["data", "tolerance", "release"]
    head += [f"{what} at {level}" for level in LEVELS for what in ("FDP", "power", "pooled")]
    return table(head, rows)


def pooled(found: list[dict[str, Any]], method: str, kind: str, level: str) -> str:
    """All risky over all released, over splits; of `paper`, which keeps it per split, the mean."""
    rows = [line["methods"][method][kind][level] for line in found if method in line["methods"]]
    if all("released" in row for row in rows):
        released = sum(row["released"] for row in rows)
        return f"{sum(row['risky'] for row in rows) / released:.2g}" if released else "–"
    shares = [row["pooled"] for row in rows if row["pooled"] is not None]
    return f"{np.mean(shares):.2g}" if shares else "–"


def ranking(runs: dict[str, Any]) -> list[str]:
    rows = []
    for name, found in runs.items():
        cells = [each(found, "paper", "auc"), each(found, "paper", "learned_auc"), each(found, "best", "auc")]
        rows.append([name, *(mean_se(values) for values in cells)])
    return table(["data", "`paper`, its proxy risk", "same imputations, learned risk", "`best`, learned risk"], rows)


def reading(runs: dict[str, Any]) -> list[str]:
    """Sentences computed from the runs."""
    if not runs:
        return ["Nothing was run yet."]
    to_trees, to_paper = (
        {n: each(f, "best", "mae") / each(f, other, "mae") for n, f in runs.items()} for other in ("lightgbm", "paper")
    )
    worse = [n for n, r in to_trees.items() if len(r) > 1 and r.mean() - 1 > 2 * standard_error(r)]
    beside_paper = [there(r).mean() for r in to_paper.values() if len(there(r))]
    held, above = levels_held(runs)
    no_better = [
        name
        for name, found in runs.items()
        if np.nansum(each(found, "paper", "learned_auc") - each(found, "paper", "auc")) <= 0
        and len(there(each(found, "paper", "auc")))
    ]
    return [
        "- `best` against LightGBM on lag features: mean ratio of MAE "
        f"{np.mean([r.mean() for r in to_trees.values()]):.3f}"
        f" over {len(runs)} data sets; worse by more than two paired SE on: {', '.join(worse) or 'none'}.",
        f"- `best` against `paper`: mean ratio of MAE {np.mean(beside_paper):.3f} "
        "(`paper` learns from 70 % of the visible values, by its own split).",
        f"- Mean power over data sets at levels {', '.join(LEVELS)}: {powers(runs)}.",
        f"- Mean FDP at most the level + 3 SE in {held} of {held + len(above)} cells (data set x release x level)"
        f"{'; above in: ' + '; '.join(above) if above else ''}.",
        "- On the paper's own imputations the learned risk ranks no better than the proxy on: "
        f"{', '.join(no_better) or 'none'}.",
    ]


def powers(runs: dict[str, Any]) -> str:
    said = []
    for label, method, kind in RELEASES:
        means = [
            np.mean([r.mean() for f in runs.values() if len(r := there(each(f, method, kind, level, "power")))])
            for level in LEVELS
        ]
        said.append(f"{label} {' / '.join(f'{mean:.2f}' for mean in means)}")
    return "; ".join(said)


def levels_held(runs: dict[str, Any]) -> tuple[int, list[str]]:
    """How many cells keep their level within three standard errors, and those that do not."""
    held, above = 0, []
    for name, found in runs.items():
        for label, method, kind in RELEASES:
            for level in LEVELS:
                fdp = there(each(found, method, kind, level, "fdp"))
                if not len(fdp):  # not run
                    continue
                if fdp.mean() > float(level) + 3 * standard_error(fdp):
                    above.append(f"{name}, {label}, {level} ({fdp.mean():.3f})")
                else:
                    held += 1
    return held, above
