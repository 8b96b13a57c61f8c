"""How many threads work may use, and independent small jobs side by side."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

SMALL_TABLE = 10_000  # rows; below it threads inside one job wait for each other longer than they work

Job = TypeVar("Job")
Result = TypeVar("Result")


def thread_count() -> int:
    """Threads that work may use: OMP_NUM_THREADS where set, else every core this process may run on."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(rows: int) -> int:
    """Threads inside one job on so many rows."""
    return 1 if rows < SMALL_TABLE else thread_count()


def side_by_side(work: Callable[[Job], Result], jobs: Iterable[Job], rows: int) -> list[Result]:
    """Results in the order of the jobs: several at once where each uses one thread, else one after the other."""
    workers = thread_count() if threads_for(rows) == 1 else 1
    if workers == 1:
        return [work(job) for job in jobs]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, jobs))
