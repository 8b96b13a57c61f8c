"""The ablations: what evaluate releases, ablate releases; its tables; and what it takes from a file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.command_line import QUICK, invoke
from safeimpute.cli import app
from safeimpute.cli import console as shown
from safeimpute.errors import OptionError
from safeimpute.settings import GraphSettings
from safeimpute.visits.examples import load_pbc, simulate
from safeimpute_lab.benchmark.ablation_tables import ablation_tables
from safeimpute_lab.benchmark.cells import read_study, studies_in
from safeimpute_lab.benchmark.typeset import Table, as_latex, as_markdown, as_text, best_two

Both = tuple[dict[str, Any], Any, Path]  # what evaluate and ablate wrote, and where


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """evaluate and ablate on the same visits, levels and splits; too few calibration visits for a level of 0.05."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "quick.toml").write_text(QUICK)
    visits = simulate("mimic4", np.random.default_rng(3), patients=24).visits
    visits.write_parquet(folder / "visits.parquet")
    told: tuple[object, ...] = (folder / "visits.parquet", "--target", "hba1c", "--tolerance", "1.2", "--fdr", "0.35")
    told += ("--splits", 1, "--config", folder / "quick.toml", "--quiet")
    invoke(
        *("evaluate", *told, "--preset", "paper", "--json", folder / "e.json", "--out", folder / "e"),
        *("--curve-tolerances", "0.5,0.8", "--risk-groups", 5),
    )
    invoke("ablate", *told, "--json", folder / "a.json")
    return json.loads((folder / "e.json").read_text()), json.loads((folder / "a.json").read_text()), folder


def test_evaluate_and_ablate_release_alike(both: Both) -> None:
    evaluated, ablated, _ = both
    assert ablated["risk"]["proxy risk"] == evaluated["release"][0]
    assert ablated["imputer"]["paper's system"] == evaluated["imputation"]


def test_ablation_tables_have_the_published_columns(both: Both) -> None:
    imputer, risk = ablation_tables(both[1])
    assert imputer.rows[0][3:] == ("0.9669", "1.2231", "1.2889", "1.8091")
    assert {"RMSE", "published RMSE, Mayo Clinic"} <= set(imputer.head)
    assert risk.rows[1][-1] == "0.3667"
    assert {"RMSE", "precision", "published FDR, MIMIC-III"} <= set(risk.head)


def test_best_and_second_best_are_marked() -> None:
    table = Table("t", "", ("m", "x"), (("a", "3"), ("b", "1"), ("c", "2")), marks=best_two([3, 1, 2], 1))
    assert "| b | **1** |" in as_markdown(table)
    assert "| c | <u>2</u> |" in as_markdown(table)
    assert r"b & \textbf{1}" in as_latex(table)
    assert r"c & \underline{2}" in as_latex(table)
    assert "1*" in as_text(table)
    assert best_two([0.2, None, 0.9], 0, larger=True) == {(2, 0): "best", (0, 0): "second"}


def test_a_benchmark_too_takes_the_papers_settings(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[paper.graph]\nmax_neighbors = "none"\nlog_labs = ["bilirubin"]\n')
    load_pbc().write_parquet(tmp_path / "pbc.parquet")
    invoke(
        *("benchmark", tmp_path / "pbc.parquet", "--target", "cholesterol", "--tolerance", "20%"),
        *("--fdr", "0.2", "--config", tmp_path / "own.toml", "--finished-only", "--quiet"),
        *("--out", tmp_path / "out", "--methods", "mean"),
    )
    study, visits = read_study(studies_in(tmp_path / "out" / "work")[0])
    assert study.paper.graph == GraphSettings(max_neighbors=None, log_labs=("bilirubin",))
    assert study.settings(visits, "paper", 0).paper.graph == study.paper.graph


@pytest.mark.full
def test_ablate_gives_both_tables(tmp_path: Path) -> None:
    target = tmp_path / "ablation.json"
    (tmp_path / "quick.toml").write_text(QUICK)
    invoke("simulate", "mimic4", "--patients", 150, "--seed", 4, "-o", tmp_path / "visits.parquet", "--quiet")
    output = invoke(
        *("ablate", tmp_path / "visits.parquet", "--target", "hba1c", "--tolerance", "1.0", "--fdr", "0.3"),
        *("--splits", 2, "--config", tmp_path / "quick.toml", "--json", target),
    )
    result = json.loads(target.read_text())
    assert list(result["imputer"]) == [
        *("no temporal edges", "no value edges", "no gate", "no reconstruction", "paper's system")
    ]
    assert list(result["risk"]) == ["instability alone", "proxy risk"]
    assert "no gate" in output


@pytest.mark.parametrize("command", ["benchmark", "ablate", "reproduce"])
def test_every_command_explains_itself_and_takes_the_shared_flags(command: str) -> None:
    assert f"  {command} " in invoke("--help")
    explained = invoke(command, "--help")
    for flag in ("quiet", "seed", "threads", "memory", "device", "config"):
        assert f"--{flag} " in explained


def test_methods_are_listed() -> None:
    listed = invoke("methods")
    assert all(f"{name} " in listed for name in ("mean", "locf", "patient_mean", "lightgbm", "paper", "best"))


def refused(tmp_path: Path, command: str, text: str, *more: str) -> str:
    """What a command says of a configuration file."""
    (tmp_path / "odd.toml").write_text(text)
    told = ["--target", "hba1c", "--tolerance", "1", "--fdr", "0.1", "--config", str(tmp_path / "odd.toml")]
    result = CliRunner().invoke(app, [command, str(tmp_path / "none.csv"), *told, *more])
    assert isinstance(result.exception, OptionError)
    return str(result.exception)


@pytest.mark.parametrize("command", ["ablate", "benchmark"])
def test_a_file_may_not_say_anything(tmp_path: Path, command: str) -> None:
    assert "'fdrr' is no option of any command" in refused(tmp_path, command, "fdrr = 0.1")
    assert "[worst] is no table it may have" in refused(tmp_path, command, "[worst]\nfolds = 5")


def test_a_shared_file_may_hold_options_of_the_laboratory(tmp_path: Path) -> None:
    (tmp_path / "shared.toml").write_text("epochs_scale = 0.1\n")
    invoke("doctor", "--config", tmp_path / "shared.toml")


def test_the_uncapped_graph_is_reached_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def caught(visits: object, settings: object, *_: object, **__: object) -> None:
        told.append(settings)
        raise RuntimeError("seen")

    monkeypatch.setattr("safeimpute_lab.benchmark.ablate.ablate", caught)
    (tmp_path / "own.toml").write_text('[paper.graph]\nmax_neighbors = "none"\ntrend_epsilon = 0.5\n')
    load_pbc().write_parquet(tmp_path / "pbc.parquet")
    with pytest.raises(RuntimeError, match="seen"):
        invoke(
            *("ablate", tmp_path / "pbc.parquet", "--target", "cholesterol", "--tolerance", "20%"),
            *("--fdr", "0.2", "--config", tmp_path / "own.toml"),
        )
    graph = told[0].paper.graph
    assert (graph.max_neighbors, graph.trend_epsilon) == (None, 0.5)


def test_shares_of_ablate_never_fall_and_reach_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    told = shown.TimeLeft.told
    monkeypatch.setattr(shown.TimeLeft, "told", lambda self, share: shares.append(share) or told(self, share))  # type: ignore[func-returns-value]
    simulate("mimic4", np.random.default_rng(3), patients=40).visits.write_parquet(tmp_path / "visits.parquet")
    (tmp_path / "few.toml").write_text("[paper.gcn]\nepochs = 10\n")
    given = ("--target", "hba1c", "--tolerance", 1, "--fdr", 0.4, "--splits", 2)
    invoke("ablate", tmp_path / "visits.parquet", *given, "--config", tmp_path / "few.toml")
    assert len(shares) > 4
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1.0


def test_a_benchmark_takes_one_lab_at_a_time(tmp_path: Path) -> None:
    simulate("mimic4", np.random.default_rng(3), patients=24).visits.write_parquet(tmp_path / "visits.parquet")
    with pytest.raises(OptionError, match="benchmark takes one lab at a time"):
        invoke(
            *("benchmark", tmp_path / "visits.parquet", "--target", "hba1c,glucose", "--tolerance", "10%"),
            *("--fdr", 0.2, "--methods", "mean", "--out", tmp_path / "b"),
        )
