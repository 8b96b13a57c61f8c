"""Where results are written: nothing of the user's is taken, two runs do not share a place, links lead nowhere."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import OptionError
from safeimpute.machine.files import disk_faults, finished_file, finished_folder, is_no_room, require_new, reserved
from safeimpute.machine.places import (
    MARKER,
    OUR_ID,
    clear,
    leftovers_below,
    leftovers_in,
    listed_files,
    partial_prefix,
    taken,
)

pytestmark = pytest.mark.surface("places")


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder and what it holds."""
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def write(out: Path, content: str = "new", *, force: bool = True, names: tuple[str, ...] = ("run.json",)) -> None:
    with finished_folder(out, force=force) as folder:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)


@pytest.mark.parametrize("name", ["model.json", "run.json", "evaluation.json", "audit.json", "_score.json", MARKER])
def test_a_file_of_a_known_name_does_not_make_a_folder_ours(tmp_path: Path, name: str) -> None:
    """A folder with any model.json once counted as ours, and --force deleted what else was in it."""
    project = tmp_path / "proj"
    (project / "src").mkdir(parents=True)
    (project / "src" / "thesis.py").write_text("years of work")
    (project / name).write_text("{}")
    before = tree(project)
    with pytest.raises(OptionError, match="did not write"):
        write(project)
    assert tree(project) == before


@pytest.mark.parametrize(
    "marker",
    [
        '{"written_by": "somebody", "files": ["thesis.txt"]}',
        json.dumps({"written_by": OUR_ID, "files": ["../thesis.txt"]}),
        json.dumps({"written_by": OUR_ID, "files": ["/etc/passwd"]}),
        json.dumps({"written_by": OUR_ID, "files": "thesis.txt"}),
        json.dumps({"written_by": OUR_ID, "files": [7]}),
        json.dumps({"written_by": OUR_ID}),
        json.dumps([OUR_ID]),
        "[" * 5000,
        "\0",
    ],
)
def test_a_forged_marker_makes_nothing_ours(tmp_path: Path, marker: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("precious")
    (out / MARKER).write_text(marker)
    with pytest.raises(OptionError, match="did not write"):
        write(out)
    assert (out / "thesis.txt").read_text() == "precious"


def test_force_replaces_what_we_wrote_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old", names=("run.json", "figures/a.svg", "stale/old.txt"))
    (out / "notes.txt").write_text("mine")
    (out / "figures" / "my.svg").write_text("mine too")
    (out / "deep" / "er").mkdir(parents=True)
    (out / "deep" / "er" / "x").write_text("x")
    (out / "link").symlink_to(tmp_path)
    write(out, "new", names=("run.json", "figures/a.svg"))
    found = tree(out)
    del found[MARKER]
    assert found == {
        "run.json": "new",
        "figures/a.svg": "new",
        "notes.txt": "mine",
        "figures/my.svg": "mine too",
        "deep/er/x": "x",
    }
    assert (out / "link").is_symlink()
    assert listed_files(out) == frozenset(("run.json", "figures/a.svg", MARKER))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_of_the_users_in_the_way_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    (out / "why.parquet").write_text("mine")
    with pytest.raises(OptionError, match=r"why\.parquet.*Move it"):
        write(out, "new", names=("run.json", "why.parquet"))
    assert tree(out)["why.parquet"] == "mine"
    assert tree(out)["run.json"] == "old"


def test_what_is_read_is_never_written_over(tmp_path: Path) -> None:
    """`run proj/visits.parquet --out proj --force` once deleted its own input."""
    project = tmp_path / "proj"
    write(project, "ours", names=("run.json", "visits.parquet"))
    visits = project / "visits.parquet"
    command = ["run", str(visits), "--target", "hba1c", "--tolerance", "1", "--fdr", "0.2", "--force"]
    for out in (project, tmp_path, project / ".." / "proj"):
        with pytest.raises(OptionError, match=r"lies in|is what is read|did not write"):
            reserved(out, force=True, inputs=(visits,)).__enter__()
    result = CliRunner().invoke(app, [*command, "--out", str(project)])
    assert result.exit_code != 0
    assert visits.read_text() == "ours"


def test_an_output_may_not_be_its_input_or_lie_in_it(tmp_path: Path) -> None:
    table = tmp_path / "visits.parquet"
    table.write_text("x")
    os.link(table, tmp_path / "same.parquet")
    for out in (table, tmp_path / "same.parquet", tmp_path / "." / "visits.parquet"):
        with pytest.raises(OptionError, match="is what is read"):
            require_new(out, force=True, inputs=(table,))
    model = tmp_path / "model"
    write(model)
    with pytest.raises(OptionError, match="lies in"):
        require_new(model / "scored.parquet", force=True, inputs=(model,))


@pytest.mark.parametrize("kind", ["folder", "file", "dangling"])
def test_links_are_refused_before_any_work(tmp_path: Path, kind: str) -> None:
    real = tmp_path / "real"
    if kind == "folder":
        write(real, "old")
    elif kind == "file":
        real.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(real)
    with pytest.raises(OptionError, match="link"):
        reserved(link, force=True).__enter__()
    with pytest.raises(OptionError, match="link"), finished_file(link) as partial:
        partial.write_text("x")
    assert link.is_symlink()


def test_two_runs_into_one_place_the_second_is_told_before_it_starts(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    program = (
        "import sys; from pathlib import Path; from safeimpute.machine.files import reserved\n"
        "with reserved(Path(sys.argv[1]), force=False):\n    print('taken', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        for force in (False, True):
            with pytest.raises(OptionError, match=rf"another run \(process {other.pid} on .*, since 20"):
                write(out, force=force)
        other.kill()  # the system frees the place
    write(out, force=False)
    assert (out / "run.json").read_text() == "new"


def test_a_place_taken_while_working_is_not_overwritten_and_the_result_not_lost(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def meanwhile() -> None:
        with finished_folder(out, force=False) as folder:
            (folder / "run.json").write_text("mine")
            out.mkdir()
            (out / "other.txt").write_text("theirs")

    with pytest.raises(OptionError, match=r"This result is in .*out-2"):
        meanwhile()
    assert tree(out) == {"other.txt": "theirs"}
    assert tree(tmp_path / "out-2")["run.json"] == "mine"


def test_of_two_writers_of_one_file_one_is_told(tmp_path: Path) -> None:
    path, both, told = tmp_path / "scored.csv", threading.Barrier(2), []

    def write_once(content: str) -> None:
        try:
            with finished_file(path, force=False) as partial:
                partial.write_text(content)
                both.wait()
        except OptionError as error:
            told.append(str(error))

    threads = [threading.Thread(target=write_once, args=(each,)) for each in ("a", "b")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(told) == 1
    assert "appeared while" in told[0]
    assert path.read_text() in ("a", "b")
    assert [each.name for each in tmp_path.iterdir()] == ["scored.csv"]


def test_nothing_is_left_where_nothing_was_written(tmp_path: Path) -> None:
    with taken(tmp_path / "a" / "b" / "out"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []


def dead_prefix(monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> str:
    """As a process wrote it that is gone."""
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: finished.pid)
        return partial_prefix(name, kind)  # type: ignore[arg-type]


def test_leftovers_of_killed_runs_are_found_named_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "here"
    gone = place / (dead_prefix(monkeypatch, "out", "new") + "abc")
    gone.mkdir(parents=True)
    (gone / "imputations.csv").write_text("patient data")
    working = place / (partial_prefix("out") + "def")
    working.mkdir()
    (place / ".out.safeimpute-lock").write_text("{}")
    (place / ".out.safeimpute-notes").write_text("the user's own")
    (place / (dead_prefix(monkeypatch, "linked", "new") + "x")).symlink_to(tmp_path)
    assert {each.path.name for each in leftovers_below(tmp_path)} == {gone.name, ".out.safeimpute-lock"}
    told = CliRunner().invoke(app, ["doctor", "--clean", str(tmp_path)]).output
    assert gone.name in told
    assert not gone.exists()
    assert working.is_dir()
    assert (place / ".out.safeimpute-notes").exists()
    assert CliRunner().invoke(app, ["doctor", "--clean", str(tmp_path)]).output.startswith("nothing was left")


def test_the_next_run_clears_its_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / (dead_prefix(monkeypatch, "out", "new") + "abc")
    gone.mkdir()
    write(tmp_path / "out", force=False)
    assert gone.name in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_killed_between_two_steps_of_a_swap_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write(out, "earlier")
    (out / "notes.txt").write_text("mine")
    aside = tmp_path / (dead_prefix(monkeypatch, "out", "old") + "abc")
    out.rename(aside)
    (found,) = leftovers_in(tmp_path)
    assert clear(found).startswith("put back")
    assert tree(out)["run.json"] == "earlier"
    out.rename(aside)
    with pytest.raises(OptionError, match="exists"):  # put back first, then not overwritten without --force
        write(out, "later", force=False)
    assert tree(out)["notes.txt"] == "mine"


def test_an_earlier_result_beside_the_new_one_goes_but_the_users_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write(out, "new")
    aside = tmp_path / (dead_prefix(monkeypatch, "out", "old") + "abc")
    write(aside, "old")
    (aside / "notes.txt").write_text("mine")
    clear(leftovers_in(tmp_path)[0])
    assert {name: text for name, text in tree(out).items() if name != MARKER} == {
        "run.json": "new",
        "notes.txt": "mine",
    }
    assert not aside.exists()


def test_what_is_unfinished_is_readable_by_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with finished_folder(tmp_path / "out", force=False) as folder, finished_file(tmp_path / "a.csv") as file:
            assert folder.stat().st_mode & 0o077 == 0
            assert file.stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError(27, "File too large"),
        RuntimeError("Io error: File too large (os error 27)"),
        ValueError("IO Error: Could not write file: No space left on device"),
    ],
)
def test_a_full_disk_is_said_in_one_way(tmp_path: Path, error: Exception) -> None:
    assert is_no_room(error)
    with pytest.raises(OptionError, match="no room to write"), disk_faults(tmp_path / "out"):
        raise error
    with pytest.raises(OptionError, match="no room"), finished_file(tmp_path / "x.csv"):
        raise error
    assert list(tmp_path.iterdir()) == []
