"""Tables of the study on bounds and groups, from promises.json and the end-to-end cells."""

from collections import defaultdict
from typing import Any

import numpy as np

Row = dict[str, Any]

HEAD = """## Bounds and groups

By `python -m safeimpute_lab guarantee promises --out out/study`
(2,000 drawn worlds a row at 300 patients, 1,000 at 1,000; odds of
measuring known) and, end to end, by the cohorts above. **Exceeded**: share of draws in which the 90 % bound is broken
at the worst of 20 thresholds picked after looking, for the values of the table and for the long run (60,000 patients);
10 % is promised. **Said / true**: the bound and the share of risky values among the half of the candidates with the
lowest risk. **Groups**: six cells (thirds of the risk by short and long records) with a cut-off each, level 0.2: the
largest mean FDP of any group, and the largest pooled share of groups that release in at least half of the draws.
"""
AFTER = """
The mean FDP is kept in every group. The pooled share of a group in which nearly every value is too risky lies above
the level by up to {excess:.3f}: such a group releases little and seldom, and what it then releases is chosen by luck.

### End to end: one cut-off for all, and one for each group, level 0.2

300 patients, 40 cohorts a scenario; groups by bands of the imputed value and by own measured values (small ones stand
together); shares pooled over cohorts. The bound was broken at its worst threshold in {broken} of {cohorts} cohorts.

| scenario | worst group, one cut-off | the same group, its own | released, one cut-off -> own |
| --- | --- | --- | --- |
"""


def promise_section(rows: list[Row], cells: list[Row]) -> str:
    """The whole section."""
    text = (
        HEAD + "\n| scenario | patients | exceeded, these | exceeded, long run | said / true | groups: FDP; pooled |\n"
    )
    text += "| --- | --- | --- | --- | --- | --- |\n" + "\n".join(_rule_row(row) for row in rows)
    excess = max(row["groups"]["0.2"]["share"] - 0.2 for row in rows)
    known = [cell for cell in cells if "bound" in cell]
    broken = sum(cell["bound"]["broken"] for cell in known)
    text += "\n" + AFTER.format(excess=max(excess, 0.0), broken=broken, cohorts=len(known))
    by_scenario = defaultdict(list)
    for cell in known:
        by_scenario[cell["scenario"]].append(cell)
    return text + "\n".join(_cell_row(name, each) for name, each in sorted(by_scenario.items())) + "\n"


def _rule_row(row: Row) -> str:
    worst = row["groups"]["0.2"]
    return (
        f"| {row['scenario']} | {row['patients']:,} | {row['exceeded_here']:.3f} | {row['exceeded_long_run']:.3f} | "
        f"{row['bound_at_half']:.2f} / {row['true_at_half']:.2f} | {worst['fdp']:.3f} ± {worst['fdp_se']:.3f}; "
        f"{worst['share']:.3f} ± {worst['se']:.3f} |"
    )


def _cell_row(scenario: str, cells: list[Row]) -> str:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for cell in cells:
        for group in cell["groups"]:
            if group["alpha"] == 0.2:
                groups[group["by"], group["group"]].append(group)
    often = {name: found for name, found in groups.items() if len(found) >= len(cells) / 4}
    (by, label), found = max(often.items(), key=lambda each: _pooled(each[1], "pooled"))
    released = [np.mean([group[kind][1] for group in found]) for kind in ("pooled", "own")]
    own = "releases nothing" if released[1] < 0.5 else f"{_pooled(found, 'own'):.3f}"
    name = f"{by} {label}".replace("+", " or ")
    return f"| {scenario} | {name}: {_pooled(found, 'pooled'):.3f} | {own} | {released[0]:.0f} -> {released[1]:.0f} |"


def _pooled(found: list[Row], kind: str) -> float:
    released = sum(group[kind][1] for group in found)
    return sum(group[kind][0] for group in found) / released if released else 0.0
