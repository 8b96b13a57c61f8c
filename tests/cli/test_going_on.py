"""A run that was killed goes on; progress tells the share done and the time left; no library warning is shown."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from helpers.command_line import invoke
from helpers.scored_cohorts import cohort_of
from safeimpute.cli import console as shown
from safeimpute.machine.progress import SideBySide, part_of
from safeimpute.machine.state import CHECKPOINTS

CONFIG = "[best]\nfolds = 3\n"


@pytest.mark.full
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    cohort_of(3000).write_parquet(tmp_path / "visits.parquet")  # what is left takes long enough to be told
    (tmp_path / "three.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "safeimpute", "run", str(tmp_path / "visits.parquet")]
    command += ["--target", "hba1c", "--tolerance", "0.6", "--fdr", "0.2", "--config", str(tmp_path / "three.toml")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    kept = tmp_path / f".run{CHECKPOINTS}"
    process = subprocess.Popen([*command, "--out", str(tmp_path / "run"), "--quiet"], env=environment)
    until = time.monotonic() + 300
    while not list(kept.rglob("*.json")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(kept.rglob("*.json"))
    assert not (tmp_path / "run").exists()
    again = subprocess.run(
        [*command, "--out", str(tmp_path / "run")], env=environment, capture_output=True, text=True, check=True
    )
    assert "Going on from" in again.stdout
    assert "%, about" in again.stderr
    assert not kept.exists()
    subprocess.run([*command, "--out", str(tmp_path / "other"), "--quiet"], env=environment, check=True)
    for file in ("imputations.parquet", "imputations.csv", "model/arrays.safetensors", "model/state.json"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "other" / file).read_bytes(), file


def test_time_left_is_told_once_it_can_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("safeimpute.cli.console.time.monotonic", lambda: now[0])
    left = shown.TimeLeft()
    assert left.told(0.0) == "0 %"
    now[0] += 100.0
    assert left.told(0.25) == "25 %, about 5 minutes left"
    assert left.told(0.1) == "25 %, about 5 minutes left", "what is done stays done"
    assert left.told(1.0) == "100 %"


def test_a_terminal_shows_a_bar_with_the_share_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with shown.shown_progress(quiet=False) as progress:
        progress("learning", 0.5)
    said = capsys.readouterr().err
    assert "learning" in said
    assert "50 %" in said


def test_parts_add_up_to_the_whole() -> None:
    heard: list[tuple[str, float]] = []
    jobs = SideBySide(lambda stage, share: heard.append((stage, share)), 2)
    first, second = jobs.job(0, "a: "), part_of(jobs.job(1), 0.0, 0.5, "b: ")
    first("x", 0.5)
    second("y", 1.0)
    first("z", 1.0)
    assert heard == [("a: x", 0.25), ("b: y", 0.5), ("a: z", 0.75)]


@pytest.mark.parametrize("command", ["evaluate", "audit"])
def test_shares_of_a_command_never_fall_and_reach_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shares: list[float] = []
    told = shown.TimeLeft.told
    monkeypatch.setattr(shown.TimeLeft, "told", lambda self, share: shares.append(share) or told(self, share))  # type: ignore[func-returns-value]
    cohort_of(40).write_parquet(tmp_path / "visits.parquet")
    (tmp_path / "few.toml").write_text("[paper.gcn]\nepochs = 10\n")
    given = ("--target", "hba1c", "--tolerance", 1, "--fdr", 0.4, "--splits", 2, "--preset", "paper")
    invoke(command, tmp_path / "visits.parquet", *given, "--config", tmp_path / "few.toml")
    assert len(shares) > 4
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1.0


def test_warnings_of_libraries_are_not_shown() -> None:
    code = (
        "import sys, typer, warnings; from safeimpute import cli\n"
        "cli.app = lambda: warnings.warn('a library says', DeprecationWarning)\n"
        "sys.argv = ['safeimpute']; cli.main()\n"
    )
    free = {name: value for name, value in os.environ.items() if name not in ("PYTHONWARNINGS", "SAFEIMPUTE_DEBUG")}
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True, env=free).stderr == ""
    asked = subprocess.run(run, capture_output=True, text=True, check=True, env=free | {"PYTHONWARNINGS": "default"})
    assert "a library says" in asked.stderr


@pytest.mark.full
def test_a_quick_run_that_releases_nothing_says_both(tmp_path: Path) -> None:
    cohort_of(60).write_parquet(tmp_path / "visits.parquet")
    given = ("--target", "hba1c", "--tolerance", 0.2, "--fdr", 0.1, "--quick", "--out", tmp_path / "run")
    said = invoke("run", tmp_path / "visits.parquet", *given)
    assert "light fit: 4 folds of patients" in said
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    page = (tmp_path / "run" / "report.html").read_text()
    assert summary["effort"].startswith("light fit")
    assert "light fit" in page
    assert "The fit takes about" in said
    assert not pl.read_parquet(tmp_path / "run" / "imputations.parquet")["released"].any()
    nearest = summary["next_step"]
    assert "would have released" in nearest
    assert "so not promised" in nearest
    assert nearest in said
    assert "seen after looking at these errors" in page
    assert review(tmp_path / "run")["next_step"] == nearest


def review(folder: Path) -> dict[str, Any]:
    """What the review page is told about a run."""
    from helpers.review_client import reviewing
    from safeimpute.web.run_data import read_run

    with reviewing(read_run(folder)) as client:
        found: dict[str, Any] = client.get("/api/run").json()
    return found
