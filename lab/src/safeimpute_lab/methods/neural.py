"""What the neural table methods share: seeds that stay local, shuffled batches, values between 0 and 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.table import TARGET


def draw_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**62))


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Initial weights of networks built inside depend on the seed alone; torch's own state is untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def generator(seed: int, device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def shuffled_batches(rows: int, size: int, source: torch.Generator) -> Iterator[Tensor]:
    """Row numbers of one epoch in random order, on the generator's device."""
    return in_parts(torch.randperm(rows, generator=source, device=source.device), size)


def in_parts(table: Tensor, rows: int) -> Iterator[Tensor]:
    """Consecutive rows, so many at a time."""
    return (table[start : start + rows] for start in range(0, len(table), rows))


def values_and_mask(table: FloatArray, device: str) -> tuple[Tensor, Tensor]:
    """The table with zeros where nothing is seen, and 1 where something is."""
    values = torch.from_numpy(np.nan_to_num(table)).float().to(device)
    return values, torch.from_numpy(~np.isnan(table)).float().to(device)


def as_array(column: Tensor) -> FloatArray:
    return np.asarray(column.detach().cpu().numpy(), dtype=np.float64)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let large products on a GPU round their inputs to TF32; on a CPU nothing changes."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@dataclass(frozen=True)
class UnitInterval:
    """Columns between 0 and 1 over the values seen at fitting, as some methods were published."""

    low: FloatArray
    span: FloatArray

    @classmethod
    def of(cls, table: FloatArray) -> "UnitInterval":
        low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
        return cls(low, np.where(high > low, high - low, 1.0))

    def scale(self, table: FloatArray) -> FloatArray:
        return (table - self.low) / self.span

    def target_back(self, share: Tensor) -> FloatArray:
        """The target column in the table's own units."""
        return as_array(share) * float(self.span[TARGET]) + float(self.low[TARGET])
