from dataclasses import replace

import numpy as np
import pytest
import torch

from safeimpute.learning.paper.gcn import FittedGcn, GatedLayer, GcnImputer, NodeInputs
from safeimpute.learning.paper.graph import build_graph
from safeimpute.learning.paper.system import evidence_penalty, proxy_risk
from safeimpute.learning.roles import Role, Task, hide, split_visits
from safeimpute.settings import GcnSettings, GraphSettings
from safeimpute.visits.arrays import VisitArrays

QUICK = GcnSettings(epochs=60)


def make_task(arrays: VisitArrays, seed: int = 0) -> tuple[Task, np.ndarray]:
    roles = split_visits(~np.isnan(arrays.target_values), np.random.default_rng(seed), test_fraction=0.2)
    return hide(arrays, roles), roles


@pytest.fixture(scope="module")
def fitted(cohort_arrays: VisitArrays) -> tuple[FittedGcn, Task, np.ndarray]:
    task, roles = make_task(cohort_arrays)
    return GcnImputer(GcnSettings(epochs=200)).fit(task, np.random.default_rng(1)), task, roles


def test_learns_more_than_the_mean(fitted: tuple[FittedGcn, Task, np.ndarray], cohort_arrays: VisitArrays) -> None:
    model, task, roles = fitted
    test = roles == Role.TEST
    truth = cohort_arrays.target_values[test]
    ours = np.abs(model.impute(task).value[test] - truth).mean()
    plain = np.abs(task.visits.target_values[task.training].mean() - truth).mean()
    assert ours < 0.85 * plain


def test_same_seed_same_bytes(cohort_arrays: VisitArrays) -> None:
    task, _ = make_task(cohort_arrays)
    one, other = (GcnImputer(QUICK).fit(task, np.random.default_rng(4)).impute(task) for _ in range(2))
    assert one.value.tobytes() == other.value.tobytes()
    assert one.signals["instability"].tobytes() == other.signals["instability"].tobytes()


def test_a_visits_value_depends_on_its_neighbours_targets(cohort_arrays: VisitArrays) -> None:
    """Masked-target training only pays if visible targets of neighbours reach the prediction."""
    task, _ = make_task(cohort_arrays)
    model = GcnImputer(GcnSettings(epochs=150)).fit(task, np.random.default_rng(2))
    shown = model.predict_z(model.nodes.relations)
    model.nodes.observed[:, model.graph.target] = False
    hidden = model.predict_z(model.nodes.relations)
    untrained = ~task.training
    assert np.corrcoef(shown[untrained], hidden[untrained])[0, 1] < 0.98


def test_gate_mixes_the_two_messages_per_visit() -> None:
    layer = GatedLayer(3, 4, gate=True)
    from safeimpute.learning.paper.graph import NO_EDGES, Adjacency

    relation = Adjacency(NO_EDGES, 6).relation()
    states = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    by_time = torch.relu(layer.temporal(states))
    by_value = torch.relu(layer.value(states))
    assert layer.gate is not None
    share = torch.sigmoid((by_time + by_value) @ layer.gate.weight.T)
    expected = share * by_time + (1 - share) * by_value
    torch.testing.assert_close(layer(states, (relation, relation)), expected)
    assert share.std() > 0


def test_both_orders_of_the_product_agree(cohort_arrays: VisitArrays) -> None:
    task, _ = make_task(cohort_arrays)
    nodes = NodeInputs(build_graph(task, GraphSettings(), np.random.default_rng(0)), "cpu")
    layer = GatedLayer(nodes.columns, 16, gate=True)
    narrow_first = layer(nodes.inputs(), nodes.relations)
    layer.narrow = not layer.narrow
    torch.testing.assert_close(layer(nodes.inputs(), nodes.relations), narrow_first, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("switch", [{"gate": False}, {"reconstruction_weight": 0.0}, {"layers": 1}])
def test_ablated_networks_train(cohort_arrays: VisitArrays, switch: dict[str, object]) -> None:
    task, _ = make_task(cohort_arrays)
    model = GcnImputer(replace(QUICK, **switch)).fit(task, np.random.default_rng(0))  # type: ignore[arg-type]
    assert np.isfinite(model.impute(task).value).all()
    assert model.history[-1] < model.history[0] or len(model.history) < 3


def test_instability_is_the_spread_over_the_same_draws(fitted: tuple[FittedGcn, Task, np.ndarray]) -> None:
    from safeimpute.learning.paper.graph import draw_kept, keep_probability

    model, _, _ = fitted
    keep_time, keep_value = (
        keep_probability(edges, model.perturbation).astype(np.float32)
        for edges in (model.graph.temporal, model.graph.value)
    )
    rng = np.random.default_rng(model.perturbation_seed)
    draws = []
    for _ in range(model.perturbation.passes):
        by_time = model.nodes.temporal.relation(draw_kept(keep_time, rng))
        by_value = model.nodes.value.relation(draw_kept(keep_value, rng))
        draws.append(model.predict_z((by_time, by_value)))
    np.testing.assert_allclose(model.instability(), np.std(draws, axis=0), atol=1e-7)


def test_proxy_risk_adds_the_evidence_penalty(fitted: tuple[FittedGcn, Task, np.ndarray]) -> None:
    model, task, _ = fitted
    imputation = model.impute(task)
    degrees = imputation.signals["temporal_degree"], imputation.signals["value_degree"]
    np.testing.assert_allclose(evidence_penalty(np.array([0.0, 3.0]), np.array([0.0, 15.0])), [2.0, 0.75])
    np.testing.assert_allclose(
        proxy_risk(imputation, beta=0.3), imputation.signals["instability"] + 0.3 * evidence_penalty(*degrees)
    )
    np.testing.assert_array_equal(proxy_risk(imputation, beta=0.0), imputation.signals["instability"])
