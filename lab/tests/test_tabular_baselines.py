"""Each tabular method on data made for it: it must find what is there to be found, not merely run."""

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import t

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute_lab.methods.chained import Mice, MissForest
from safeimpute_lab.methods.diffputer import Denoiser, DiffPuter, DiffPuterSettings, _noise_levels, _redrawn
from safeimpute_lab.methods.grape import Grape, GrapeSettings, mean_message
from safeimpute_lab.methods.knn import NearestNeighbours
from safeimpute_lab.methods.miwae import Miwae, _student_log_density
from safeimpute_lab.methods.remasker import MaskedAutoencoder, ReMasker, ReMaskerSettings, _mask_again
from safeimpute_lab.methods.table import TARGET, fit_units, read_table
from safeimpute_lab.methods.tdm import Tdm, _transport_partners
from safeimpute_lab.registry import Imputer

pytestmark = pytest.mark.full  # every method is fitted in the contract suite of the fast run

Table = NDArray[np.float64]
NOISE = 0.3


class Known:
    """A table whose first column is the target, a third of it hidden, and the best any method could say."""

    def __init__(self, table: Table, best: Table, missing: BoolArray | None = None) -> None:
        rng = np.random.default_rng(99)
        self.truth, self.best = table[:, 0].copy(), best
        self.hidden = rng.random(len(table)) < 1 / 3
        labs = table.copy()
        labs[self.hidden, 0] = np.nan
        if missing is not None:
            labs[:, 1:][missing] = np.nan
        self.task = Task(as_visits(labs), np.full(len(table), np.nan))

    def error(self, imputer: Imputer) -> float:
        value = imputer.fit(self.task, np.random.default_rng(1)).impute(self.task).value
        return self.rmse(value)

    def rmse(self, value: FloatArray) -> float:
        return float(np.sqrt(np.mean((value - self.truth)[self.hidden] ** 2)))

    @property
    def error_of_mean(self) -> float:
        return self.rmse(np.full(len(self.truth), self.truth[~self.hidden].mean()))

    @property
    def error_of_best(self) -> float:
        return self.rmse(self.best)


def as_visits(labs: Table) -> VisitArrays:
    """One visit per patient, so that nothing but the labs tells visits apart."""
    rows = np.arange(len(labs))
    return VisitArrays(
        patient=rows,
        time=np.zeros(len(labs)),
        labs=labs,
        lab_names=tuple(f"lab{at}" for at in range(labs.shape[1])),
        target=0,
        attributes=np.empty((len(labs), 0)),
        attribute_names=(),
        patient_key=rows.astype(np.uint64),
        visit_key=rows.astype(np.uint64),
    )


@pytest.fixture(scope="module")
def linear() -> Known:
    rng = np.random.default_rng(0)
    others = rng.normal(size=(400, 3))
    best = 5 + 2 * others[:, 0] - 1.5 * others[:, 1]
    return Known(np.column_stack([best + NOISE * rng.normal(size=400), others]), best)


@pytest.fixture(scope="module")
def clusters() -> Known:
    """Four kinds of visits; the target's level is no linear function of the other labs."""
    rng = np.random.default_rng(1)
    kind = rng.integers(4, size=240)
    centres = np.array([[2.0, 2.0], [-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0]])
    best = np.array([6.0, 6.0, 3.0, 3.0])[kind]
    others = centres[kind] + 0.3 * rng.normal(size=(240, 2))
    return Known(np.column_stack([best + NOISE * rng.normal(size=240), others]), best)


@pytest.fixture(scope="module")
def step() -> Known:
    rng = np.random.default_rng(2)
    others = rng.uniform(-1, 1, size=(1000, 3))
    best = np.where((others[:, 0] > 0) == (others[:, 1] > 0), 4.0, 2.0)
    return Known(np.column_stack([best + NOISE * rng.normal(size=1000), others]), best)


@pytest.fixture(scope="module")
def gaussian() -> Known:
    """Five labs driven by two factors, a tenth of the others missing; the optimum is the conditional mean."""
    rng = np.random.default_rng(3)
    loadings = np.array([[1.0, 0.6], [0.9, 0.0], [0.2, 1.0], [-0.8, 0.5], [0.0, -0.9]])
    covariance = loadings @ loadings.T + NOISE**2 * np.eye(5)
    table = rng.multivariate_normal(np.zeros(5), covariance, size=300)
    missing = rng.random((300, 4)) < 0.1
    return Known(table, conditional_mean(table, missing, covariance), missing)


def conditional_mean(table: Table, missing: BoolArray, covariance: Table) -> Table:
    best = np.zeros(len(table))
    for row in range(len(table)):
        seen = 1 + np.flatnonzero(~missing[row])
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen, 0])
        best[row] = table[row, seen] @ weights
    return best


def test_mice_recovers_a_linear_relation(linear: Known) -> None:
    assert linear.error(Mice()) < 1.05 * linear.error_of_best


def test_neighbours_recover_clusters_that_no_line_separates(clusters: Known) -> None:
    assert clusters.error(NearestNeighbours()) < 1.15 * clusters.error_of_best
    assert clusters.error(Mice()) > 0.9 * clusters.error_of_mean


def test_grape_recovers_clusters(clusters: Known) -> None:
    quick = Grape(settings=GrapeSettings(learning_rate=2e-3, epochs=800))
    assert clusters.error(quick) < 1.5 * clusters.error_of_best < 0.5 * clusters.error_of_mean


def test_missforest_recovers_a_step(step: Known) -> None:
    assert step.error(MissForest()) < 1.6 * step.error_of_best
    assert step.error(Mice()) > 0.9 * step.error_of_mean


SMALL_DIFFUSION = DiffPuterSettings(width=64, learning_rate=3e-3, epochs=400, rounds=2, steps=30, redraws=4, trials=10)
GENERATIVE: dict[str, tuple[Callable[[], Imputer], float]] = {  # and how far from the optimum it may stay
    "miwae": (lambda: Miwae(effort=0.1), 1.2),
    "remasker": (lambda: ReMasker(effort=0.1), 1.9),
    "tdm": (lambda: Tdm(effort=0.07), 1.85),  # five seeds: 1.63 to 1.73; the mean stands at 2.57
    "diffputer": (lambda: DiffPuter(settings=SMALL_DIFFUSION), 1.4),
}


@pytest.mark.parametrize("name", GENERATIVE)
def test_a_joint_gaussian_is_learnt(name: str, gaussian: Known) -> None:
    make, slack = GENERATIVE[name]
    assert gaussian.error_of_best < 0.45 * gaussian.error_of_mean
    assert gaussian.error(make()) < slack * gaussian.error_of_best


@pytest.mark.full
def test_tdm_comes_near_the_optimum_with_more_iterations(gaussian: Known) -> None:
    assert gaussian.error(Tdm(effort=0.3)) < 1.3 * gaussian.error_of_best


@pytest.mark.full
def test_remasker_comes_near_the_optimum_with_more_epochs(gaussian: Known) -> None:
    assert gaussian.error(ReMasker(effort=0.5)) < 1.35 * gaussian.error_of_best


def test_the_table_leaves_out_what_cannot_teach(linear: Known) -> None:
    labs = np.column_stack([linear.task.visits.labs, np.full(400, 7.0), np.full(400, np.nan)])
    labs = np.column_stack([labs, np.where(linear.hidden, 3.0, np.nan)])  # seen at untrained visits only
    task = Task(as_visits(labs), linear.task.validation_target)
    table = read_table(task.visits, fit_units(task))
    assert table.shape == (400, 4)
    np.testing.assert_array_equal(np.isnan(table[:, TARGET]), linear.hidden)
    np.testing.assert_allclose(np.nanmean(table[~linear.hidden], axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(table[~linear.hidden], axis=0), 1)


def test_with_no_other_column_the_answer_is_the_mean(linear: Known) -> None:
    task = Task(as_visits(linear.task.visits.labs[:, :1]), linear.task.validation_target)
    for imputer in (NearestNeighbours(), Mice(), MissForest(), Grape(), Tdm(), Miwae(), ReMasker(), DiffPuter()):
        value = imputer.fit(task, np.random.default_rng(0)).impute(task).value
        np.testing.assert_allclose(value, np.nanmean(task.visits.target_values))


TINY_DIFFUSION = DiffPuterSettings(width=16).at(1e-3)
INDUCTIVE: dict[str, Callable[[], Imputer]] = {
    "knn": NearestNeighbours,
    "mice": Mice,
    "miwae": lambda: Miwae(effort=1e-3),
    "remasker": lambda: ReMasker(effort=1e-3),
    "diffputer": lambda: DiffPuter(settings=TINY_DIFFUSION),
}


@pytest.mark.parametrize("name", INDUCTIVE)
def test_a_visit_is_imputed_alike_whether_or_not_its_target_is_visible(name: str, clusters: Known) -> None:
    task = clusters.task
    fitted = INDUCTIVE[name]().fit(task, np.random.default_rng(0))
    blind = Task(task.visits.with_target(np.full(len(task.visits), np.nan)), task.validation_target)
    np.testing.assert_array_equal(fitted.impute(task).value, fitted.impute(blind).value)


@pytest.mark.full
def test_missforest_agrees_with_its_package(gaussian: Known) -> None:
    """The same forests in the package named MissForest: values that go together, and errors of one size."""
    package = pytest.importorskip("missforest")
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(100, max_features="sqrt", min_samples_split=6, random_state=0, n_jobs=1)
    table = pd.DataFrame(gaussian.task.visits.labs, columns=[f"lab{at}" for at in range(5)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = package.MissForest(rgr=forest, initial_guess="mean", max_iter=10, verbose=0)
        theirs = reference.fit_transform(table)["lab0"].to_numpy()
    ours = MissForest().fit(gaussian.task, np.random.default_rng(1)).impute(gaussian.task).value
    hidden = gaussian.hidden
    assert np.corrcoef(ours[hidden], theirs[hidden])[0, 1] > 0.97
    assert gaussian.rmse(ours) == pytest.approx(gaussian.rmse(theirs), rel=0.1)


def test_missforest_is_as_unsure_of_visible_targets_as_of_hidden_ones(step: Known) -> None:
    error = MissForest().fit(step.task, np.random.default_rng(1)).impute(step.task).value - step.truth
    seen, hidden = (np.sqrt(np.mean(error[rows] ** 2)) for rows in (~step.hidden, step.hidden))
    assert 0.8 * hidden < seen < 1.25 * hidden


def test_a_completed_table_says_nothing_about_other_visits(step: Known) -> None:
    fitted, half = MissForest().fit(step.task, np.random.default_rng(0)), np.arange(1000) < 500
    with pytest.raises(ValueError, match="only the visits it was fitted on"):
        fitted.impute(Task(step.task.visits.take(half), step.task.validation_target[half]))


@pytest.mark.parametrize("side", [0, 1])
def test_grape_messages_are_means_over_kept_edges_and_so_is_their_gradient(side: int) -> None:
    source = torch.Generator().manual_seed(0)
    by_edge = torch.randn(5, 4, 3, generator=source, dtype=torch.float64, requires_grad=True)
    shape = (5, 1, 3) if side == 0 else (1, 4, 3)
    by_node = torch.randn(shape, generator=source, dtype=torch.float64, requires_grad=True)
    kept = (torch.rand(5, 4, generator=source) < 0.6).double()
    kept[2], kept[:, 1] = 0, 0  # a visit and a column without any edge
    total = (torch.relu(by_edge + by_node) * kept.unsqueeze(2)).sum(dim=side)
    plain = total / kept.sum(dim=side).clamp_min(1).unsqueeze(1)
    message = mean_message(by_edge, by_node, kept, side)
    torch.testing.assert_close(message, plain)
    direction = torch.randn(plain.shape, generator=source, dtype=torch.float64)
    expected = torch.autograd.grad(plain, (by_edge, by_node), direction)
    torch.testing.assert_close(torch.autograd.grad(message, (by_edge, by_node), direction), expected)


def test_transport_partners_are_the_cheapest_assignment() -> None:
    source = torch.Generator().manual_seed(0)
    one, other = (torch.randn(40, 3, generator=source) for _ in range(2))
    distance = torch.cdist(one, other).numpy()
    rows, columns = linear_sum_assignment(distance)
    partner = _transport_partners(one, other).numpy()
    assert sorted(partner) == list(range(40))
    np.testing.assert_allclose(distance[np.arange(40), partner].sum(), distance[rows, columns].sum(), rtol=1e-5)


def test_students_density_is_scipys() -> None:
    x, location, scale, freedom = (torch.tensor(each) for each in (1.3, 0.4, 0.7, 4.5))
    expected = t.logpdf(1.3, 4.5, 0.4, 0.7)
    assert float(_student_log_density(x, location, scale, freedom)) == pytest.approx(expected, rel=1e-5)


def test_remasker_shows_half_of_what_is_visible_and_nothing_else() -> None:
    source = torch.Generator().manual_seed(0)
    seen = torch.rand(200, 9, generator=source) < 0.6
    order, kept = _mask_again(seen, 0.5, source)
    shown = torch.zeros_like(seen).scatter(1, order, kept)
    assert not (shown & ~seen).any()
    torch.testing.assert_close(shown.sum(dim=1), (seen.sum(dim=1) + 1) // 2)


def test_remasker_reads_no_value_it_is_not_shown() -> None:
    source = torch.Generator().manual_seed(0)
    network = MaskedAutoencoder(6, ReMaskerSettings())
    values, seen = torch.rand(8, 6, generator=source), torch.rand(8, 6, generator=source) < 0.5
    order = torch.arange(6).expand(8, -1)
    other = torch.where(seen, values, torch.rand(8, 6, generator=source))
    torch.testing.assert_close(network(values, order, seen), network(other, order, seen), rtol=0, atol=0)
    assert not torch.equal(network(values, order, seen), network(1 - values, order, seen))


def test_diffusion_levels_fall_from_highest_to_lowest() -> None:
    levels = _noise_levels(50, torch.device("cpu"))
    assert levels[0] == pytest.approx(80.0, rel=1e-5)
    assert levels[-1] == pytest.approx(0.002, rel=1e-4)
    assert (levels[1:] < levels[:-1]).all()


def test_a_conditional_draw_keeps_what_is_visible() -> None:
    settings = DiffPuterSettings(width=16).at(0.01)
    source = torch.Generator().manual_seed(0)
    values, seen = torch.randn(20, 3, generator=source), torch.rand(20, 3, generator=source) < 0.5
    redrawn = _redrawn(Denoiser(3, 16), values, seen, settings, source)
    torch.testing.assert_close(redrawn[seen], values[seen], rtol=0, atol=0)
    assert (redrawn[~seen] != values[~seen]).all()


@pytest.mark.parametrize("make", [Miwae, ReMasker, Tdm, Grape])
def test_training_leaves_torchs_own_random_state_alone(make: Callable[[float], Imputer], gaussian: Known) -> None:
    before = torch.get_rng_state()
    make(1e-4).fit(gaussian.task, np.random.default_rng(0))
    assert torch.equal(before, torch.get_rng_state())
