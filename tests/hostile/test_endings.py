"""How commands end: signals at any moment, full disks and our own faults leave one line and an exit code."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.scored_cohorts import new_visits, saved_model
from safeimpute.cli import end_of
from safeimpute.errors import OptionError, VisitsError
from safeimpute.machine.endings import Stopped, write_trace
from safeimpute.machine.places import leftovers_in
from safeimpute.visits.examples import simulate

pytestmark = pytest.mark.surface("signals")
SECRET = "Zyx-Patient-7731"
# A command in small: it takes its place, works a while, writes, and is done; no heavy library is loaded.
WORK = """
import ctypes, sys, time
from pathlib import Path
import safeimpute.cli as cli
from safeimpute.machine.files import finished_folder, reserved

def work():
    out = Path(sys.argv[1])
    with reserved(out, force=True):
        print("begun", flush=True)
        with finished_folder(out, force=True) as folder:
            for number in range(200):
                (folder / f"part{number}").write_text("values")
                if sys.argv[2] == "swallow":
                    callback = ctypes.CFUNCTYPE(None)(lambda: time.sleep(0.002))
                    callback()  # what is raised in here, C swallows
                else:
                    time.sleep(0.002)

cli.app = work
cli.main()
"""


def heeding() -> None:
    """In a child: whatever the tests themselves ignore (nohup), it does not."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def began(out: Path, how: str = "plain") -> "subprocess.Popen[str]":
    told = [sys.executable, "-c", WORK, str(out), how]
    process = subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", range(4))
def test_a_signal_at_any_moment_leaves_nothing_unfinished(tmp_path: Path, number: signal.Signals, moment: int) -> None:
    process = began(tmp_path / "deep" / "out", "swallow" if moment % 2 else "plain")
    time.sleep(random.Random(f"{number}{moment}").random() * 0.4)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number, said
    assert said.splitlines()[-1] == "safeimpute: stopped; nothing unfinished was kept."
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_does_not_stop_the_clearing_away(tmp_path: Path) -> None:
    process = began(tmp_path / "out")
    time.sleep(0.1)
    for _ in range(5):
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", range(3))
def test_what_kill_9_leaves_is_private_named_and_cleared_by_the_next_run(tmp_path: Path, moment: int) -> None:
    out = tmp_path / "out"
    process = began(out)
    time.sleep(0.05 + 0.1 * moment)
    process.kill()
    process.communicate()
    assert not out.exists()
    left = leftovers_in(tmp_path)
    assert {each.kind for each in left} == {"new", "lock"}
    assert all(each.path.stat().st_mode & 0o077 == 0 for each in left)
    _, said = began(out).communicate(timeout=120)
    assert "a killed run left something. removed:" in said
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_signal_that_was_ignored_before_stays_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    told = [sys.executable, "-c", WORK, str(tmp_path / "out"), "plain"]
    process = subprocess.Popen(
        told, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0


# ---- full disks


def limited_run(*told: object, most_bytes: int) -> "subprocess.CompletedProcess[str]":
    """A command that may write no file larger than so many bytes."""
    return subprocess.run(
        [sys.executable, "-m", "safeimpute", *map(str, told)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
    )


def ended_for_lack_of_room(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 2, done.stderr
    assert "no room" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_limit_on_file_sizes_ends_simulate_in_one_line(tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"visits.{kind}"
    ended_for_lack_of_room(limited_run("simulate", "mayo", "--patients", 300, "-o", out, most_bytes=1000))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize("most_bytes", [100, 3_000, 60_000])
def test_a_limit_on_file_sizes_ends_every_command_alike(tmp_path: Path, most_bytes: int) -> None:
    visits, model = tmp_path / "visits.parquet", saved_model(tmp_path / "fitted")
    simulate("mimic4", np.random.default_rng(4), patients=150).visits.write_parquet(visits)
    new_visits(40).write_parquet(tmp_path / "new.parquet")
    (tmp_path / "quick.toml").write_text("[best]\nfolds = 3\nanalogues = 4\n")
    fit = ("--target", "hba1c", "--tolerance", "1", "--fdr", "0.3", "--config", tmp_path / "quick.toml", "--quiet")
    before = sorted(path.name for path in tmp_path.iterdir())
    for told in (
        ("run", visits, *fit, "--out", tmp_path / "out"),
        ("evaluate", visits, *fit, "--splits", 1, "--out", tmp_path / "out"),
        ("audit", visits, *fit, "--splits", 1, "--out", tmp_path / "out"),
    ):
        ended_for_lack_of_room(limited_run(*told, most_bytes=most_bytes))
    if most_bytes == 100:
        for kind in ("csv", "parquet"):
            out = tmp_path / f"out.{kind}"
            ended_for_lack_of_room(
                limited_run("score", model, tmp_path / "new.parquet", "-o", out, "--quiet", most_bytes=most_bytes)
            )
        json = ("evaluate", visits, *fit, "--splits", 1, "--json", tmp_path / "out.json")
        ended_for_lack_of_room(limited_run(*json, most_bytes=most_bytes))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_real_runs_heed_signals_at_random_moments(tmp_path: Path, number: signal.Signals) -> None:
    visits, rng, kept = tmp_path / "visits.parquet", random.Random(int(number)), ".out.safeimpute-kept"
    simulate("mimic4", np.random.default_rng(4), patients=400).visits.write_parquet(visits)
    told = ["run", str(visits), "--target", "hba1c", "--tolerance", "1", "--fdr", "0.3", "--out", str(tmp_path / "out")]
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-m", "safeimpute", *told], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()  # the table was read
        time.sleep(rng.random() * 6)
        process.send_signal(number)
        _, said = process.communicate(timeout=300)
        if process.returncode == 0:  # it had finished
            break
        assert process.returncode == 128 + number, said
        assert "stopped; nothing unfinished was kept." in said
        finished = ["visits.parquet"] if "finished folds are kept" not in said else [kept, "visits.parquet"]
        assert sorted(path.name for path in tmp_path.iterdir()) == finished
    done = subprocess.run([sys.executable, "-m", "safeimpute", *told, "--force"], capture_output=True, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out" / "imputations.parquet").is_file()
    assert not (tmp_path / kept).exists()


# ---- exit codes and traces


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OptionError("the level is odd\nand more"), 2, "the level is odd and more"),
        (Stopped(15), 143, "stopped"),
        (KeyboardInterrupt(), 130, "stopped"),
        (MemoryError(), 2, "memory"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 2, "x.csv"),
        (OSError(28, "No space left on device"), 2, "no room"),
        (RuntimeError("IO Error: No space left on device"), 2, "no room"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, SECRET), 1, "internal error (UnicodeEncodeError)"),
        (ZeroDivisionError(SECRET), 1, "internal error (ZeroDivisionError)"),
        (RecursionError(SECRET), 1, "internal error"),
        (KeyError(SECRET), 1, "internal error"),
    ],
)
def test_every_ending_is_one_line_and_a_code(
    error: BaseException, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    line, found = end_of(error)
    assert found == code
    assert words in line
    assert "\n" not in line
    assert SECRET not in line
    assert bool(list(tmp_path.iterdir())) == (code == 1)


def fail_about(patient: str) -> None:
    values = {patient: 7.7731}
    try:
        float(patient)
    except ValueError:
        raise KeyError(values) from None


def test_a_trace_says_where_and_quotes_no_patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["safeimpute", "run", SECRET, "--target", SECRET, f"--out={SECRET}", "--unit-of"])
    with pytest.raises(KeyError) as caught:
        fail_about(SECRET)
    path = write_trace(caught.value)
    text = path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert "test_endings.py" in text
    assert "in fail_about" in text
    assert "builtins.KeyError" in text
    assert "command: run --out --target --unit-of" in text
    assert SECRET not in text
    assert "7731" not in text


def test_our_own_faults_end_in_exit_code_one_and_a_trace(tmp_path: Path) -> None:
    program = (
        f"import safeimpute.cli as cli\ndef work():\n    raise LookupError({SECRET!r})\ncli.app = work\ncli.main()"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert SECRET not in done.stderr
    (trace,) = tmp_path.glob("safeimpute-trace-*.txt")
    assert str(trace) in done.stderr
    assert "LookupError" in trace.read_text()
    assert SECRET not in trace.read_text()
    debug = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment | {"SAFEIMPUTE_DEBUG": "1"},
        check=False,
    )
    assert "Traceback" in debug.stderr


def test_a_reader_that_leaves_is_no_fault(tmp_path: Path) -> None:
    command = f"{sys.executable} -m safeimpute methods | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "141", "1")


def test_errors_made_on_purpose_carry_their_own_code() -> None:
    assert end_of(VisitsError("column 'x'"))[1] == 2
