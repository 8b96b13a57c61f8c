"""Runs a benchmark's cells as processes with limits on time and memory; a failure becomes the cell's own result."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safeimpute_lab.benchmark.cells import LOGS, CellName, read_cell, save_cell, save_failure
from safeimpute_lab.registry import METHODS

POLL_SECONDS = 0.1
WATCH_SECONDS = 30.0  # between looks at cells that go on
SCRATCH = "scratch"
GIB = 2**30


@dataclass(frozen=True)
class Limits:
    """What one cell may use, and what one method may over all its cells."""

    seconds: float
    memory_gib: float
    budget: float | None = None  # seconds of one method; so that a run ends


@dataclass(frozen=True)
class Status:
    """How far a benchmark is, for whoever watches."""

    running: tuple[CellName, ...]
    done: int
    total: int
    elapsed: float
    remaining: float | None  # seconds, as far as finished cells tell


@dataclass
class RunningCell:
    """A cell in progress."""

    name: CellName
    process: "subprocess.Popen[bytes]"
    start: float = field(default_factory=time.monotonic)
    children: frozenset[int] = frozenset()  # processes the method started itself, at the last look
    children_peak: int = 0  # bytes they held at most

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def held(self, family: Mapping[int, int]) -> int:
        """Resident bytes of the whole family, remembering the children's largest share.

        A child counts from the second look on: right after its birth it still shares its parent's memory.
        """
        children = {pid: size for pid, size in family.items() if pid != self.process.pid}
        settled = sum(size for pid, size in children.items() if pid in self.children)
        self.children, self.children_peak = frozenset(children), max(self.children_peak, settled)
        return settled + family.get(self.process.pid, 0)


def is_finished(folder: Path, name: CellName, limits: Limits) -> bool:
    """Whether a cell need not be run: it succeeded, or it hit a limit that is no larger now."""
    cell = read_cell(folder, name)
    if cell is None or not cell.failed:
        return cell is not None
    error = cell.failure
    allowed = {"time": limits.seconds, "memory": limits.memory_gib, "budget": limits.budget}.get(error["kind"])
    return allowed is not None and error["limit"] is not None and allowed <= error["limit"]


def run_cells(
    folder: Path,
    cells: Sequence[CellName],
    limits: Limits,
    device: str = "cpu",
    jobs: int = 1,
    watch: Callable[[Status], None] = lambda _: None,
) -> None:
    """Run every cell that is not finished, at most `jobs` at a time, in the order given."""
    waiting = [name for name in cells if not is_finished(folder, name, limits)]
    clock, budgets = _Clock(folder, cells, jobs), _Budgets(folder, cells, limits.budget)
    running: list[RunningCell] = []
    looked = time.monotonic()
    _sweep(folder)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                if not _cannot_run(folder, name) and not budgets.spent(name):
                    running.append(_start(folder, name, device, jobs))
                watch(clock.status(running, waiting))
            time.sleep(POLL_SECONDS)
            if time.monotonic() - looked > WATCH_SECONDS:
                looked = time.monotonic()
                watch(clock.status(running, waiting))
            running = [each for each in running if not _ended(folder, each, limits, budgets)]
    finally:
        for each in running:
            _kill(_family(each.process.pid))
            each.process.wait()
    watch(clock.status([], []))


def _cannot_run(folder: Path, name: CellName) -> bool:
    """Record what is missing instead of starting a method that cannot run here."""
    missing = METHODS[name.method].missing() if name.method in METHODS else []
    if missing:
        modules = all(each.isidentifier() for each in missing)
        remedy = " (pip install -e lab)" if modules else ""
        save_failure(folder, name, "missing", f"needs {', '.join(missing)}{remedy}")
    return bool(missing)


def _start(folder: Path, name: CellName, device: str, jobs: int) -> RunningCell:
    logs = folder / LOGS
    logs.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "safeimpute_lab.benchmark.cell", str(folder), name.method]
    command += [str(name.seed), "--device", device, "--parent", str(os.getpid())]
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    scratch = _scratch(folder, name)
    scratch.mkdir(parents=True, exist_ok=True)
    environment = {"OMP_NUM_THREADS": threads, **os.environ, "TMPDIR": str(scratch)}
    with (logs / f"{name.stem}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    return RunningCell(name, process)


def _ended(folder: Path, cell: RunningCell, limits: Limits, budgets: "_Budgets") -> bool:
    """Look at a running cell once: end it where it broke a limit, and see to it that its result is there."""
    if cell.process.poll() is not None:
        _account_for(folder, cell)
        budgets.add(cell)
        return True
    family = _family(cell.process.pid)
    held = cell.held(family)
    if cell.seconds > limits.seconds:
        _stop(folder, cell, family, "time", f"stopped after {limits.seconds:,.0f} s", limits.seconds)
        budgets.add(cell)
        return True
    if budgets.over(cell):
        _stop(folder, cell, family, "budget", budgets.words, limits.budget)
        budgets.add(cell)
        return True
    if held > limits.memory_gib * GIB:
        text = f"stopped: needed more than {limits.memory_gib:g} GiB"
        _stop(folder, cell, family, "memory", text, limits.memory_gib)
        return True
    return False


def _scratch(folder: Path, name: CellName) -> Path:
    """Where a cell keeps what it writes on the way: patients' values, which must not outlive it."""
    return folder / SCRATCH / f"{name.stem}.{os.getpid()}"


def _sweep(folder: Path) -> None:
    """Remove what cells of a benchmark that was killed outright left behind."""
    alive = _processes()
    for left in (folder / SCRATCH).glob("*"):
        if int(left.suffix[1:] or 0) not in alive:
            shutil.rmtree(left, ignore_errors=True)


def _account_for(folder: Path, cell: RunningCell) -> None:
    """A process that ended without a result was killed from outside or crashed."""
    shutil.rmtree(_scratch(folder, cell.name), ignore_errors=True)
    leader = cell.process.pid  # gone, and its number free for others: only its group may be ended
    _kill(pid for pid, (_, group, _) in _processes().items() if group == leader != pid)
    code = cell.process.returncode
    found = read_cell(folder, cell.name)
    if code or found is None:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        save_failure(folder, cell.name, "error", f"the process ended with {how}")
    elif cell.children_peak and not found.failed:
        content = found.content | {"peak_mib": found.content["peak_mib"] + cell.children_peak / 2**20}
        save_cell(folder, cell.name, content)


def _stop(folder: Path, cell: RunningCell, family: Iterable[int], kind: str, text: str, limit: float | None) -> None:
    _kill(family)
    cell.process.wait()
    shutil.rmtree(_scratch(folder, cell.name), ignore_errors=True)
    save_failure(folder, cell.name, kind, text, limit)


def _family(leader: int) -> dict[int, int]:
    """Resident bytes of every process that the leader started or that shares its group."""
    known = _processes()
    members = {pid for pid, (_, group, _) in known.items() if group == leader or pid == leader}
    grown = True
    while grown:
        children = {pid for pid, (parent, _, _) in known.items() if parent in members} - members
        members |= children
        grown = bool(children)
    return {pid: known[pid][2] for pid in members if pid in known}


def _processes() -> dict[int, tuple[int, int, int]]:
    """Parent, group and resident bytes of every process: from /proc, else from ps."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(
            ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,rss="], capture_output=True, text=True, check=True
        )
        rows = (tuple(int(part) for part in line.split()) for line in listed.stdout.splitlines())
        return {pid: (parent, group, 1024 * size) for pid, parent, group, size in rows}
    found = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        found[int(entry.name)] = (int(after_name[1]), int(after_name[2]), int(after_name[21]) * page)
    return found


def _kill(family: Iterable[int]) -> None:
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class _Budgets:
    """Seconds each method has used, those of an earlier run included; once a budget is spent the method has no more."""

    def __init__(self, folder: Path, cells: Sequence[CellName], budget: float | None) -> None:
        self.folder, self.budget = folder, budget
        self.words = f"out of its budget of {budget:,.0f} s for all splits" if budget else ""
        self.used: dict[str, float] = {}
        for name in cells:
            cell = read_cell(folder, name)
            if cell is not None:
                stopped = cell.failure["limit"] or 0.0 if cell.failed and cell.failure["kind"] == "time" else 0.0
                self._use(name.method, stopped if cell.failed else cell.content["wall"])

    def spent(self, name: CellName) -> bool:
        """Whether a method may start no other cell; this one is then recorded as such."""
        if self.budget is None or self.used.get(name.method, 0.0) < self.budget:
            return False
        save_failure(self.folder, name, "budget", self.words, self.budget)
        return True

    def over(self, cell: RunningCell) -> bool:
        """Whether a running cell has used up what was left."""
        return self.budget is not None and self.used.get(cell.name.method, 0.0) + cell.seconds > self.budget

    def add(self, cell: RunningCell) -> None:
        """What an ended cell has used."""
        self._use(cell.name.method, cell.seconds)

    def _use(self, method: str, seconds: float) -> None:
        self.used[method] = self.used.get(method, 0.0) + seconds


class _Clock:
    """Elapsed and remaining time; a method not yet seen is taken to need what the others needed on average."""

    def __init__(self, folder: Path, cells: Sequence[CellName], jobs: int) -> None:
        self.folder, self.cells, self.jobs = folder, cells, jobs
        self.start = time.monotonic()

    def status(self, running: Sequence[RunningCell], waiting: Sequence[CellName]) -> Status:
        left = len(running) + len(waiting)
        return Status(
            running=tuple(each.name for each in running),
            done=len(self.cells) - left,
            total=len(self.cells),
            elapsed=time.monotonic() - self.start,
            remaining=self._remaining(running, waiting),
        )

    def _remaining(self, running: Sequence[RunningCell], waiting: Sequence[CellName]) -> float | None:
        spent: dict[str, list[float]] = {}
        for name in self.cells:
            cell = read_cell(self.folder, name)
            if cell is not None and not cell.failed:
                spent.setdefault(name.method, []).append(cell.content["wall"])
        if not spent:
            return None
        typical = {method: sum(each) / len(each) for method, each in spent.items()}
        usual = sum(typical.values()) / len(typical)
        ahead = sum(typical.get(name.method, usual) for name in waiting)
        ahead += sum(max(typical.get(each.name.method, usual) - each.seconds, 0.0) for each in running)
        return ahead / self.jobs
