import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.command_line import QUICK, invoke
from safeimpute.cli import LABORATORY, app, info
from safeimpute.errors import OptionError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "quick.toml").write_text('preset = "paper"\n' + QUICK)
    (folder / "best.toml").write_text("[best]\nfolds = 3\nanalogues = 8\n")
    invoke("simulate", "mimic4", "--patients", 150, "--seed", 4, "-o", folder / "visits.parquet", "--quiet")
    return folder


COMMANDS = (
    *("demo", "check", "run", "cohort", "evaluate", "audit", "figures", "report", "score"),
    *("downstream", "serve", "rerun", "simulate", "methods", "doctor", "hide", "release"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_takes_the_shared_flags(command: str) -> None:
    assert f"  {command} " in invoke("--help")
    explained = invoke(command, "--help")
    for flag in ("quiet", "seed", "threads", "memory", "device", "config"):
        assert f"--{flag} " in explained


def test_a_shared_flag_means_the_same_in_every_command(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
        monkeypatch.setenv(name, "1")  # --threads sets them for good
    shared = tmp_path / "shared.toml"
    shared.write_text('quiet = true\nseed = 5\nthreads = 1\nmemory = 4\ndevice = "cpu"\n')
    for command in ("methods", "doctor"):
        assert invoke(command) != ""
        assert invoke(command, "--config", shared) == ""
    cohort = ("simulate", "mayo", "--patients", 40, "--config", shared)
    assert invoke(*cohort, "-o", tmp_path / "one.parquet") == ""
    invoke("simulate", "mayo", "--patients", 40, "--seed", 5, "-o", tmp_path / "other.parquet")
    assert pl.read_parquet(tmp_path / "one.parquet").equals(pl.read_parquet(tmp_path / "other.parquet"))
    table = files / "visits.parquet"
    told = f"evaluate {table} --preset paper --target hba1c --tolerance 1 --fdr 0.3 --memory 4"
    refused = CliRunner().invoke(app, told.split())
    assert "planned for the preset 'best' only" in str(refused.exception)


def test_run_leaves_the_whole_folder(files: Path) -> None:
    out = files / "run"
    output = invoke(
        *("run", files / "visits.parquet", "--target", "hba1c", "--tolerance", "1.0", "--fdr", "0.3"),
        *("--config", files / "quick.toml", "--out", out),
    )
    assert {path.name for path in out.iterdir()} == {
        *("imputations.parquet", "imputations.csv", "summary.json", "run.json", "report.html"),
        *("figures", "model", "review", "reporting.md", "model_card.md", ".safeimpute.json"),
    }
    summary = json.loads((out / "summary.json").read_text())
    manifest = json.loads((out / "run.json").read_text())
    table = pl.read_parquet(out / "imputations.parquet")
    assert summary["released"] + summary["withheld"] == summary["missing"] == len(table)
    assert summary["unit"] == "%"
    assert (manifest["config"]["preset"], manifest["config"]["claim"]) == ("paper", "visits")
    assert manifest["config"]["paper"]["gcn"]["epochs"] == 40
    assert len(manifest["input"]["sha256"]) == 64
    assert f"missing at {len(table):,} visits" in output
    assert "Promise: " in output
    assert summary["promise"] in output
    assert len(list((out / "figures").glob("*.svg"))) == len(list((out / "figures").glob("*.png"))) >= 7


@pytest.mark.full
def test_a_level_chosen_after_looking_is_labelled(files: Path) -> None:
    def again(fdr: str, *more: str) -> str:
        out = files / "looked"
        options = ("--claim", "visits", "--config", files / "quick.toml", "--out", out, "--force", "--quiet")
        table = files / "visits.parquet"
        invoke("run", table, "--target", "hba1c", "--tolerance", "1.0", "--fdr", fdr, *options, *more)
        summary = json.loads((out / "summary.json").read_text())
        return str(summary["promise"] or summary["no_promise"])

    assert again("0.3").startswith("Of the hba1c values")
    assert again("0.3").startswith("Of the hba1c values")
    assert again("0.35", "--exclude", "sex").startswith("Second look")
    assert again("0.35").startswith("Second look")


def test_evaluate_writes_the_contracted_json(files: Path) -> None:
    target = files / "evaluation.json"
    invoke(
        *("evaluate", files / "visits.parquet", "--target", "hba1c", "--tolerance", "1.0", "--fdr", "0.2,0.35"),
        *("--splits", 2, "--config", files / "quick.toml", "--json", target, "--out", files / "evaluation"),
    )
    result = json.loads(target.read_text())
    expected = {"preset", "target", "tolerance", "splits", "split", "n_visits", "n_patients", "imputation"}
    assert expected | {"release", "risk_auc", "seconds", "peak_mib"} <= result.keys()
    assert [row["fdr"] for row in result["release"]] == [0.2, 0.35]
    for row in result["release"]:
        assert {"fdp", "power", "acceptance", "mae", "rmse", "splits_released"} <= row.keys()
    assert result["tolerance"] == 1.0
    assert result["imputation"]["mae"]["se"] > 0
    assert (files / "evaluation" / "figures" / "fdr_power.svg").exists()


def test_evaluate_against_the_truth_of_unmeasured_visits(files: Path) -> None:
    target = files / "truth.json"
    invoke(
        *("evaluate", files / "visits.parquet", "--target", "hba1c", "--tolerance", "1.0", "--fdr", "0.3"),
        *("--splits", 1, "--truth", files / "visits.truth.parquet", "--config", files / "best.toml"),
        *("--json", target),
    )
    result = json.loads(target.read_text())
    assert result["claim"] == "unmeasured"
    assert result["imputation"]["mae"]["se"] is None


def test_audit_says_whether_the_level_holds(files: Path) -> None:
    target = files / "audit.json"
    output = invoke(
        *("audit", files / "visits.parquet", "--target", "hba1c", "--tolerance", "1.2", "--fdr", "0.2,0.35"),
        *("--splits", 2, "--repartitions", 10, "--config", files / "quick.toml", "--json", target),
        *("--out", files / "audit"),
    )
    result = json.loads(target.read_text())
    assert [row["fdr"] for row in result["levels"]] == [0.2, 0.35]
    groups = {row["group"] for row in result["groups"][0]["rows"]}
    assert {"sex: F", "sex: M", "age: 65 or more"} <= groups
    assert "not within each group" in output
    assert (files / "audit" / "figures" / "audit.png").exists()


def test_methods_and_doctor() -> None:
    listed = invoke("methods")
    assert all(f"{name} " in listed for name in ("paper", "best"))
    assert "torch" in invoke("doctor")


def test_the_laboratory_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, its commands are not listed, and asking for one names the line that installs it."""
    monkeypatch.setattr(info, "entry_points_of", lambda group: {})
    assert "benchmark" not in invoke("--help")
    assert "pip install -e lab" in invoke("methods")
    for command in LABORATORY:
        result = CliRunner().invoke(app, [command, "--help"])
        assert isinstance(result.exception, OptionError)
        assert "pip install -e lab" in str(result.exception)


def test_another_package_may_add_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    added = EntryPoint("hide-more", "safeimpute.cli.foreign:hide", "safeimpute.commands")
    monkeypatch.setattr(info, "entry_points_of", lambda group: {"hide-more": added})
    assert "  hide-more " in invoke("--help")
    assert "--quiet " in invoke("hide-more", "--help")


def test_threads_of_a_configuration_file_reach_the_libraries(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("threads = 1\n")
    command = [sys.executable, "-m", "safeimpute", "doctor", "--config", str(tmp_path / "one.toml")]
    free = {name: value for name, value in os.environ.items() if not name.endswith("_THREADS")}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=free).stdout
    assert "cpu threads 1 of" in told


@pytest.mark.full
def test_a_killed_run_leaves_nothing_that_looks_finished(files: Path) -> None:
    out = files / "killed" / "run"
    out.parent.mkdir()
    command = [sys.executable, "-m", "safeimpute", "run", str(files / "visits.parquet"), "--target", "hba1c"]
    command += ["--tolerance", "1.0", "--fdr", "0.3", "--claim", "visits", "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    process.stderr.readline()  # work has begun
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()


def test_errors_end_in_one_line_and_code_two(files: Path) -> None:
    command = [sys.executable, "-m", "safeimpute", "run", str(files / "visits.parquet"), "--target", "hba1"]
    result = subprocess.run([*command, "--tolerance", "1", "--fdr", "0.2"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("safeimpute: column 'hba1'")
    assert "Traceback" not in result.stderr


def test_another_choice_is_a_second_look_wherever_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cohort: pl.DataFrame
) -> None:
    """A repetition is none; leaving a column out is one, in another folder too; without a log the run says so."""
    monkeypatch.setenv("SAFEIMPUTE_STATE", str(tmp_path / "state"))
    cohort.write_csv(tmp_path / "visits.csv")
    asked = [
        "run",
        tmp_path / "visits.csv",
        "--target",
        "hba1c",
        "--tolerance",
        0.6,
        "--fdr",
        0.3,
        "--quick",
        "--quiet",
    ]

    def looked(folder: str, *more: object) -> bool:
        invoke(*asked, *more, "--out", tmp_path / folder / "run")
        return bool(json.loads((tmp_path / folder / "run" / "summary.json").read_text())["second_look"])

    assert not looked("one")
    assert not looked("one", "--force")
    assert not looked("two")
    assert looked("three", "--exclude", "glucose")
    monkeypatch.setenv("SAFEIMPUTE_STATE", "off")
    assert not looked("four", "--exclude", "glucose")
    summary = json.loads((tmp_path / "four" / "run" / "summary.json").read_text())
    assert not summary["promise"] or "No log of looks" in summary["limits"]


@pytest.mark.parametrize(("se", "said"), [(None, "one split cannot tell"), (0.01, "NO")])
def test_an_audit_of_one_split_judges_no_luck(capsys: pytest.CaptureFixture[str], se: float | None, said: str) -> None:
    from safeimpute.cli.console import print_audit

    share = {"mean": 0.3, "se": se}
    row = {"fdr": 0.2, "fdp": share, "pooled": 0.3, "power": share, "holds": False}
    report: Any = {"splits": 1, "split": "visits", "levels": [row], "groups": [{"fdr": 0.2, "rows": []}], "note": ""}
    print_audit(report)
    assert said in capsys.readouterr().out
