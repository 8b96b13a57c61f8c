"""Patients' visits as padded sequences at their real times, and the one training loop of all sequence baselines.

A network sees columns (labs, then attributes) in standard units, which of them were measured, and the time in
typical gaps between visits. Attributes are inputs only: no network is asked to reconstruct them.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Task
from safeimpute.learning.scaling import Scaler, fit_scaler
from safeimpute.visits.arrays import IntArray, VisitArrays

WINDOW = 128  # most visits in one sequence; longer records are cut into windows
OVERLAP = 16  # visits two neighbouring windows share, so that every visit keeps neighbours on both sides
FAR = 6.0  # standard units are clipped here: one absurd value must not drown a batch
FOLDS = 5  # parts in which visible targets are hidden to be imputed themselves
SCORING_BATCH = 64  # windows, of about the same length
MOST_LOOKED_AT = 512  # windows that decide when to stop


@dataclass(frozen=True)
class Units:
    """Standard units and the typical gap, learnt at fit."""

    labs: Scaler
    attributes: Scaler
    gap_days: float


def fit_units(task: Task) -> Units:
    visits = task.visits
    gaps = np.diff(visits.time)[np.diff(visits.patient) == 0]
    return Units(
        labs=fit_scaler(visits.labs, visits.lab_names, task.training),
        attributes=fit_scaler(visits.attributes, visits.attribute_names, task.training, log_labs=()),
        gap_days=float(np.median(gaps)) if len(gaps) else 1.0,
    )


@dataclass(frozen=True)
class Shape:
    """Numbers of columns a network is built for."""

    columns: int
    labs: int  # the first columns
    target: int


@dataclass(frozen=True)
class Batch:
    """Some windows, padded behind to the longest among them."""

    values: Tensor  # windows x visits x columns; 0 where not seen
    seen: Tensor  # same shape, boolean
    time: Tensor  # windows x visits: since the window's first visit, in typical gaps
    length: Tensor  # visits per window
    row: Tensor  # windows x visits: row of the table
    answers: Tensor  # windows x visits: this window, and no other, answers for the visit

    @property
    def there(self) -> Tensor:
        return torch.arange(self.row.shape[1], device=self.row.device) < self.length.unsqueeze(1)

    @property
    def gap(self) -> Tensor:
        """Time since the visit before; 0 at the first."""
        return torch.diff(self.time, dim=1, prepend=self.time[:, :1]).clamp(min=0)

    def hiding(self, hidden: Tensor) -> "Batch":
        seen = self.seen & ~hidden
        return replace(self, seen=seen, values=self.values * seen)

    def hiding_target(self, hidden: Tensor, target: int) -> "Batch":
        """Hide the target at some visits (windows x visits)."""
        everywhere = torch.zeros_like(self.seen)
        everywhere[:, :, target] = hidden
        return self.hiding(everywhere)

    def backwards(self) -> "Batch":
        """The same windows from their last visit to their first; padding stays behind."""
        order, there = self._mirrored(), self.there
        end = self.time.gather(1, self.length.unsqueeze(1) - 1)
        wide = order.unsqueeze(2).expand_as(self.values)
        return replace(
            self,
            values=self.values.gather(1, wide),
            seen=self.seen.gather(1, wide),
            time=torch.where(there, end - self.time.gather(1, order), 0.0),
            row=self.row.gather(1, order),
            answers=self.answers.gather(1, order),
        )

    def mirror(self, states: Tensor) -> Tensor:
        """Turn states of the visits (windows x visits x width) round within each window."""
        return states.gather(1, self._mirrored().unsqueeze(2).expand_as(states))

    def _mirrored(self) -> Tensor:
        place = torch.arange(self.row.shape[1], device=self.row.device).expand_as(self.row)
        return torch.where(self.there, self.length.unsqueeze(1) - 1 - place, place)


def since_seen(batch: Batch) -> Tensor:
    """Time to the last earlier visit at which a column was seen, or to the window's first visit."""
    time = batch.time.unsqueeze(2)
    latest = (time * batch.seen).cummax(dim=1).values
    return (time - earlier(latest)).clamp(min=0)


def last_seen(batch: Batch) -> Tensor:
    """The last earlier value of a column; 0, the mean, where there is none."""
    place = torch.arange(batch.seen.shape[1], device=batch.seen.device).view(1, -1, 1)
    latest = (place * batch.seen).cummax(dim=1).values
    return earlier(batch.values.gather(1, latest))


def earlier(states: Tensor) -> Tensor:
    """States one visit before; zeros at the first."""
    return torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)


class SequenceTable:
    """All visits of a task on a device, cut into windows."""

    def __init__(self, visits: VisitArrays, units: Units, device: str) -> None:
        z = np.hstack([units.labs.standardise(visits.labs), units.attributes.standardise(visits.attributes)]).clip(
            -FAR, FAR
        )
        self.seen = torch.from_numpy(~np.isnan(z)).to(device)
        self.values = torch.from_numpy(np.nan_to_num(z)).float().to(device)
        self.time = torch.from_numpy(visits.time / units.gap_days).to(device)
        self.windows = torch.from_numpy(cut_into_windows(visits.patient)).to(device)
        self.shape = Shape(z.shape[1], visits.labs.shape[1], visits.target)

    def __len__(self) -> int:
        return len(self.time)

    def batch(self, picked: Tensor) -> Batch:
        start, length, first, end = self.windows[picked].unbind(1)
        place = torch.arange(int(length.max()), device=start.device)
        there = place < length.unsqueeze(1)
        row = start.unsqueeze(1) + place * there
        seen = self.seen[row] & there.unsqueeze(2)
        return Batch(
            values=self.values[row] * seen,
            seen=seen,
            time=(self.time[row] - self.time[start].unsqueeze(1)).float(),
            length=length,
            row=row,
            answers=(place >= first.unsqueeze(1)) & (place < end.unsqueeze(1)),
        )

    def by_length(self, picked: Tensor, size: int) -> Iterator[Batch]:
        """Batches of windows of about the same length: little padding."""
        order = picked[torch.argsort(self.windows[picked, 1], stable=True)]
        yield from (self.batch(part) for part in torch.split(order, size))


def cut_into_windows(patient: IntArray) -> IntArray:
    """Per window: first row, number of visits, and the places from and to which it answers for its visits."""
    starts, counts = np.unique(patient, return_index=True, return_counts=True)[1:]
    windows = []
    for start, count in zip(starts, counts, strict=True):
        for offset in range(0, max(count - OVERLAP, 1), WINDOW - OVERLAP):
            length = min(WINDOW, count - offset)
            first = OVERLAP // 2 if offset > 0 else 0
            end = length - OVERLAP // 2 if offset + length < count else length
            windows.append((start + offset, length, first, end))
    return np.array(windows, dtype=np.int64).reshape(-1, 4)


class SequenceNetwork(nn.Module, ABC):
    """What the training loop needs of a network."""

    hears_own_target = False  # whether `predict` at a visit is reached by a target visible at that visit

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """What training makes small."""

    @abstractmethod
    def predict(self, batch: Batch) -> Tensor:
        """The target in standard units (windows x visits)."""

    def predict_hidden(self, batch: Batch) -> Tensor:
        """As `predict`, for visible targets hidden for the purpose; a costly sampler may do with less here."""
        return self.predict(batch)


def mean_absolute(error: Tensor, asked: Tensor) -> Tensor:
    return (error.abs() * asked).sum() / asked.sum().clamp(min=1)


def hidden_at_random(batch: Batch, labs: int, share: float) -> Tensor:
    """A random share of the seen lab values."""
    hidden = (torch.rand(batch.seen.shape, device=batch.seen.device) < share) & batch.seen
    hidden[:, :, labs:] = False
    return hidden


@dataclass(frozen=True)
class Training:
    """How long and how fast to learn; a look at the validation error every 60 steps, as in the SAITS paper's code."""

    batch: int
    learning_rate: float
    epochs: int
    patience: int | None = 30  # looks without improvement before stopping; None: all epochs, no look
    look_every: int = 60  # steps
    weight_decay: float = 0.0
    slower_after: tuple[float, ...] = ()  # shares of the training after which the rate falls to a tenth

    def scaled(self, effort: float) -> "Training":
        patience = None if self.patience is None else max(1, round(effort * self.patience))
        return replace(self, epochs=max(1, round(effort * self.epochs)), patience=patience)


def fit_sequences(
    task: Task, build: Callable[[Shape], SequenceNetwork], training: Training, rng: np.random.Generator, device: str
) -> "FittedSequences":
    """Train a network on a task; validation targets only decide when to stop."""
    units = fit_units(task)
    table = SequenceTable(task.visits, units, device)
    checked = units.labs.standardise(task.visits.with_target(task.validation_target).labs)
    answer = torch.from_numpy(checked[:, task.visits.target]).float().to(device)
    torch_seed, sampling_seed = (int(seed) for seed in rng.integers(2**62, size=2))
    with torch.random.fork_rng(devices=cuda_devices(device)):
        torch.manual_seed(torch_seed)
        network = build(table.shape).to(device)
        _train(network, table, answer, training)
    return FittedSequences(network, units, sampling_seed, device)


@dataclass(frozen=True)
class FittedSequences:
    """A trained network with the units it was trained in."""

    network: SequenceNetwork
    units: Units
    sampling_seed: int
    device: str

    def impute(self, task: Task) -> Imputation:
        table = SequenceTable(task.visits, self.units, self.device)
        with torch.random.fork_rng(devices=cuda_devices(self.device)):
            torch.manual_seed(self.sampling_seed)
            z = predicted_targets(self.network, table)
        value = self.units.labs.in_unit(z.double().cpu().numpy(), task.visits.target)
        return Imputation(value)


def cuda_devices(device: str) -> list[torch.device]:
    return [torch.device(device)] if device.startswith("cuda") else []


def predicted_targets(network: SequenceNetwork, table: SequenceTable) -> Tensor:
    """The target of every visit, each from a pass in which the visit's own target is hidden."""
    z = torch.zeros(len(table), device=table.values.device)
    network.eval()
    with torch.no_grad():
        everything = torch.arange(len(table.windows), device=z.device)
        for batch in table.by_length(everything, SCORING_BATCH):
            found = network.predict(batch)
            for hidden in _visible_in_folds(batch, network) if network.hears_own_target else ():
                alone = network.predict_hidden(batch.hiding_target(hidden, table.shape.target))
                found = torch.where(hidden, alone, found)
            z[batch.row[batch.answers]] = found[batch.answers].float()
    return z.clamp(-FAR, FAR)


def _visible_in_folds(batch: Batch, network: SequenceNetwork) -> Iterator[Tensor]:
    """A patient's visible targets dealt out in turn: neighbours in time fall into different folds."""
    visible = batch.seen[:, :, network.shape.target]
    turn = visible.long().cumsum(dim=1) % FOLDS
    yield from (hidden for fold in range(FOLDS) if bool((hidden := visible & (turn == fold)).any()))


def _train(network: SequenceNetwork, table: SequenceTable, answer: Tensor, training: Training) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    steps = training.epochs * -(-len(table.windows) // training.batch)
    slower = torch.optim.lr_scheduler.MultiStepLR(
        optimiser, [round(share * steps) for share in training.slower_after], gamma=0.1
    )
    stopping = _Stopping(network, table, answer, training)
    for step, picked in enumerate(islice(_shuffled(table, training.batch), steps), start=1):
        network.train()
        optimiser.zero_grad()
        network.loss(table.batch(picked)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        slower.step()
        if (step % training.look_every == 0 or step == steps) and stopping.look():
            break
    stopping.restore()


def _shuffled(table: SequenceTable, size: int) -> Iterator[Tensor]:
    while True:
        order = torch.randperm(len(table.windows)).to(table.values.device)
        yield from torch.split(order, size)


class _Stopping:
    """Keeps the network with the least validation error; without validation visits, patience is all the time it has."""

    def __init__(self, network: SequenceNetwork, table: SequenceTable, answer: Tensor, training: Training) -> None:
        self.network, self.table, self.answer, self.patience = network, table, answer, training.patience
        known = ~torch.isnan(answer) if self.patience is not None else torch.zeros_like(answer, dtype=torch.bool)
        self.validated = bool(known.any())
        start, length = table.windows[:, 0], table.windows[:, 1]
        count = torch.cat([known.new_zeros(1, dtype=torch.long), known.cumsum(0)])
        holds_some = torch.nonzero(count[start + length] > count[start]).squeeze(1)
        self.looked_at = holds_some[torch.randperm(len(holds_some))[:MOST_LOOKED_AT].to(start.device)]
        self.best, self.waited = float("inf"), 0
        self.state: dict[str, Tensor] | None = None

    def look(self) -> bool:
        """Whether it is time to stop."""
        if self.patience is None:
            return False
        self.waited += 1
        if self.validated and (error := self._error()) < self.best:
            self.best, self.waited = error, 0
            self.state = copy.deepcopy(self.network.state_dict())
        return self.waited >= self.patience

    def restore(self) -> None:
        if self.state is not None:
            self.network.load_state_dict(self.state)

    def _error(self) -> float:
        self.network.eval()
        total, count = 0.0, 0
        with torch.no_grad():
            for batch in self.table.by_length(self.looked_at, SCORING_BATCH):
                error = (self.network.predict(batch) - self.answer[batch.row]).abs()[batch.answers]
                known = ~torch.isnan(error)
                total, count = total + float(error[known].sum()), count + int(known.sum())
        return total / max(count, 1)
