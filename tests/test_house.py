"""The shape of the code: rooms, sizes, the architecture page against the code, docstrings of public names."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from counts import callers, cutoff_engines, groupings, logistic_fits
from house import (
    FLOOR,
    FLOW,
    House,
    broken_cycles,
    closures,
    imports_inside,
    long_files,
    long_functions,
    loose_dicts,
    picture,
    read_house,
    repeated_lines,
    root_modules,
)
from walk import Call, returns_of, room_of, walk

import safeimpute

ROOT = Path(__file__).parents[1]
OTHER_TESTS = {"browser", "helpers", "hostile", "statistical"}
LONGEST_FUNCTION = 60  # forty is long; a plain list of arguments may be longer, and a command's options longer still
MOST_FILES = 86  # that one run enters
LATE_ON_PURPOSE = {"safeimpute.sources.readers.engine -> safeimpute.sources.readers.spark"}  # an extra built on it


@pytest.fixture(scope="module")
def ours() -> House:
    return read_house(ROOT)


def test_every_module_has_its_room(ours: House) -> None:
    assert {name.partition(".")[2] for name in root_modules(ours)} <= {*FLOOR}
    rooms = {module.room for module in ours.modules.values()} - {"", "__main__"}
    assert rooms <= {*FLOW, *FLOOR}


def test_modules_and_functions_are_short(ours: House) -> None:
    assert long_files(ours) == []
    long = [each for each in long_functions(ours) if int(each.rpartition(" ")[2]) > LONGEST_FUNCTION]
    assert [each for each in long if "/cli/" not in each] == []


def test_no_import_hides_in_a_function_to_break_a_circle(ours: House) -> None:
    assert {re.sub(r":\d+", "", each) for each in broken_cycles(ours)} <= LATE_ON_PURPOSE


def test_tests_lie_as_the_rooms_do() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders <= {*FLOW, *FLOOR} | OTHER_TESTS


def test_the_picture_shows_the_imports_there_are(ours: House) -> None:
    shown = (ROOT / "docs/images/packages.svg").read_text(encoding="utf-8")
    assert _joined(shown) == _joined(picture(ours)), "draw it anew: make house"


def _joined(drawing: str) -> set[str]:
    return set(re.findall(r"\w+ imports \w+", drawing))


def equations() -> list[tuple[str, str]]:
    """Rows of the table in docs/architecture.md: equation numbers, function."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\| ([\d, –]+) \|[^|]+\| `([\w.]+)` \|$", page, re.MULTILINE)


def test_every_equation_of_the_method_has_a_function() -> None:
    numbers = {number for row, _ in equations() for number in _numbers(row)}
    assert {*range(5, 37), 53, 54} <= numbers


@pytest.mark.parametrize(("row", "function"), equations())
def test_equation_numbers_stand_in_the_docstrings(ours: House, row: str, function: str) -> None:
    said = " ".join(re.findall(r"[Ee]quations? ([\d, –]+(?:(?:and|to) \d+)?)", _docstrings(ours, function)))
    assert _numbers(row) <= _numbers(said), f"{function} should say: Equation {row}"


def _numbers(text: str) -> set[int]:
    """The numbers of `5, 6`, `9–12` or `9 to 12`."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:\s*(?:–|to)\s*(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _docstrings(house: House, function: str) -> str:
    """The docstrings of a function and of the class it belongs to."""
    parts = f"safeimpute.{function}".split(".")
    split = max(n for n in range(1, len(parts)) if ".".join(parts[:n]) in house.modules)
    node: ast.AST = house.modules[".".join(parts[:split])].tree
    said = []
    for name in parts[split:]:
        named = [each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name]
        assert named, f"{function} is not there"
        node = named[0]
        assert isinstance(node, ast.ClassDef | ast.FunctionDef)
        said.append(ast.get_docstring(node) or "")
    return " ".join(said)


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_named_on_the_page_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|toml|md)|\w+\.toml)`", text)
    places = [ROOT, ROOT / "src/safeimpute", ROOT / "lab/src/safeimpute_lab"]
    there = [name for name in named if "NAME" not in name]
    assert [name for name in there if not any((place / name).exists() for place in places)] == []


def public_callables() -> list[tuple[str, object]]:
    """Public functions, classes, and the public methods of public classes."""
    found: list[tuple[str, object]] = []
    for name in safeimpute.__all__:
        thing = getattr(safeimpute, name)
        found.append((name, thing))
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            methods = inspect.getmembers(thing, lambda each: inspect.isfunction(each) or inspect.ismethod(each))
            found += [(f"{name}.{each}", method) for each, method in methods if not each.startswith("_")]
    return found


@pytest.mark.parametrize(("name", "thing"), public_callables())
def test_public_names_say_what_they_take(name: str, thing: object) -> None:
    said = inspect.getdoc(thing) or ""
    assert said, f"{name} has no docstring"
    if inspect.isclass(thing) or not callable(thing):
        return
    takes = [each for each in inspect.signature(thing).parameters if each not in ("self", "y", "deep", "params")]
    assert [each for each in takes if not re.search(rf"^{each} : ", said, re.MULTILINE)] == []


def test_counts_of_a_small_house(tmp_path: Path) -> None:
    package = tmp_path / "src" / "safeimpute"
    (package / "visits").mkdir(parents=True)
    (package / "__init__.py").write_text('"""."""\n')
    (package / "odd.py").write_text("from safeimpute.visits import a\nx: dict[str, Any] = {}\n")
    (package / "visits" / "__init__.py").write_text("")
    (package / "visits" / "a.py").write_text(
        "class C:\n    f: Callable[[], int] | None = None\n\ndef g():\n    from safeimpute import odd\n"
    )
    house = read_house(tmp_path)
    assert root_modules(house) == ["safeimpute.odd"]
    assert [len(count(house)) for count in (loose_dicts, closures, imports_inside, broken_cycles)] == [1] * 4
    assert repeated_lines(house) == []


def test_second_engines_are_found(tmp_path: Path) -> None:
    """Whatever they are called: a function that makes a cut-off, one that fits a logistic regression, a grouping."""
    package = tmp_path / "src" / "safeimpute"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(
        "class Grouping: ...\n"
        "def find(x):\n    return Cutoff(x, 1.0)\n"
        "def newton(x, y):\n"
        "    for _ in range(9):\n        p = 1.0 / (1.0 + np.exp(-x @ b))\n        b += np.linalg.solve(x, y - p)\n"
    )
    (package / "two.py").write_text(
        "class _Grouping: ...\n"
        "class Subgrouping(list): ...\n"
        "def read(told):\n    return Cutoff(**told)\n"
        "def another(x):\n    def inner():\n        return cutoff.Cutoff(x)\n    return inner()\n"
        "def line(x, y):\n    return newton(x, y)\n"
        "def trees(x, y):\n    return LogisticRegression().fit(x, y)\n"
        "def predict(z):\n    return 1 / (1 + np.exp(-z))\n"
    )
    house = read_house(tmp_path)
    assert cutoff_engines(house) == ["one.find", "two.inner"]
    assert logistic_fits(house) == ["one.newton", "two.trees"]
    assert callers(house, "newton") == ["two.line"]
    assert groupings(house) == ["one.Grouping", "two._Grouping"]


def test_a_repeated_run_is_found(tmp_path: Path) -> None:
    package = tmp_path / "src" / "safeimpute"
    package.mkdir(parents=True)
    run = "".join(f"value_{number} = {number}\n" for number in range(6))
    (package / "__init__.py").write_text(run)
    (package / "other.py").write_text("first = 0\n" + run)
    assert len(repeated_lines(read_house(tmp_path))) == 12


def test_a_walk_forward_has_no_returns() -> None:
    calls = [_call("cli", "visits"), _call("model", "splits"), _call("model", "learning"), _call("cli", "report")]
    assert returns_of([*calls, _call("learning", "visits"), _call("report", "visits")]) == []


def test_steps_back_and_second_thoughts_are_returns() -> None:
    back = [_call("model", "selection"), _call("model", "splits")]
    late = [_call("report", "selection"), _call("evaluation", "learning")]
    assert returns_of([*back, *late, *late]) == [back[1], *late]
    assert room_of("learning.best.blend") == "learning"
    assert room_of("selection.measuring.model") == "measuring"


@pytest.mark.full
@pytest.mark.parametrize("preset", ["best", "paper"])
def test_a_real_run_goes_forward_only(preset: str) -> None:
    found = walk(ROOT, preset)
    assert found["code"] == 0
    assert found["returns"] == []
    assert len(found["files"]) <= MOST_FILES


def _call(caller: str, callee: str) -> Call:
    return Call(f"{caller}.f", f"{callee}.g", caller, callee)
