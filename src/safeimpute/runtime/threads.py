"""How many threads work may use."""

import os


def thread_count() -> int:
    """Threads that work may use: OMP_NUM_THREADS where set, else every core this process may run on."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
