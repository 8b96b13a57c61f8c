"""Count the shape of the code in one or more checkouts, and draw its packages from the real imports.

    python tools/house.py CHECKOUT [CHECKOUT …] [--list COUNT] [--picture FILE.svg] [--start]

Counts are read from the source text (nothing of the package is imported), so checkouts of any age compare.
`--list` names the places of one count; `--start` also measures what `import safeimpute` and a new `SafeImputer`
load and how long that takes, as a ratio to `import pandas` in the same minute.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

PACKAGE = "safeimpute"
LONG_FILE, LONG_FUNCTION, RUN = 400, 40, 6  # lines
FLOW = (  # from the last room to the first
    *("cli", "web", "report", "evaluation", "foreign", "spark", "monitoring", "model"),
    *("draws", "selection", "learning", "sources", "visits"),
)
FLOOR = ("settings", "tolerance", "tolerances", "machine", "errors")  # used by every room
HEAVY = ("torch", "lightgbm", "polars", "pandas", "pyarrow", "pydantic", "pyspark")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One import of our own code: which module asks for which, where, inside a function or for types alone."""

    importer: str
    imported: str
    line: int
    inside: bool
    for_types: bool


@dataclass(frozen=True)
class Module:
    """A source file, parsed."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def room(self) -> str:
        """The package or root module it belongs to; empty for the root itself."""
        return self.name.partition(".")[2].partition(".")[0]


@dataclass(frozen=True)
class House:
    """All modules of a checkout's package by name."""

    modules: dict[str, Module]

    @cached_property
    def imports(self) -> list[Import]:
        return [found for module in self.modules.values() for found in self._imports(module)]

    def _imports(self, module: Module) -> Iterator[Import]:
        nested = {id(inner) for each in functions(module) for inner in ast.walk(each)}
        checks = [node for node in ast.walk(module.tree) if isinstance(node, ast.If)]
        typed = {id(i) for each in checks if "TYPE_CHECKING" in ast.unparse(each.test) for i in ast.walk(each)}
        for node in ast.walk(module.tree):
            for name in _asked_for(node):
                if found := self._home(name):
                    line = getattr(node, "lineno", 0)
                    yield Import(module.name, found, line, id(node) in nested, id(node) in typed)

    def _home(self, name: str) -> str | None:
        """The module an import of `name` loads: itself, or the one it is a part of."""
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return name or None

    def reaches(self, start: str, end: str) -> bool:
        """Whether imports made when modules load lead from one to the other."""
        seen, todo = {start}, [start]
        while todo:
            for following in self._loads.get(todo.pop(), set()) - seen:
                seen.add(following)
                todo.append(following)
        return end in seen

    @cached_property
    def _loads(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for each in self.imports:
            if not each.inside and not each.for_types:
                found.setdefault(each.importer, set()).add(each.imported)
        return found


def _asked_for(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE]
    return []


def read_house(checkout: Path) -> House:
    """Parse every module below `src`."""
    source = checkout / "src"
    found = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path.relative_to(checkout), path.read_text(encoding="utf-8"))
    if not found:
        raise SystemExit(f"no package at {source / PACKAGE}")
    return House(found)


def functions(module: Module) -> Iterator[Function]:
    yield from (node for node in ast.walk(module.tree) if isinstance(node, Function))


def root_modules(house: House) -> list[str]:
    """Files directly in the package, but for `__init__` and `__main__`."""
    names = [name for name, module in house.modules.items() if len(module.path.parts) == 3]
    return [name for name in names if name.rpartition(".")[2] not in (PACKAGE, "__main__")]


def loose_dicts(house: House) -> list[str]:
    return _matches(house, r"dict\[str, Any\]")


def _matches(house: House, pattern: str) -> list[str]:
    return [
        f"{module.path}:{number}"
        for module in house.modules.values()
        for number, line in enumerate(module.text.splitlines(), 1)
        for _ in re.finditer(pattern, line)
    ]


def closures(house: House) -> list[str]:
    """Fields of classes that hold a function."""
    return [
        f"{module.path}:{field.lineno} {ast.unparse(field.target)}"
        for module in house.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and "Callable[" in ast.unparse(field.annotation)
    ]


def imports_inside(house: House) -> list[str]:
    """Imports of our own package inside a function, the command line's apart (it answers `--help` quickly)."""
    return [_said(each) for each in _inside(house)]


def broken_cycles(house: House) -> list[str]:
    """Those of them that would close a circle at the top of the file."""
    return [_said(each) for each in _inside(house) if house.reaches(each.imported, each.importer)]


def _inside(house: House) -> list[Import]:
    shell = f"{PACKAGE}.cli"
    return [each for each in house.imports if each.inside and not each.importer.startswith(shell)]


def _said(each: Import) -> str:
    return f"{each.importer}:{each.line} -> {each.imported}"


def against_the_flow(house: House) -> list[str]:
    """Imports of a room that stands later in the flow (rooms of an older house that have no place are passed over)."""
    place = {room: number for number, room in enumerate((*FLOW, *FLOOR))}
    rooms = {name: module.room for name, module in house.modules.items()}
    return [
        _said(each)
        for each in house.imports
        if place.get(rooms[each.importer], -1) > place.get(rooms[each.imported], len(place))
    ]


def rooms_in_circles(house: House) -> list[str]:
    """Packages and root modules that, by whatever way, import each other."""
    ways: dict[str, set[str]] = {}
    for each in house.imports:
        ways.setdefault(house.modules[each.importer].room, set()).add(house.modules[each.imported].room)
    ways.pop("", None)
    for _ in ways:
        ways = {room: found.union(*(ways.get(other, set()) for other in found)) for room, found in ways.items()}
    return sorted(room for room, found in ways.items() if any(room in ways.get(o, ()) for o in found - {room}))


def names_with_score(house: House) -> list[str]:
    """Modules, classes, functions, fields and parameters; the glossary keeps the word for new visits alone."""
    found: set[str] = set()
    for module in house.modules.values():
        found.add(module.name.rpartition(".")[2])
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef | Function):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return sorted(name for name in found if "scor" in name.lower())


def long_files(house: House) -> list[str]:
    return [f"{module.path}: {module.lines}" for module in house.modules.values() if module.lines > LONG_FILE]


def long_functions(house: House) -> list[str]:
    found = []
    for module in house.modules.values():
        for each in functions(module):
            length = (each.end_lineno or each.lineno) - each.lineno + 1
            if length > LONG_FUNCTION:
                found.append(f"{module.path}:{each.lineno} {each.name}: {length}")
    return found


def repeated_lines(house: House) -> list[str]:
    """Lines of code in runs of six or more that stand, with the same words, in another place as well."""
    code = {module.path: _code_lines(module) for module in house.modules.values()}
    seen = Counter(run for lines in code.values() for _, run in _runs(lines))
    found: set[tuple[Path, int]] = set()
    for path, lines in code.items():
        for start, run in _runs(lines):
            if seen[run] > 1:
                found |= {(path, lines[start + step][0]) for step in range(RUN)}
    return [f"{path}:{line}" for path, line in sorted(found)]


def _code_lines(module: Module) -> list[tuple[int, str]]:
    """Numbered lines without imports, comments, blank lines and lone brackets."""
    imports = {
        line
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    numbered = ((number, line.strip()) for number, line in enumerate(module.text.splitlines(), 1))
    return [each for each in numbered if len(each[1]) > 2 and each[1][0] != "#" and each[0] not in imports]


def _runs(lines: list[tuple[int, str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    texts = [text for _, text in lines]
    yield from ((start, tuple(texts[start : start + RUN])) for start in range(len(texts) - RUN + 1))


COUNTS: dict[str, Callable[[House], list[str]]] = {
    "root modules": root_modules,
    "dict[str, Any]": loose_dicts,
    "fields that hold a function": closures,
    "imports inside functions": imports_inside,
    "lazily broken cycles": broken_cycles,
    "rooms in import circles": rooms_in_circles,
    "imports against the flow": against_the_flow,
    "names with 'scor'": names_with_score,
    f"files over {LONG_FILE} lines": long_files,
    f"functions over {LONG_FUNCTION} lines": long_functions,
    f"lines repeated in runs of {RUN}": repeated_lines,
}


def start_up(checkout: Path) -> dict[str, str]:
    """What a new `SafeImputer` loads, and its CPU seconds over those of `import pandas`."""
    begin = f"import sys, {PACKAGE}; {PACKAGE}.SafeImputer(target='hba1c', tolerance=0.5, fdr=0.1)"
    loaded = _python(checkout, begin + f"; print(*[m for m in {HEAVY!r} if m in sys.modules])").split()
    ratio = _cpu_seconds(checkout, begin) / _cpu_seconds(checkout, "import pandas")
    return {"loaded at start": ", ".join(loaded) or "none of the heavy", "start / import pandas": f"{ratio:.2f}"}


def _python(checkout: Path, code: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def _cpu_seconds(checkout: Path, code: str) -> float:
    """The least of three processes."""
    said = f"import time; {code}; print(time.process_time())"
    return min(float(_python(checkout, said).split()[-1]) for _ in range(3))


def picture(house: House) -> str:
    """The rooms in the order of the flow; a line for every pair of rooms of which one imports the other."""
    rooms = [room for room in FLOW if any(module.room == room for module in house.modules.values())]
    height, top = 44, 30
    middle = {room: top + height * number + 15 for number, room in enumerate(rooms)}
    parts = [_lines(house, middle), *(_box(house, room, y) for room, y in middle.items())]
    floor = top + height * len(rooms)
    parts.append(_floor(floor))
    parts.append(
        '<text x="20" y="18" font-size="11" fill="#444">A line: the upper room imports the lower one, thicker where '
        "more often. Red: an import against the flow.</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {floor + 60}" font-family="sans-serif">'
        '<title>The packages of safeimpute and what they import</title><rect width="100%" height="100%" fill="white"/>'
        + "".join(parts)
        + "</svg>\n"
    )


def _box(house: House, room: str, y: int) -> str:
    root = house.modules.get(f"{PACKAGE}.{room}")
    opening = (ast.get_docstring(root.tree) or "").split("\n\n")[0] if root else ""
    purpose = textwrap.shorten(opening.rstrip("."), 98, placeholder=" …")
    return (
        f'<rect x="20" y="{y - 16}" width="130" height="32" rx="5" fill="#eef3f8" stroke="#34577a"/>'
        f'<text x="85" y="{y + 5}" font-size="14" text-anchor="middle">{room}</text>'
        f'<text x="300" y="{y + 4}" font-size="11" fill="#444">{escape(purpose)}</text>'
    )


def _lines(house: House, middle: dict[str, int]) -> str:
    pairs = Counter((house.modules[each.importer].room, house.modules[each.imported].room) for each in house.imports)
    drawn = []
    for (importer, imported), count in sorted(pairs.items()):
        if importer == imported or not {importer, imported} <= middle.keys():
            continue
        start, end = middle[importer], middle[imported]
        reach = 150 + min(140, 10 + abs(end - start) // 4)
        colour, width = ("#5b7fa3", 0.6 + 0.15 * count) if end > start else ("#c0392b", 3.0)
        drawn.append(
            f'<path d="M150 {start + 3} C {reach} {start + 3}, {reach} {end - 3}, 150 {end - 3}" fill="none" '
            f'stroke="{colour}" stroke-width="{min(3.0, width):.1f}" opacity="0.6">'
            f"<title>{importer} imports {imported}: {count}</title></path>"
        )
    return "".join(drawn)


def _floor(y: int) -> str:
    return (
        f'<rect x="20" y="{y}" width="820" height="32" rx="5" fill="#f4f1e8" stroke="#8a7a4a"/>'
        f'<text x="430" y="{y + 21}" font-size="13" text-anchor="middle">{", ".join(FLOOR)}: used by every room</text>'
    )


def table(checkouts: list[Path], start: bool) -> str:
    houses = [read_house(checkout) for checkout in checkouts]
    rows = {"modules": [str(len(house.modules)) for house in houses]}
    rows |= {name: [str(len(count(house))) for house in houses] for name, count in COUNTS.items()}
    if start:
        found = [start_up(checkout) for checkout in checkouts]
        rows |= {name: [each[name] for each in found] for name in found[0]}
    lines = [f"| | {' | '.join(str(checkout) for checkout in checkouts)} |", "|---" * (len(checkouts) + 1) + "|"]
    return "\n".join(lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--list", choices=COUNTS, help="name the places of one count, in the last checkout")
    parser.add_argument("--picture", type=Path, help="draw the packages of the last checkout")
    parser.add_argument("--start", action="store_true", help="measure what a new SafeImputer loads")
    given = parser.parse_args()
    last = given.checkouts[-1]
    if given.list:
        print("\n".join(COUNTS[given.list](read_house(last))))
        return
    print(table(given.checkouts, given.start))
    if given.picture:
        given.picture.write_text(picture(read_house(last)), encoding="utf-8")


if __name__ == "__main__":
    main()
