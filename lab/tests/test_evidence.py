"""The page of evidence: its tables are those of the kept cells, and code that changed since is named."""

import subprocess
from pathlib import Path

import pytest

from safeimpute_lab.__main__ import RUNNERS
from safeimpute_lab.evidence.provenance import LIST, Table, changed_since, check, make, note, read_tables
from safeimpute_lab.evidence.results import read_lines
from safeimpute_lab.evidence.results_page import write_page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/evidence.md"


def test_the_page_shows_what_the_kept_cells_come_to(tmp_path: Path) -> None:
    again = tmp_path / "evidence.md"
    again.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_page(list(read_lines(ROOT / "lab/evidence/results.jsonl")), again)
    assert again.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), "run: evidence results write"


@pytest.mark.parametrize("table", read_tables(ROOT / LIST), ids=lambda table: table.name)
def test_every_table_names_its_commit_commands_that_exist_and_code_that_is_there(table: Table) -> None:
    assert table.commit in PAGE.read_text(encoding="utf-8")
    for command in table.commands:
        assert any(command.startswith(name) for name in RUNNERS), command
    for path in table.rests_on:
        assert (ROOT / path).exists(), path


def _git(folder: Path, *words: str) -> str:
    told = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()


def test_code_that_changed_since_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(tmp_path, "init", "-q")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    table = Table("accuracy", _git(tmp_path, "rev-parse", "HEAD"), ("a.py",), ())
    (tmp_path / "b.py").write_text("2\n")
    assert changed_since(table, tmp_path) == []
    (tmp_path / "a.py").write_text('"""Words."""\n\n1  # more words\n')
    assert changed_since(table, tmp_path) == []
    (tmp_path / "a.py").write_text("2\n")
    assert changed_since(table, tmp_path) == ["a.py"]
    monkeypatch.chdir(tmp_path)
    assert check([table]) == 1


def test_the_commit_of_one_table_is_noted_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "tables.toml"
    file.write_text(
        "\n".join(f'[{name}]\ncommit = "aaaaaaa"\nrests_on = []\ncommands = []\n' for name in ("one", "two"))
    )
    note(read_tables(file)[1], "bbbbbbb", file)
    assert [each.commit for each in read_tables(file)] == ["aaaaaaa", "bbbbbbb"]


def test_a_table_is_made_in_a_folder_of_its_commit_and_its_cells_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    file = tmp_path / LIST
    file.parent.mkdir(parents=True)
    file.write_text('[one]\ncommit = "aaaaaaa"\nrests_on = []\ncommands = ["--write {out}/cells"]\nkeeps = "cells"\n')
    monkeypatch.chdir(tmp_path)
    asked = []

    def run(words: list[str], **_: object) -> None:
        asked.append(words[-1])
        Path(words[-1]).write_text("cells")

    real = subprocess.run
    monkeypatch.setattr(
        "safeimpute_lab.evidence.provenance.subprocess.run",
        lambda words, **more: real(words, **more) if words[0] == "git" else run(words),
    )
    make(read_tables())
    commit = _git(tmp_path, "rev-parse", "--short=7", "HEAD")
    assert asked == [f"out/evidence/{commit}/cells"]
    assert (file.parent / "cells").read_text() == "cells"
    assert [each.commit for each in read_tables()] == [commit]
    (tmp_path / "src/a.py").write_text("2\n")
    with pytest.raises(SystemExit, match="commit first"):
        make(read_tables())
