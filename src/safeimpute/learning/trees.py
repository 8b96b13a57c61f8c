"""Bagged gradient-boosted trees: one model per fold of patients, stopped early on the fold it never saw.

The same out-of-fold predictions that stop the training serve blending and risk as honest errors. A table is cut
into bins once, for all folds and all labels learnt from it; beyond `most_visits` every member learns from a sample
of its own, so that together they still see the whole table.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import ModelFolderError
from safeimpute.learning.tree_text import valid_trees
from safeimpute.machine.endings import raise_if_stopped
from safeimpute.machine.resources import side_by_side, threads_for
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import lightgbm as lgb

Table = NDArray[np.float32] | FloatArray
# LightGBM keeps the number of threads in one place for the whole process: a call that says another number while trees
# grow beside it makes them write past their arrays. So every call says one, and work is divided outside of it.
ALONE = 1
BINNING = {
    "num_threads": ALONE,
    "feature_pre_filter": False,  # bins serve leaves of every size
    "verbose": -1,
}
COARSE = 10  # rows a bin holds at least
SMALL_BIN_ROWS = 3  # costs a third more and gains nothing unless rows are very few
MANY_BINS = 255  # of a column at most; values are imputed as well, and large tables faster, with fewer
BLOCK_ROWS = 131_072  # predicted at once where features are made on the way


@dataclass(frozen=True)
class TreeSettings:
    """How the trees grow; small leaves' worth of regularisation, since most cohorts are small."""

    objective: str = "regression"
    metric: str = "l1"
    learning_rate: float = 0.1
    leaves: int = 15
    smallest_leaf: int = 20
    feature_share: float = 0.5
    row_share: float = 0.8
    rounds: int = 2000
    patience: int = 25
    most_visits: int = 200_000  # one member learns from
    most_stopping: int = 50_000  # looked at to decide when to stop
    options: dict[str, Any] = field(default_factory=dict)  # of the objective

    def at_pace(self, pace: float) -> "TreeSettings":
        """The same trees learning so many times as fast, and stopped as much sooner."""
        return replace(self, learning_rate=self.learning_rate * pace, patience=round(self.patience / pace))


@dataclass(frozen=True)
class BaggedTrees:
    """The trees of every fold; predictions are averaged."""

    members: tuple["lgb.Booster", ...]

    def predict(self, matrix: Table) -> FloatArray:
        total = np.zeros(len(matrix))
        for member in self.members:
            total += predict_trees(member, matrix)
        return total / len(self.members)

    def texts(self) -> list[str]:
        return [member.model_to_string() for member in self.members]

    @classmethod
    def from_texts(cls, texts: list[str]) -> "BaggedTrees":
        return cls(tuple(tree_from_text(text) for text in texts))


def tree_from_text(text: str) -> "lgb.Booster":
    """Trees as `model_to_string` wrote them; anything else is refused before LightGBM sees it."""
    import lightgbm as lgb

    try:
        return lgb.Booster(model_str=valid_trees(text))
    except lgb.basic.LightGBMError:
        raise ModelFolderError("the model's trees are not what LightGBM writes. Fit again.") from None


@dataclass(frozen=True)
class BinnedRows:
    """Some rows of a table, cut into bins: one byte a value, ready for any label and any fold."""

    rows: IntArray
    data: "lgb.Dataset"

    def part(self, places: IntArray, label: FloatArray) -> "lgb.Dataset":
        """Some of the rows, by their place among them, with their labels."""
        return self.data.subset(places.tolist()).construct().set_label(label[places])


def patient_folds(patient: IntArray, folds: int, rng: np.random.Generator) -> IntArray:
    """A fold for every visit; a patient's visits share one, unless there are fewer patients than folds."""
    patients = int(patient.max(initial=-1)) + 1
    if patients < folds:
        return rng.permutation(len(patient)) % folds
    fold: IntArray = (rng.permutation(patients) % folds)[patient]
    return fold


def bin_rows(matrix: Table, rows: IntArray, smallest_bin: int = COARSE, most_bins: int = MANY_BINS) -> BinnedRows:
    """Cut the table's columns into bins at some rows, or at all of them in order."""
    import lightgbm as lgb

    there = matrix if len(rows) == len(matrix) else matrix[rows]
    data = lgb.Dataset(there, np.zeros(len(rows)), params=_bins_of(smallest_bin, most_bins))
    return BinnedRows(rows, data.construct())


def _bins_of(smallest: int, most: int = MANY_BINS) -> dict[str, Any]:
    return BINNING | {"min_data_in_bin": smallest, "max_bin": most}


def fit_bagged_trees(
    binned: BinnedRows, matrix: Table, label: FloatArray, fold: IntArray, settings: TreeSettings, seed: int
) -> tuple[BaggedTrees, FloatArray]:
    """Trees on the binned rows of a table, and at those rows the prediction of the member that never saw the patient.

    `label` and `fold` have one entry per row of the table.
    """
    out_of_fold = np.full(len(label), np.nan)
    label_there, fold_there = label[binned.rows], fold[binned.rows]

    def without(held_out: int) -> "lgb.Booster":
        stopping = fold_there == held_out
        learn, stop = _sampled(~stopping, stopping, settings, seed + held_out)
        train, valid = (binned.part(rows, label_there) for rows in (learn, stop))
        member = _train(train, valid, settings, seed + held_out)
        out = binned.rows[stopping]
        out_of_fold[out] = predict_trees(member, matrix[out])
        return member

    members = side_by_side(without, np.unique(fold_there).tolist())
    return BaggedTrees(tuple(members)), out_of_fold


def train_trees(
    matrix: Table,
    label: FloatArray,
    learning: BoolArray,
    stopping: BoolArray,
    settings: TreeSettings,
    seed: int,
    categories: tuple[int, ...] = (),
    start: FloatArray | None = None,
) -> "lgb.Booster":
    """One member on the rows marked by `learning`, stopped by those marked by `stopping`.

    Columns among `categories` hold codes of levels, not amounts; `start` is what trees are added to, row by row.
    """
    import lightgbm as lgb

    learn, stop = _sampled(learning, stopping, settings, seed)
    codes = list(categories)
    base = (None, None) if start is None else (start[learn], start[stop])
    train = lgb.Dataset(
        matrix[learn], label[learn], init_score=base[0], params=_bins_of(COARSE), categorical_feature=codes
    )
    valid = lgb.Dataset(
        matrix[stop],
        label[stop],
        reference=train,
        init_score=base[1],
        params=_bins_of(COARSE),
        categorical_feature=codes,
    )
    return _train(train, valid, settings, seed)


def _train(train: "lgb.Dataset", valid: "lgb.Dataset", settings: TreeSettings, seed: int) -> "lgb.Booster":
    import lightgbm as lgb

    parameters = {
        **BINNING,
        "objective": settings.objective,
        "metric": settings.metric,
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.smallest_leaf,
        "feature_fraction": settings.feature_share,
        "bagging_fraction": settings.row_share,
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_col_wise": True,
        **settings.options,
    }
    stop = lgb.early_stopping(settings.patience, verbose=False)
    callbacks: list[Any] = [stop, raise_if_stopped]
    return lgb.train(parameters, train, settings.rounds, valid_sets=[valid], callbacks=callbacks)


def _sampled(learning: BoolArray, stopping: BoolArray, settings: TreeSettings, seed: int) -> tuple[IntArray, IntArray]:
    """Rows to learn from and rows to stop by, no more of either than the settings allow."""
    rng = np.random.default_rng(seed)
    learn, stop = np.flatnonzero(learning), np.flatnonzero(stopping)
    return _at_most(learn, settings.most_visits, rng), _at_most(stop, settings.most_stopping, rng)


def raw_trees(member: "lgb.Booster", matrix: Table) -> FloatArray:
    """What the trees add up to, before any link function."""
    return predict_trees(member, matrix, raw_score=True)


def predict_trees(member: "lgb.Booster", matrix: Table, *, raw_score: bool = False) -> FloatArray:
    """What the trees say of every row; a large table is divided, and its parts are predicted side by side."""
    parts = np.array_split(np.arange(len(matrix)), threads_for(len(matrix)))

    def predicted(rows: IntArray) -> FloatArray:
        there = matrix[rows[0] : rows[-1] + 1] if len(rows) else matrix[:0]
        return np.asarray(member.predict(there, raw_score=raw_score, num_threads=ALONE), dtype=np.float64)

    return np.concatenate(side_by_side(predicted, parts))


def _at_most(rows: IntArray, most: int, rng: np.random.Generator) -> IntArray:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))
