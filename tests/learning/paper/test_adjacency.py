import numpy as np
import pytest
import torch

from safeimpute.learning.paper.graph import NO_EDGES, Adjacency, Edges, propagate


def random_edges(visits: int, count: int, seed: int) -> Edges:
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(visits, 1)
    chosen = np.sort(rng.choice(len(first), count, replace=False))
    return Edges(first[chosen], second[chosen], rng.random(count))


def dense_operator(edges: Edges, visits: int, kept: np.ndarray) -> np.ndarray:
    matrix = np.eye(visits)
    matrix[edges.first[kept], edges.second[kept]] = 1
    matrix[edges.second[kept], edges.first[kept]] = 1
    scale = 1 / np.sqrt(matrix.sum(axis=1))
    return np.asarray(scale[:, None] * matrix * scale)


@pytest.mark.parametrize("drop", [0.0, 0.4, 1.0])
def test_propagation_equals_the_dense_formula_also_when_thinned(drop: float) -> None:
    edges = random_edges(30, 80, 0)
    kept = np.random.default_rng(1).random(80) >= drop
    states = torch.randn(30, 7, generator=torch.Generator().manual_seed(2))
    result = propagate(Adjacency(edges, 30).relation(kept if drop else None), states)
    np.testing.assert_allclose(result, dense_operator(edges, 30, kept) @ states.numpy(), atol=1e-5)


def test_gradient_equals_the_transposed_product() -> None:
    edges = random_edges(20, 50, 3)
    relation = Adjacency(edges, 20).relation()
    states = torch.randn(20, 4, requires_grad=True, generator=torch.Generator().manual_seed(4))
    weights = torch.randn(20, 4, generator=torch.Generator().manual_seed(5))
    (gradient,) = torch.autograd.grad((propagate(relation, states) * weights).sum(), states)
    expected = dense_operator(edges, 20, np.ones(50, bool)).T @ weights.numpy()
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_agrees_with_pyg_gcn_convolution() -> None:
    from torch_geometric.nn import GCNConv

    edges = random_edges(40, 100, 6)
    convolution = GCNConv(5, 8)
    states = torch.randn(40, 5, generator=torch.Generator().manual_seed(7))
    index = torch.from_numpy(np.stack([np.r_[edges.first, edges.second], np.r_[edges.second, edges.first]]))
    expected = convolution(states, index)
    weight, bias = convolution.lin.weight, convolution.bias
    ours = propagate(Adjacency(edges, 40).relation(), states @ weight.T) + bias
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_without_edges_a_visit_keeps_its_own_state() -> None:
    states = torch.randn(5, 3)
    torch.testing.assert_close(propagate(Adjacency(NO_EDGES, 5).relation(), states), states)
