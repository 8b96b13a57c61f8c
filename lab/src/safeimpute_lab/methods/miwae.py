"""MIWAE (Mattei & Frellsen, ICML 2019): a deep latent variable model fitted by an importance-weighted bound.

Missing values are imputed by their mean given the visible ones, by self-normalised importance sampling.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.neural import (
    as_array,
    draw_seed,
    generator,
    in_parts,
    seeded_weights,
    shuffled_batches,
    values_and_mask,
)
from safeimpute_lab.methods.rounds import scaled
from safeimpute_lab.methods.table import TARGET, FittedOnTable, Predict, fit_on_table, read_table, without_target

SMALLEST_SCALE = 1e-3
LEAST_FREEDOM = 3.0  # so that mean and variance exist
ROWS_AT_ONCE = 128  # when imputing with many samples each


@dataclass(frozen=True)
class MiwaeSettings:
    """As published."""

    hidden: int = 128
    learning_rate: float = 1e-3
    batch: int = 64
    epochs: int = 600
    training_samples: int = 20
    imputing_samples: int = 1_000


class LatentModel(nn.Module):
    """q(z | x) Gaussian, p(x | z) independent Student's t, p(z) standard normal."""

    def __init__(self, columns: int, hidden: int) -> None:
        super().__init__()
        self.latent = max(1, columns // 2)
        self.encoder = _network(columns, hidden, 2 * self.latent)
        self.decoder = _network(self.latent, hidden, 3 * columns)

    def forward(
        self, values: Tensor, seen: Tensor, samples: int, source: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log importance weights (samples x rows); means and variances of the decoder (samples x rows x columns)."""
        mean, raw_spread = self.encoder(values).chunk(2, dim=1)
        spread = nn.functional.softplus(raw_spread) + SMALLEST_SCALE
        noise = torch.randn((samples, *mean.shape), generator=source, device=mean.device)
        z = mean + spread * noise
        location, raw_scale, raw_freedom = self.decoder(z).chunk(3, dim=2)
        scale = nn.functional.softplus(raw_scale) + SMALLEST_SCALE
        freedom = nn.functional.softplus(raw_freedom) + LEAST_FREEDOM
        of_visible = (_student_log_density(values, location, scale, freedom) * seen).sum(dim=2)
        prior_to_proposal = (spread.log() + (noise.square() - z.square()) / 2).sum(dim=2)
        return of_visible + prior_to_proposal, location, scale.square() * freedom / (freedom - 2)


def _network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    network = nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )
    for layer in network:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
    return network


def _student_log_density(x: Tensor, location: Tensor, scale: Tensor, freedom: Tensor) -> Tensor:
    standard = ((x - location) / scale).square()
    constant = torch.lgamma((freedom + 1) / 2) - torch.lgamma(freedom / 2) - (freedom * math.pi).log() / 2
    return constant - scale.log() - (freedom + 1) / 2 * torch.log1p(standard / freedom)


Conditional = Callable[[LatentModel, Tensor, Tensor, int, torch.Generator], Tensor]


class Miwae:
    """Missing entries enter as zeros, the column means; the bound looks at visible entries only."""

    def __init__(self, effort: float = 1.0, settings: MiwaeSettings | None = None) -> None:
        self.effort, self.settings = effort, settings or MiwaeSettings()

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        """Imputes by the conditional mean."""
        seed = draw_seed(rng)
        return fit_on_table(task, lambda table: self._learn(table, seed, device, _conditional_mean))

    def spreads(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FloatArray:
        """Standard deviation of draws of every visit's target, in standard units; the same fit for the same seed."""
        seed = draw_seed(rng)
        fitted = fit_on_table(task, lambda table: self._learn(table, seed, device, _conditional_spread))
        return fitted.predict(read_table(task.visits, fitted.units))

    def _learn(self, table: FloatArray, seed: int, device: str, of: Conditional) -> Predict:
        settings = self.settings
        with seeded_weights(seed):
            model = LatentModel(table.shape[1], settings.hidden).to(device)
        values, seen = values_and_mask(table, device)
        _train(model, values, seen, scaled(settings.epochs, self.effort), settings, generator(seed, device))

        def predict(asked: FloatArray) -> FloatArray:
            source = generator(seed + 1, device)
            values, seen = values_and_mask(without_target(asked), device)
            parts = zip(in_parts(values, ROWS_AT_ONCE), in_parts(seen, ROWS_AT_ONCE), strict=True)
            with torch.no_grad():
                means = [of(model, *part, settings.imputing_samples, source) for part in parts]
            return as_array(torch.cat(means))

        return predict


def _train(
    model: LatentModel, values: Tensor, seen: Tensor, epochs: int, settings: MiwaeSettings, source: torch.Generator
) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    for _ in range(epochs):
        for rows in shuffled_batches(len(values), settings.batch, source):
            log_weight, *_ = model(values[rows], seen[rows], settings.training_samples, source)
            loss = -torch.logsumexp(log_weight, dim=0).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _conditional_mean(
    model: LatentModel, values: Tensor, seen: Tensor, samples: int, source: torch.Generator
) -> Tensor:
    """E[target | visible] = sum_k w_k m_k with self-normalised weights."""
    log_weight, location, _ = model(values, seen, samples, source)
    mean: Tensor = (torch.softmax(log_weight, dim=0) * location[:, :, TARGET]).sum(dim=0)
    return mean


def _conditional_spread(
    model: LatentModel, values: Tensor, seen: Tensor, samples: int, source: torch.Generator
) -> Tensor:
    """Standard deviation of the mixture that draws of the target come from."""
    log_weight, location, variance = model(values, seen, samples, source)
    weight, centre = torch.softmax(log_weight, dim=0), location[:, :, TARGET]
    mean = (weight * centre).sum(dim=0)
    squares = (weight * (centre.square() + variance[:, :, TARGET])).sum(dim=0)
    spread: Tensor = (squares - mean.square()).clamp(min=0).sqrt()
    return spread
