"""Packages as their authors ship them: one contract each, where their environment is; and the cells beside them."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from safeimpute.learning.roles import Role, Task, hide, split_visits
from safeimpute.visits.arrays import FloatArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits
from safeimpute_lab.evidence import peers
from safeimpute_lab.evidence.peers_page import page
from safeimpute_lab.methods import outside
from safeimpute_lab.methods.outside import OutsideMissing
from safeimpute_lab.registry import METHODS, make_imputer

PEERS = [name for name, method in METHODS.items() if method.module.endswith(".peers")]
EFFORT = 0.01


@cache
def visits() -> VisitArrays:
    table = simulate("mimic4", np.random.default_rng(3), patients=24).visits
    return prepare_visits(table, ColumnChoice("hba1c")).arrays


@cache
def roles() -> np.ndarray:
    return split_visits(~np.isnan(visits().target_values), np.random.default_rng(0), test_fraction=0.2)


def imputed(name: str, task: Task) -> FloatArray:
    return make_imputer(name, EFFORT).fit(task, np.random.default_rng(5)).impute(task).value


@pytest.mark.full
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_sees_what_every_method_sees(name: str) -> None:
    """A finite value everywhere, the same bytes again, nothing of a hidden target, no visit's own target back."""
    if missing := METHODS[name].missing():
        pytest.skip(f"{name} needs {', '.join(missing)}")
    task, hidden = hide(visits(), roles()), np.isin(roles(), (Role.CALIBRATION, Role.TEST))
    changed = visits().with_target(np.where(hidden, 1e6, visits().target_values))
    value = imputed(name, task)
    assert value.shape == (len(visits()),)
    assert np.isfinite(value).all()
    assert imputed(name, hide(changed, roles())).tobytes() == value.tobytes()
    own = task.visits.target_values[task.training]
    assert np.mean(np.isclose(value[task.training], own, rtol=0, atol=1e-4)) < 0.5


@pytest.mark.full
@pytest.mark.skipif(bool(outside.missing()), reason="the baselines environment is not built: run `make baselines`")
def test_a_network_stopped_by_validation_answers_with_it_shown_and_without() -> None:
    task = hide(visits(), roles())
    fitted = make_imputer("pypots-brits", EFFORT).fit(task, np.random.default_rng(5))
    shown = np.where(task.validation, task.validation_target, task.visits.target_values)
    opened = replace(task, visits=task.visits.with_target(shown))
    closed, seen = (fitted.impute(each).value for each in (task, opened))
    assert np.isfinite(seen).all()
    assert not np.array_equal(closed, seen)
    assert np.mean(np.isclose(seen[task.validation], task.validation_target[task.validation], atol=1e-4)) < 0.5
    with pytest.raises(ValueError, match="fitted on"):
        fitted.impute(replace(task, visits=task.visits.with_target(shown + 1)))


def test_without_r_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_installed_in_r", lambda: frozenset({"mice"}))
    assert METHODS["r-mice"].missing() == []
    assert METHODS["r-mice-2l"].missing() == ["R's pan (apt-get install r-cran-pan)"]
    with pytest.raises(OutsideMissing, match="apt-get install r-cran-pan"):
        make_imputer("r-mice-2l").fit(hide(visits(), roles()), np.random.default_rng(5))


def test_what_is_finished_is_not_run_again_and_the_cheapest_comes_first() -> None:
    done = [
        {"data": "a", "method": "slow", "seed": 0, "mae": 1.0, "processor": 9.0},
        {"data": "a", "method": "quick", "seed": 0, "mae": 1.0, "processor": 1.0},
        {"data": "b", "method": "quick", "seed": 0, "over_budget": 5.0},
    ]
    waiting = peers.waiting_cells(("a", "b"), ("slow", "quick", "new"), 1, done)
    assert [(cell["method"], cell["data"]) for cell in waiting] == [
        ("quick", "b"),
        ("slow", "b"),
        ("new", "a"),
        ("new", "b"),
    ]


def test_a_method_out_of_its_budget_is_recorded_and_the_run_ends(tmp_path: Path) -> None:
    file = tmp_path / "cells.jsonl"
    peers.run(("PBC cholesterol",), ("mean",), 2, 0.2, 1.0, file)
    (found,) = peers.read_cells(file)
    assert found["over_budget"] == 0.2
    assert "mae" not in found


def cell(method: str, seed: int, mae: float, **more: float) -> str:
    told = {"data": "a", "method": method, "seed": seed, "mae": mae, "seconds": 1.0, "processor": 1.0, "mib": 100.0}
    return json.dumps(told | {"commit": "abc1234", "visits": 100} | more) + "\n"


def test_the_page_counts_wins_and_names_what_is_missing(tmp_path: Path) -> None:
    file, none = tmp_path / "cells.jsonl", tmp_path / "none.jsonl"
    lines = [cell("best", seed, 1.0) + cell("r-mice", seed, 2.0 + 0.01 * seed) for seed in range(3)]
    file.write_text("".join(lines) + json.dumps({"data": "a", "method": "pypots-csdi", "seed": 0, "over_budget": 60}))
    text = page(file, none)
    assert "| `r-mice` | 1 (3) | 0.498 | 1 | 0 |" in text
    assert "`pypots-csdi` (out of its budget of 60 s)" in text
    assert "`r-missforest` (not run)" in text
    assert "abc1234" in text
