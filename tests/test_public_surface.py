import os
import subprocess
import sys

import pytest

import safeimpute


def test_the_public_names_are_frozen() -> None:
    names = ["SafeImputeError", "SafeImputer", "hide", "pool", "read_visits", "release"]
    assert sorted(safeimpute.__all__) == names
    assert dir(safeimpute) == ["SafeImputeError", "SafeImputer", "__version__", *names[2:]]
    assert all(getattr(safeimpute, name) is not None for name in safeimpute.__all__)
    with pytest.raises(AttributeError):
        _ = safeimpute.nothing


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import safeimpute, sys; print(sorted({'torch','polars','lightgbm','pyspark'} & set(sys.modules)))"
    assert _output(code) == "[]\n"


def test_who_waits_for_a_scoring_loads_nothing_heavy() -> None:
    code = "import safeimpute.cli.score_process, sys; print(sorted({'torch','polars','scipy'} & set(sys.modules)))"
    assert _output(code) == "[]\n"


def test_an_imputer_is_made_without_the_learning_libraries() -> None:
    code = (
        "import safeimpute, sys; safeimpute.SafeImputer(target='hba1c', tolerance=0.5, fdr=0.1); "
        "print(sorted({'torch','lightgbm','pyspark'} & set(sys.modules)))"
    )
    assert _output(code) == "[]\n"


def test_the_version_is_told() -> None:
    command = [sys.executable, "-m", "safeimpute", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told == f"safeimpute {safeimpute.__version__}\n"


def _output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_array_core_runs_without_any_dataframe_library() -> None:
    code = """
import sys, pkgutil, importlib
for absent in ("polars", "pandas", "pyarrow", "pydantic", "typer"):
    sys.modules[absent] = None  # importing it raises ImportError
for package in ("learning", "selection"):
    root = importlib.import_module(f"safeimpute.{package}")
    for module in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        importlib.import_module(module.name)
for module in ("evaluation.evaluate", "foreign.ranking"):
    importlib.import_module(f"safeimpute.{module}")
print("ran")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "ran\n", result.stderr


def test_help_answers_fast() -> None:
    """In seconds of a processor, so that other work on the machine does not count."""
    start = ["-m", "safeimpute", "--help"]
    bare = min(_processor_seconds(["-c", ""]) for _ in range(3))
    assert min(_processor_seconds(start) for _ in range(3)) - bare < 0.45


def _processor_seconds(told: list[str]) -> float:
    before = os.times()
    subprocess.run([sys.executable, *told], capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
