"""A relation as a sparse operator: D^-1/2 (A + I) D^-1/2 over compressed rows, cheap to renormalise when thinned.

The operator is symmetric, so it is its own transpose: the backward pass is the same product as the forward
one, and no transpose has to be built. The sparsity pattern is fixed: thinning a relation sets weights to zero and
normalises the rest anew, entry by entry, which costs far less than a pass through the network.
"""

import warnings
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from torch import Tensor

from safeimpute.records.arrays import BoolArray
from safeimpute.systems.paper.edges import Edges


class Adjacency:
    """Fixed sparsity pattern (edges both ways and self-loops); which edges are kept may change."""

    def __init__(self, edges: Edges, visits: int, device: str = "cpu") -> None:
        loops, ids = np.arange(visits), np.arange(len(edges))
        row = np.concatenate([edges.first, edges.second, loops])
        column = np.concatenate([edges.second, edges.first, loops])
        edge = np.concatenate(
            [ids, ids, np.full(visits, len(edges))]
        )  # the last id stands for every self-loop
        pattern = coo_matrix((edge, (row, column)), shape=(visits, visits)).tocsr()
        pattern.sort_indices()
        self.visits = visits
        self._starts = torch.from_numpy(pattern.indptr.astype(np.int32)).to(device)
        self._columns = torch.from_numpy(pattern.indices.astype(np.int32)).to(device)
        self._rows = torch.repeat_interleave(torch.diff(self._starts))
        self._edge = torch.from_numpy(pattern.data).to(device)
        self._ones = torch.ones(visits, 1, device=device)

    def relation(self, kept: BoolArray | None = None) -> Tensor:
        """The normalised matrix over the kept edges (all by default); degrees count kept edges only. Equation 16."""
        if kept is None:
            weight = torch.ones(len(self._edge), device=self._edge.device)
        else:
            keep = torch.from_numpy(np.append(kept, True)).to(self._edge.device).float()
            weight = torch.index_select(keep, 0, self._edge)
        degree = (self._matrix(weight) @ self._ones).squeeze(1)
        scale = degree.rsqrt()  # a self-loop makes every degree at least 1
        weight *= torch.index_select(scale, 0, self._rows)
        weight *= torch.index_select(scale, 0, self._columns)
        return self._matrix(weight)

    def _matrix(self, weight: Tensor) -> Tensor:
        size = (self.visits, self.visits)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(self._starts, self._columns, weight, size, check_invariants=False)


class _SymmetricProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradients[0].contiguous()


def propagate(relation: Tensor, states: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 H, differentiable in H."""
    summed: Tensor = _SymmetricProduct.apply(relation, states)  # type: ignore[no-untyped-call]
    return summed
