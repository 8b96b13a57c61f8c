"""Draws, tipping points and downstream from the command line."""

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import OptionError

QUICK = "[best]\nfolds = 3\nanalogues = 4\n"
LEVELS = ("--target", "hba1c", "--tolerance", "0.6", "--fdr", "0.2")


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("draws")
    (made / "quick.toml").write_text(QUICK)
    invoke("simulate", "mimic4", "--patients", 120, "--seed", 4, "-o", made / "visits.parquet", "--quiet")
    return made


@pytest.mark.full
def test_a_run_with_draws_leaves_all_of_it(folder: Path) -> None:
    shifts = ("--delta", "-1,-0.5,0.5,1", "--limit", 7.5, "--covariate", "age")
    told = invoke(
        "run", folder / "visits.parquet", *LEVELS, "--config", folder / "quick.toml", "--draws", 4, "--mice", *shifts,
        "-o", folder / "out",
    )  # fmt: skip
    visits = pl.read_parquet(folder / "visits.parquet")
    missing = visits["hba1c"].null_count()
    assert f"Draws: 4 of each of {missing:,} missing values" in told
    assert len(pl.read_parquet(folder / "out/draws.parquet")) == 4 * missing
    summary = json.loads((folder / "out/draws.json").read_text())
    assert [each["quantity"] for each in summary["tipping"]] == ["mean", "share at or above 7.5", "slope on age"]
    assert [row["delta"] for row in summary["tipping"][0]["rows"]] == [-1, -0.5, 0, 0.5, 1]
    assert 0.75 < summary["coverage"]["0.9"] < 1
    long = pl.read_csv(folder / "out/mice_long.csv")
    assert long[".imp"].unique().sort().to_list() == [0, 1, 2, 3, 4]
    assert len(pl.read_csv(folder / "out/mice_wide.csv")) == len(visits)
    there = {path.name for path in (folder / "out").rglob("*")}
    assert {"tipping.csv", "tipping_points.png", "reporting.md", "model_card.md"} <= there
    assert "4 draws of every missing value" in (folder / "out/reporting.md").read_text()


def test_draws_of_a_target_with_results_beyond_a_limit(folder: Path) -> None:
    """Such visits are no candidates and hold no number: left out of tipping points, empty in completed tables."""
    visits = pl.read_parquet(folder / "visits.parquet")
    limit = round(float(visits["hba1c"].quantile(0.1) or 0.0), 2)
    text = pl.when(pl.col("hba1c") < limit).then(pl.lit(f"<{limit}")).otherwise(pl.col("hba1c").cast(pl.String))
    visits.with_columns(hba1c=text).write_csv(folder / "limits.csv")
    asked = ("--draws", 3, "--mice", "--delta", "auto", "--limit", 7, "--covariate", "age")
    quick = ("--config", folder / "quick.toml", "--quiet")
    invoke("run", folder / "limits.csv", *LEVELS, *asked, *quick, "-o", folder / "limits")
    beyond = (visits["hba1c"] < limit).sum()
    assert beyond
    for rows in [each["rows"] for each in json.loads((folder / "limits/draws.json").read_text())["tipping"]]:
        assert len(rows) == 9
        assert all(row["lower"] <= row["estimate"] <= row["upper"] for row in rows)
    long = pl.read_csv(folder / "limits/mice_long.csv")
    assert long.filter(pl.col(".imp") == 0)["hba1c"].null_count() == visits["hba1c"].null_count() + beyond
    for draw in range(1, 4):
        part = long.filter(pl.col(".imp") == draw)
        assert part["hba1c"].null_count() == beyond
        assert part["hba1c__high"].drop_nulls().value_counts().rows() == [(limit, beyond)]
    assert pl.read_csv(folder / "limits/mice_wide.csv")["hba1c_3"].null_count() == beyond


@pytest.mark.parametrize(
    ("told", "said"),
    [(("--limit", 7.5), "give --delta"), (("--mice",), "--draws 20"), (("--delta", "a,b"), "is not a list of numbers")],
)
def test_what_makes_no_sense_is_refused_before_the_fit(folder: Path, told: tuple[object, ...], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        invoke("run", folder / "visits.parquet", *LEVELS, *told, "-o", folder / "never")
    assert not (folder / "never").exists()


@pytest.mark.full
def test_downstream_from_the_command_line(folder: Path) -> None:
    visits = pl.read_parquet(folder / "visits.parquet").with_columns(event=(pl.col("age") > 60).cast(pl.Int8))
    visits.write_parquet(folder / "with_event.parquet")
    truth = folder / "visits.truth.parquet"
    told = invoke(
        "downstream", folder / "with_event.parquet", *LEVELS, "--config", folder / "quick.toml", "--draws", 4,
        "--truth", truth, "--outcome", "event", "--limits", "6.5,8", "-o", folder / "down", "--json", folder / "d.json",
    )  # fmt: skip
    assert "mean: use " in told
    found = json.loads((folder / "d.json").read_text())
    assert found["visits"] == len(visits)
    names = [each["quantity"] for each in found["quantities"]]
    assert {"AUC for event", "share at or above 6.5", "found at or above 8"} <= set(names)
    assert (folder / "down/figures/downstream.svg").is_file()
