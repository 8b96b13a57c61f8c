"""How long `import safeimpute` takes beside `import pandas`: processor seconds of fresh processes, in turn.

    python tools/import_time.py [--rounds 15]

Every round starts one process for each import, so that both meet the same machine; the median of each is told, less
that of a process that imports nothing.
"""

import argparse
import os
import statistics
import subprocess
import sys

IMPORTS = {
    "nothing": "",
    "pandas": "import pandas",
    "safeimpute": "import safeimpute",
    "an imputer made": "import safeimpute; safeimpute.SafeImputer(target='a', tolerance=1, fdr=0.1)",
}


def processor_seconds(code: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def measured(rounds: int) -> dict[str, float]:
    """Median seconds of every import beyond those of a bare process."""
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            found[name].append(processor_seconds(code))
    bare = statistics.median(found["nothing"])
    return {name: statistics.median(each) - bare for name, each in found.items() if name != "nothing"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    found = measured(parser.parse_args().rounds)
    for name, seconds in found.items():
        print(f"{name:<16}{seconds:6.3f} s   {seconds / found['pandas']:.2f} times pandas")


if __name__ == "__main__":
    main()
