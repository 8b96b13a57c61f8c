"""Is my promise valid? Hide known values of your own table again and again, release, and count what was wrong.

    python examples/is_my_promise_valid.py

`safeimpute audit` does it; here on the demo's visits. What it can check: does the share of unacceptable values among
the released stay at the level, on average over splits, for values that were hidden at random. What it cannot: whether
doctors measured for a reason that the table does not show. The report's sensitivity section says how strong such a
reason may be.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from looks import LEVEL, MEASURED, RELEASED, WITHHELD, save, told

from safeimpute.visits.examples import load_pbc

LEVELS = "0.1,0.2,0.3"


def main() -> None:
    chosen = told(__doc__, "is_my_promise_valid")
    visits, found = chosen.out / "visits.csv", chosen.out / "audit.json"
    load_pbc().write_csv(visits)
    (chosen.out / "light.toml").write_text('[best]\neffort = "light"\n')
    asked = ["audit", visits, "--target", "cholesterol", "--tolerance", "20%", "--fdr", LEVELS, "--splits", 5,
             "--config", chosen.out / "light.toml", "--json", found]  # fmt: skip
    found.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "safeimpute", *map(str, asked)], check=True)
    draw(json.loads(found.read_text()), chosen.figures)


def draw(audit: dict[str, Any], folder: Path) -> None:
    """Left: achieved against asked for. Right: the same by group at the middle level, where it need not hold."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    levels = audit["levels"]
    asked = [100 * row["fdr"] for row in levels]
    pooled = [100 * (row["pooled"] or 0) for row in levels]
    three = [300 * (row["fdp"]["se"] or 0) for row in levels]
    bars = left.bar(range(len(levels)), pooled, yerr=three, width=0.5, color=RELEASED, ecolor=MEASURED, capsize=4)
    for bar, share in zip(bars, pooled, strict=True):
        left.annotate(f"{share:.0f} %", (bar.get_x() + 0.25, 1.5), ha="center", color="white")
    for place, level in enumerate(asked):
        left.plot([place - 0.36, place + 0.36], [level, level], color=LEVEL, linewidth=2)
    left.plot([], [], color=LEVEL, linewidth=2, label="level asked for")
    left.errorbar([], [], yerr=[], color=MEASURED, capsize=4, label="3 standard errors")
    left.set_xticks(range(len(levels)), [f"level {level:.0f} %\nreleased {100 * row['acceptance']['mean']:.0f} %"
                                         for level, row in zip(asked, levels, strict=True)])  # fmt: skip
    left.set_ylabel("off by 20 % or more, % of released")
    left.set_title("All released values together: promised on average")
    left.legend(loc="upper left")
    left.margins(y=0.2)
    groups = [row for row in audit["groups"][1]["rows"] if row["fdp"] is not None]
    three = [300 * (row["fdp"]["se"] or 0) for row in groups]
    shares = [100 * row["fdp"]["mean"] for row in groups]
    right.barh([row["group"] for row in groups], shares, xerr=three, color=WITHHELD, ecolor=MEASURED, capsize=3)
    right.invert_yaxis()
    right.axvline(asked[1], color=LEVEL, linewidth=2)
    right.set_title(f"Groups at level {asked[1]:.0f} %: not promised")
    right.set_xlabel("% of released")
    right.tick_params(axis="y", labelsize=8)
    save(figure, folder, "is_my_promise_valid")


if __name__ == "__main__":
    main()
