"""What each promise costs on real and simulated data sets, as a table in markdown.

    python -m safeimpute_lab evidence promises out/results/runs.jsonl

The runs are those of `python -m safeimpute_lab evidence results run --methods best`.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from safeimpute_lab.evidence.results import read_lines

FEWEST = 20  # released values of a group, over the splits, for its share to be shown
HEAD = """Released share of the hidden values (a random fifth of the measured ones, claim `unmeasured`, {splits} splits)
and, for groups `value,history`, the pooled share of unacceptable errors in the worst group: under one cut-off -> under
each group's own. Groups with fewer than 20 released values over all splits are left out.

| data | level | average | confident, 90 % | groups | worst group |
| --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    lines = [line for line in read_lines(Path(sys.argv[1])) if "groups" in line.get("methods", {}).get("best", {})]
    by_data = defaultdict(list)
    for line in lines:
        by_data[line["data"]].append(line["methods"]["best"])
    counts = sorted({len(found) for found in by_data.values()})
    rows = [_row(name, found, level) for name, found in sorted(by_data.items()) for level in ("0.1", "0.2")]
    sys.stdout.write(HEAD.format(splits=" or ".join(map(str, counts))) + "\n".join(rows) + "\n")


def _row(name: str, found: list[dict[str, Any]], level: str) -> str:
    def accepted(kind: str) -> float:
        return float(sum(each[kind][level]["acceptance"] for each in found) / len(found))

    candidates = sum(each["groups"][level]["candidates"] for each in found)
    own = sum(each["groups"][level]["own_all"][1] for each in found) / candidates
    worst = _worst(found, level)
    return f"| {name} | {level} | {accepted('release'):.2f} | {accepted('confident'):.2f} | {own:.2f} | {worst} |"


def _worst(found: list[dict[str, Any]], level: str) -> str:
    """The group with the largest share under one cut-off, and its share under its own."""
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: {"one": [0, 0], "own": [0, 0]})
    for each in found:
        for kind in ("one", "own"):
            for group, (risky, released) in each["groups"][level][kind].items():
                counts[group][kind][0] += risky
                counts[group][kind][1] += released
    shown = {group: both for group, both in counts.items() if both["one"][1] >= FEWEST}
    if not shown:
        return "–"
    group, both = max(shown.items(), key=lambda item: item[1]["one"][0] / item[1]["one"][1])
    own = both["own"]
    after = f"{own[0] / own[1]:.2f}" if own[1] >= FEWEST else "hardly any released"
    return f"{group}: {both['one'][0] / both['one'][1]:.2f} -> {after}"


if __name__ == "__main__":
    main()
