"""The benchmark command end to end on a small cohort: form, figures, tables."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute_lab.benchmark.cells import CellName, read_cell, read_study, studies_in
from safeimpute_lab.benchmark.compare import corrected_p_value, mean_ranks
from safeimpute_lab.benchmark.gather import Field, methods_asked_for
from safeimpute_lab.benchmark.published import ALONE, UNDER_SELECTION
from safeimpute_lab.benchmark.result import BenchmarkResult
from safeimpute_lab.benchmark.tables import accuracy_table, all_tables, as_latex, as_markdown, latex_text
from safeimpute_lab.benchmark.tasks import task_for
from safeimpute_lab.registry import METHODS

METHODS_RUN = ("mean", "best")
LEVELS = (0.2, 0.4)


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def cohort_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("benchmark") / "visits.parquet"
    invoke("simulate", "mimic4", "--patients", 90, "--seed", 4, "-o", file, "--quiet")
    return file


@pytest.fixture(scope="module")
def finished(cohort_file: Path) -> tuple[Path, str]:
    out = cohort_file.parent / "out"
    run = invoke(
        *("benchmark", cohort_file, "--target", "hba1c", "--tolerance", "1.2", "--fdr", "0.2,0.4"),
        *("--methods", ",".join(METHODS_RUN), "--splits", 2, "--epochs-scale", 0.02, "--repartitions", 4),
        *("--jobs", 2, "--out", out, "--json", cohort_file.parent / "copy.json"),
    )
    assert run.exit_code == 0, run.output
    return out, run.output


@pytest.fixture(scope="module")
def result(finished: tuple[Path, str]) -> BenchmarkResult:
    content: BenchmarkResult = json.loads((finished[0] / "benchmark.json").read_text())
    return content


@pytest.fixture(scope="module")
def study_folder(finished: tuple[Path, str]) -> Path:
    (folder,) = studies_in(finished[0] / "work")
    return folder


def test_json_has_the_contracted_form(result: BenchmarkResult, cohort_file: Path) -> None:
    assert json.loads((cohort_file.parent / "copy.json").read_text()) == result
    assert list(result["methods"]) == list(METHODS_RUN)
    for row in result["methods"].values():
        assert row["error"] is None
        assert row["imputation"].keys() == {"mae", "rmse"}
        assert [release["fdr"] for release in row["release"]] == list(LEVELS)
        for release in row["release"]:
            assert {"fdp", "power", "acceptance", "mae", "rmse", "splits_released"} <= release.keys()
            assert {"pooled", "exceeds"} <= release.keys()
            assert release["fdp"].keys() == {"mean", "se"}
        assert row["seconds"].keys() == {"graph", "fit", "risk", "total"}
        assert 50 < (row["peak_mib"] or 0.0) < 5_000
    assert result["splits"] == 2
    assert result["tolerance"] == 1.2


def test_accuracy_is_that_of_the_stored_values(result: BenchmarkResult, study_folder: Path) -> None:
    study, visits = read_study(study_folder)
    for method in METHODS_RUN:
        per_split = []
        for seed in (0, 1):
            _, rows = task_for(visits, seed, study.test_fraction)
            cell = read_cell(study_folder, CellName(seed, method))
            assert cell is not None
            per_split.append(np.mean(np.abs(cell.arrays["value"] - visits.target_values)[rows]))
        assert result["methods"][method]["imputation"]["mae"]["mean"] == pytest.approx(np.mean(per_split))
        assert result["methods"][method]["imputation"]["mae"]["se"] == pytest.approx(
            abs(per_split[0] - per_split[1]) / 2
        )


def test_release_is_the_mean_over_cells(result: BenchmarkResult, study_folder: Path) -> None:
    """Recomputed from the outcomes each cell keeps: risky, released, fdp, power, acceptance, mae, rmse."""
    for method, array in {"mean": "outcomes", "best": "shipped_outcomes"}.items():
        cells = [read_cell(study_folder, CellName(seed, method)) for seed in (0, 1)]
        drawn = np.stack([cell.arrays[array] for cell in cells if cell is not None])
        assert drawn.shape == (2, len(LEVELS), 4 if method == "mean" else 1, 7)
        for position, level in enumerate(LEVELS):
            at, summary = drawn[:, position], result["methods"][method]["release"][position]
            means = [summary["fdp"]["mean"], summary["power"]["mean"], summary["acceptance"]["mean"]]
            assert means == pytest.approx(at[..., 2:5].mean(axis=(0, 1)).tolist())
            released = at[..., 1].sum()
            assert summary["pooled"] == (pytest.approx(at[..., 0].sum() / released) if released else None)
            assert summary["exceeds"] == pytest.approx(np.mean(at[..., 2] > level))


def test_presets_are_judged_as_shipped_and_like_the_others(result: BenchmarkResult) -> None:
    rows = result["methods"]
    assert rows["mean"]["validation_risk"] is None
    alike = rows["best"]["validation_risk"]
    assert alike is not None
    assert [row["fdr"] for row in alike["release"]] == list(LEVELS)
    assert alike["release"] != rows["best"]["release"]


def test_the_papers_way_judges_all_on_our_release(result: BenchmarkResult, study_folder: Path) -> None:
    """Recomputed one released value at a time."""
    study, visits = read_study(study_folder)
    truth, level = visits.target_values, 1
    errors, risky, released_anything = [], [], 0
    for seed in (0, 1):
        ours, other = (read_cell(study_folder, CellName(seed, method)) for method in ("best", "mean"))
        assert ours is not None
        assert other is not None
        sets = np.unpackbits(ours.arrays["released"], axis=-1, count=len(visits)).astype(bool)[level]
        per_draw = []
        for draw in sets:
            rows = np.flatnonzero(draw)
            released_anything += len(rows)
            gaps = [abs(other.arrays["value"][row] - truth[row]) for row in rows]
            risky.append(np.mean([gap >= study.tolerance.absolute for gap in gaps]) if gaps else 0.0)
            per_draw += [np.mean(gaps)] if gaps else []
        errors.append(np.mean(per_draw))
    assert released_anything > 50
    row = result["methods"]["mean"]["on_release_of"]["best"][level]
    assert row["mae"]["mean"] == pytest.approx(np.mean(errors))
    assert row["fdp"]["mean"] == pytest.approx(np.mean(risky))


def test_stored_sets_are_those_the_release_was_judged_on(study_folder: Path) -> None:
    study, visits = read_study(study_folder)
    cell = read_cell(study_folder, CellName(0, "best"))
    assert cell is not None
    sets = np.unpackbits(cell.arrays["released"], axis=-1, count=len(visits)).astype(bool)
    _, tested = task_for(visits, 0, study.test_fraction)
    gap = np.abs(cell.arrays["value"] - visits.target_values)
    for position in range(len(LEVELS)):
        (released,), (judged,) = sets[position], cell.arrays["shipped_outcomes"][position]
        assert not np.delete(released, tested).any()
        assert judged[1] == released.sum()
        assert judged[0] == np.sum(gap[released] >= study.tolerance.absolute)
        assert judged[5] == pytest.approx(gap[released].mean() if released.any() else np.nan, nan_ok=True)


def test_a_quick_run_is_labelled_everywhere(finished: tuple[Path, str], result: BenchmarkResult) -> None:
    out, printed = finished
    label = "trained for 0.02 of the published rounds"
    for text in (printed, (out / "benchmark.md").read_text(), (out / "benchmark.tex").read_text()):
        assert label in text
    assert label in (result["note"] or "")
    assert label in (out / "figures" / "benchmark.svg").read_text()  # as a comment beside its outlines


def test_published_figures_stand_apart(finished: tuple[Path, str]) -> None:
    page = (finished[0] / "benchmark.md").read_text()
    assert "published, other data" in page
    assert "0.66 / 1.35 / 1.30" in page  # the mean on the paper's three cohorts
    assert "doi:10.1145/3770855.3817967" in page


def test_tables_are_whole(result: BenchmarkResult) -> None:
    for table in all_tables(result):
        lines = [line for line in as_markdown(table).splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1
        tex = as_latex(table)
        assert re.findall(r"\\begin\{(.*?)\}", tex) == re.findall(r"\\end\{(.*?)\}", tex)[::-1]
        assert tex.replace(r"\{", "").replace(r"\}", "").count("{") == tex.replace(r"\{", "").replace(r"\}", "").count(
            "}"
        )
        body = [line for line in tex.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {len(table.head) - 1}
        assert "_" not in re.sub(r"\\_", "", tex)


def test_table_shows_the_json_in_order_of_error(result: BenchmarkResult) -> None:
    table = accuracy_table(result)
    means = {name: row["imputation"]["mae"]["mean"] or 0.0 for name, row in result["methods"].items()}
    assert [row[0] for row in table.rows] == sorted(means, key=lambda name: means[name])
    for row in table.rows:
        assert float(row[1].split(" ")[0]) == pytest.approx(means[row[0]], rel=5e-3)


def test_finished_benchmark_is_not_overwritten_unasked(finished: tuple[Path, str], cohort_file: Path) -> None:
    from safeimpute.errors import OptionError

    with pytest.raises(OptionError, match="--force"):
        invoke(
            *("benchmark", cohort_file, "--target", "hba1c", "--tolerance", "1", "--fdr", "0.2"),
            *("--methods", "mean", "--out", finished[0]),
        )


def test_latex_text_cannot_act() -> None:
    assert latex_text(r"a_b & 5% \x {1} ± –") == r"a\_b \& 5\% \textbackslash{}x \{1\} $\pm$ --"


def test_ranks_share_ties_and_leave_out_incomplete_methods() -> None:
    errors = {"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 1.0}, "c": {0: 0.5}, "d": {0: 3.0, 1: 3.0}}
    assert mean_ranks(errors, (0, 1)) == {"a": 1.75, "b": 1.25, "c": None, "d": 3.0}


def test_corrected_test_is_nadeau_and_bengios() -> None:
    from scipy.stats import t

    differences = [0.3, 0.1, 0.25, 0.2, 0.4]
    variance = np.var(differences, ddof=1)
    statistic = np.mean(differences) / np.sqrt((1 / 5 + 0.2 / 0.56) * variance)
    assert corrected_p_value(differences, 0.2 / 0.56) == pytest.approx(2 * t.sf(statistic, 4))
    plain = 2 * t.sf(np.mean(differences) / np.sqrt(variance / 5), 4)
    assert corrected_p_value(differences, 0.2 / 0.56) > plain
    assert corrected_p_value([0.3], 0.3) is None
    assert corrected_p_value([0.0, 0.0], 0.3) == 1.0


def test_methods_are_chosen_by_name() -> None:
    from safeimpute.errors import OptionError

    assert methods_asked_for("best, mean") == ("mean", "best")
    assert methods_asked_for("all") == tuple(METHODS)
    for wrong in ("nonsense", ""):
        with pytest.raises(OptionError):
            methods_asked_for(wrong)


def test_cells_run_split_by_split() -> None:
    order = Field(("mean", "best"), (3, 4)).cells()
    assert [(cell.seed, cell.method) for cell in order] == [(3, "mean"), (3, "best"), (4, "mean"), (4, "best")]


def test_published_figures_name_methods_of_the_registry() -> None:
    assert ALONE.keys() <= METHODS.keys()
    assert UNDER_SELECTION.keys() <= METHODS.keys()
    assert len(UNDER_SELECTION) == 14
    assert len(ALONE) == 13  # the paper's second table has no MIWAE
