"""GRU-D (Che et al., Scientific Reports 2018): a gated recurrent unit with trainable decays over gaps.

A column not seen at a visit falls back from its last value to its mean, and the state fades, both at learnt
rates: gamma = exp(-max(0, W delta + b)). The published model classifies patients; here each visit's state is read
out as the visit's target. The state that is read has not seen that target, the state that is carried on has.
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
    last_seen,
    mean_absolute,
    since_seen,
)

# Che et al. 2018: 49 hidden units, stopped early on validation patients. Dropout and rate are ours.
WIDTH = 49
DROPOUT = 0.5
TRAINING = Training(batch=32, learning_rate=1e-3, epochs=1_000)


class GruDNetwork(SequenceNetwork):
    """x_t = seen_t value_t + (1 - seen_t) gamma_x last_t (the mean is 0); h_t = GRU([x_t, seen_t], gamma_h h_{t-1})."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.column_rate = nn.Parameter(torch.empty(shape.columns).uniform_(0, 0.1))
        self.column_shift = nn.Parameter(torch.zeros(shape.columns))
        self.state_rate = nn.Linear(shape.columns, WIDTH)
        self.cell = nn.GRUCell(2 * shape.columns, WIDTH)
        self.head = nn.Sequential(nn.Dropout(DROPOUT), nn.Linear(WIDTH, 1))

    def predict(self, batch: Batch) -> Tensor:
        delta, last = since_seen(batch), last_seen(batch)
        fallback = torch.exp(-torch.relu(self.column_rate * delta + self.column_shift)) * last
        fading = torch.exp(-torch.relu(self.state_rate(delta)))
        shown = _inputs(batch, fallback)
        asked = _inputs(batch.hiding_target(batch.there, self.shape.target), fallback)
        state = shown.new_zeros(len(shown), WIDTH)
        read = []
        for visit in range(shown.shape[1]):
            state = state * fading[:, visit]
            read.append(self.cell(asked[:, visit], state))
            state = self.cell(shown[:, visit], state)
        z: Tensor = self.head(torch.stack(read, dim=1))
        return z.squeeze(2)

    def loss(self, batch: Batch) -> Tensor:
        target = self.shape.target
        return mean_absolute(self.predict(batch) - batch.values[:, :, target], batch.seen[:, :, target])


def _inputs(batch: Batch, fallback: Tensor) -> Tensor:
    return torch.cat([torch.where(batch.seen, batch.values, fallback), batch.seen.float()], dim=2)


class GruD:
    """Stopped early on the validation error."""

    def __init__(self, effort: float = 1.0) -> None:
        self.training = TRAINING.scaled(effort)

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedSequences:
        return fit_sequences(task, GruDNetwork, self.training, rng, device)
