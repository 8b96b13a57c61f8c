"""BRITS (Cao et al., NeurIPS 2018): recurrent imputation from both ends of the record, made to agree.

Each direction estimates a visit's columns from its faded state, from the other columns of the visit, and from a
mixture of the two; none of the estimates is reached by the column's own value. A share of the visible values is
hidden in training, so that the mixture is also learnt where a value is missing.
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
    since_seen,
)

# Cao et al. 2018 and their code: 108 hidden units, Adam 1e-3, batch 32, 1,000 epochs, consistency weight 0.1.
WIDTH = 108
CONSISTENCY = 0.1
HIDDEN_SHARE = 0.1  # ours
TRAINING = Training(batch=32, learning_rate=1e-3, epochs=1_000)


class Rits(nn.Module):
    """One direction. h fades by gamma_h; x_h = W h; z = regression on the other columns; c = a z + (1 - a) x_h."""

    others: Tensor  # 1 off the diagonal: no column is regressed on itself

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.state_rate = nn.Linear(columns, WIDTH)
        self.column_rate = nn.Parameter(torch.empty(columns).uniform_(0, 0.1))
        self.column_shift = nn.Parameter(torch.zeros(columns))
        self.from_state = nn.Linear(WIDTH, columns)
        self.from_others = nn.Linear(columns, columns)
        self.mixture = nn.Linear(2 * columns, columns)
        self.cell = nn.LSTMCell(2 * columns, WIDTH)
        self.register_buffer("others", 1 - torch.eye(columns))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The three estimates of every column at every visit: from the state, from the others, mixed."""
        delta, seen = since_seen(batch), batch.seen.float()
        fading = torch.exp(-torch.relu(self.state_rate(delta)))
        freshness = torch.exp(-torch.relu(self.column_rate * delta + self.column_shift))
        share = torch.sigmoid(self.mixture(torch.cat([freshness, seen], dim=2)))
        regression = self.from_others.weight * self.others
        state = cell = delta.new_zeros(len(delta), WIDTH)
        estimates = []
        for visit in range(delta.shape[1]):
            state = state * fading[:, visit]
            value, there = batch.values[:, visit], batch.seen[:, visit]
            by_state = self.from_state(state)
            filled = torch.where(there, value, by_state)
            by_others = nn.functional.linear(filled, regression, self.from_others.bias)
            mixed = torch.lerp(by_state, by_others, share[:, visit])
            estimates.append(torch.stack([by_state, by_others, mixed]))
            inputs = torch.cat([torch.where(there, value, mixed), seen[:, visit]], dim=1)
            state, cell = self.cell(inputs, (state, cell))
        by_state, by_others, mixed = torch.stack(estimates, dim=2).unbind(0)
        return by_state, by_others, mixed


class BritsNetwork(SequenceNetwork):
    """Two directions whose mixed estimates are averaged, and penalised where they differ."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.forwards, self.backwards = Rits(shape.columns), Rits(shape.columns)

    def predict(self, batch: Batch) -> Tensor:
        target = self.shape.target
        ahead: Tensor = self.forwards(batch)[2]
        back = batch.mirror(self.backwards(batch.backwards())[2])
        return (ahead + back)[:, :, target] / 2

    def loss(self, batch: Batch) -> Tensor:
        labs = slice(0, self.shape.labs)
        part = batch.hiding(hidden_at_random(batch, self.shape.labs, HIDDEN_SHARE))
        ahead = self.forwards(part)
        back = tuple(batch.mirror(each) for each in self.backwards(part.backwards()))
        truth, asked = batch.values[:, :, labs], batch.seen[:, :, labs]
        errors = [mean_absolute(each[:, :, labs] - truth, asked) for each in (*ahead, *back)]
        there = batch.there.unsqueeze(2).expand_as(truth)
        apart = mean_absolute((ahead[2] - back[2])[:, :, labs], there)
        return torch.stack(errors).sum() + CONSISTENCY * apart


class Brits:
    """Stopped early on the validation error."""

    def __init__(self, effort: float = 1.0) -> None:
        self.training = TRAINING.scaled(effort)

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedSequences:
        return fit_sequences(task, BritsNetwork, self.training, rng, device)
