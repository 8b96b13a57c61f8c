"""How many threads work may use, independent jobs side by side, and sums that do not depend on either."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

LOOK_SECONDS = 0.2
STAT, QUOTA = Path("/proc/stat"), Path("/sys/fs/cgroup/cpu.max")
SMALL_TABLE = (
    10_000  # rows; below it threads inside one job wait longer than they work, and two fit into memory
)


class _Inside(threading.local):
    """Whether this thread is already doing one of several jobs."""

    job = False


_inside = _Inside()
Job = TypeVar("Job")
Result = TypeVar("Result")


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
