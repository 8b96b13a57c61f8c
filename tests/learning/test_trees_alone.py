"""LightGBM's number of threads is the whole process's: trees that grow beside each other must all say the same."""

from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from safeimpute.learning.trees import TreeSettings, bin_rows, fit_bagged_trees, predict_trees, train_trees
from safeimpute.machine import resources


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What every call of LightGBM says of resources."""
    found: list[Any] = []
    train, predict, construct = lgb.train, lgb.Booster.predict, lgb.Dataset.construct

    def heard_train(params: dict[str, Any], *given: Any, **named: Any) -> lgb.Booster:
        found.append(params.get("num_threads"))
        return train(params, *given, **named)

    def heard_predict(self: lgb.Booster, *given: Any, **named: Any) -> Any:
        found.append(named.get("num_threads"))
        return predict(self, *given, **named)

    def heard_construct(self: lgb.Dataset) -> lgb.Dataset:
        found.append((self.params or {}).get("num_threads"))
        return construct(self)

    monkeypatch.setattr(lgb, "train", heard_train)
    monkeypatch.setattr(lgb.Booster, "predict", heard_predict)
    monkeypatch.setattr(lgb.Dataset, "construct", heard_construct)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    return found


def test_every_call_says_one_thread_however_many_work(said: list[Any]) -> None:
    rng, rows = np.random.default_rng(3), resources.SMALL_TABLE + 500
    matrix, fold = rng.normal(size=(rows, 4)), np.arange(rows) % 4
    label = matrix[:, 0] + rng.normal(size=rows)
    few = TreeSettings(rounds=3)
    trees, out_of_fold = fit_bagged_trees(bin_rows(matrix, np.arange(rows)), matrix, label, fold, few, 1)
    train_trees(matrix, label, fold != 0, fold == 0, few, 1)
    assert set(said) == {1}
    assert len(said) > 20
    whole = np.asarray(trees.members[0].predict(matrix, num_threads=1))
    assert predict_trees(trees.members[0], matrix).tobytes() == whole.tobytes(), "parts are predicted as the whole is"
    assert np.isfinite(out_of_fold).all()


def test_nothing_to_predict_is_no_prediction() -> None:
    rng = np.random.default_rng(3)
    matrix, fold = rng.normal(size=(200, 2)), np.arange(200) % 2
    member = train_trees(matrix, matrix[:, 0], fold == 0, fold == 1, TreeSettings(rounds=2), 1)
    assert predict_trees(member, matrix[:0]).shape == (0,)
