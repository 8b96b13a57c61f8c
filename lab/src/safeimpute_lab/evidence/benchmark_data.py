"""Tables to compare all methods on and, as FOLDER/run.sh, the commands that do it.

python -m safeimpute_lab evidence tables [FOLDER]

PBC is bundled and the simulation is made from a seed; NAFLD needs SAFEIMPUTE_DATA. Tolerances are those of
docs/evidence.md, where they make 37.5 % of the paper's imputations risky on a pilot split; cholesterol has the demo's.
"""

import os
import sys
from pathlib import Path

from safeimpute_lab.evidence.datasets import DATA_SETS

STUDIES = {
    "pbc_cholesterol": ("PBC cholesterol", "20%"),
    "pbc_albumin": ("PBC albumin", "0.29"),
    "nafld_hdl": ("NAFLD HDL, 3,000 patients", "6"),
    "mimic3_shape": ("simulated, MIMIC-III shape", "0.84"),
}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/benchmark")
    folder.mkdir(parents=True, exist_ok=True)
    commands = []
    for name, (title, tolerance) in STUDIES.items():
        data = DATA_SETS[title]
        if title.startswith("NAFLD") and not os.environ.get("SAFEIMPUTE_DATA"):
            print(f"left out: {title} (set SAFEIMPUTE_DATA to the folder of open clinical data)")
            continue
        table = folder / f"{name}.parquet"
        data.load().write_parquet(table)
        attributes = f" --attributes {','.join(data.attributes)}" if data.attributes else ""
        commands.append(
            f"{sys.executable} -m safeimpute benchmark {table} --target {data.target} --unit '{data.unit}' "
            f"--tolerance '{tolerance}' --fdr 0.1,0.2,0.35{attributes} "
            f"--work {folder}/work --out {folder}/{name} --force"
        )
    (folder / "run.sh").write_text("\n".join(commands) + "\n")


if __name__ == "__main__":
    main()
