"""CSDI (Tashiro et al., NeurIPS 2021): conditional score diffusion over visits and columns.

Every value of a window is a token. Noise added to the values that are asked for is predicted from the noisy
values, the values that are shown, the visits' times and the columns' names, by attention along the visits and
along the columns in turn. An imputation is the median of samples drawn backwards through the noise.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.roles import Task
from safeimpute_lab.methods.sequences import Batch, FittedSequences, SequenceNetwork, Shape, Training, fit_sequences
from safeimpute_lab.methods.transformer import time_code

# Tashiro et al. 2021, configuration "base": 4 layers, 64 channels, 8 heads, step code 128, time code 128, column
# code 16, 50 steps, quadratic noise 1e-4 to 0.5; Adam 1e-3 falling to a tenth after 75 % and 90 %, weight decay 1e-6,
# batch 16, 200 epochs; random choice of what is asked; median of 100 samples. It is not stopped early.
LAYERS, CHANNELS, HEADS, STEP_CODE, TIME_CODE, COLUMN_CODE = 4, 64, 8, 128, 128, 16
STEPS, FIRST_NOISE, LAST_NOISE = 50, 1e-4, 0.5
SAMPLES = 100
SPARED = 10  # visible targets, hidden to be imputed, get a tenth of the samples: no published counterpart, many passes
TOKENS_AT_ONCE = 2**17
TRAINING = Training(
    batch=16, learning_rate=1e-3, epochs=200, patience=None, weight_decay=1e-6, slower_after=(0.75, 0.9)
)


class Residual(nn.Module):
    """Attention over visits, then over columns, gated by the side information; half passes on, half is skipped out."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.of_step = nn.Linear(STEP_CODE, CHANNELS)
        self.of_side = _linear(side, 2 * CHANNELS)
        self.over_visits, self.over_columns = _encoder(), _encoder()
        self.middle, self.out = _linear(CHANNELS, 2 * CHANNELS), _linear(CHANNELS, 2 * CHANNELS)

    def forward(self, states: Tensor, side: Tensor, step: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        windows, columns, visits, _ = states.shape
        mixed = states + self.of_step(step).view(-1, 1, 1, CHANNELS)
        along_visits = padding.repeat_interleave(columns, dim=0)
        mixed = self.over_visits(mixed.flatten(0, 1), src_key_padding_mask=along_visits)
        mixed = mixed.view(windows, columns, visits, CHANNELS).transpose(1, 2)
        mixed = self.over_columns(mixed.flatten(0, 1)).view(windows, visits, columns, CHANNELS)
        gate, signal = (self.middle(mixed.transpose(1, 2)) + side).chunk(2, dim=3)
        onward, skipped = self.out(torch.sigmoid(gate) * torch.tanh(signal)).chunk(2, dim=3)
        return (states + onward) / math.sqrt(2), skipped


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(layer.weight)
    return layer


def _encoder() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(CHANNELS, HEADS, dim_feedforward=64, activation="gelu", batch_first=True)


class CsdiNetwork(SequenceNetwork):
    """Predicts the noise; `predict` samples with it."""

    hears_own_target = True
    noise: Tensor  # beta_t
    kept: Tensor  # alpha_t = product of (1 - beta) up to t
    step_code: Tensor

    def __init__(self, shape: Shape, samples: int) -> None:
        super().__init__(shape)
        self.samples = samples
        noise = torch.linspace(FIRST_NOISE**0.5, LAST_NOISE**0.5, STEPS) ** 2
        self.register_buffer("noise", noise)
        self.register_buffer("kept", torch.cumprod(1 - noise, dim=0))
        self.register_buffer("step_code", _step_code())
        self.embed_step = nn.Sequential(
            nn.Linear(STEP_CODE, STEP_CODE), nn.SiLU(), nn.Linear(STEP_CODE, STEP_CODE), nn.SiLU()
        )
        self.column_code = nn.Embedding(shape.columns, COLUMN_CODE)
        self.layers = nn.ModuleList(Residual(TIME_CODE + COLUMN_CODE + 1) for _ in range(LAYERS))
        self.embed = _linear(2, CHANNELS)
        self.read = nn.Sequential(_linear(CHANNELS, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, 1))
        nn.init.zeros_(self.read[2].weight)  # type: ignore[arg-type]

    def side_information(self, batch: Batch) -> list[Tensor]:
        """Per layer: time, column and whether the value is shown (windows x columns x visits x 2 channels)."""
        shown = batch.seen.transpose(1, 2).unsqueeze(3).float()
        size = (*shown.shape[:3], -1)
        time = time_code(batch.time, TIME_CODE).unsqueeze(1).expand(size)
        column = self.column_code.weight.view(1, self.shape.columns, 1, COLUMN_CODE).expand(size)
        side = torch.cat([time, column, shown], dim=3)
        return [layer.of_side(side) for layer in self.layers]  # type: ignore[operator]

    def predicted_noise(self, noisy: Tensor, batch: Batch, sides: list[Tensor], step: Tensor) -> Tensor:
        """Noise in every value (windows x visits x columns) at diffusion step `step` (one per window, or one)."""
        inputs = torch.stack([batch.values, noisy * ~batch.seen], dim=3).transpose(1, 2)
        states = torch.relu(self.embed(inputs))
        code, padding = self.embed_step(self.step_code[step]), ~batch.there
        skipped = torch.zeros_like(states)
        for layer, side in zip(self.layers, sides, strict=True):
            states, skip = layer(states, side, code, padding)
            skipped = skipped + skip
        read: Tensor = self.read(skipped / math.sqrt(LAYERS))
        return read.squeeze(3).transpose(1, 2)

    def loss(self, batch: Batch) -> Tensor:
        asked = _asked_at_random(batch, self.shape.labs)
        part = batch.hiding(asked)
        step = torch.randint(STEPS, (len(asked),), device=asked.device)
        kept, noise = self.kept[step].view(-1, 1, 1), torch.randn_like(batch.values)
        noisy = kept.sqrt() * batch.values + (1 - kept).sqrt() * noise
        error = noise - self.predicted_noise(noisy, part, self.side_information(part), step)
        return (error.square() * asked).sum() / asked.sum().clamp(min=1)

    def predict(self, batch: Batch) -> Tensor:
        return self._median_of(self.samples, batch)

    def predict_hidden(self, batch: Batch) -> Tensor:
        return self._median_of(max(1, self.samples // SPARED), batch)

    def _median_of(self, samples: int, batch: Batch) -> Tensor:
        windows, visits, columns = batch.values.shape
        at_once = max(1, TOKENS_AT_ONCE // (visits * columns * samples))
        parts = [
            self._sample(_repeated(batch, slice(start, start + at_once), samples))
            .view(-1, samples, visits)
            .median(dim=1)
            .values
            for start in range(0, windows, at_once)
        ]
        return torch.cat(parts)

    def _sample(self, batch: Batch) -> Tensor:
        """One draw per window of everything not shown; returns the target."""
        sides = self.side_information(batch)
        draw = torch.randn_like(batch.values)
        for step in reversed(range(STEPS)):
            beta, kept = self.noise[step], self.kept[step]
            noise = self.predicted_noise(draw, batch, sides, torch.tensor([step], device=draw.device))
            draw = (draw - beta / (1 - kept).sqrt() * noise) / (1 - beta).sqrt()
            if step > 0:
                spread = ((1 - self.kept[step - 1]) / (1 - kept) * beta).sqrt()
                draw = draw + spread * torch.randn_like(draw)
        return draw[:, :, self.shape.target]


def _step_code() -> Tensor:
    rates = 10 ** (torch.arange(STEP_CODE // 2) / (STEP_CODE // 2 - 1) * 4)
    angle = torch.arange(STEPS).unsqueeze(1) * rates
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def _asked_at_random(batch: Batch, labs: int) -> Tensor:
    """Of each window a share of the seen lab values, the share itself drawn evenly between none and all."""
    share = torch.rand(len(batch.seen), 1, 1, device=batch.seen.device)
    asked = (torch.rand(batch.seen.shape, device=batch.seen.device) < share) & batch.seen
    asked[:, :, labs:] = False
    return asked


def _repeated(batch: Batch, windows: slice, times: int) -> Batch:
    parts = (batch.values, batch.seen, batch.time, batch.length, batch.row, batch.answers)
    return Batch(*(part[windows].repeat_interleave(times, dim=0) for part in parts))


class Csdi:
    """Trained for a set number of epochs; fewer epochs and fewer samples with less effort."""

    def __init__(self, effort: float = 1.0) -> None:
        self.training = TRAINING.scaled(effort)
        self.samples = max(1, round(effort * SAMPLES))

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedSequences:
        return fit_sequences(task, lambda shape: CsdiNetwork(shape, self.samples), self.training, rng, device)
