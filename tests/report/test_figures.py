"""The figure files: all there, well-formed, the same each time, and unharmed by hostile names."""

import inspect
import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from safeimpute.errors import OptionError
from safeimpute.evaluation.run_summary import GapHistogram, Histogram, RunSummary
from safeimpute.report import data_figures, figure_style, figures, palette
from safeimpute.report.figures import EvaluationContent, draw_figures

DATA = {"missingness_heat_map", "visits_per_patient", "gaps_between_visits", "visit_missingness"} | {
    "cumulative_missingness"
}
ERRORS = {"fdr_power", "risk_alignment", "accuracy"}
RELEASED = {"released_by_risk", "released_by_value", "released_by_gap"}
RUN = DATA | ERRORS | RELEASED


def _check(paths: list[Path], names: set[str]) -> None:
    assert {path.name for path in paths} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    for path in paths:
        if path.suffix == ".svg":
            root = ET.parse(path).getroot()
            assert root.tag.endswith("svg")
            assert len(list(root.iter())) > 50
        else:
            assert imread(path).shape[1] >= 900  # wide enough to print


def test_run_figures_are_written(run_folder: Path) -> None:
    before = dict(mpl.rcParams)
    _check(draw_figures(run_folder), RUN)
    assert dict(mpl.rcParams) == before
    assert {path.name for path in run_folder.iterdir()} == {"summary.json", "run.json", "figures"}


def test_another_lab_of_a_run_has_the_figures_it_would_have_alone(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of the same data are drawn once, the others for each lab; of other data all are drawn."""
    alone = {path.name: path.read_bytes() for path in draw_figures(run_folder)}
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "summary.json").write_bytes((run_folder / "summary.json").read_bytes())
    drawn: list[str] = []

    def saved(figure: Figure, folder: Path, name: str) -> list[Path]:
        drawn.append(name)
        return figure_style.save(figure, folder, name)

    monkeypatch.setattr(figures, "save", saved)
    assert {path.name: path.read_bytes() for path in draw_figures(lab, run_folder)} == alone
    assert set(drawn) == RUN - DATA
    summary = json.loads((lab / "summary.json").read_text())
    summary["data"]["patients"] += 1
    (lab / "summary.json").write_text(json.dumps(summary))
    drawn.clear()
    draw_figures(lab, run_folder)
    assert set(drawn) == RUN


def test_evaluation_figures_are_written(evaluation_folder: Path) -> None:
    _check(draw_figures(evaluation_folder), DATA | ERRORS)


def test_figures_use_no_global_plotting_state() -> None:
    for module in (figures, data_figures):
        assert "pyplot" not in inspect.getsource(module)
        assert not hasattr(sys.modules[module.__name__], "plt")


def test_figures_are_the_same_each_time(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"released_by_value", "visit_missingness"}
    full = figures._run_figures
    monkeypatch.setattr(figures, "_run_figures", lambda s: {k: v for k, v in full(s).items() if k in one})
    first = {path.name: path.read_bytes() for path in draw_figures(run_folder)}
    second = {path.name: path.read_bytes() for path in draw_figures(run_folder)}
    assert first == second
    assert not [name for name, content in first.items() if b"<dc:date>" in content]


def test_bars_are_as_high_as_the_counts(summary: RunSummary) -> None:
    figure = figures.released_histogram(summary["by_value"], "value")
    assert figure is not None
    released, withheld = figure.axes[0].containers
    assert [bar.get_height() for bar in released] == summary["by_value"]["released"]
    assert [bar.get_height() for bar in withheld] == summary["by_value"]["withheld"]
    assert [bar.get_y() for bar in withheld] == summary["by_value"]["released"]


def test_evaluation_panels_show_every_tolerance(evaluation: EvaluationContent) -> None:
    figure = figures.evaluation_curves(evaluation["curves"], "mg/dL")
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
    assert len(titles) == len(evaluation["curves"])
    assert all(
        f"{100 * curve['share']:g} %" in title for curve, title in zip(evaluation["curves"], titles, strict=True)
    )
    power = next(line for line in figure.axes[1].lines if str(line.get_label()).startswith("power"))
    assert np.asarray(power.get_ydata()).tolist() == [
        point["power"]["mean"] for point in evaluation["curves"][1]["points"]
    ]


def test_hostile_names_are_drawn_as_text(
    run_folder: Path, summary: RunSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "<script>alert('$x_{$')</script>-->\x07 a very long name that would not fit any axis"
    renamed = json.loads(json.dumps(summary).replace('"cholesterol"', json.dumps(hostile)))
    (run_folder / "summary.json").write_text(json.dumps(renamed | {"unit": "$\\frac{"}))
    monkeypatch.setattr(figure_style, "DPI", 40)
    for path in draw_figures(run_folder):
        if path.suffix == ".svg":
            assert not [node for node in ET.parse(path).iter() if node.tag.endswith("script")]


def test_many_labs_share_the_last_colour(summary: RunSummary) -> None:
    labs = [f"lab {i}" for i in range(12)]
    patients = [[dict.fromkeys(labs, 1.0)] * 3]
    groups = data_figures._shown_labs(patients, labs)
    assert len(groups) == len(palette.CATEGORIES)
    assert sorted(lab for group in groups for lab in group) == sorted(labs)
    figure = data_figures.visit_missingness(patients, labs)
    assert figure is not None
    assert sum(bar.get_height() for bars in figure.axes[0].containers for bar in bars) == 36


def test_a_patients_bar_is_its_missing_shares_added_up() -> None:
    labs = ["a", "b"]
    patients = [[{"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}], [{"a": 0.0, "b": 1.0}]]
    figure = data_figures.cumulative_missingness(patients, labs)
    assert figure is not None
    heights = [[bar.get_height() for bar in bars] for bars in figure.axes[0].containers]
    assert heights == [[0.5, 0.5], [1.0, 0.0]]


def test_errors_are_drawn_against_the_mean_risk(evaluation: EvaluationContent) -> None:
    figure = figures.score_alignment(evaluation["alignment"], "mg/dL", "test values")
    assert figure is not None
    points = figure.axes[0].lines[0].get_xydata()
    assert np.allclose(np.asarray(points), [[0.06 * g, 20.0 + 8 * g] for g in range(1, 11)])


def test_nothing_missing_draws_no_release_figures(summary: RunSummary) -> None:
    empty: Histogram = {"edges": [], "released": [], "withheld": []}
    gap: GapHistogram = {**empty, "no_earlier_value": {"released": 0, "withheld": 0}}
    nothing: RunSummary = {**summary, "by_risk": empty, "by_value": empty, "by_gap": gap}
    drawn = {name for name, draw in figures._run_figures(nothing).items() if draw() is not None}
    assert drawn == RUN - RELEASED


def test_the_cut_off_is_drawn_on_the_risk(summary: RunSummary) -> None:
    figure = figures.released_histogram(summary["by_risk"], "Risk", [0.433, None])
    assert figure is not None
    (line,) = figure.axes[0].lines
    assert np.asarray(line.get_xdata()).tolist() == [0.433, 0.433]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="finished run"):
        draw_figures(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(OptionError, match="this version"):
        draw_figures(tmp_path)
