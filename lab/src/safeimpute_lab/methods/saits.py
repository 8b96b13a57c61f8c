"""SAITS (Du, Côté & Liu, Expert Systems with Applications 2023): two diagonally masked self-attention blocks.

The first block fills the gaps, the second reads the filled record, and a learnt weight, which knows the second
block's attention and what was measured, combines both. Learnt from values hidden at random (masked imputation)
and from reconstructing what was shown.
"""

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.roles import Task
from safeimpute_lab.methods.sequences import (
    WINDOW,
    Batch,
    FittedSequences,
    SequenceNetwork,
    Shape,
    Training,
    fit_sequences,
    hidden_at_random,
    mean_absolute,
)
from safeimpute_lab.methods.transformer import EncoderLayer, time_code, visible_visits

# Du et al. 2023, SAITS-base: 2 groups of 1 layer per block, width 256, 4 heads of 64, feed-forward 128, dropout 0.1,
# Adam 1e-3, patience 30; a fifth of the values is hidden; both losses weigh 1. Batches of 32 as for the transformer.
LAYERS, WIDTH, HEADS, HEAD_WIDTH, INNER, DROPOUT = 2, 256, 4, 64, 128, 0.1
HIDDEN_SHARE = 0.2
TRAINING = Training(batch=32, learning_rate=1e-3, epochs=10_000)


class MaskedBlock(nn.Module):
    """Encoder layers in which no visit attends to itself."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.embed = nn.Linear(2 * columns, WIDTH)
        self.layers = nn.ModuleList(
            EncoderLayer(WIDTH, HEADS, HEAD_WIDTH, HEAD_WIDTH, INNER, DROPOUT) for _ in range(LAYERS)
        )

    def forward(self, values: Tensor, batch: Batch, dropout: nn.Module) -> tuple[Tensor, Tensor]:
        visits = values.shape[1]
        itself = torch.eye(visits, dtype=torch.bool, device=values.device)
        states = self.embed(torch.cat([values, batch.seen.float()], dim=2))
        states = dropout(states + time_code(batch.time, WIDTH))
        weight = states.new_zeros(len(states), visits, visits)
        for layer in self.layers:
            states, weight = layer(states, visible_visits(batch) & ~itself)
        return states, weight


class SaitsNetwork(SequenceNetwork):
    """X1 from block one; X2 from block two on X1; X3 = (1 - eta) X1 + eta X2, eta = sigmoid(W [attention, seen])."""

    hears_own_target = True

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        columns = shape.columns
        self.first, self.second = MaskedBlock(columns), MaskedBlock(columns)
        self.read_first = nn.Linear(WIDTH, columns)
        self.read_second = nn.Sequential(nn.Linear(WIDTH, columns), nn.ReLU(), nn.Linear(columns, columns))
        self.combine = nn.Linear(WINDOW + columns, columns)
        self.dropout, self.no_dropout = nn.Dropout(DROPOUT), nn.Identity()

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        states, _ = self.first(batch.values, batch, self.dropout)
        one = self.read_first(states)
        filled = torch.where(batch.seen, batch.values, one)
        states, weight = self.second(filled, batch, self.no_dropout)
        two = self.read_second(states)
        attention = nn.functional.pad(weight, (0, WINDOW - weight.shape[2]))
        eta = torch.sigmoid(self.combine(torch.cat([attention, batch.seen.float()], dim=2)))
        return one, two, torch.lerp(one, two, eta)

    def predict(self, batch: Batch) -> Tensor:
        return self(batch)[2][:, :, self.shape.target]  # type: ignore[no-any-return]

    def loss(self, batch: Batch) -> Tensor:
        labs = self.shape.labs
        hidden = hidden_at_random(batch, labs, HIDDEN_SHARE)
        part = batch.hiding(hidden)
        errors = [each[:, :, :labs] - batch.values[:, :, :labs] for each in self(part)]
        shown = torch.stack([mean_absolute(each, part.seen[:, :, :labs]) for each in errors]).mean()
        return mean_absolute(errors[2], hidden[:, :, :labs]) + shown


class Saits:
    """Stopped early on the validation error."""

    def __init__(self, effort: float = 1.0) -> None:
        self.training = TRAINING.scaled(effort)

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedSequences:
        return fit_sequences(task, SaitsNetwork, self.training, rng, device)
