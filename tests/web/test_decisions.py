"""No decision is ever lost: rows stay as written, writers wait for each other, a killed server forgets nothing."""

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")

import httpx

from helpers.review_run import Server, running_server
from safeimpute.errors import OptionError
from safeimpute.web.decisions import MARKS, DecisionLog, Imputation, Kind, ReviewState, log_beside
from safeimpute.web.run_data import RunData


def _about(number: int) -> Imputation:
    return Imputation(number, f"patient {number}", "2024-03-31", 5.5)


def test_rows_can_neither_be_changed_nor_deleted(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.sqlite", "run")
    log.add("Ada", _about(1), "accept")
    connection = sqlite3.connect(log.path)
    for statement in ("UPDATE decision SET kind = 'reject'", "DELETE FROM decision"):
        with pytest.raises(sqlite3.DatabaseError, match="kept as they were made"):
            connection.execute(statement)
    connection.close()
    (row,) = log.since(0)
    assert (row.reviewer, row.kind, row.imputation) == ("Ada", "accept", 1)


def test_another_run_has_its_own_decisions(tmp_path: Path) -> None:
    first, second = (DecisionLog(tmp_path / "log.sqlite", name) for name in ("one", "two"))
    first.add("Ada", _about(1), "accept")
    assert second.since(0) == []
    assert second.undo("Ada") is None
    assert len(first.since(0)) == 1


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_text("not a database, and long enough to be told apart" * 10)
    with pytest.raises(OptionError, match="cannot be used"):
        DecisionLog(tmp_path / "log.sqlite", "run")


ACTS = st.lists(
    st.tuples(st.sampled_from(["Ada", "Ben"]), st.sampled_from(["accept", "reject", "undo"]), st.integers(0, 2)),
    max_size=12,
)


@settings(max_examples=20)
@given(acts=ACTS)
def test_marks_follow_the_standing_decisions(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, Kind, int]]
) -> None:
    """Against a plain model: an undo takes back its reviewer's last standing decision; the last standing one counts."""
    log = DecisionLog(tmp_path_factory.mktemp("log") / "log.sqlite", "run")
    state, status = ReviewState(log, 3), []
    for reviewer, kind, number in acts:
        if kind != "undo":
            log.add(reviewer, _about(number), kind)
            status.append((reviewer, kind, number))
            continue
        own = [at for at, row in enumerate(status) if row[0] == reviewer]
        undone = status.pop(own[-1])[2] if own else None
        assert log.undo(reviewer) == undone
    for number in range(3):
        last = [kind for _, kind, about in status if about == number]
        expected = {"accept": "accepted", "reject": "rejected"}[last[-1]] if last else "undecided"
        assert MARKS[state.marks()[number]] == expected


def _client(server: Server) -> httpx.Client:
    client = httpx.Client(base_url=server.base, headers={"origin": server.base}, timeout=20)
    client.get("/", params={"token": server.token}, follow_redirects=True).raise_for_status()
    return client


def _reject(client: httpx.Client, numbers: list[int], reviewer: str, acknowledged: list[tuple[str, int]]) -> None:
    for number in numbers:
        body = {"imputation": number, "kind": "reject", "reviewer": reviewer}
        try:
            if client.post("/api/decisions", json=body).status_code == 200:
                acknowledged.append((reviewer, number))
        except httpx.HTTPError:
            return


@pytest.mark.full
def test_two_reviewers_and_a_killed_server_lose_no_decision(run: RunData) -> None:
    """Two reviewers on two servers over one log; one server is killed with SIGKILL amid their writing."""
    acknowledged: list[tuple[str, int]] = []
    with running_server(run.folder) as one, running_server(run.folder) as two:
        halves = list(range(0, 200, 2)), list(range(1, 200, 2))
        writers = [
            threading.Thread(target=_reject, args=(_client(server), numbers, name, acknowledged))
            for server, numbers, name in ((one, halves[0], "Ada"), (two, halves[1], "Ben"))
        ]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + 60
        while sum(name == "Ada" for name, _ in acknowledged) < 15:
            assert time.monotonic() < deadline, "the reviewers' decisions stopped being acknowledged"
            time.sleep(0.005)
        one.process.kill()
        for writer in writers:
            writer.join()
        assert one.process.wait() == -9
        shown = _client(two).get("/api/run").json()["progress"]["rejected"]
    ben = [number for name, number in acknowledged if name == "Ben"]
    ada = [number for name, number in acknowledged if name == "Ada"]
    assert len(ben) == 100
    assert 15 <= len(ada) < 100
    kept = {(row.reviewer, row.imputation) for row in DecisionLog(log_beside(run.folder), run.identity).since(0)}
    assert set(acknowledged) <= kept
    assert len(kept) - len(acknowledged) <= 1  # one may have been written, its answer lost
    assert shown == len(kept)


def test_serve_without_the_extra_names_the_install_line(run: RunData) -> None:
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'fastapi' else find(name, *rest)\n"
        f"sys.argv = ['safeimpute', 'serve', {str(run.folder)!r}]\n"
        "from safeimpute.cli import main\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'safeimpute[web]'" in result.stderr
