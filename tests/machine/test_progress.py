"""Progress shows itself in a notebook, and nowhere else."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest

import safeimpute as si
from safeimpute.machine.progress import shown_in_notebook, silent


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, str], str, bool]]:
    """What a notebook was given to show: content, place, whether it replaces what stands there."""
    shown: list[tuple[dict[str, str], str, bool]] = []

    def publish(data: dict[str, str], *, transient: dict[str, str], update: bool) -> None:
        shown.append((data, transient["display_id"], update))

    loaded: Any = ModuleType("IPython")
    loaded.get_ipython = lambda: SimpleNamespace(kernel=object(), display_pub=SimpleNamespace(publish=publish))
    monkeypatch.setitem(sys.modules, "IPython", loaded)
    return shown


def test_a_line_is_written_anew_and_never_falls_back(notebook: list[tuple[dict[str, str], str, bool]]) -> None:
    bar = shown_in_notebook()
    for stage, share in (("learning <1>", 0.5), ("learning <1>", 0.5001), ("deciding", 0.2), ("deciding", 1.0)):
        bar(stage, share)
    assert [data["text/plain"] for data, _, _ in notebook] == [
        "learning <1> … 50 %",
        "deciding … 50 %",
        "deciding … 100 %",
    ]
    assert [update for _, _, update in notebook] == [False, True, True]
    assert len({place for _, place, _ in notebook}) == 1
    assert "learning &lt;1&gt;" in notebook[0][0]["text/html"]


def test_a_fit_shows_a_bar_unless_it_is_given_progress(
    notebook: list[tuple[dict[str, str], str, bool]], cohort: pl.DataFrame
) -> None:
    imputer = si.SafeImputer(target="hba1c", tolerance=0.8, fdr=0.3, best={"folds": 3, "effort": "light"})
    imputer.fit(cohort)
    assert len(notebook) > 3
    assert notebook[-1][0]["text/plain"] == "fitted … 100 %"
    notebook.clear()
    imputer.fit(cohort, progress=silent)
    assert not notebook


def test_elsewhere_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert shown_in_notebook() is silent
    terminal: Any = ModuleType("IPython")
    terminal.get_ipython = lambda: SimpleNamespace(display_pub=None)
    for shell in (terminal.get_ipython, lambda: None):
        terminal.get_ipython = shell
        monkeypatch.setitem(sys.modules, "IPython", terminal)
        assert shown_in_notebook() is silent
