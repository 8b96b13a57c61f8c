"""ReMasker (Du et al., ICLR 2024): a masked autoencoder over a visit's values that masks visible ones again.

Each value is a token. The encoder sees the tokens left visible, the decoder answers for every column; the loss
covers what was masked again and what stayed, never what is truly missing.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.neural import (
    UnitInterval,
    draw_seed,
    generator,
    in_parts,
    seeded_weights,
    shuffled_batches,
    values_and_mask,
)
from safeimpute_lab.methods.rounds import scaled
from safeimpute_lab.methods.table import TARGET, FittedOnTable, Predict, fit_on_table, without_target

ROWS_AT_ONCE = 4_096


@dataclass(frozen=True)
class ReMaskerSettings:
    """As published."""

    width: int = 32
    depth: int = 6
    decoder_depth: int = 4
    heads: int = 4
    masked: float = 0.5  # share of a visit's visible values masked again
    learning_rate: float = 1e-3
    batch: int = 64
    epochs: int = 600
    warm_up: int = 40  # epochs


class Block(nn.Module):
    """Pre-norm self-attention and a two-layer network, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor, there: Tensor | None) -> Tensor:
        rows, length, width = tokens.shape
        joint = self.query_key_value(self.before_attention(tokens))
        query, key, value = joint.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=there)
        tokens = tokens + self.project(mixed.transpose(1, 2).reshape(rows, length, width))
        updated: Tensor = tokens + self.network(self.before_network(tokens))
        return updated


class MaskedAutoencoder(nn.Module):
    """Tokens of the kept values and one summary token through the encoder, all columns through the decoder."""

    def __init__(self, columns: int, settings: ReMaskerSettings) -> None:
        super().__init__()
        width, heads = settings.width, settings.heads
        self.embed = nn.Linear(1, width)
        self.summary = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.masked_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.encoder = nn.ModuleList(Block(width, heads) for _ in range(settings.depth))
        self.decoder = nn.ModuleList(Block(width, heads) for _ in range(settings.decoder_depth))
        self.after_encoder, self.after_decoder = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_decoder = nn.Linear(width, width)
        self.answer = nn.Linear(width, 1)
        self.position: Tensor
        self.register_buffer("position", _positions(columns, width))
        self.apply(_initialise)

    def forward(self, values: Tensor, order: Tensor, kept: Tensor) -> Tensor:
        """Every column's value in (0, 1); `order` lists columns, of which those with `kept` are shown."""
        place = order.unsqueeze(2).expand(-1, -1, self.position.shape[1])
        tokens = self.embed(values.unsqueeze(2)) + self.position
        encoded = self._encoded(tokens.gather(1, place), kept)
        shown = torch.where(kept.unsqueeze(2), encoded[:, 1:], self.masked_token)
        everywhere = self.masked_token.expand(len(values), values.shape[1], -1).scatter(1, place, shown)
        states = torch.cat([encoded[:, :1], everywhere + self.position], dim=1)
        for block in self.decoder:
            states = block(states, None)
        return torch.sigmoid(2 * self.answer(self.after_decoder(states[:, 1:]))).squeeze(2)

    def _encoded(self, tokens: Tensor, kept: Tensor) -> Tensor:
        summary = self.summary.expand(len(tokens), -1, -1)
        states = torch.cat([summary, tokens], dim=1)
        there = torch.cat([torch.ones_like(kept[:, :1]), kept], dim=1)[:, None, None, :]
        for block in self.encoder:
            states = block(states, there)
        encoded: Tensor = self.to_decoder(self.after_encoder(states))
        return encoded


def _positions(columns: int, width: int) -> Tensor:
    """Fixed sines and cosines that tell columns apart."""
    frequency = 10_000 ** -(torch.arange(width // 2) / (width / 2))
    angle = torch.arange(columns).unsqueeze(1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


class ReMasker:
    """Trains on all visits; imputes from all visible values of a visit."""

    def __init__(self, effort: float = 1.0, settings: ReMaskerSettings | None = None) -> None:
        self.effort, self.settings = effort, settings or ReMaskerSettings()

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        seed = draw_seed(rng)
        return fit_on_table(task, lambda table: self._learn(table, seed, device))

    def _learn(self, table: FloatArray, seed: int, device: str) -> Predict:
        interval = UnitInterval.of(table)
        with seeded_weights(seed):
            network = MaskedAutoencoder(table.shape[1], self.settings).to(device)
        values, seen = values_and_mask(interval.scale(table), device)
        epochs = scaled(self.settings.epochs, self.effort)
        _train(network, values, seen.bool(), epochs, self.settings, generator(seed, device))

        def predict(asked: FloatArray) -> FloatArray:
            values, seen = values_and_mask(interval.scale(without_target(asked)), device)
            order = torch.arange(values.shape[1], device=device).expand(len(values), -1)
            parts = zip(*(in_parts(each, ROWS_AT_ONCE) for each in (values, order, seen.bool())), strict=True)
            with torch.no_grad():
                return interval.target_back(torch.cat([network(*part)[:, TARGET] for part in parts]))

        return predict


def _train(
    network: MaskedAutoencoder,
    values: Tensor,
    seen: Tensor,
    epochs: int,
    settings: ReMaskerSettings,
    source: torch.Generator,
) -> None:
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), fused=True)
    steps = epochs * math.ceil(len(values) / settings.batch)
    warm_up = steps * settings.warm_up / settings.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, warm_up, steps))
    for _ in range(epochs):
        for rows in shuffled_batches(len(values), settings.batch, source):
            order, kept = _mask_again(seen[rows], settings.masked, source)
            loss = _loss(network(values[rows], order, kept), values[rows], seen[rows], order, kept)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()


def _rate(step: int, warm_up: float, steps: int) -> float:
    """Linear warm-up, then half a cosine down to zero."""
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    return (1 + math.cos(math.pi * (step - warm_up) / max(steps - warm_up, 1))) / 2


def _mask_again(seen: Tensor, masked: float, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Columns in random order, visible ones first and as many as can stay, and which of these stay."""
    draw = torch.rand(seen.shape, generator=source, device=seen.device)
    longest = math.ceil(seen.shape[1] * (1 - masked))
    order = (draw + (~seen).float()).argsort(dim=1)[:, :longest]
    stay = (seen.sum(dim=1, keepdim=True) * (1 - masked)).ceil()
    return order, torch.arange(longest, device=seen.device) < stay


def _loss(predicted: Tensor, values: Tensor, seen: Tensor, order: Tensor, kept: Tensor) -> Tensor:
    """Mean squared error over the values masked again plus that over the values that stayed."""
    stayed = torch.zeros_like(seen).scatter(1, order, kept)
    error = (predicted - values).square()
    parts = [(error * part).sum() / part.sum().clamp_min(1) for part in (seen & ~stayed, stayed)]
    return parts[0] + parts[1]
