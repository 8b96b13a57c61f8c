"""How many threads work may use, and independent small jobs side by side."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

LOOK_SECONDS = 0.2
STAT, QUOTA = Path("/proc/stat"), Path("/sys/fs/cgroup/cpu.max")
SMALL_TABLE = 10_000  # rows; below it threads inside one job wait for each other longer than they work


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


def threads_for(rows: int) -> int:
    """Threads inside one job on so many rows."""
    return 1 if rows < SMALL_TABLE else thread_count()


def side_by_side(work: Callable[[Job], Result], jobs: Iterable[Job], rows: int) -> list[Result]:
    """Results in the order of the jobs: several at once where each uses one thread, else one after the other.

    Jobs that such a job has itself are done one after the other: the threads are busy already.
    """
    jobs = list(jobs)
    workers = thread_count() if threads_for(rows) == 1 and not _inside.job else 1
    if workers == 1 or len(jobs) == 1:
        return [work(job) for job in jobs]

    def alone(job: Job) -> Result:
        _inside.job = True
        return work(job)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(alone, jobs))
