"""Attention over a patient's visible targets and over analogues, gated; learns what the course leaves open.

One hop: a visit looks at other visits' targets and labs and at nothing derived from its own target, so no
masking is needed. Members are trained in folds of patients, each stopped early on the fold it never saw.
"""

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.records.history import NONE
from safeimpute.records.own_visits import take
from safeimpute.systems.best.evidence import Evidence
from safeimpute.systems.state import Arrays, Plain, State

Single = NDArray[np.float32]
SCORING_BLOCK = 65_536  # visits whose inputs are made at once: bounds memory, changes no byte
SCORING_BATCH = 128  # fixed: a visit's bytes must not depend on how many visits are scored with it
FAR = 6.0  # inputs are clipped to this many standard deviations


@dataclass(frozen=True)
class AttentionSettings:
    """The network and its training."""

    width: int = 64
    heads: int = 8
    dropout: float = 0.1
    batches_per_pass: int = 32
    smallest_batch: int = 64
    largest_batch: int = 2_048
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    huber: float = 0.3  # in standard units
    epochs: int = 60
    patience: int = 8
    most_visits: int = 768_000  # shown to one member in all: bounds the training on large cohorts
    most_stopping: int = 4_096  # visits looked at to decide when to stop


class Relation(nn.Module):
    """h_ij = relu(Q x_i + K x_j + E e_ij), message_i = sum_j softmax_j(v · h_ij) h_ij, per head."""

    def __init__(self, queries: int, keys: int, pairs: int, settings: AttentionSettings) -> None:
        super().__init__()
        self.query = nn.Linear(queries, settings.width)
        self.key = nn.Linear(keys, settings.width, bias=False)
        self.pair = nn.Linear(pairs, settings.width, bias=False)
        self.score = nn.Linear(settings.width, settings.heads)
        self.heads = settings.heads

    def forward(self, query: Tensor, key: Tensor, pair: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.query(query).unsqueeze(1) + self.key(key) + self.pair(pair))
        score = self.score(hidden).masked_fill(~there.unsqueeze(2), -torch.inf)
        weight = torch.nan_to_num(torch.softmax(score, dim=1))  # a visit without neighbours gets no message
        parts = hidden.view(*hidden.shape[:2], self.heads, -1)
        message = (weight.unsqueeze(3) * parts).sum(dim=1).flatten(1)
        return message, weight.mean(dim=2)


class TwoRelationAttention(nn.Module):
    """share = sigmoid(w · (m_own + m_analogue)); output = head(share m_own + (1 - share) m_analogue, x)."""

    def __init__(self, sizes: "Sizes", settings: AttentionSettings) -> None:
        super().__init__()
        self.sizes = sizes
        self.own = Relation(sizes.query, sizes.own_key, sizes.own_pair, settings)
        self.analogue = Relation(sizes.query, sizes.analogue_key, sizes.analogue_pair, settings)
        self.gate = nn.Linear(settings.width, 1)
        self.visit = nn.Linear(sizes.query, settings.width)
        self.mix = nn.Linear(2 * settings.width, settings.width)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(settings.width, 1)
        nn.init.zeros_(self.head.weight)  # starts as the course itself
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: "Batch") -> tuple[Tensor, Tensor, Tensor]:
        """What to add to the course, and the weights of own visits and analogues."""
        own, own_weight = self.own(batch.query, batch.own_key, batch.own_pair, batch.own_there)
        other, other_weight = self.analogue(
            batch.query, batch.analogue_key, batch.analogue_pair, batch.analogue_there
        )
        share = torch.sigmoid(self.gate(own + other))
        state = torch.cat([share * own + (1 - share) * other, torch.relu(self.visit(batch.query))], dim=1)
        hidden = torch.relu(self.mix(self.dropout(state)))
        return self.head(self.dropout(hidden)).squeeze(1), share * own_weight, (1 - share) * other_weight


@dataclass(frozen=True)
class Sizes:
    """Numbers of input columns."""

    query: int
    own_key: int
    own_pair: int
    analogue_key: int
    analogue_pair: int


@dataclass(frozen=True)
class Batch:
    """Some visits with their neighbours."""

    query: Tensor
    own_key: Tensor
    own_pair: Tensor
    own_there: Tensor
    analogue_key: Tensor
    analogue_pair: Tensor
    analogue_there: Tensor


@dataclass(frozen=True)
class Inputs:
    """The network's inputs at some visits of a table, on a device; keys, of all visits, are gathered per batch."""

    query: Tensor
    own: Tensor
    own_key: Tensor
    own_pair: Tensor
    analogue: Tensor
    analogue_key: Tensor
    analogue_pair: Tensor

    @property
    def sizes(self) -> Sizes:
        keys = self.own_key.shape[1], self.analogue_key.shape[1]
        return Sizes(
            self.query.shape[1], keys[0], self.own_pair.shape[2], keys[1], self.analogue_pair.shape[2]
        )

    def batch(self, rows: Tensor) -> Batch:
        own, analogue = self.own[rows], self.analogue[rows]
        return Batch(
            query=self.query[rows],
            own_key=self.own_key[own],
            own_pair=self.own_pair[rows],
            own_there=own != NONE,
            analogue_key=self.analogue_key[analogue],
            analogue_pair=self.analogue_pair[rows],
            analogue_there=analogue != NONE,
        )


@dataclass(frozen=True)
class Keys:
    """What the network sees of visits that may be looked at: all visits of the table, and the panel's."""

    own: Tensor
    analogue: Tensor


def network_keys(evidence: Evidence, device: str) -> Keys:
    panel = evidence.source.panel.values
    return Keys(_tensor(_labs(evidence, slice(None)), device), _tensor(_with_gaps(panel, panel), device))


def network_inputs(evidence: Evidence, rows: IntArray, keys: Keys, device: str) -> Inputs:
    """What the network sees of some visits, their own visits and their analogues."""
    parts = _labs(evidence, rows), evidence.attributes[rows], evidence.labs("trend")[rows]
    return Inputs(
        query=_tensor(np.hstack([*parts, _about_course(evidence, rows)]).astype(np.float32), device),
        own=torch.from_numpy(evidence.own[rows]).to(device),
        own_key=keys.own,
        own_pair=_tensor(_own_pairs(evidence, rows), device),
        analogue=torch.from_numpy(evidence.analogues.panel[rows]).to(device),
        analogue_key=keys.analogue,
        analogue_pair=_tensor(_analogue_pairs(evidence, rows), device),
    )


def _labs(evidence: Evidence, rows: IntArray | slice) -> Single:
    return _with_gaps(evidence.labs("filled")[rows], evidence.labs("now")[rows])


def _with_gaps(filled: NDArray[np.floating[Any]], now: NDArray[np.floating[Any]]) -> Single:
    """Values beside whether they were measured."""
    return np.hstack([filled, np.isnan(now)]).astype(np.float32, copy=False)


def _about_course(evidence: Evidence, rows: IntArray) -> FloatArray:
    kriged = evidence.kriged
    follow_up = evidence["days since first visit"][rows] / evidence.source.units.follow_up_days
    count, mean = np.log1p(evidence["own targets"][rows]), evidence["own mean"][rows]
    course = kriged.mean[rows], kriged.regression[rows], kriged.deviation[rows]
    return np.column_stack([*course, follow_up, count, mean])


def _own_pairs(evidence: Evidence, rows: IntArray) -> Single:
    """Per own visit: its target, how far it stands from the course, its gap both ways, its kriging weight."""
    kriged, own, time = evidence.kriged, evidence.own[rows], evidence.visits.time
    gap = take(time, own) - time[rows, None]
    beyond = take(evidence.target - kriged.regression, own)
    beyond -= (kriged.mean - kriged.regression)[rows, None]
    closeness = np.log1p(np.abs(gap) / evidence.source.kriging.variances.memory_days)
    return _stacked(take(evidence.target, own), beyond, closeness, np.sign(gap), kriged.weights[rows])


def _analogue_pairs(evidence: Evidence, rows: IntArray) -> Single:
    """Per analogue: its target, how far it stood from its regression, its distances."""
    panel, analogues = evidence.source.panel, evidence.analogues
    found = analogues.panel[rows]
    by_value, by_trend = analogues.value_distance[rows], analogues.trend_distance[rows]
    surprise = take(panel.target - panel.regression, found)
    return _stacked(take(panel.target, found), surprise, by_value / panel.radius, by_trend / panel.radius)


def _stacked(*columns: FloatArray) -> Single:
    table = np.empty((*columns[0].shape, len(columns)), np.float32)
    for place, column in enumerate(columns):
        table[:, :, place] = column
    return table


def _tensor(table: Single, device: str) -> Tensor:
    """On the device, without gaps and extremes; the table itself is overwritten."""
    np.nan_to_num(table, copy=False)
    return torch.from_numpy(np.clip(table, -FAR, FAR, out=table)).to(device)


@dataclass(frozen=True)
class AttentionTarget:
    """Trained members; their average is added to the course."""

    members: tuple[TwoRelationAttention, ...]
    settings: AttentionSettings

    def predict(self, evidence: Evidence) -> FloatArray:
        blocks = np.split(np.arange(len(evidence)), range(SCORING_BLOCK, len(evidence), SCORING_BLOCK))
        keys = network_keys(evidence, _device(self.members[0]))
        added = [self._averaged(evidence, keys, rows)[0] for rows in blocks]
        return evidence.kriged.mean + np.concatenate(added)

    def weights(self, evidence: Evidence, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """How much each own visit and each analogue of some visits was attended to; they sum to at most 1."""
        keys = network_keys(evidence, _device(self.members[0]))
        _, own, analogue = self._averaged(evidence, keys, rows)
        return own, analogue

    def _averaged(self, evidence: Evidence, keys: Keys, rows: IntArray) -> tuple[FloatArray, ...]:
        inputs = network_inputs(evidence, rows, keys, _device(self.members[0]))
        outputs = [_forward(member, inputs, np.arange(len(rows))) for member in self.members]
        return tuple(np.mean(each, axis=0) for each in zip(*outputs, strict=True))

    def state(self) -> State:
        arrays = {
            f"{number}.{name}": tensor.cpu().numpy()
            for number, member in enumerate(self.members)
            for name, tensor in member.state_dict().items()
        }
        sizes = asdict(self.members[0].sizes)
        return arrays, {"settings": asdict(self.settings), "sizes": sizes, "members": len(self.members)}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "AttentionTarget":
        settings, sizes = AttentionSettings(**plain["settings"]), Sizes(**plain["sizes"])
        members = [TwoRelationAttention(sizes, settings) for _ in range(plain["members"])]
        for number, member in enumerate(members):
            names = member.state_dict()
            member.load_state_dict({name: torch.from_numpy(arrays[f"{number}.{name}"]) for name in names})
        return cls(tuple(members), settings)


def fit_attention(
    evidence: Evidence, fold: IntArray, settings: AttentionSettings, seed: int, device: str
) -> tuple[AttentionTarget, FloatArray]:
    """Fit to the visible targets; also the out-of-fold predictions at those visits."""
    open_question = evidence.target - evidence.kriged.mean
    known = np.flatnonzero(~np.isnan(open_question))
    inputs = network_inputs(evidence, known, network_keys(evidence, device), device)
    answer, fold_there = open_question[known], fold[known]
    members, out_of_fold = [], np.full(len(fold), np.nan)
    for held_out in np.unique(fold_there):
        learning, stopping = np.flatnonzero(fold_there != held_out), np.flatnonzero(fold_there == held_out)
        member = _train(inputs, answer, learning, stopping, settings, seed + int(held_out))
        out_of_fold[known[stopping]] = _forward(member, inputs, stopping)[0]
        members.append(member)
    return AttentionTarget(tuple(members), settings), evidence.kriged.mean + out_of_fold


def _train(
    inputs: Inputs,
    open_question: FloatArray,
    learning: IntArray,
    stopping: IntArray,
    settings: AttentionSettings,
    seed: int,
) -> TwoRelationAttention:
    device = inputs.query.device
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        network = TwoRelationAttention(inputs.sizes, settings).to(device)
        optimiser = torch.optim.AdamW(
            network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        answer = torch.from_numpy(np.nan_to_num(open_question)).float().to(device)
        per_pass = len(learning) // settings.batches_per_pass
        size = min(max(per_pass, settings.smallest_batch), settings.largest_batch)
        looked_at = torch.from_numpy(rng.permutation(stopping)[: settings.most_stopping]).to(device)
        best, best_state, waited = np.inf, copy.deepcopy(network.state_dict()), 0
        for rows in _epochs(learning, settings, rng):
            _learn(network, optimiser, inputs, answer, rows, size, settings.huber)
            error = _error(network, inputs, answer, looked_at)
            waited += 1
            if error < best:
                best, best_state, waited = error, copy.deepcopy(network.state_dict()), 0
            if waited >= settings.patience:
                break
    network.load_state_dict(best_state)
    return network


def _epochs(learning: IntArray, settings: AttentionSettings, rng: np.random.Generator) -> Iterator[IntArray]:
    """Shuffled rows between two looks at the error; a large cohort is looked at several times a pass."""
    per_look = min(len(learning), settings.most_visits // settings.epochs)
    for _ in range(settings.epochs):
        yield rng.permutation(learning)[:per_look]


def _learn(
    network: TwoRelationAttention,
    optimiser: torch.optim.Optimizer,
    inputs: Inputs,
    answer: Tensor,
    rows: IntArray,
    batch_size: int,
    huber: float,
) -> None:
    network.train()
    for start in range(0, len(rows), batch_size):
        batch = torch.from_numpy(rows[start : start + batch_size]).to(answer.device)
        optimiser.zero_grad()
        added, _, _ = network(inputs.batch(batch))
        loss = nn.functional.huber_loss(added, answer[batch], delta=huber)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _error(network: TwoRelationAttention, inputs: Inputs, answer: Tensor, rows: Tensor) -> float:
    network.eval()
    with torch.no_grad():
        return float((network(inputs.batch(rows))[0] - answer[rows]).abs().mean())


def _forward(network: TwoRelationAttention, inputs: Inputs, rows: IntArray) -> tuple[FloatArray, ...]:
    """The network's outputs at some visits, in batches of one fixed size (the last one padded)."""
    network.eval()
    outputs = []
    with torch.no_grad():
        for start in range(0, len(rows), SCORING_BATCH):
            part = rows[start : start + SCORING_BATCH]
            padded = torch.from_numpy(np.resize(part, SCORING_BATCH)).to(inputs.query.device)
            outputs.append([each[: len(part)] for each in network(inputs.batch(padded))])
    return tuple(torch.cat(each).double().cpu().numpy() for each in zip(*outputs, strict=True))


def _device(network: nn.Module) -> str:
    return str(next(network.parameters()).device)
