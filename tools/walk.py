"""Follow one `safeimpute run` through the code: files entered, and returns to an earlier room.

    python tools/walk.py CHECKOUT [CHECKOUT …] [--preset paper] [--full]

The run is a real one, on the bundled visits, in a process of its own with the checkout's `src` first on the path.

- A *file* is entered when one of its functions is called; what merely loads when modules are imported counts apart.
- The *places* stand in the order of the flow: visits, splits (what a fit may see: WITHIN below), learning, measuring,
  selection, draws, evaluation, report. `cli` and `model` lead the walk and stand in no place; settings, tolerance,
  machine and errors are the floor and do not count.
- A *step* is a call from those who lead into a function of a place. Reading an object that was handed on (a method or
  property of a dataclass or tuple) is no step, nor is what a room asks of an earlier one to do its own work, nor is
  putting the results into the user's kind of table, whose schema and writers stand in visits and sources.
- A *return* is a step to an earlier place than the step before; or a call by evaluation or report, which come after the
  decision and should only read it, into a function of splits to selection. Telling visits apart (`selection.groups`)
  for a table of groups is none.

Returns are counted once for each pair of functions, so a loop counts once.
"""

import argparse
import dataclasses
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

FLOW = ("visits", "splits", "learning", "measuring", "selection", "draws", "evaluation", "report")
PLACE = {place: number for number, place in enumerate(FLOW)}
LEADS = ("cli", "model")
DECIDED = ("splits", "learning", "measuring", "selection")  # done once a release is decided
AFTERWARDS = ("evaluation", "report")
READING = ("selection.groups",)
LEAVING = ("sources.writers", "visits.imputations", "visits.tables.like")  # what a run hands out
WITHIN = {  # places within a room
    "selection.enough": "splits",
    "selection.questions": "splits",
    "learning.roles": "splits",
    "selection.measuring": "measuring",
}

ARGUMENTS = "--target cholesterol --tolerance 20% --fdr 0.2 --unit mg/dL --device cpu"


class Call(NamedTuple):
    """A call between two functions of ours that lie in different rooms."""

    caller: str  # module.function
    callee: str
    from_room: str
    to_room: str


class Place(NamedTuple):
    """Where a function of ours stands."""

    file: str
    name: str
    room: str


def room_of(module: str) -> str:
    """The place of a module, named without the package: `learning.best.blend` -> learning."""
    found = [place for start, place in WITHIN.items() if module == start or module.startswith(f"{start}.")]
    return found[0] if found else module.partition(".")[0]


class Walker:
    """Listens to every call of the interpreter and keeps those of ours."""

    def __init__(self, source: Path) -> None:
        self.root = str(source) + os.sep
        self.places: dict[CodeType, Place | None] = {}
        self.files: set[str] = set()
        self.calls: list[Call] = []  # in the order of time; a call that repeats the one before is left out

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (place := self._place(frame.f_code)) is None or place.name == "<module>":
            return
        caller = self._caller(frame)
        if caller is not None and caller.name == "<module>":
            return  # made while a module loads
        self.files.add(place.file)
        if caller is None or caller.room == place.room or _reads_an_object(frame):
            return
        module = [each.file.removesuffix(".py").replace(os.sep, ".") for each in (caller, place)]
        call = Call(f"{module[0]}.{caller.name}", f"{module[1]}.{place.name}", caller.room, place.room)
        if not self.calls or self.calls[-1] != call:
            self.calls.append(call)

    def _place(self, code: CodeType) -> Place | None:
        if code not in self.places:
            inside = code.co_filename.startswith(self.root)
            self.places[code] = self._described(code) if inside else None
        return self.places[code]

    def _described(self, code: CodeType) -> Place:
        file = code.co_filename.removeprefix(self.root)
        module = file.removesuffix(".py").removesuffix(f"{os.sep}__init__").replace(os.sep, ".")
        return Place(file, code.co_qualname, room_of(module))

    def _caller(self, frame: FrameType) -> Place | None:
        """The nearest function of ours below in the stack."""
        back = frame.f_back
        while back is not None:
            if (place := self._place(back.f_code)) is not None:
                return place
            back = back.f_back
        return None


def _reads_an_object(frame: FrameType) -> bool:
    """Whether the call is a method of a dataclass or tuple: data that was handed on."""
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] not in ("self", "cls"):
        return False
    owner = frame.f_locals.get(code.co_varnames[0])
    kind = owner if isinstance(owner, type) else type(owner)
    return dataclasses.is_dataclass(kind) or issubclass(kind, tuple)


def _is_step(call: Call) -> bool:
    return call.from_room in LEADS and call.to_room in PLACE and not call.callee.startswith(LEAVING)


def returns_of(calls: list[Call]) -> list[Call]:
    """The calls that go back, each pair of functions once."""
    found: dict[Call, None] = {}
    here = -1
    for call in calls:
        if _is_step(call):
            if PLACE[call.to_room] < here:
                found[call] = None
            here = PLACE[call.to_room]
        elif call.from_room in AFTERWARDS and call.to_room in DECIDED and not call.callee.startswith(READING):
            found[call] = None
    return list(found)


def follow(checkout: Path, answer: Path, arguments: list[str]) -> None:
    """In a process of its own: run the command under the walker and write what it heard."""
    from safeimpute import cli

    source = Path(cli.__file__).parents[1]
    if not source.is_relative_to(checkout):
        raise SystemExit(f"{checkout} was asked for, but the package came from {source}")
    walker = Walker(source)
    sys.argv = ["safeimpute", *arguments]
    threading.setprofile(walker)
    sys.setprofile(walker)
    code: Any = 0
    try:
        cli.main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    loaded = [name for name in sys.modules if name.split(".")[0] == "safeimpute"]
    heard = {"code": code, "files": sorted(walker.files), "loaded": len(loaded), "calls": walker.calls}
    answer.write_text(json.dumps(heard), encoding="utf-8")


def walk(checkout: Path, preset: str) -> dict[str, Any]:
    """What one run of a checkout enters."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        visits, answer, folder = Path(name) / "visits.csv", Path(name) / "answer.json", Path(name) / "run"
        visits.write_bytes(gzip.decompress(next(checkout.glob("src/safeimpute/*/data/pbc*.csv.gz")).read_bytes()))
        command = [sys.executable, str(Path(__file__).resolve()), str(checkout), "--worker", str(answer), "--run"]
        typed = f"run {visits} --out {folder} --preset {preset} {ARGUMENTS}"
        subprocess.run([*command, typed], env=environment, stdout=subprocess.DEVNULL, check=True)
        heard: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    calls = [Call(*each) for each in heard["calls"]]
    return heard | {"returns": returns_of(calls)}


def shown(checkout: Path, found: dict[str, Any], full: bool) -> str:
    """A paragraph for a checkout."""
    rooms = Counter(room_of(file.removesuffix(".py").replace(os.sep, ".")) for file in found["files"])
    back = Counter(f"{call.from_room} -> {call.to_room}" for call in found["returns"])
    lines = [
        f"{checkout}: the run ended with {found['code']}",
        f"  files entered   {len(found['files'])} ({', '.join(f'{r} {n}' for r, n in rooms.most_common())})",
        f"  modules loaded  {found['loaded']}",
        f"  returns         {len(found['returns'])}"
        + (f" ({', '.join(f'{way}: {count}' for way, count in back.most_common())})" if back else ""),
    ]
    if full:
        lines += [f"    {call.caller} -> {call.callee}" for call in found["returns"]]
        lines += [f"    entered {file}" for file in found["files"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--preset", default="best")
    parser.add_argument("--full", action="store_true", help="name every return and every file")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        follow(given.checkouts[0], given.worker, given.run.split())
        return 0
    found = {checkout: walk(checkout.resolve(), given.preset) for checkout in given.checkouts}
    for checkout, heard in found.items():
        print(shown(checkout, heard, given.full))
    return max(int(heard["code"] != 0) for heard in found.values())


if __name__ == "__main__":
    raise SystemExit(main())
