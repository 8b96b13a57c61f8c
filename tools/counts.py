"""Counts of the product's size in one or more checkouts, for before and after a change.

    python tools/counts.py CHECKOUT [CHECKOUT …]

Files entered are those of one `run` (walk.py). Cut-off engines are listed by hand: functions of their own that search
the largest risk that keeps the level on average.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from house import House, loose_dicts, read_house
from walk import walk

CUTOFF_ENGINES = ("average_cutoff", "average_cutoffs", "average_from", "_cutoff_in_doubt", "find_cutoff")
FLAGS = (
    "import typer; from safeimpute.cli import app; "
    "print(sum(1 for each in typer.main.get_command(app).commands['run'].params if each.param_type_name == 'option'))"
)
MEMBERS = "from safeimpute import SafeImputer; print(sum(1 for each in dir(SafeImputer) if not each.startswith('_')))"


def python(checkout: Path, code: str) -> str:
    """What a line of Python prints with the checkout's package."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def cutoff_engines(house: House) -> list[str]:
    """Those of the list that are there."""
    texts = [module.text for module in house.modules.values()]
    return [name for name in CUTOFF_ENGINES if any(f"def {name}(" in text for text in texts)]


def counts(checkout: Path) -> dict[str, str]:
    """Every count of one checkout."""
    house = read_house(checkout)
    return {
        "files of src/safeimpute": f"{len(house.modules):,}",
        "lines of src/safeimpute": f"{sum(module.lines for module in house.modules.values()):,}",
        "files entered by one run": str(len(walk(checkout, "best")["files"])),
        "dict[str, Any]": str(len(loose_dicts(house))),
        "flags of run": python(checkout, FLAGS),
        "public members of SafeImputer": python(checkout, MEMBERS),
        "cut-off engines": str(len(cutoff_engines(house))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", nargs="+", type=Path)
    checkouts = [each.resolve() for each in parser.parse_args().checkouts]
    columns = [counts(checkout) for checkout in checkouts]
    print(f"| | {' | '.join(checkout.name for checkout in checkouts)} |")
    print("|---" * (len(checkouts) + 1) + "|")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column[name] for column in columns)} |")


if __name__ == "__main__":
    main()
