"""What packages the program elsewhere says what pyproject.toml says: the conda recipe and the Dockerfile."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import safeimpute

ROOT = Path(__file__).parents[1]
OTHER_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # conda-forge's
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def rendered_recipe() -> dict[str, Any]:
    """As conda-build renders it: its functions in the template, then YAML."""
    from jinja2 import Environment, StrictUndefined

    yaml = pytest.importorskip("yaml")

    def load_file_regex(load_file: str, regex_pattern: str, from_recipe_dir: bool) -> re.Match[str] | None:
        return re.search(regex_pattern, (ROOT / load_file).read_text())

    template = Environment(undefined=StrictUndefined, autoescape=False).from_string(
        (ROOT / "recipe/meta.yaml").read_text()
    )
    text = template.render(load_file_regex=load_file_regex, PYTHON="python")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_the_recipe_needs_what_the_wheel_needs() -> None:
    recipe = rendered_recipe()
    assert (recipe["package"]["name"], recipe["package"]["version"]) == ("safeimpute", safeimpute.__version__)
    needed = {f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]}
    renamed = {re.sub(r"^[a-z]+", lambda name: OTHER_NAMES.get(name[0], name[0]), each) for each in needed}
    assert {each.replace(" ", "") for each in recipe["requirements"]["run"]} == renamed
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    (entry,) = recipe["build"]["entry_points"]
    assert entry == f"safeimpute = {PROJECT['scripts']['safeimpute']}"


def dockerfile() -> list[tuple[str, str]]:
    """Its instructions, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2]) for line in lines]


def test_the_image_is_slim_offline_and_without_root() -> None:
    steps = dockerfile()
    known = {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in steps} <= known
    assert steps[0] == ("FROM", "python:3.11-slim")
    names = [name for name, _ in steps]
    assert dict(steps)["USER"] == "safeimpute"
    assert names.index("USER") > max(place for place, name in enumerate(names) if name == "RUN")
    (install,) = [said for name, said in steps if "pip install" in said]
    assert "--no-index --find-links /wheels" in install
    (extras,) = re.findall(r"safeimpute\[([\w,]+)\]", install)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert dict(steps)["ENTRYPOINT"] == '["safeimpute"]'
    assert (ROOT / ".dockerignore").read_text().split() == ["*", "!wheels"]
