"""Which commit made each table of docs/evidence.md, and whether the code it rests on has changed since.

    python -m safeimpute_lab evidence check                says it of every table; exit code 1 if any rests on others
    python -m safeimpute_lab evidence make [TABLE …]       runs those tables anew (of all: those whose code has changed)

`lab/evidence/tables.toml` names per table its commands, the commit that ran them last, and the code they rest on. The
commands go on where they were stopped, and write between the table's marks on the page.
"""

import argparse
import ast
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

LIST = Path("lab/evidence/tables.toml")


@dataclass(frozen=True)
class Table:
    """One measured table."""

    name: str
    commit: str  # that made it
    rests_on: tuple[str, ...]  # paths of the repository
    commands: tuple[str, ...]  # after `python -m safeimpute_lab`; `{out}` is a folder of the commit's own
    keeps: str = ""  # cells below `{out}` that are kept beside the list


def read_tables(file: Path = LIST) -> list[Table]:
    """All of them, in the order of the page."""
    listed = tomllib.loads(file.read_text(encoding="utf-8"))
    return [
        Table(name, each["commit"], tuple(each["rests_on"]), tuple(each["commands"]), each.get("keeps", ""))
        for name, each in listed.items()
    ]


def changed_since(table: Table, root: Path = Path()) -> list[str]:
    """Files the table rests on whose code is not that of its commit; comments and docstrings are no code."""
    named = _git(root, "diff", "--name-only", "--no-renames", table.commit, "--", *table.rests_on).splitlines()
    return [file for file in named if _code_now(root / file) != _code_then(root, table.commit, file)]


def _code_now(path: Path) -> str:
    return _code(path.read_text(encoding="utf-8")) if path.exists() else ""


def _code_then(root: Path, commit: str, file: str) -> str:
    there = _git(root, "ls-tree", "--name-only", commit, "--", file)
    return _code(_git(root, "show", f"{commit}:{file}")) if there else ""


def _code(text: str) -> str:
    """A Python file without its words; anything else as it stands."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


def commit_of(root: Path = Path()) -> str:
    """The commit at hand; refused where tracked files differ from it, since nobody could find that code again."""
    if changed := _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src", "lab/src"):
        raise SystemExit(f"commit first: {changed.splitlines()[0].strip()}")
    return _git(root, "rev-parse", "--short=7", "HEAD")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def check(tables: list[Table]) -> int:
    """Say of every table whether its code is that of its commit; how many are not."""
    old = 0
    for table in tables:
        changed = changed_since(table)
        old += bool(changed)
        state = f"{len(changed)} files changed since, {changed[0]} first" if changed else "the same code"
        print(f"{table.name:<12} {table.commit}  {state}")
    return old


def make(tables: list[Table]) -> None:
    """Run the tables' commands and note the commit."""
    for table in tables:
        commit = commit_of()
        out = Path("out/evidence") / commit  # cells of other code are no part of it
        out.mkdir(parents=True, exist_ok=True)
        for command in table.commands:
            said = command.format(out=out)
            print(f"{table.name}: {said}", flush=True)
            subprocess.run([sys.executable, "-m", "safeimpute_lab", *said.split()], check=True)
        if table.keeps:
            shutil.copy(out / table.keeps, LIST.parent / table.keeps)
        note(table, commit)


def made_by_this_code(name: str, commit: str) -> bool:
    """Whether a cell of that commit is what today's code would make."""
    (table,) = (each for each in read_tables() if each.name == name)
    return not changed_since(replace(table, commit=commit))


def note(table: Table, commit: str, file: Path = LIST) -> None:
    """Write the commit into the list."""
    before, mark, after = file.read_text(encoding="utf-8").partition(f"[{table.name}]\n")
    after = after.replace(f'commit = "{table.commit}"', f'commit = "{commit}"', 1)
    file.write_text(before + mark + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*")
    given = parser.parse_args()
    tables = [each for each in read_tables() if not given.tables or each.name in given.tables]
    if sys.argv[0].endswith(" make"):
        make(tables if given.tables else [each for each in tables if changed_since(each)])
    elif check(tables):
        sys.exit(1)


if __name__ == "__main__":
    main()
