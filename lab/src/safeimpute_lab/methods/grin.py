"""GRIN (Cini et al., ICLR 2022): a recurrent graph network over the columns, run from both ends of the record.

Each column is a node with a state of its own. At a visit a column is first read off its state, then once more from the
states and values of the other columns (messages never come from the column itself), and only then does the visit
enter the states through graph-convolutional gates. What both directions say is combined.
"""

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.roles import Task
from safeimpute_lab.methods.sequences import (
    Batch,
    FittedSequences,
    SequenceNetwork,
    Shape,
    Training,
    fit_sequences,
    hidden_at_random,
    mean_absolute,
)

# Cini et al. 2022 and their code: 64 units, batch 32, Adam 1e-3, 300 epochs, 5 % of inputs hidden in training. Ours: no
# distances between labs are known, so all columns are joined and the weights learnt; gaps between visits are inputs.
WIDTH = 64
HIDDEN_SHARE = 0.05
TRAINING = Training(batch=32, learning_rate=1e-3, epochs=300)


class Mixing(nn.Module):
    """H' = H W_own + A H W_others, A the learnt weights between columns, rows summing to one, nothing to itself."""

    itself: Tensor

    def __init__(self, columns: int, inputs: int, outputs: int, *, own: bool) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(columns, columns))
        self.others = nn.Linear(inputs, outputs)
        self.own = nn.Linear(inputs, outputs, bias=False) if own else None
        self.register_buffer("itself", torch.eye(columns, dtype=torch.bool))

    def forward(self, states: Tensor) -> Tensor:
        """Windows x columns x inputs."""
        if len(self.itself) == 1:  # a column without others hears nothing
            heard = torch.zeros_like(states)
        else:
            heard = self.strength.masked_fill(self.itself, -torch.inf).softmax(dim=1) @ states
        mixed: Tensor = self.others(heard)
        return mixed if self.own is None else mixed + self.own(states)


class Direction(nn.Module):
    """One pass along the visits."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 1)
        self.spread = Mixing(columns, WIDTH + 2, WIDTH, own=False)
        self.second = nn.Linear(2 * WIDTH, 1)
        self.gates = Mixing(columns, WIDTH + 3, 2 * WIDTH, own=True)
        self.candidate = Mixing(columns, WIDTH + 3, WIDTH, own=True)
        self.start = nn.Parameter(torch.zeros(columns, WIDTH))
        self.bend = nn.PReLU()

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """First and second estimate of every column, and what the combination of directions reads."""
        state = self.start.expand(len(batch.values), -1, -1)
        gap = torch.log1p(batch.gap)
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        for visit in range(batch.values.shape[1]):
            value, seen = batch.values[:, visit], batch.seen[:, visit]
            first = self.first(state).squeeze(2)
            known = torch.stack([torch.where(seen, value, first), seen.float()], dim=2)
            message = self.bend(self.spread(torch.cat([known, state], dim=2)))
            both = torch.cat([message, state], dim=2)
            second = self.second(both).squeeze(2)
            waited = gap[:, visit, None, None].expand(-1, value.shape[1], 1)
            told = torch.stack([torch.where(seen, value, second), seen.float()], dim=2)
            state = self._step(torch.cat([told, waited], dim=2), state)
            kept.append((first, second, both))
        firsts, seconds, shown = (torch.stack(each, dim=1) for each in zip(*kept, strict=True))
        return firsts, seconds, shown

    def _step(self, told: Tensor, state: Tensor) -> Tensor:
        """A gated recurrent unit whose products are mixtures over columns."""
        reset, keep = torch.sigmoid(self.gates(torch.cat([told, state], dim=2))).chunk(2, dim=2)
        new = torch.tanh(self.candidate(torch.cat([told, reset * state], dim=2)))
        return keep * state + (1 - keep) * new


class GrinNetwork(SequenceNetwork):
    """Two directions and the network that combines them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.forwards, self.backwards = Direction(shape.columns), Direction(shape.columns)
        self.combine = nn.Sequential(nn.Linear(4 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def predict(self, batch: Batch) -> Tensor:
        return self._estimates(batch)[0][:, :, self.shape.target]

    def _estimates(self, batch: Batch) -> list[Tensor]:
        """The combined estimate of every column, then those of each direction."""
        ahead = self.forwards(batch)
        back = self.backwards(batch.backwards())
        mirrored = [batch.mirror(each.flatten(2)).view_as(each) for each in back]
        combined = self.combine(torch.cat([ahead[2], mirrored[2]], dim=3)).squeeze(3)
        return [combined, *ahead[:2], *mirrored[:2]]

    def loss(self, batch: Batch) -> Tensor:
        labs = slice(0, self.shape.labs)
        part = batch.hiding(hidden_at_random(batch, self.shape.labs, HIDDEN_SHARE))
        truth, asked = batch.values[:, :, labs], batch.seen[:, :, labs]
        errors = [mean_absolute(each[:, :, labs] - truth, asked) for each in self._estimates(part)]
        return torch.stack(errors).sum()


class Grin:
    """Stopped early on the validation error."""

    def __init__(self, effort: float = 1.0) -> None:
        self.training = TRAINING.scaled(effort)

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedSequences:
        return fit_sequences(task, GrinNetwork, self.training, rng, device)
