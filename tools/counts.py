"""Counts of the product's size in one or more checkouts, for before and after a change.

    python tools/counts.py CHECKOUT [CHECKOUT …]

Files entered are those of one `run` (walk.py). What should be there once is found by what it does, not by its name:

- a *cut-off engine* makes a `Cutoff` of what it found (one that is read back, `Cutoff(**told)`, is none);
- a *logistic fit* solves for coefficients beside 1 / (1 + exp(-z)), or asks a library for one;
- a *grouping* is a class of that name.
"""

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from house import Function, House, loose_dicts, read_house
from walk import walk

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
    """Functions that make a cut-off."""
    return _where(house, lambda calls, _: any(name == "Cutoff" and each.args for name, each in calls))


def logistic_fits(house: House) -> list[str]:
    """Functions that fit a logistic regression themselves."""

    def fits(calls: list[tuple[str, ast.Call]], text: str) -> bool:
        names = {name for name, _ in calls}
        return bool(names & {"LogisticRegression", "Logit"}) or ("solve" in names and "exp(-" in text)

    return _where(house, fits)


def callers(house: House, function: str) -> list[str]:
    """Functions that call one of that name."""
    return _where(house, lambda calls, _: any(name == function for name, _ in calls))


def groupings(house: House) -> list[str]:
    """Classes that tell visits apart by groups."""
    return [
        f"{_short(module.name)}.{node.name}"
        for module in house.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name.lstrip("_") == "Grouping"
    ]


def _where(house: House, fits: Callable[[list[tuple[str, ast.Call]], str], bool]) -> list[str]:
    """Functions of which something holds, by what they call themselves, without the functions inside them."""
    return [
        f"{_short(module.name)}.{node.name}"
        for module in house.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, Function) and fits(list(_calls(node)), ast.unparse(node))
    ]


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, Function):
            continue
        if isinstance(inner, ast.Call):
            yield ast.unparse(inner.func).rpartition(".")[2], inner
        yield from _calls(inner)


def _short(module: str) -> str:
    return module.partition(".")[2]


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
        "cut-off engines": ", ".join(cutoff_engines(house)),
        "logistic fits": ", ".join(logistic_fits(house)),
        "callers of newton": str(len(callers(house, "newton"))),
        "groupings": ", ".join(groupings(house)),
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
