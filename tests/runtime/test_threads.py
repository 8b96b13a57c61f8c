"""Threads: as many as others leave, asleep while they wait, and never slower than one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safeimpute.runtime import threads
from safeimpute.runtime.waiting import PASSIVE


@pytest.fixture(autouse=True)
def looked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads._free_cores.cache_clear()


def seen_by_libraries(first: str, **told: str) -> str:
    """What the environment says when the numerical libraries load."""
    free = {name: value for name, value in os.environ.items() if name not in PASSIVE}
    program = f"{first}; import os; print(*(os.environ.get(name) for name in {list(PASSIVE)!r}))"
    return subprocess.run(
        [sys.executable, "-c", program], env=free | told, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_idle_threads_are_told_to_sleep_before_the_libraries_load() -> None:
    assert seen_by_libraries("import safeimpute") == "PASSIVE 0 0"
    assert seen_by_libraries("import safeimpute.cli") == "PASSIVE 0 0"
    assert seen_by_libraries("import safeimpute", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE 0 0"


def test_what_the_user_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.thread_count() == 3


@pytest.mark.parametrize(("busy", "left"), [(0.0, 8), (0.4, 8), (3.2, 5), (7.9, 1), (50.0, 1)])
def test_cores_that_others_use_are_left_to_them(
    monkeypatch: pytest.MonkeyPatch, busy: float, left: int
) -> None:
    monkeypatch.setattr(threads, "_allowed_cores", lambda: 8)
    monkeypatch.setattr(threads, "_busy_by_others", lambda: busy)
    assert threads.thread_count() == left


@pytest.mark.parametrize(
    ("said", "cores"), [("max 100000", 4), ("150000 100000", 1), ("300000 100000", 3), ("x", 4), ("", 4)]
)
def test_a_container_has_its_share(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, cores: int
) -> None:
    (tmp_path / "cpu.max").write_text(said)
    monkeypatch.setattr(threads, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert threads._allowed_cores() == cores


def test_a_system_that_does_not_say_counts_as_idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(threads, "STAT", tmp_path / "none")
    monkeypatch.setattr(threads, "LOOK_SECONDS", 0.0)
    assert threads._busy_by_others() == 0.0


def test_small_tables_are_worked_on_side_by_side_not_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads.threads_for(threads.SMALL_TABLE - 1) == 1
    assert threads.threads_for(threads.SMALL_TABLE) == 4
    assert threads.side_by_side(lambda job: job * 2, range(5), rows=10) == [0, 2, 4, 6, 8]
