"""A loaded model is looked over before it works: shapes, ranges, finite numbers, and a trial on invented visits.

Checksums say that a folder is as somebody wrote it, not that we did. Whatever passes here cannot lead NumPy, LightGBM
or the neighbour search outside of what they hold.
"""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from safeimpute.errors import ModelFolderError, SafeImputeError
from safeimpute.learning.best.course import Variances
from safeimpute.learning.best.evidence import Source
from safeimpute.learning.best.fold_model import PARTS, FoldModel
from safeimpute.learning.best.joint import LARGEST_PATIENT_SCALE, Joint
from safeimpute.learning.scaling import Scaler
from safeimpute.machine.state import Arrays
from safeimpute.model.frozen import FrozenModel, score_visits
from safeimpute.selection.measuring.model import FoldMeasuring, Logistic
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays, mix
from safeimpute.visits.new_visits import Reading

if TYPE_CHECKING:
    pass

FOLDS = (3, 10)
LARGEST_SEED = 2**63 - 1
TRIAL_PATIENTS = 24  # enough for some to fall into every fold
ENDLESS = ("radius",)  # numbers that may be infinite: where nothing is alike, any distance is
LARGEST_COVARIANCE = 1e4  # of labs in standard units, of which none counts beyond 5


def require_valid(model: FrozenModel, reading: Reading) -> None:
    """Raise ModelFolderError where a loaded model is not one that fitting could have made."""
    try:
        _look_over(model, reading)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise ModelFolderError(
            f"the model is not what safeimpute writes: an entry is of another kind ({type(error).__name__}). Fit again."
        ) from None
    _try(model, reading)


def _look_over(model: FrozenModel, reading: Reading) -> None:
    _look_at_reading(reading)
    _require(len(model.system.models) in range(FOLDS[0], FOLDS[1] + 1), "the number of folds")
    _require(_is_whole(model.system.seed, 0, LARGEST_SEED), "the seed")
    for fold in model.system.models:
        _look_at_fold(fold, reading)
    if model.measuring is not None:
        _require(len(model.measuring.folds) == len(model.system.models), "the folds of who gets measured")
        _require(all(isinstance(each, str) for each in model.measuring.columns), "the columns of measuring")
        for each in model.measuring.folds:
            _look_at_measuring(each)
    _look_at_decision(model)


def require_visit_arrays(tensors: Arrays, visits: Any, outside: Any) -> None:
    """The arrays of the fitted table have one entry per fitted visit."""
    _require(_is_whole(visits, 1, 2**40) and isinstance(outside, list), "the count of fitted visits")
    shapes = dict.fromkeys(("value", "risk", "spread", "no_evidence", "weight"), (visits,))
    above = tensors.get("visit.above")
    if above is not None:
        shapes["above"] = (visits, *above.shape[1:2])
    for name, shape in {**shapes, "outside": (visits, len(outside))}.items():
        found = tensors.get(f"visit.{name}")
        _require(found is not None and found.shape == shape and found.dtype.kind in "fiu", f"visit.{name}")


def _look_at_reading(reading: Reading) -> None:
    single = (reading.subject, reading.time, reading.target)
    named = (*single, *reading.inputs, *(level for levels in reading.categories.values() for level in levels))
    _require(all(isinstance(each, str) for each in named), "the names of columns")
    _require(reading.target in reading.labs and isinstance(reading.clocks, bool), "what it reads")
    for levels in reading.high_cardinality.values():
        _require(all(isinstance(each, str) for each in levels) and sorted(set(levels)) == list(levels), "its levels")
    keys = (reading.subject, reading.time, *reading.inputs)
    _require(len(set(keys)) == len(keys), "a column read twice")


def _look_at_fold(fold: FoldModel, reading: Reading) -> None:
    labs, others, attributes = len(reading.labs), len(reading.labs) - 1, len(reading.encoded)
    source = fold.source
    _require(source.target == reading.labs.index(reading.target), "the target's place")
    for scaler, width in (
        (source.units.labs, labs),
        (source.units.trends, others),
        (source.units.attributes, attributes),
    ):
        _look_at_scaler(scaler, width)
    _look_at_panel(source, others)
    _require(_is_whole(source.own_each_way, 1, 50) and _is_whole(source.analogues, 1, 64), "how far it looks")
    _require(_is_whole(fold.block_visits, 1_024, 1_048_576), "the size of blocks")
    _require(all(isinstance(each, bool) for each in (source.past_only, fold.calendar)), "its switches")
    _require(set(fold.weights) == set(PARTS), "the parts of the blend")
    _require(all(_is_number(each) and 0 <= each <= 1 for each in fold.weights.values()), "the blend")
    _require(_all_finite(source.course) and source.course.variances.memory_days > 0, "the course")
    _require(_solvable(source.course.variances), "the course")
    _require(source.course.coefficients.ndim == 1, "the course")
    _look_at_joint(source.joint, labs, attributes)
    _require(source.joint.coefficients.shape == source.course.coefficients.shape, "the joint course")
    _look_at_tolerance(fold.risk.tolerance)
    _look_at_tolerance(fold.risk.scale)
    _require(len(fold.risk.above) == len(fold.risk.tolerance.limits), "the limits of its risk")
    _require(_is_number(fold.risk.deviation_share) and fold.risk.deviation_share >= 0, "the deviations of its risk")
    _require(_is_number(fold.risk.course_weight) and 0 <= fold.risk.course_weight <= 1, "what its risk weighs")
    _require(_is_number(fold.risk.largest) and fold.risk.largest > 0, "the errors of its risk")
    _require((fold.risk.probability is None) == (fold.risk.tolerance.of_error is None), "its risk")
    chances = () if fold.risk.probability is None else (fold.risk.probability,)
    bags = (fold.trees.trees, fold.beyond.trees, *chances, fold.risk.ratio, *fold.risk.above)
    _require(all(1 <= len(bag.members) <= FOLDS[1] for bag in bags), "the number of trees")


def _look_at_tolerance(tolerance: Tolerance) -> None:
    limits = tolerance.limits
    numbers = all(map(_is_number, (tolerance.absolute, tolerance.share, *limits)))
    _require(numbers and min(tolerance.absolute, tolerance.share) >= 0, "the tolerance")
    _require(all(low < high for low, high in pairwise(limits)), "the limits")
    _require(isinstance(tolerance.by_size, bool), "the costs")
    levels, cost = tolerance.levels, tolerance.cost
    bands = len(limits) + 1
    _require(not cost or [len(row) for row in cost] == [bands] * bands, "the costs")
    _require(not cost or all(_is_number(each) and each >= 0 for row in cost for each in row), "the costs")
    _require(not cost or max(map(max, cost)) > 0, "the costs")
    _require(all(isinstance(each, str) for each in tolerance.words), "the classes")
    _require(len(tolerance.words) in (0, len(levels)), "the classes")
    between = tuple((low + high) / 2 for low, high in pairwise(levels))
    _require(not levels or (all(map(_is_number, levels)) and between == limits), "the classes")


def _look_at_scaler(scaler: Scaler, width: int) -> None:
    _require(all(each.shape == (width,) for each in vars(scaler).values()), "the shape of its units")
    _require(scaler.log.dtype == bool and _all_finite(scaler) and bool((scaler.scale > 0).all()), "its units")


def _solvable(variances: Variances) -> bool:
    """Noise that no other variance drowns: solving with them cannot fail."""
    spread = variances.steady + variances.drifting
    return (
        min(variances.steady, variances.drifting) >= 0.0 and variances.noise > 0.0 and spread <= 1e6 * variances.noise
    )


def _look_at_joint(joint: Joint, labs: int, attributes: int) -> None:
    """Covariances of the right shape, symmetric and positive: solving with them cannot fail."""
    _require(joint.means.shape == (1 + attributes, labs) and _all_finite(joint), "the joint course")
    _require(joint.memory_days.ndim == 1 and bool((joint.memory_days > 0).all()), "the joint course")
    _require(joint.drifts.shape == (len(joint.memory_days), labs, labs), "the joint course")
    _require(
        _is_number(joint.patient_scale) and 0.0 <= joint.patient_scale <= LARGEST_PATIENT_SCALE, "the joint course"
    )
    for matrix, least in ((joint.visits, 1e-6), (joint.levels, -1e-9), *((d, -1e-9) for d in joint.drifts)):
        _require(matrix.shape == (labs, labs) and np.allclose(matrix, matrix.T), "the joint course")
        _require(float(np.abs(matrix).max(initial=0.0)) <= LARGEST_COVARIANCE, "the joint course")
        _require(float(np.linalg.eigvalsh(matrix)[0]) >= least, "the joint course")


def _look_at_panel(source: Source, others: int) -> None:
    panel = source.panel
    rows = len(panel.target)
    shapes = {"values": (rows, others), "trends": (rows, others)}
    for name in ("values", "trends", "patient", "target", "regression"):
        found = getattr(panel, name)
        _require(found.shape == shapes.get(name, (rows,)), "the shape of its panel")
        _require(found.dtype == (np.int64 if name == "patient" else np.float64), "the kind of its panel")
        _require(not np.isinf(found).any(), "an infinite number in its panel")
    _require(not np.isnan(panel.target).any() and not np.isnan(panel.regression).any(), "its panel")
    _require(isinstance(panel.radius, float | int) and panel.radius > 0, "the radius of its panel")


def _look_at_measuring(fold: FoldMeasuring) -> None:
    _require(_is_number(fold.overall) and fold.overall >= 0, "the odds of measuring")
    _require(_is_whole(fold.most_visits, 0, 2**40), "the visits per patient")
    if fold.reach is not None:
        _require(all(map(_is_number, fold.reach)) and fold.reach[0] <= fold.reach[1], "the reach of time")
    _require(1 <= len(fold.members) <= FOLDS[1], "the members of who gets measured")
    for member in fold.members:
        _look_at_logistic(member.plain)


def _look_at_logistic(plain: Logistic) -> None:
    width = len(plain.plain)
    for each in (plain.centre, plain.scale, plain.absent, plain.plain):
        _require(each.shape == (width,), "the shape of who gets measured")
    regressors = 1 + width + int(plain.absent.sum()) + sum(map(len, plain.levels))
    _require(plain.coefficients.shape == (regressors,), "the coefficients of who gets measured")
    _require(_all_finite(plain) and bool((plain.scale != 0).all()), "the numbers of who gets measured")
    _require(plain.plain.dtype.kind in "iu" and bool((plain.plain >= 0).all()), "the columns of who gets measured")
    _require(all(_is_whole(each, 0, 2**31) for each in plain.high_cardinality), "the columns of who gets measured")


def _look_at_decision(model: FrozenModel) -> None:
    for cutoff in model.cutoffs.values():
        _require(cutoff.risk is None or (_is_number(cutoff.risk) and 0 <= cutoff.risk <= 1), "a cut-off")
    ratio, reached = model.intervals.ratio, model.intervals.reached
    _require(ratio.shape == reached.shape and ratio.ndim == 1, "the errors of its intervals")
    _require(ratio.dtype == reached.dtype == np.float64, "the errors of its intervals")
    _require(not np.isnan(ratio).any() and not np.isnan(reached).any(), "the errors of its intervals")
    _require(_is_number(model.coverage) and 0 < model.coverage < 1, "the coverage")
    _require(isinstance(model.no_promise, str), "what it promises")
    _require(all(isinstance(each, bool) for each in (model.past_only, model.calendar)), "its switches")
    if model.plausible is not None:
        low, high = model.plausible
        _require(_is_number(low) and _is_number(high) and low < high, "the plausible range")


def _try(model: FrozenModel, reading: Reading) -> None:
    """A trial finds what does not fit together, such as trees for another number of columns."""
    try:
        with np.errstate(all="ignore"):
            score_visits(_invented(model, reading), model)
    except SafeImputeError:
        raise
    except Exception as error:
        raise ModelFolderError(
            f"the model's parts do not fit together ({type(error).__name__} on invented visits). Fit again."
        ) from None


def _invented(model: FrozenModel, reading: Reading) -> VisitArrays:
    """Two visits each of a few patients, with average values and no target at the second."""
    visits, labs = 2 * TRIAL_PATIENTS, len(reading.labs)
    key = np.repeat(mix(np.arange(TRIAL_PATIENTS, dtype=np.uint64)), 2)
    scaler = model.system.models[0].source.units.labs
    average = np.array([float(scaler.in_unit(np.zeros(1), lab)[0]) for lab in range(labs)])
    values = np.tile(average, (visits, 1))
    target = reading.labs.index(reading.target)
    values[1::2, target] = np.nan
    return VisitArrays(
        patient=np.repeat(np.arange(TRIAL_PATIENTS), 2),
        time=np.tile([0.0, 90.0], TRIAL_PATIENTS),
        labs=values,
        lab_names=reading.labs,
        target=target,
        attributes=np.full((visits, len(reading.encoded)), np.nan),
        attribute_names=reading.encoded,
        patient_key=key,
        visit_key=mix(key + np.tile(np.array([0, 1], np.uint64), TRIAL_PATIENTS)),
        known=np.full((visits, labs), np.nan) if reading.clocks else None,
        high_cardinality=np.full((visits, len(reading.high_cardinality)), np.nan),
        high_cardinality_names=tuple(reading.high_cardinality),
    )


def _all_finite(thing: Any) -> bool:
    """Whether every number in a dataclass, its arrays and its parts is finite."""
    return all(_is_finite(value) for value in _values(thing))


def _values(thing: Any) -> Iterator[Any]:
    for entry in fields(thing):
        value = getattr(thing, entry.name)
        if is_dataclass(value):
            yield from _values(value)
        elif isinstance(value, tuple):
            yield from value
        elif entry.name not in ENDLESS:
            yield value


def _is_finite(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf" and bool(np.isfinite(value).all())
    return isinstance(value, int | float) and math.isfinite(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _require(holds: Any, what: str) -> None:
    if not holds:
        raise ModelFolderError(f"the model is not what safeimpute writes: {what} is impossible. Fit again.")
