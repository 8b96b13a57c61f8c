"""DiffPuter (Zhang et al., ICLR 2025): expectation-maximisation with a diffusion model as the density.

M-step: a denoising network is trained on the completed table. E-step: missing values are redrawn given the
visible ones, several times, and replaced by their mean. Noise levels and preconditioning follow EDM.
"""

import copy
from dataclasses import dataclass, replace
from itertools import pairwise

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
    tensor_cores,
    values_and_mask,
)
from safeimpute_lab.methods.rounds import scaled
from safeimpute_lab.methods.table import TARGET, FittedOnTable, Predict, fit_on_table, without_target

SIGMA_DATA = 0.5  # standard deviation of what the network sees: the table is halved
LOWEST, HIGHEST, CURVATURE = 0.002, 80.0, 7.0  # noise levels
LOG_NOISE_MEAN, LOG_NOISE_SPREAD = -1.2, 1.2  # of the levels trained on
CHURN = 1.0
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class DiffPuterSettings:
    """As published, but for `patience`, `rate_patience` and `redraws`, which are ours."""

    width: int = 1_024
    learning_rate: float = 1e-4
    batch: int = 4_096
    epochs: int = 10_000
    patience: int = 500  # epochs without a lower loss before an M-step ends
    rate_patience: int = 50  # and before the learning rate shrinks by a tenth
    rounds: int = 10
    steps: int = 50
    redraws: int = 10  # of each step, so that redrawn values and visible ones agree
    trials: int = 20

    def at(self, effort: float) -> "DiffPuterSettings":
        """Everything that is counted, at a share of the effort."""
        return replace(
            self,
            epochs=scaled(self.epochs, effort),
            patience=scaled(self.patience, effort, least=10),
            rounds=scaled(self.rounds, effort),
            steps=scaled(self.steps, effort, least=5),
            redraws=scaled(self.redraws, effort),
            trials=scaled(self.trials, effort),
        )


class Denoiser(nn.Module):
    """D(x; s) = c_skip x + c_out F(c_in x, log s / 4), F a network of widths w, 2w, 2w, w."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(columns, width)
        self.of_noise = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.network = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.SiLU(),
            nn.Linear(2 * width, 2 * width),
            nn.SiLU(),
            nn.Linear(2 * width, width),
            nn.SiLU(),
            nn.Linear(width, columns),
        )
        self.frequency: Tensor
        self.register_buffer("frequency", 10_000 ** -(torch.arange(width // 2) / (width // 2)))

    def forward(self, noisy: Tensor, sigma: Tensor) -> Tensor:
        """`sigma` holds one level per row, or one for all rows."""
        sigma = sigma.reshape(-1, 1)
        total = sigma.square() + SIGMA_DATA**2
        angle = sigma.log() / 4 * self.frequency
        level = self.of_noise(torch.cat([angle.sin(), angle.cos()], dim=1))
        answer = self.network(self.project(noisy / total.sqrt()) + level)
        denoised: Tensor = SIGMA_DATA**2 / total * noisy + sigma * SIGMA_DATA / total.sqrt() * answer
        return denoised


class DiffPuter:
    """Alternates density estimation and redrawing; a fresh network in every round."""

    def __init__(self, effort: float = 1.0, settings: DiffPuterSettings | None = None) -> None:
        self.settings = (settings or DiffPuterSettings()).at(effort)

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        seed = draw_seed(rng)
        return fit_on_table(task, lambda table: self._learn(table, seed, device))

    def _learn(self, table: FloatArray, seed: int, device: str) -> Predict:
        settings, source = self.settings, generator(seed, device)
        values, seen = values_and_mask(table * SIGMA_DATA, device)
        with tensor_cores():
            denoiser = _density(values, settings, seed, source)
            for turn in range(1, settings.rounds):
                completed = _redrawn(denoiser, values, seen.bool(), settings, source)
                denoiser = _density(completed, settings, seed + turn, source)

        def predict(asked: FloatArray) -> FloatArray:
            values, seen = values_and_mask(without_target(asked) * SIGMA_DATA, device)
            with tensor_cores():
                drawn = _redrawn(denoiser, values, seen.bool(), settings, generator(seed + 1, device))
            return as_array(drawn[:, TARGET]) / SIGMA_DATA

        return predict


def _density(table: Tensor, settings: DiffPuterSettings, seed: int, source: torch.Generator) -> Denoiser:
    """The M-step: denoising score matching; the weights of the lowest loss are kept."""
    with seeded_weights(seed):
        denoiser = Denoiser(table.shape[1], settings.width).to(table.device)
    optimiser = torch.optim.Adam(denoiser.parameters(), lr=settings.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.9, patience=settings.rate_patience)
    least, best, waited = np.inf, copy.deepcopy(denoiser.state_dict()), 0
    for _ in range(settings.epochs):
        total = table.new_zeros(())
        for rows in shuffled_batches(len(table), settings.batch, source):
            loss = _denoising_loss(denoiser, table[rows], source)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += loss.detach() * len(rows)
        error = float(total) / len(table)
        schedule.step(error)
        waited += 1
        if error < least:
            least, best, waited = error, copy.deepcopy(denoiser.state_dict()), 0
        if waited >= settings.patience:
            break
    denoiser.load_state_dict(best)
    return denoiser


def _denoising_loss(denoiser: Denoiser, clean: Tensor, source: torch.Generator) -> Tensor:
    draw = torch.randn(len(clean), 1, generator=source, device=clean.device)
    sigma = (LOG_NOISE_MEAN + LOG_NOISE_SPREAD * draw).exp()
    noisy = clean + sigma * _noise_like(clean, source)
    weight = (sigma.square() + SIGMA_DATA**2) / (sigma * SIGMA_DATA).square()
    loss: Tensor = (weight * (denoiser(noisy, sigma) - clean).square()).mean()
    return loss


def _redrawn(
    denoiser: Denoiser, values: Tensor, seen: Tensor, settings: DiffPuterSettings, source: torch.Generator
) -> Tensor:
    """The E-step: the table with missing values replaced by the mean of their draws."""
    completed = values.clone()
    asked = torch.nonzero(~seen.all(dim=1)).squeeze(1)
    for rows in in_parts(asked, max(1, ROWS_AT_ONCE // settings.trials)):
        again = rows.repeat(settings.trials)
        drawn = _conditional_draw(denoiser, values[again], seen[again], settings, source)
        mean = drawn.view(settings.trials, len(rows), -1).mean(dim=0)
        completed[rows] = torch.where(seen[rows], values[rows], mean)
    return completed


@torch.no_grad()
def _conditional_draw(
    denoiser: Denoiser, values: Tensor, seen: Tensor, settings: DiffPuterSettings, source: torch.Generator
) -> Tensor:
    """One draw of the missing values of every row: visible values are noised to each level and set in."""
    levels = _noise_levels(settings.steps, values.device)
    state = levels[0] * _noise_like(values, source)
    for now, after in pairwise(levels):
        for left in reversed(range(settings.redraws)):
            lower = _heun_step(denoiser, state, now, after, settings.steps, source)
            state = torch.where(seen, values + after * _noise_like(values, source), lower)
            if left:
                state = state + (now.square() - after.square()).sqrt() * _noise_like(values, source)
    return state


def _noise_levels(steps: int, device: torch.device) -> Tensor:
    share = torch.linspace(0, 1, steps, device=device)
    ends = HIGHEST ** (1 / CURVATURE), LOWEST ** (1 / CURVATURE)
    levels: Tensor = (ends[0] + share * (ends[1] - ends[0])) ** CURVATURE
    return levels


def _heun_step(
    denoiser: Denoiser, state: Tensor, now: Tensor, after: Tensor, steps: int, source: torch.Generator
) -> Tensor:
    """From one noise level to the next along the probability flow, second order, with a little fresh noise."""
    raised = now * (1 + min(CHURN / steps, 2**0.5 - 1))
    state = state + (raised.square() - now.square()).sqrt() * _noise_like(state, source)
    slope = (state - denoiser(state, raised)) / raised
    euler = state + (after - raised) * slope
    slope_there = (euler - denoiser(euler, after)) / after
    lower: Tensor = state + (after - raised) * (slope + slope_there) / 2
    return lower


def _noise_like(table: Tensor, source: torch.Generator) -> Tensor:
    return torch.randn(table.shape, generator=source, device=table.device)
