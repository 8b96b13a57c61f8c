"""TRANS: a transformer encoder over a patient's visits, learnt by imputing values hidden at random.

Visits carry a sinusoidal code of their real time. As in the SAITS paper's transformer, two errors are learnt from:
of values hidden for the purpose (masked imputation) and of values shown (reconstruction).
"""

import math

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

# Du et al., SAITS (2023), configuration PhysioNet2012_Transformer_best: 3 layers, width 256, 8 heads, keys 32,
# values 64, feed-forward 2,048, no dropout, Adam 6.7e-4, patience 30; a fifth of the values is hidden. Batches of
# 32 instead of 128: cohorts here have hundreds of patients, not thousands.
LAYERS, WIDTH, HEADS, KEY, VALUE, INNER = 3, 256, 8, 32, 64, 2_048
HIDDEN_SHARE = 0.2
TRAINING = Training(batch=32, learning_rate=6.7e-4, epochs=10_000)


class EncoderLayer(nn.Module):
    """Pre-norm self-attention and feed-forward; returns the new states and the attention, averaged over heads."""

    def __init__(self, width: int, heads: int, key: int, value: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.key = heads, key
        self.query_of = nn.Linear(width, heads * key, bias=False)
        self.key_of = nn.Linear(width, heads * key, bias=False)
        self.value_of = nn.Linear(width, heads * value, bias=False)
        self.merge = nn.Linear(heads * value, width, bias=False)
        self.before_attention, self.before_inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        """`allowed`: windows x visits x visits, whom a visit may look at; one who may look at nobody hears nothing."""
        normed = self.before_attention(states)
        query, key, value = (
            part(normed).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.query_of, self.key_of, self.value_of)
        )
        score = query @ key.transpose(2, 3) / math.sqrt(self.key)
        allowed = allowed.unsqueeze(1)
        weight = torch.softmax(score.masked_fill(~allowed, -1e9), dim=3) * allowed
        heard = self.merge((weight @ value).transpose(1, 2).flatten(2))
        states = states + self.dropout(heard)
        return states + self.dropout(self.inner(self.before_inner(states))), weight.mean(dim=1)


def time_code(time: Tensor, width: int) -> Tensor:
    """sin and cos of the time (in typical gaps) at wavelengths from 2 pi to 10,000 * 2 pi."""
    place = torch.arange(0, width, 2, device=time.device)
    angle = time.unsqueeze(2) * torch.exp(-math.log(10_000.0) * place / width)
    return torch.stack([angle.sin(), angle.cos()], dim=3).flatten(2)


def visible_visits(batch: Batch) -> Tensor:
    """Every visit of a window may look at every other and at itself."""
    return batch.there.unsqueeze(1).expand(-1, batch.there.shape[1], -1)


class TransformerNetwork(SequenceNetwork):
    """Columns and their indicators embedded, encoded, and read out as labs."""

    hears_own_target = True

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.embed = nn.Linear(2 * shape.columns, WIDTH)
        self.layers = nn.ModuleList(EncoderLayer(WIDTH, HEADS, KEY, VALUE, INNER) for _ in range(LAYERS))
        self.read = nn.Linear(WIDTH, shape.labs)

    def forward(self, batch: Batch) -> Tensor:
        states = self.embed(torch.cat([batch.values, batch.seen.float()], dim=2))
        states = states + time_code(batch.time, WIDTH)
        for layer in self.layers:
            states, _ = layer(states, visible_visits(batch))
        labs: Tensor = self.read(states)
        return labs

    def predict(self, batch: Batch) -> Tensor:
        return self(batch)[:, :, self.shape.target]  # type: ignore[no-any-return]

    def loss(self, batch: Batch) -> Tensor:
        labs = self.shape.labs
        hidden = hidden_at_random(batch, labs, HIDDEN_SHARE)
        part = batch.hiding(hidden)
        error = self(part) - batch.values[:, :, :labs]
        return mean_absolute(error, hidden[:, :, :labs]) + mean_absolute(error, part.seen[:, :, :labs])


class Transformer:
    """Stopped early on the validation error."""

    def __init__(self, effort: float = 1.0) -> None:
        self.training = TRAINING.scaled(effort)

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedSequences:
        return fit_sequences(task, TransformerNetwork, self.training, rng, device)
