"""A reproduction in short tables, from a finished folder of `safeimpute reproduce`.

python -m safeimpute_lab evidence reproduced FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

from safeimpute_lab.benchmark.tables import NONE, mean_se


def shown(figure: Any) -> str:
    """As the tables of a benchmark show it; a dash where there is none."""
    return mean_se(figure) if figure else NONE


def methods(found: dict[str, Any]) -> list[str]:
    """Accuracy alone and under selection, a row per method."""
    lines = [
        "| method | splits | MAE, all hidden values | MAE, released by `paper` | precision there |",
        "|---|---|---|---|---|",
    ]
    for name, alone in found["alone"].items():
        row = found["under_selection"].get(name, {})
        cells = [shown(alone["mae"]), shown(row.get("mae")), shown(row.get("precision"))]
        lines.append(f"| `{name}` | {found['splits_done'][name]} | " + " | ".join(cells) + " |")
    return lines


def ablation(found: dict[str, Any]) -> list[str]:
    """The network without one of its parts."""
    if not found["ablation"]:
        return []
    lines = ["| network | MAE, all hidden values | RMSE |", "|---|---|---|"]
    for name, row in found["ablation"]["imputer"].items():
        lines.append(f"| {name} | {shown(row['mae'])} | {shown(row['rmse'])} |")
    return lines


def risks(found: dict[str, Any]) -> list[str]:
    """What each risk releases at the level, and the presets as shipped."""
    lines = ["| risk | values of | AUC | FDR | power |", "|---|---|---|---|---|"]
    for name, row in found["risks"].items():
        release = row["release"]
        cells = [row["values"], shown(row["auc"]), shown(release["fdp"]), shown(release["power"])]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for name, release in found["release"].items():
        lines.append(
            f"| preset `{name}` as shipped | itself | – | {shown(release['fdp'])} | {shown(release['power'])} |"
        )
    return lines


def main() -> None:
    """Three tables and what is missing."""
    found = json.loads((Path(sys.argv[1]) / "reproduce.json").read_text(encoding="utf-8"))["found"]
    missing = "; ".join(f"`{what}` ({why})" for what, why in found["missing"].items())
    parts = [
        methods(found),
        ablation(found),
        risks(found),
        [f"Without a complete result: {missing}."] if missing else [],
    ]
    print("\n\n".join("\n".join(part) for part in parts if part))


if __name__ == "__main__":
    main()
