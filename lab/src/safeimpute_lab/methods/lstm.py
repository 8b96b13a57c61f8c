"""LSTM (Hochreiter & Schmidhuber 1997) over a patient's visits, one network from each side.

A visit is imputed from the state before it, the state after it and its other labs. Its own target enters neither
state, so every visible target can be asked for at once, without masking.
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
    earlier,
    fit_sequences,
    mean_absolute,
)

# No published setting for this use: width and rate are those common for cohorts of this size.
WIDTH = 128
DROPOUT = 0.2
TRAINING = Training(batch=32, learning_rate=1e-3, epochs=1_000)


class LstmNetwork(SequenceNetwork):
    """z = head(past state, future state, labs of the visit but its target, gaps to both sides)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        inputs = 2 * shape.columns + 1
        self.past = nn.LSTM(inputs, WIDTH, batch_first=True)
        self.future = nn.LSTM(inputs, WIDTH, batch_first=True)
        self.head = nn.Sequential(
            nn.Dropout(DROPOUT), nn.Linear(2 * WIDTH + inputs + 1, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
        )

    def predict(self, batch: Batch) -> Tensor:
        turned = batch.backwards()
        before = earlier(self.past(_inputs(batch))[0])
        after = batch.mirror(earlier(self.future(_inputs(turned))[0]))
        now = _inputs(batch.hiding_target(batch.there, self.shape.target))
        gap_after = batch.mirror(_log_gap(turned))
        z: Tensor = self.head(torch.cat([before, after, now, gap_after], dim=2))
        return z.squeeze(2)

    def loss(self, batch: Batch) -> Tensor:
        target = self.shape.target
        return mean_absolute(self.predict(batch) - batch.values[:, :, target], batch.seen[:, :, target])


def _inputs(batch: Batch) -> Tensor:
    return torch.cat([batch.values, batch.seen.float(), _log_gap(batch)], dim=2)


def _log_gap(batch: Batch) -> Tensor:
    return torch.log1p(batch.gap).unsqueeze(2)


class Lstm:
    """Stopped early on the validation error."""

    def __init__(self, effort: float = 1.0) -> None:
        self.training = TRAINING.scaled(effort)

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedSequences:
        return fit_sequences(task, LstmNetwork, self.training, rng, device)
