"""The documents say what the program is: pages, commands, messages, reasons, versions; nothing is built here."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from reference_pages import reasons_page
from site_pages import commands_page, made_pages, options_named, site_links, with_options

import safeimpute
from safeimpute.cli import LABORATORY, app
from safeimpute.selection import reasons

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("api/*.md"), ROOT / "README.md"])


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_every_page_stands_in_the_navigation() -> None:
    listed = re.findall(r"(?:- |: )([\w/]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)
    here = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | set(made_pages())
    assert len(listed) == len(set(listed))
    assert set(listed) == here


def test_the_page_of_reasons_is_made_from_their_home() -> None:
    assert text_of(DOCS / "reasons.md") == reasons_page(), (
        "run: python tools/reference_pages.py reasons > docs/reasons.md"
    )
    named = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert named == set(reasons.IN_WORDS) == set(reasons.WHAT_HELPS)


@cache
def commands() -> dict[str, set[str]]:
    """The flags of every command."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    return {
        name: {flag for each in command.params for flag in (*each.opts, *each.secondary_opts) if flag.startswith("-")}
        | {"--help"}
        for name in group.list_commands(context)
        for command in [group.get_command(context, name)]
    }


def quoted_commands(text: str) -> list[tuple[str, set[str]]]:
    """`safeimpute NAME --flag …` in blocks of code and in inline code."""
    joined = re.sub(r"\\\n\s*", " ", text)
    blocks = re.findall(r"```[a-z]*\n(.*?)```", joined, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(safeimpute [^`\n]+)`", re.sub(r"```.*?```", "", joined, flags=re.DOTALL))
    found = []
    for line in lines:
        said = re.match(r"\s*(?:\$ )?safeimpute +([a-z]+)\b(.*)", line.split(" #")[0])
        if said:
            found.append((said[1], set(re.findall(r"(?<![\w-])--[a-z][\w-]*", said[2]))))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_quoted_in_the_documents_exist(page: Path) -> None:
    for name, flags in quoted_commands(text_of(page)):
        if name in LABORATORY and name not in commands():
            continue  # of the laboratory, which is not installed here
        assert name in commands(), f"{page.name}: safeimpute {name}"
        assert flags <= commands()[name], f"{page.name}: safeimpute {name} {flags - commands()[name]}"


def test_quoted_commands_are_found() -> None:
    text = "Say `safeimpute score M --engine spark`.\n```\n$ safeimpute run v \\\n  --target x  # --not this\n```\n"
    assert quoted_commands(text) == [("run", {"--target"}), ("score", {"--engine"})]
    assert sum(len(quoted_commands(text_of(page))) for page in PAGES) > 40


@cache
def messages() -> tuple[str, ...]:
    """Every text of the source, with `…` for what is filled in."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values]
                found.append(re.sub("…+", "…", "".join(parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


def said_somewhere(quoted: str) -> bool:
    """Whether a message of the source reads like the quoted one; `…` stands for anything."""
    pattern = re.compile(".*?".join(map(re.escape, quoted.strip("… ").split("…"))))
    return any(pattern.search(message) for message in messages())


def quoted_messages() -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text_of(DOCS / "troubleshooting.md"), re.MULTILINE)


def test_enough_messages_are_explained() -> None:
    assert len(quoted_messages()) > 15
    assert not said_somewhere("column … is nothing that any message of this program says")


@pytest.mark.parametrize("quoted", quoted_messages())
def test_messages_explained_are_said_by_the_program(quoted: str) -> None:
    assert said_somewhere(quoted), f"docs/troubleshooting.md explains a message no longer there: {quoted}"


def test_versions_of_documents_follow_the_package() -> None:
    version = safeimpute.__version__
    assert re.findall(r"^version: (.+)$", text_of(ROOT / "CITATION.cff"), re.MULTILINE) == [version]
    assert re.findall(r"^## (\d+\.\d+\.\d+)", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)[0] == version
    supported = re.findall(r"^\| (\d+\.\d+) \| yes \|$", text_of(ROOT / "SECURITY.md"), re.MULTILINE)
    assert supported == [version.rpartition(".")[0]]
    for page in PAGES:
        said = re.findall(r"safeimpute(?:==|-| )(\d+\.\d+\.\d+)", text_of(page))
        assert set(said) <= {version}, page.name


def test_option_tables_are_made_from_the_settings() -> None:
    shown = with_options("before\n\n<!-- options: claim, decimal -->\n\nafter")
    assert "| `claim` |" in shown
    assert "| `decimal` |" in shown
    assert "<!--" not in shown
    with pytest.raises(ValueError, match="no such option: nothing"):
        options_named(["nothing"])
    asked = [page for page in PAGES if "<!-- options: " in text_of(page)]
    assert len(asked) >= 3
    for page in asked:
        assert "<!-- options" not in with_options(text_of(page)), page.name


def test_the_page_of_commands_has_every_command_and_flag() -> None:
    page = commands_page()
    for name, flags in commands().items():
        section = page.split(f"## safeimpute {name}\n")[1].split("\n## ")[0]
        assert [flag for flag in flags - {"--help"} if f"`{flag}`" not in section] == []


def test_links_of_root_pages_are_turned_to_the_site() -> None:
    said = "[a](docs/a.md), [b](CHANGELOG.md), [c](src/safeimpute/x.py)"
    assert site_links(said) == "[a](a.md), [b](changelog.md), c"


WITHOUT_COMMAND = {  # pages with many numbers that nothing here measured, or can measure again
    "comparison.md",  # versions of other packages
    "design.md",  # variants tried once, whose scripts are gone
}


def _names_command(text: str) -> bool:
    return bool(re.search(r"(?:`|^\s*(?:\$ )?)[^`\n]*(?:python |safeimpute |make )[\w./-]", text, re.MULTILINE))


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_pages_with_many_numbers_name_the_command_that_made_them(page: Path) -> None:
    text = text_of(page)
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    for section in sections:
        plain = re.sub(r"`[^`]*`", "", section)
        if len(re.findall(r"\d\.\d", plain)) >= 20 and page.name not in WITHOUT_COMMAND:
            assert _names_command(section) or _names_command(sections[0]), section.splitlines()[0]


def test_every_statement_about_another_package_has_its_source() -> None:
    table = text_of(DOCS / "comparison.md").split("| feature |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(table) >= 9
    for row in table:
        feature, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6, feature
        for cell in cells[:-1]:
            unsaid = cell in {"not found", "does not apply", "Python"}
            assert unsaid or "](https://" in cell, f"{feature}: {cell}"
