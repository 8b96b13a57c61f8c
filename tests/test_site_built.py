"""The documentation site, built: no warning, every public name with its entry, no broken link, all from here."""

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import safeimpute

ROOT = Path(__file__).parents[1]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Found(HTMLParser):
    """Anchors, links and what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") != "canonical":
            self.loads.add(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Found]:
    """Every page of the site, built as `make docs` builds it."""
    pytest.importorskip("mkdocs", reason="the site needs the extra [docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    pages = {}
    for path in folder.rglob("*.html"):
        pages[path] = Found()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


def documented_modules() -> list[str]:
    """Modules that the API pages document whole."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/api").glob("*.md"))
    named = re.findall(r"^::: (safeimpute\.[\w.]+)$", pages, re.MULTILINE)
    return [name for name in named if is_module(name)]


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def public_names(module: ModuleType) -> set[str]:
    """What a module offers: its `__all__`, else the functions and classes it defines."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__ == module.__name__
    }


@pytest.mark.full
def test_every_public_name_has_its_entry(site: dict[Path, Found]) -> None:
    anchors = {anchor for found in site.values() for anchor in found.anchors}
    needed = {f"safeimpute.{name}" for name in safeimpute.__all__}
    for name in public_methods(safeimpute.SafeImputer):
        needed.add(f"safeimpute.SafeImputer.{name}")
    modules = documented_modules()
    assert len(modules) >= 15
    for module in modules:
        needed |= {f"{module}.{name}" for name in public_names(importlib.import_module(module))}
    assert len(needed) > 100
    assert sorted(needed - anchors) == []


def public_methods(thing: type) -> list[str]:
    return [
        name
        for name, _ in inspect.getmembers(thing, lambda each: inspect.isfunction(each) or inspect.ismethod(each))
        if not name.startswith("_")
    ]


@pytest.mark.full
def test_whatever_documents_and_examples_import_is_public(site: dict[Path, Found]) -> None:
    anchors = {anchor for found in site.values() for anchor in found.anchors}
    places = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    asked = set()
    for place in places:
        text = place.read_text(encoding="utf-8")
        for module, names in re.findall(r"^\s*from (safeimpute[\w.]*) import ([\w, ]+)$", text, re.MULTILINE):
            asked |= {f"{module}.{name.strip()}" for name in names.split(",")}
    assert len(asked) >= 8
    assert sorted(asked - anchors) == []


@pytest.mark.full
def test_no_link_is_broken(site: dict[Path, Found]) -> None:
    broken, seen = [], 0
    for page, found in site.items():
        for link in found.links | found.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            there = target.exists()
            if there and parts.fragment and target in site:
                there = unquote(parts.fragment) in site[target].anchors
            seen += 1
            if not there:
                broken.append(f"{page.name}: {link}")
    assert seen > 2_000
    assert broken == []


@pytest.mark.full
def test_the_site_needs_nothing_from_elsewhere(site: dict[Path, Found]) -> None:
    loads = {load for found in site.values() for load in found.loads}
    assert len(loads) > 10
    assert [load for load in loads if urlsplit(load).netloc] == []
    folder = min(site, key=lambda path: len(path.parts)).parent
    styles = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.css"))
    assert re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*;", styles) == []


@pytest.mark.full
def test_every_option_stands_in_the_tables(site: dict[Path, Found]) -> None:
    from safeimpute.machine.options import TableFormat, declared
    from safeimpute.settings import Settings

    page = next(path for path in site if path.name == "options.html").read_text(encoding="utf-8")
    options = [*declared(Settings), *declared(TableFormat)]
    assert len(options) > 50
    assert [each.name for each in options if f"<code>{each.name}</code>" not in page] == []
    assert not any("&lt;!-- options" in path.read_text(encoding="utf-8") for path in site)
