"""What work may use of the machine: threads, the GPU, and main memory under a ceiling.

The ceiling belongs to the process, not to a model: `--memory` sets it, processes started from here inherit it. Only the
size of the blocks in which visits are read depends on it, so a ceiling changes no result; where even small blocks
do not fit, the work is refused before it starts.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from safeimpute.errors import OptionError

LOOK_SECONDS = 0.2
STAT, QUOTA = Path("/proc/stat"), Path("/sys/fs/cgroup/cpu.max")
SMALL_TABLE = 10_000  # rows; below it threads inside one job wait longer than they work, and two fit into memory
Job = TypeVar("Job")
Result = TypeVar("Result")
# What a driver for NVIDIA's or AMD's processors, or Windows' own below Linux, puts there.
DRIVERS = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))
VARIABLE = "SAFEIMPUTE_MEMORY_GIB"
GIB, MIB = 2**30, 2**20
BLOCKS = (65_536, 32_768, 16_384, 8_192, 4_096)  # visits read at once, the largest that fits
PORTIONS = (20_000, 10_000, 5_000, 2_500)  # visits scored at once, likewise
PER_SCORED = 400  # bytes a scored visit keeps: its estimates, and its row of the imputation table
LEARNT_AT_ONCE = 200_000  # visits at most that one member of a bag of trees learns from
LIBRARIES = 160 * MIB  # loaded on the way, and figures and report after the fit
TORCH = 190 * MIB  # loaded where there may be a GPU
PER_THREAD = 96 * MIB  # working arrays of the neighbour search and of tree building
LOADED_TO_CHECK = 64 * MIB  # libraries that only the checks of a table load
MARGIN = 1.15  # allocators keep some of what is freed
READING = 7  # times a table's own size, at most, while it is read, checked and merged into visits
CONTAINER = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


class _Inside(threading.local):
    """Whether this thread is already doing one of several jobs."""

    job = False


_inside = _Inside()


def thread_count() -> int:
    """Threads that work may use: OMP_NUM_THREADS where set, else the cores this process may have and others leave."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return _free_cores()


@cache
def _free_cores() -> int:
    """Cores left by others, looked at once; results do not depend on it."""
    allowed = _allowed_cores()
    if allowed == 1:
        return 1
    return max(1, min(allowed, round(allowed - _busy_by_others())))


def _allowed_cores() -> int:
    """By affinity, and by the container's share of processor time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, min(cores, int(int(quota) / int(period))))
    except (OSError, ValueError):  # no container, or no limit ("max")
        return cores


def _busy_by_others() -> float:
    """How many cores other processes used while this one looked; 0 where the system does not say."""
    before, own, start = _busy_seconds(), time.process_time(), time.perf_counter()
    time.sleep(LOOK_SECONDS)
    after = _busy_seconds()
    passed = time.perf_counter() - start
    if before is None or after is None:
        return 0.0
    return max(0.0, (after - before - (time.process_time() - own)) / passed)


def _busy_seconds() -> float | None:
    """Processor seconds that all processes of the machine have used."""
    try:
        user, nice, system, *_ = map(int, STAT.read_text().split("\n", 1)[0].split()[1:])
        return (user + nice + system) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


def workers() -> int:
    """Threads that one piece of work may start: one where it is itself one of several at once."""
    return 1 if _inside.job else thread_count()


def threads_for(rows: int) -> int:
    """Threads inside one pass of a library over so many rows.

    Trees are not grown so: a tree is hundreds of short loops, at the end of each of which threads wait for each other.
    Grown by two threads that sleep while they wait, they took twice as long as by one.
    """
    return 1 if rows < SMALL_TABLE else workers()


def side_by_side(work: Callable[[Job], Result], jobs: Iterable[Job], rows: int = 0) -> list[Result]:
    """Results in the order of the jobs, several at once unless each holds many rows of its own.

    Jobs that such a job has itself are done one after the other: the threads are busy already. So small tables are
    worked on fold beside fold, and in a large one, of which two would not fit, the parts of a fold are.
    """
    jobs = list(jobs)
    at_once = workers() if rows < SMALL_TABLE else 1
    if at_once == 1 or len(jobs) == 1:
        return [work(job) for job in jobs]

    def alone(job: Job) -> Result:
        _inside.job = True
        return work(job)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(alone, jobs))


class _Steady:
    """How many blocks of `steady_sums` are open in this process, and what the first of them changed."""

    lock = threading.Lock()
    open = 0
    limited: Any = None


@contextmanager
def steady_sums() -> Iterator[None]:
    """Products of matrices by one thread: several add up in another order, and the last digits would tell how many.

    The limit is the process's, so of blocks that overlap in time the first sets it and the last takes it back.
    """
    with _Steady.lock:
        _Steady.open += 1
        if _Steady.open == 1:
            _Steady.limited = _libraries().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _Steady.lock:
            _Steady.open -= 1
            if _Steady.open == 0:
                _Steady.limited.restore_original_limits()


@cache
def _libraries() -> Any:
    """The libraries that multiply matrices, looked for once; NumPy and SciPy are loaded by then."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def resolve_device(device: str) -> str:
    """`cpu` or `cuda`; `auto` is the GPU where there is one."""
    if device == "cpu" or (device == "auto" and not driver_there()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise OptionError("device 'cuda' was asked for, but no GPU was found. Use 'auto' or 'cpu'.")
    return "cpu"


def driver_there() -> bool:
    """Whether a GPU is possible at all: asking torch takes seconds to import it."""
    return not sys.platform.startswith("linux") or any(path.exists() for path in DRIVERS)


@dataclass(frozen=True)
class Size:
    """What the memory of a fit or a scoring depends on."""

    visits: int
    measured: int
    labs: int  # beside the target
    attributes: int
    own: int  # own visits looked at
    analogues: int

    @property
    def columns(self) -> int:
        """Of the evidence."""
        return 26 + self.attributes + 8 * self.labs

    def held(self) -> float:
        """Bytes alive at once when the fit is at its largest: in a fold, or when measuring is learnt."""
        row = 8 * (self.labs + self.attributes + 12)
        features = self.columns + 24
        fold = self.measured * (4 * self.columns + 6 * features + 8 * 20) + self.visits * row
        table = 9 + 5 * self.labs + self.attributes
        measuring = self.visits * 4 * table + min(self.visits, LEARNT_AT_ONCE) * 6 * table
        return self.visits * (2 * row + 8 * 14) + max(fold, measuring)

    def working(self, block: int) -> float:
        """Bytes that come and go: a block of evidence while it is read, and what libraries take."""
        per_visit = 8 * (44 * self.labs + 15 * self.own + 6 * self.analogues + 60)
        libraries = LIBRARIES + (TORCH if driver_there() else 0)
        return block * per_visit + thread_count() * PER_THREAD + libraries

    def portion(self) -> float:
        """Bytes per visit scored at once."""
        table = 9 + 5 * self.labs + self.attributes
        return 8 * (3 * self.labs + self.attributes + 30) + 4 * (2 * self.columns + 24 + table)


def block_within_ceiling(size: Size, block_visits: int) -> int:
    """Blocks small enough for the ceiling, or for what this machine has left; refuses what cannot be held."""
    return _largest(
        [*([block_visits] if ceiling_bytes() is None else []), *_up_to(BLOCKS, block_visits)],
        lambda block: size.held() + size.working(block),
        f"{size.visits:,} visits with {size.labs} other labs",
        "leave labs out with --exclude, or fit on a random sample of patients",
    )


def scored_at_once(size: Size, most: int) -> int:
    """How many visits to score at a time, at most so many; refuses a table that cannot be held."""
    return _largest(
        [*([most] if ceiling_bytes() is None else []), *_up_to(PORTIONS, most)],
        lambda block: size.visits * PER_SCORED + block * size.portion() + size.working(block),
        f"scoring {size.visits:,} visits with {size.labs} other labs",
        "or score the table in parts, by patient (each visit is decided alone)",
    )


def _up_to(sizes: Iterable[int], most: int) -> list[int]:
    smallest = min(sizes)
    return [each for each in sizes if each <= max(most, smallest)]


def _largest(blocks: Iterable[int], bytes_needed: Callable[[int], float], what: str, instead: str) -> int:
    """The first block that can be held beside what is taken already; blocks come largest first."""
    limit, needed = limit_bytes(), 0.0
    for block in blocks:
        needed = max(_resident_bytes(), 0) + MARGIN * bytes_needed(block)
        if needed <= limit:
            return block
    raise _too_much(what, needed, instead)


def require_room(what: str, bytes_needed: float, instead: str) -> None:
    """Refuse work that the ceiling, or this machine, cannot hold, before it starts."""
    needed = max(_resident_bytes(), 0) + MARGIN * bytes_needed
    if needed > limit_bytes():
        raise _too_much(what, needed, instead)


def require_room_to_read(what: str, table_bytes: float) -> None:
    """The same for a table: what it takes as columns of numbers, while it is read, checked and merged into visits."""
    needed = READING * table_bytes + LOADED_TO_CHECK
    require_room(f"reading {what!r}", needed, "or read fewer columns or patients")


def _too_much(what: str, needed: float, instead: str) -> OptionError:
    taken, ceiling = max(_resident_bytes(), 0), ceiling_bytes()
    about = f"{what} need about {needed / GIB:.1f} GiB, of which {taken / GIB:.1f} are taken already"
    if ceiling is None:
        left = (limit_bytes() - taken) / GIB
        return OptionError(
            f"this machine has about {max(left, 0):.1f} GiB left, and {about}. Use a larger machine, {instead}."
        )
    return OptionError(
        f"--memory {ceiling / GIB:g} GiB cannot be kept: {about}. Give --memory {_rounded_up(needed / GIB):g} or more, "
        f"{instead}."
    )


def limit_bytes() -> float:
    """What this process may hold: the ceiling, else what it has and the machine or its container has left."""
    ceiling = ceiling_bytes()
    return ceiling if ceiling is not None else max(_resident_bytes(), 0) + _left_bytes()


def _left_bytes() -> float:
    """Memory that can still be had, as far as the system says."""
    left = [math.inf]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        left += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    for limit, used in CONTAINER:
        try:
            left.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # there is no container, or it has no limit
            continue
    return max(min(left), 0.0)


def set_ceiling(gib: float | None) -> None:
    """Of this process and those it starts."""
    if gib is not None:
        os.environ[VARIABLE] = f"{gib:g}"


def ceiling_bytes() -> int | None:
    """The ceiling, if one was set."""
    text = os.environ.get(VARIABLE, "")
    try:
        return int(float(text) * GIB) if text else None
    except ValueError:
        raise OptionError(f"{VARIABLE} is {text!r}: give a number of GiB such as 8.") from None


def _resident_bytes() -> int:
    """Memory this process holds now; where the system does not say, the most it ever held."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource  # there is none on Windows

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def peak_mib() -> float:
    """The most this process ever held, in MiB; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if status.exists():  # a process started from a large one must not report that one's size
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 1024)


def _rounded_up(gib: float) -> float:
    """To tenths below two, to halves above."""
    steps = 10 if gib < 2 else 2
    return math.ceil(steps * gib) / steps
