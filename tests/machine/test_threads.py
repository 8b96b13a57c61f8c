"""Threads: as many as others leave, asleep while they wait, and never slower than one."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from safeimpute.errors import OptionError
from safeimpute.machine import resources

PASSIVE = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
COMMAND = "import safeimpute.cli as cli; cli.app = lambda: None; cli.main()"


@pytest.fixture(autouse=True)
def looked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    resources._free_cores.cache_clear()


def seen_by_libraries(first: str, **told: str) -> str:
    """What the environment says when the numerical libraries load."""
    free = {name: value for name, value in os.environ.items() if name not in PASSIVE}
    program = f"{first}; import os; print(*(os.environ.get(name) for name in {PASSIVE!r}))"
    return subprocess.run(
        [sys.executable, "-c", program], env=free | told, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_command_line_tells_idle_threads_to_sleep_before_the_libraries_load() -> None:
    assert seen_by_libraries(COMMAND) == "PASSIVE 0 0"
    assert seen_by_libraries(COMMAND, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE 0 0"


def test_importing_the_package_tells_the_process_nothing() -> None:
    assert seen_by_libraries("import safeimpute, safeimpute.cli") == "None None None"


def test_what_the_user_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert resources.thread_count() == 3


@pytest.mark.parametrize(("busy", "left"), [(0.0, 8), (0.4, 8), (3.2, 5), (7.9, 1), (50.0, 1)])
def test_cores_that_others_use_are_left_to_them(monkeypatch: pytest.MonkeyPatch, busy: float, left: int) -> None:
    monkeypatch.setattr(resources, "_allowed_cores", lambda: 8)
    monkeypatch.setattr(resources, "_busy_by_others", lambda: busy)
    assert resources.thread_count() == left


@pytest.mark.parametrize(
    ("said", "cores"), [("max 100000", 4), ("150000 100000", 1), ("300000 100000", 3), ("x", 4), ("", 4)]
)
def test_a_container_has_its_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(said)
    monkeypatch.setattr(resources, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert resources._allowed_cores() == cores


def test_a_system_that_does_not_say_counts_as_idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "STAT", tmp_path / "none")
    monkeypatch.setattr(resources, "LOOK_SECONDS", 0.0)
    assert resources._busy_by_others() == 0.0


def test_small_tables_are_worked_on_side_by_side_not_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert resources.threads_for(resources.SMALL_TABLE - 1) == 1
    assert resources.threads_for(resources.SMALL_TABLE) == 4
    assert resources.side_by_side(lambda job: job * 2, range(5), rows=10) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("rows", "at_once"), [(10, 3), (resources.SMALL_TABLE, 1)])
def test_what_runs_beside_others_starts_no_threads_of_its_own(
    monkeypatch: pytest.MonkeyPatch, rows: int, at_once: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    met = threading.Barrier(at_once)

    def parts(job: int) -> list[int]:
        met.wait(timeout=30)  # passes only where so many run at once
        inside = resources.side_by_side(lambda _: resources.threads_for(resources.SMALL_TABLE), range(2))
        return [resources.workers(), *inside]

    free, inside = (3, 1) if at_once == 1 else (1, 1)
    assert resources.side_by_side(parts, range(3), rows) == [[free, inside, inside]] * 3
    assert resources.workers() == 3


FIT = """
import hashlib
import time
import numpy as np
from safeimpute import SafeImputer
from safeimpute.visits.examples import simulate

visits = simulate("mimic4", np.random.default_rng(1), patients=2300).visits
start = time.perf_counter()
imputer = SafeImputer(target="hba1c", tolerance=0.8, fdr=0.2).fit(visits)
seconds, found = time.perf_counter() - start, imputer.impute(visits)
told = b"".join(found[name].to_numpy().tobytes() for name in ("value", "lower", "upper", "risk", "released"))
print(len(visits), seconds, hashlib.sha256(told).hexdigest())
"""


@pytest.mark.full
def test_two_threads_come_to_the_same_bytes_and_are_not_slower() -> None:
    told = []
    for count in ("1", "2"):
        environment = os.environ | {"OMP_NUM_THREADS": count}
        fit = subprocess.run([sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True)
        told.append(fit.stdout.split())
    (visits, one, first), (_, two, second) = told
    assert int(visits) > resources.SMALL_TABLE, "smaller tables are worked on otherwise"
    assert first == second
    if resources._allowed_cores() > 1:
        assert float(two) < 1.3 * float(one), "what else runs here may take one of two cores, no more"


def test_products_of_matrices_are_steady_until_the_last_block_ends() -> None:
    import numpy as np

    def threads_of_blas() -> set[int]:
        return {each["num_threads"] for each in resources._libraries().info() if each["user_api"] == "blas"}

    np.ones((4, 4)) @ np.ones((4, 4))
    with resources._libraries().limit(limits=2, user_api="blas"):
        before = threads_of_blas()
        first, second = resources.steady_sums(), resources.steady_sums()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads_of_blas() == {1}
        second.__exit__(None, None, None)
        assert threads_of_blas() == before


def test_without_a_driver_torch_is_not_asked() -> None:
    program = (
        "import sys; from safeimpute.machine import resources; resources.DRIVERS = (); "
        "resources.sys.platform = 'linux'; "
        "print(resources.resolve_device('auto'), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu", "False"]


def test_a_fit_and_its_reasons_need_no_torch() -> None:
    """Six labs with holes of every pattern: the search by products, not by trees of neighbours."""
    program = (
        "import sys, numpy as np; from safeimpute import SafeImputer; "
        "from safeimpute.visits.examples import simulate; "
        "from safeimpute.learning.neighbours import search; search._trees_are_cheaper = lambda *given: False; "
        "visits = simulate('mimic4', np.random.default_rng(1), patients=150, labs=6).visits; "
        "fitted = SafeImputer(target='hba1c', tolerance=0.8, fdr=0.3, best={'folds': 3}, device='cpu').fit(visits); "
        "print(len(fitted.impute(visits)) > 0, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_with_a_driver_torch_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(resources, "DRIVERS", (tmp_path / "nvidiactl",))
    for there, said in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resources.resolve_device("auto") == said
    with pytest.raises(OptionError, match="no GPU was found"):
        resources.resolve_device("cuda")
