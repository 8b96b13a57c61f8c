"""The night log: a visit decided once stays decided, whoever writes, and whenever a process dies."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.nights import CUT, fitted, months, saved
from safeimpute.cli import app
from safeimpute.errors import OptionError
from safeimpute.model.night_log import Decided, Entered, LogMoved, NightLog
from safeimpute.model.scorer import Scorer

# A process that decides the same visits over and over, with its own values; run beside others, and killed.
WRITER = """
import sys
from pathlib import Path
import numpy as np
from safeimpute.model.night_log import Decided, NightLog
path, mark, rounds = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
log = NightLog(path)
print("ready", flush=True)
for number in range(rounds):
    key = np.arange(40, dtype=np.uint64) + np.uint64(20 * number)
    ones = np.full(40, mark)
    fresh = Decided(key, key, ones, ones, ones, ones, ones, ones > 0, np.full(40, ""))
    found, _ = log.decide("m", "hba1c", fresh, key, 0)
    assert len(found.visit) == 40
    print(number, *found.value.tolist(), flush=True)
"""


def decisions(count: int, value: float, first: int = 0) -> Decided:
    key = np.arange(first, first + count, dtype=np.uint64)
    column = np.full(count, value)
    return Decided(key, key, column, column, column, column, column, column > 0, np.full(count, ""))


def test_the_first_decision_stands(tmp_path: Path) -> None:
    log = NightLog(tmp_path / "l.sqlite")
    one = decisions(5, 1.0)
    found, earlier = log.decide("m", "a", one, one.visit, 0)
    assert (found.value.tolist(), earlier) == ([1.0] * 5, 0)
    two = decisions(8, 2.0)
    found, earlier = log.decide("m", "a", two, two.visit[::-1], 0)
    assert found.value.tolist() == [2.0] * 3 + [1.0] * 5
    assert earlier == 5
    for model, lab in (("other", "a"), ("m", "b")):
        assert log.decide(model, lab, two, two.visit, 0)[0].value.tolist() == [2.0] * 8


def test_rows_are_never_changed_and_events_are_heard(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    log = NightLog(path)
    one = decisions(2, 1.0)
    log.decide("m", "a", one, one.visit, 0)
    with sqlite3.connect(path) as raw:
        for statement in ("UPDATE decision SET value = 3", "DELETE FROM decision"):
            with pytest.raises(sqlite3.DatabaseError, match="kept as they were"):
                raw.execute(statement)
        assert raw.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    log.record("m", "alarm", {"found": ["x"]}, 0)
    with pytest.raises(LogMoved):
        log.decide("m", "a", decisions(1, 2.0, 7), one.visit, 0)
    with pytest.raises(LogMoved):
        log.record("m", "recalibrated", {}, 0)
    number = log.events("m")[-1].number
    assert log.decide("m", "a", decisions(1, 2.0, 7), np.array([7], np.uint64), number)[1] == 0


def test_strange_files_are_refused(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("no database at all, but a text of some length\n" * 40)
    with pytest.raises(OptionError, match="cannot be used"):
        NightLog(text)
    with sqlite3.connect(other) as raw:
        raw.execute("CREATE TABLE mine (x)")
    with pytest.raises(OptionError, match="no night log"):
        NightLog(other)


def test_a_log_of_the_format_before_goes_on(tmp_path: Path) -> None:
    """Written before results beyond a limit were entered: its alarm still stands, and it takes new entries."""
    path = tmp_path / "l.sqlite"
    NightLog(path).record("m", "alarm", {"found": ["x"]}, 0)
    with sqlite3.connect(path) as raw:
        raw.execute("ALTER TABLE entry DROP COLUMN censored")
        raw.execute("PRAGMA user_version = 1")
    again = NightLog(path)
    assert [event.kind for event in again.events("m")] == ["alarm"]
    assert len(again.entries("m", "a")) == 0
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (2,)


def lines_of(process: "subprocess.Popen[str]") -> list[list[float]]:
    assert process.stdout is not None
    rows = [line.split()[1:] for line in process.stdout.read().splitlines() if line[0].isdigit()]
    return [[float(value) for value in row] for row in rows if len(row) == 40]


def start(path: Path, mark: float, rounds: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), str(mark), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def stored(path: Path) -> dict[int, float]:
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = raw.execute("SELECT visit, value FROM decision").fetchall()
    assert len(dict(rows)) == len(rows), "a visit was decided twice"
    return dict(rows)


def test_two_processes_agree_on_every_visit(tmp_path: Path) -> None:
    """Both decide the same visits at once: each gets the decision that stands, one of the two."""
    path = tmp_path / "l.sqlite"
    processes = [start(path, mark, 30) for mark in (1.0, 2.0)]
    said = [lines_of(process) for process in processes]
    assert [process.wait() for process in processes] == [0, 0]
    final = stored(path)
    assert len(final) == 20 * 29 + 40
    for rounds in said:
        assert len(rounds) == 30
        for number, row in enumerate(rounds):
            assert row == [final[20 * number + k] for k in range(40)]
    assert set(final.values()) <= {1.0, 2.0}


@pytest.mark.parametrize("rounds", [4, pytest.param(25, marks=pytest.mark.full)])
def test_kill_9_loses_nothing_and_decides_nothing_twice(tmp_path: Path, rounds: int) -> None:
    """Writers are killed at random moments; what one of them was told stands, to the last decision."""
    path, rng = tmp_path / "l.sqlite", np.random.default_rng(0)
    told: dict[int, float] = {}
    for attempt in range(rounds):
        processes = [start(path, 10.0 * attempt + mark, 100_000) for mark in (1.0, 2.0)]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # ready
        time.sleep(float(rng.uniform(0.0, 0.25)))
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            for number, row in enumerate(lines_of(process)):
                for place, value in enumerate(row):
                    assert told.setdefault(20 * number + place, value) == value, "decided twice"
            process.wait()
        final = stored(path)
        assert all(final[key] == value for key, value in told.items()), "a decision was lost"
    assert len(told) > 100
    with sqlite3.connect(path) as raw:
        numbers = [row[0] for row in raw.execute("SELECT COUNT(*) FROM decision GROUP BY at")]
    assert all(count in (20, 40) for count in numbers), "transactions are whole"


def test_scoring_keeps_to_the_ledger(tmp_path: Path) -> None:
    """A table that grows: old visits keep their decisions, new ones get theirs, in whatever batch."""
    scorer, log = Scorer.load(saved(tmp_path)), NightLog(tmp_path / "l.sqlite")
    early, late = months(2), months(6)
    first = scorer.score_whole(early, log=log)
    assert first.accounts[0].earlier == 0
    assert first.table.equals(scorer.score(early))
    again = scorer.score_whole(late, log=log)
    assert again.accounts[0].earlier == len(first.table)
    assert again.table.equals(scorer.score(late)), "past-only: nothing known since changes what was said"
    # a model whose cut-off moved decides new visits only
    stricter = {0: type(scorer.model.cutoffs[0])(0.0, None, 1.0, 1.0)}
    moved = Scorer({"hba1c": replace(scorer.one, fitted=replace(scorer.fitted, cutoffs=stricter))})
    table = moved.score(months(8), log=log)
    old = table["time"] <= late["time"].max()
    assert table.filter(old).equals(again.table)
    assert again.table["released"].any()
    assert not table.filter(~old)["released"].any()
    with pytest.raises(OptionError, match="saved model"):
        fitted().scorer().score(early, log=log)


def test_what_promises_nothing_decides_nothing(tmp_path: Path) -> None:
    scorer, log = Scorer.load(saved(tmp_path)), NightLog(tmp_path / "l.sqlite")
    table = months(3).drop("glucose")
    nothing = scorer.score_whole(table, without=("glucose",), log=log)
    assert nothing.accounts[0].released == 0
    after = scorer.score_whole(months(3), log=log)
    assert after.accounts[0].earlier == 0
    assert after.accounts[0].released > 0


@pytest.mark.full
def test_the_command_twice_at_once(tmp_path: Path) -> None:
    model, visits = saved(tmp_path), tmp_path / "v.parquet"
    months(4).write_parquet(visits)

    def score(number: int) -> int:
        out = tmp_path / f"{number}.parquet"
        command = ["-m", "safeimpute", "score", model, visits, "-o", out, "--log", tmp_path / "l.sqlite", "-q"]
        return subprocess.run([sys.executable, *map(str, command)], check=False).returncode

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(score, range(2))) == [0, 0]
    one, two = (pl.read_parquet(tmp_path / f"{number}.parquet") for number in range(2))
    assert one.equals(two)
    with sqlite3.connect(tmp_path / "l.sqlite") as raw:
        assert raw.execute("SELECT COUNT(*) FROM decision").fetchone()[0] == len(one)
    said = CliRunner().invoke(app, ["doctor", str(model)], catch_exceptions=False)
    assert "cut-off" in said.output


def test_entries_count_a_visit_once(tmp_path: Path) -> None:
    """First seen unmeasured, measured after all: one entry, the measured one."""
    log = NightLog(tmp_path / "l.sqlite")

    def entry(measured: bool) -> Entered:
        key, real = np.array([5], np.uint64), np.array([0.5])
        flag, no = np.array([measured]), np.array([False])
        text = np.array(["{}"])
        return Entered(
            np.zeros(1, np.int64),
            key,
            key,
            real,
            text,
            flag,
            no,
            ~no,
            np.zeros(1, np.int64),
            real,
            real,
            real,
            real,
            no,
            no,
            real,
            text,
            no,
        )

    assert log.enter("m", "a", entry(False), lambda *_: None) == 1
    assert log.enter("m", "a", entry(False), lambda *_: None) == 0
    assert log.enter("m", "a", entry(True), lambda *_: {"found": ["x"]}) == 1
    found = log.entries("m", "a")
    assert found.measured.tolist() == [True]
    assert [event.kind for event in log.events("m")] == ["alarm"]
    assert CUT > 0
