"""`safeimpute check`: said on the terminal, written as JSON, told by the exit code."""

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.command_line import invoke
from safeimpute.cli import app
from safeimpute.visits.examples import load_pbc


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "pbc.csv"
    load_pbc().write_csv(path)
    return path


def test_without_a_target_every_lab_with_holes_is_looked_at(table: Path) -> None:
    said = invoke("check", table, "--claim", "unmeasured")
    for lab in ("alkaline_phosphatase", "cholesterol", "platelets"):
        assert f"\n{lab} (" in said
    assert "\nalbumin (" not in said
    assert "--attributes albumin" in said
    assert "  claim later" in said
    assert "was chosen after a look at these visits" in said


def test_the_json_holds_what_was_said(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    given = ("--target", "cholesterol,platelets", "--tolerance", "cholesterol=20%,platelets=30%", "--fdr", 0.2)
    invoke("check", table, *given, "--json", out, "--quiet")
    found = json.loads(out.read_text())
    assert list(found["labs"]) == ["cholesterol", "platelets"]
    assert found["labs"]["platelets"]["forecast"]["tolerance"].startswith("30 %")
    assert found["labs"]["cholesterol"]["claims"]["unmeasured"]["refused"] == ""
    assert found["columns"]["platelets"]["unit"] == "10^3/uL"
    again = CliRunner().invoke(app, ["check", str(table), "--json", str(out)])
    assert "would be overwritten" in str(again.exception)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--target", "albumin"), "nothing to impute"),
        (("--target", "cholesterol", "--fdr", "0.003"), "measured visits worth 1334"),
        (("--target", "hdl"), "'hdl'"),
        (("--target", "cholesterol", "--unit", "mmol/L"), "should be in mmol/L"),
    ],
)
def test_what_a_run_would_refuse_ends_with_code_two(table: Path, given: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["check", str(table), *given, "--tolerance", "20%"])
    assert result.exit_code == 2, result.output
    assert "a run stops at once" in result.output
    assert said in result.output


def test_a_table_that_is_none_is_an_error(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1.0]}).write_csv(tmp_path / "a.csv")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "a.csv")])
    assert "'subject_id'" in str(result.exception)
