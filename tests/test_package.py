"""The package as users get it: what is in wheel and source, and that the wheel works away from the checkout."""

import io
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from package import ROOT, missing_from

import safeimpute


def _packed(folder: Path, names: list[str]) -> tuple[Path, Path]:
    wheel, source = folder / "w.whl", folder / "s.tar.gz"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in names:
            packed.writestr(name, "")
    with tarfile.open(source, "w:gz") as archive:
        for name in ("README.md", "LICENSE"):
            archive.addfile(tarfile.TarInfo(f"safeimpute-1/{name}"), io.BytesIO())
    return wheel, source


def test_what_is_missing_or_strange_is_found(tmp_path: Path) -> None:
    wrong = missing_from(*_packed(tmp_path, ["safeimpute/__init__.py", "tests/test_x.py"]))
    assert "wheel lacks safeimpute/visits/catalogue.toml" in wrong
    assert "wheel lacks safeimpute/__init__.py" not in wrong
    assert "wheel holds tests/test_x.py" in wrong
    assert "source lacks pyproject.toml" in wrong
    assert "source lacks README.md" not in wrong


def test_the_command_has_the_name_of_the_package() -> None:
    """So that `pipx run safeimpute` finds it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert set(project["scripts"]) == {project["name"]}
    extras = project["optional-dependencies"]
    named = {part for line in extras["full"] for part in line.partition("[")[2].strip("]").split(",") if part}
    assert named <= set(extras)


def test_importing_the_package_changes_nothing_of_the_process() -> None:
    script = "import os; before = dict(os.environ); import safeimpute; assert dict(os.environ) == before"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.full
def test_the_wheel_works_in_an_environment_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="building needs the extra [full]")
    command = [sys.executable, str(ROOT / "tools/package.py"), str(tmp_path)]
    environment = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert done.stdout.splitlines()[-1].endswith(f"version {safeimpute.__version__}")
