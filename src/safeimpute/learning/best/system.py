"""The default system, cross-fitted: every patient is estimated by the model of its own fold, which never saw it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from safeimpute.learning.best.evidence import Carried, Source, read_carried
from safeimpute.learning.best.fold_model import FoldModel, Lesson, fit_fold_model
from safeimpute.learning.protocol import Arrays, Estimates, Support, join_estimates
from safeimpute.learning.roles import fold_of, require_learnable
from safeimpute.machine.progress import Progress, Stopwatch, silent
from safeimpute.machine.resources import Size, block_within_ceiling, side_by_side, steady_sums
from safeimpute.machine.state import Checkpoint, Plain, State
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import NONE, BoolArray, FloatArray, IntArray, Stream, VisitArrays, generator


def explain(source: Source, visits: VisitArrays, rows: IntArray) -> Support:
    """What carried the imputations at some visits of a table.

    Own visits count with the weight the patient's course gives them; what these leave open is carried by the labs,
    and shown by the analogous visits of other patients, closer ones counting more.
    """
    if not len(rows):
        nothing = np.empty(0)
        return Support(np.empty(0, np.int64), np.empty(0, bool), nothing, nothing, nothing, nothing, nothing)
    patients = np.isin(visits.patient, visits.patient[rows])
    there = visits.take(patients)
    place = np.cumsum(patients) - 1
    carried = read_carried(there, source, place[rows])
    own_share, analogue_share = _shares(carried, source)
    own, analogues = carried.own, carried.analogues.panel
    sources = np.hstack([own, analogues])
    known_sources = sources != NONE
    time, nothing = there.time, np.full(own.shape, np.nan)
    z = source.units.values(there)[:, source.target]
    known = np.hstack([z[own], source.panel.target[analogues]])
    columns = (
        np.broadcast_to(rows[:, None], sources.shape),
        np.broadcast_to(np.arange(sources.shape[1]) < own.shape[1], sources.shape),
        np.hstack([own_share, analogue_share]),
        source.units.labs.in_unit(known, source.target),
        np.hstack([time[own] - time[carried.rows, None], np.full(analogues.shape, np.nan)]),
        np.hstack([nothing, carried.analogues.value_distance]),
        np.hstack([nothing, carried.analogues.trend_distance]),
    )
    return Support(*(column[known_sources] for column in columns))


def _shares(carried: Carried, source: Source) -> tuple[FloatArray, FloatArray]:
    """The course's weights as shares of at most 1, and the rest over the analogous visits by closeness."""
    own = np.abs(carried.predicted.weights) * (carried.own != NONE)
    total = own.sum(axis=1, keepdims=True)
    own = own / np.maximum(total, 1.0)
    near = 1.0 / (carried.analogues.value_distance + source.panel.radius / 4)
    near = np.where(carried.analogues.panel == NONE, 0.0, near)
    nearness = near.sum(axis=1, keepdims=True)
    rest = 1.0 - own.sum(axis=1, keepdims=True)
    return own, rest * np.divide(near, nearness, out=np.zeros_like(near), where=nearness > 0)


@dataclass(frozen=True)
class FrozenBest:
    """One model per fold: a visit's estimates depend on its own patient's visits and on these alone."""

    models: tuple[FoldModel, ...]
    seed: int

    def fold(self, visits: VisitArrays) -> IntArray:
        """The fold of every visit's patient."""
        return fold_of(visits.patient_key, self.seed, len(self.models))

    @steady_sums()
    def estimate(self, visits: VisitArrays, device: str = "cpu", wanted: BoolArray | None = None) -> Estimates:
        """Value and risk of every visit, or of the wanted ones (NaN elsewhere), by the model of its patient's fold."""
        fold = self.fold(visits)
        chosen = np.ones(len(visits), dtype=bool) if wanted is None else wanted
        parts = [
            (rows & chosen, model.estimate(visits.take(rows), device, chosen[rows]))
            for rows, model in _by_fold(np.where(_any_of(visits.patient, chosen), fold, -1), self.models)
        ]
        return join_estimates(len(visits), parts)

    def state(self) -> State:
        """All models, without code."""
        arrays: Arrays = {}
        plain: Plain = {"seed": self.seed, "models": []}
        for number, model in enumerate(self.models):
            tensors, facts = model.state()
            plain["models"].append(facts)
            arrays |= {f"{number}.{name}": each for name, each in tensors.items()}
        return arrays, plain

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "FrozenBest":
        """What `state` took apart."""
        models = []
        for number, facts in enumerate(plain["models"]):
            start = f"{number}."
            own = {name.removeprefix(start): each for name, each in arrays.items() if name.startswith(start)}
            models.append(FoldModel.from_state(own, facts))
        return cls(tuple(models), plain["seed"])


@dataclass(frozen=True)
class FittedBest:
    """The cross-fitted system beside the table it was fitted to."""

    frozen: FrozenBest
    visits: VisitArrays
    estimates: Estimates
    seconds: Mapping[str, float] = field(default_factory=dict)

    def arrays(self) -> Arrays:
        """Nothing beside the frozen models."""
        return {}

    def explain(self, rows: IntArray) -> Support:
        """The visits that carried the values at some rows."""
        fold = self.frozen.fold(self.visits)
        parts = [
            explain(model.source, self.visits, rows[fold[rows] == number])
            for number, model in enumerate(self.frozen.models)
        ]
        joined = [np.concatenate(columns) for columns in zip(*(vars(p).values() for p in parts), strict=True)]
        order = np.argsort(joined[0], kind="stable")
        return Support(*(column[order] for column in joined))


@steady_sums()
def fit_best(
    visits: VisitArrays,
    settings: BestSettings,
    tolerance: Tolerance,
    seed: int,
    *,
    past_only: bool = False,
    calendar: bool = True,
    device: str = "cpu",
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> FittedBest:
    """Fit one model per fold of patients; the target column of `visits` holds visible targets only.

    Folds found in `checkpoint` are taken from there, the others put there once they are fitted.

    Raises VisitsError where the table is too small to learn from, OptionError where a memory ceiling cannot be kept.
    """
    settings = replace(
        settings, block_visits=block_within_ceiling(size_of(visits, settings, past_only), settings.block_visits)
    )
    fold = fold_of(visits.patient_key, seed, settings.folds)
    target = visits.lab_names[visits.target]
    require_learnable(target, visits.patient, ~np.isnan(visits.target_values), fold)
    lesson, finished = Lesson(settings, tolerance, past_only, calendar), count(1)

    def of_fold(number: int) -> _FoldFit:
        found = None if checkpoint is None else _stored_fold(checkpoint, fold != number, number)
        if found is None:
            found = _fit_fold(visits, fold, number, lesson, generator(seed, Stream.FIT, number), device)
            if checkpoint is not None:
                checkpoint.put(f"fold-{number}", found.state())
        done = next(finished)
        progress(f"learning values and risks, {done} of {settings.folds} folds", done / settings.folds)
        return found

    progress("learning values and risks", 0.0)
    found = side_by_side(of_fold, range(settings.folds), len(visits))
    parts = [(each.rows, each.estimates) for each in found if each.estimates is not None]
    seconds = {stage: sum(each.seconds[stage] for each in found) for stage in ("fit", "estimate")}
    frozen = FrozenBest(tuple(each.model for each in found), seed)
    return FittedBest(frozen, visits, join_estimates(len(visits), parts), seconds)


class _FoldFit(NamedTuple):
    """The model of one fold, and what it says about the visits of that fold."""

    model: FoldModel
    rows: BoolArray
    estimates: Estimates | None  # None where nobody is in the fold
    seconds: Mapping[str, float]

    def state(self) -> State:
        """To be kept while the other folds are fitted."""
        arrays, plain = self.model.state()
        stored: Arrays = {f"model.{name}": each for name, each in arrays.items()}
        if self.estimates is not None:
            parts = {name: getattr(self.estimates, name) for name in _OF_ESTIMATES}
            stored |= {f"estimates.{name}": each for name, each in parts.items()}
            stored |= {f"signals.{name}": each for name, each in self.estimates.signals.items()}
        return stored, {"model": plain, "seconds": dict(self.seconds)}


_OF_ESTIMATES = ("value", "risk", "spread", "no_evidence", "above")


def _stored_fold(checkpoint: Checkpoint, others: BoolArray, number: int) -> _FoldFit | None:
    """A fold that an earlier attempt finished; None where there is none."""
    state = checkpoint.get(f"fold-{number}")
    if state is None:
        return None
    arrays, plain = state
    model = FoldModel.from_state(_named(arrays, "model."), plain["model"])
    found, signals = _named(arrays, "estimates."), _named(arrays, "signals.")
    estimates = None
    if not others.all():
        value, risk, spread, nothing, above = (found[name] for name in _OF_ESTIMATES)
        estimates = Estimates(value, risk, spread, nothing, model.risk.tolerance, signals, above)
    return _FoldFit(model, ~others, estimates, plain["seconds"])


def _named(arrays: Arrays, start: str) -> Arrays:
    """Arrays whose names begin so, without that beginning."""
    return {name.removeprefix(start): each for name, each in arrays.items() if name.startswith(start)}


def _fit_fold(
    visits: VisitArrays, fold: IntArray, number: int, lesson: Lesson, rng: np.random.Generator, device: str
) -> _FoldFit:
    others, watch = fold != number, Stopwatch()
    with watch.stage("fit"):
        model = fit_fold_model(visits.take(others), fold[others], lesson, rng, device)
    with watch.stage("estimate"):
        estimates = None if others.all() else model.estimate(visits.take(~others), device)
    return _FoldFit(model, ~others, estimates, watch.seconds)


def size_of(visits: VisitArrays, settings: BestSettings, past_only: bool) -> Size:
    """What the memory of a fit to these visits depends on."""
    return Size(
        visits=len(visits),
        measured=int(np.sum(~np.isnan(visits.target_values))),
        labs=visits.labs.shape[1] - 1,
        attributes=visits.attributes.shape[1],
        own=settings.own_each_way * (1 if past_only else 2),
        analogues=settings.analogues,
    )


def _any_of(patient: IntArray, chosen: BoolArray) -> BoolArray:
    """Visits of patients with a chosen visit."""
    return np.bincount(patient, chosen, minlength=1)[patient] > 0


def _by_fold(fold: IntArray, models: tuple[FoldModel, ...]) -> Iterator[tuple[BoolArray, FoldModel]]:
    for number, model in enumerate(models):
        rows = fold == number
        if rows.any():
            yield rows, model
