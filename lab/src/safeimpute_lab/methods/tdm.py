"""TDM (Zhao et al., ICML 2023): missing values moved until random halves of the table look alike after a learnt map.

An invertible network maps the table, the distance between two random batches is their exact optimal transport
cost there, and both the missing values and the network follow its gradient.
"""

import math
from dataclasses import dataclass

import numpy as np
import ot
import torch
from torch import Tensor, nn

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.neural import as_array, draw_seed, generator, seeded_weights, values_and_mask
from safeimpute_lab.methods.rounds import scaled
from safeimpute_lab.methods.table import TARGET, FittedOnTable, fit_on_table, only_for


@dataclass(frozen=True)
class TdmSettings:
    """As published."""

    blocks: int = 3
    width_per_column: int = 2
    learning_rate: float = 1e-2
    iterations: int = 10_000
    batch: int = 512
    noise: float = 0.1  # around the column mean, where missing values start
    largest_log_scale: float = 2.0


class Coupling(nn.Module):
    """RealNVP: each half scaled and shifted by a function of the other, one after the other; invertible."""

    def __init__(self, columns: int, settings: TdmSettings) -> None:
        super().__init__()
        self.first = columns // 2
        self.limit = settings.largest_log_scale
        sizes, width = (self.first, columns - self.first), settings.width_per_column * columns
        self.for_first = _subnetwork(sizes[1], width, 2 * sizes[0])
        self.for_second = _subnetwork(sizes[0], width, 2 * sizes[1])

    def forward(self, table: Tensor) -> Tensor:
        first, second = table[:, : self.first], table[:, self.first :]
        first = self._moved(first, self.for_first(second))
        second = self._moved(second, self.for_second(first))
        return torch.cat([first, second], dim=1)

    def _moved(self, half: Tensor, scale_and_shift: Tensor) -> Tensor:
        scale, shift = scale_and_shift.chunk(2, dim=1)
        log_scale = self.limit * (2 / math.pi) * torch.atan(scale / self.limit)
        return half * log_scale.exp() + shift


def _subnetwork(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.SELU(), nn.Linear(width, width), nn.SELU(), nn.Linear(width, outputs)
    )


class Tdm:
    """Completes one table; there is nothing to take to another, and visible targets stand as they are."""

    def __init__(self, effort: float = 1.0, settings: TdmSettings | None = None) -> None:
        self.effort, self.settings = effort, settings or TdmSettings()

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        seed = draw_seed(rng)
        return fit_on_table(task, lambda table: only_for(table, self._completed(table, seed, device)))

    def _completed(self, table: FloatArray, seed: int, device: str) -> FloatArray:
        """The target column after matching."""
        settings = self.settings
        with seeded_weights(seed):
            blocks = [Coupling(table.shape[1], settings) for _ in range(settings.blocks)]
            network = nn.Sequential(*blocks).to(device)
        source = generator(seed, device)
        values, seen = values_and_mask(table, device)
        column_mean = values.sum(dim=0) / seen.sum(dim=0)
        guess = column_mean + settings.noise * torch.randn(values.shape, generator=source, device=device)
        guess.requires_grad_()
        _match(network, values, seen.bool(), guess, scaled(settings.iterations, self.effort), settings, source)
        filled = torch.where(seen.bool(), values, guess)[:, TARGET]
        return as_array(filled)


def _match(
    network: nn.Module,
    values: Tensor,
    seen: Tensor,
    guess: Tensor,
    iterations: int,
    settings: TdmSettings,
    source: torch.Generator,
) -> None:
    """Move the guesses (in place) and the network down the transport cost between random batches."""
    rows = len(values)
    batch = _batch_size(rows, settings.batch)
    optimisers = [
        torch.optim.RMSprop(parameters, lr=settings.learning_rate)
        for parameters in ([guess], list(network.parameters()))
    ]
    for _ in range(iterations):
        sides = [torch.randperm(rows, generator=source, device=source.device)[:batch] for _ in range(2)]
        one, other = (network(torch.where(seen[side], values[side], guess[side])) for side in sides)
        partner = _transport_partners(one.detach(), other.detach())
        loss = torch.linalg.vector_norm(one - other[partner], dim=1).mean()
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()


def _batch_size(rows: int, wanted: int) -> int:
    """The published rule for small tables: the largest power of two that fits into half of it."""
    return wanted if wanted <= rows // 2 else 2 ** int(math.log2(max(rows // 2, 1)))


def _transport_partners(one: Tensor, other: Tensor) -> Tensor:
    """For equal weights the exact plan is a permutation: the partner of every row."""
    distance = torch.cdist(one.double(), other.double()).cpu().numpy()
    plan = ot.emd([], [], distance)
    return torch.from_numpy(plan.argmax(axis=1)).to(one.device)
