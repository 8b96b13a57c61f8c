"""Trials: known values are hidden, imputed and released as if nobody had measured them; of one lab or several."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.learning.protocol import Estimates, Fitted, join_estimates
from safeimpute.machine.progress import Progress, part_of, silent
from safeimpute.machine.resources import side_by_side
from safeimpute.model.fit import calibrate, fit_question, fit_system
from safeimpute.selection.calibrated import Calibrated, Range
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.questions import ask, draw_roles, question_of
from safeimpute.selection.release import Decision
from safeimpute.selection.several import decide_together
from safeimpute.settings import Settings
from safeimpute.tolerance import Risky, Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, Stream, VisitArrays, generator

TEST_FRACTION = 0.2
SplitBy = Literal["visits", "patients"]


@dataclass(frozen=True)
class Trial:
    """One split, fitted and calibrated, with the truth: all that a release at any level can be judged by."""

    calibrated: Calibrated
    truth: FloatArray  # of every visit that has one, NaN elsewhere
    settings: Settings
    seconds: dict[str, float]
    alone: FloatArray | None = None  # preset paper: values of every visit without fallback edges, which serve a release
    together: Mapping[float, Decision] = field(default_factory=dict)  # by level, decided with other labs

    @property
    def tested(self) -> IntArray:
        """Rows that are released or withheld, and whose truth is known."""
        return self.calibrated.candidates

    @property
    def estimates(self) -> Estimates:
        return self.calibrated.estimates

    def risky(self, tolerance: Tolerance) -> BoolArray:
        """Of tested visits: whether the imputation is off by the tolerance or more."""
        return tolerance.risky(self.estimates.value[self.tested], self.truth[self.tested])

    def loss(self, tolerance: Tolerance) -> Risky:
        """The same, or what it costs."""
        return tolerance.loss(self.estimates.value[self.tested], self.truth[self.tested])

    def errors(self) -> tuple[FloatArray, FloatArray]:
        return self.estimates.value[self.tested], self.truth[self.tested]

    def errors_alone(self) -> tuple[FloatArray, FloatArray]:
        """The same with the values that accuracy alone is judged by."""
        value, truth = self.errors()
        return (value if self.alone is None else self.alone[self.tested]), truth

    def release(self, tolerance: Tolerance, alpha: float) -> Decision:
        if alpha in self.together:
            return self.together[alpha]
        return self.calibrated.release(tolerance, self.rule(alpha))

    def rule(self, alpha: float) -> Rule:
        told = self.settings
        return Rule(told.claim, alpha, told.promise, told.confidence, published=told.preset == "paper")

    def redrawn(self, rng: np.random.Generator) -> "Trial":
        """The same fit with calibration and test exchanged at random, as claim `visits` allows: both were hidden."""
        if self.settings.claim != "visits":
            raise OptionError(
                "calibration and test can be drawn again only under claim 'visits', which hides both: leave "
                "--repartitions at 1, and give more --splits."
            )
        question = self.calibrated.question
        union = np.flatnonzero(question.judged | question.candidate)
        judged = np.zeros(len(question.judged), dtype=bool)
        judged[rng.permutation(union)[: int(question.judged.sum())]] = True
        candidate = np.zeros_like(judged)
        candidate[union] = ~judged[union]
        again = replace(question, judged=judged, candidate=candidate)
        return replace(self, calibrated=replace(self.calibrated, question=again))


def draws(trial: Trial, repartitions: int) -> Iterator[Trial]:
    """The trial itself and its re-partitions."""
    yield trial
    rng = generator(trial.settings.random_state, Stream.REPARTITION)
    for _ in range(repartitions - 1):
        yield trial.redrawn(rng)


def run_trials(
    visits: VisitArrays,
    settings: Settings,
    splits: int,
    test_fraction: float = TEST_FRACTION,
    split_by: SplitBy = "visits",
    truth: FloatArray | None = None,
    plausible: Range | None = None,
    device: str = "cpu",
    progress: Progress = silent,
    limits: Sequence[float] = (),
    *,
    alone: bool = False,
) -> list[Trial]:
    """Fit and calibrate on several splits; with `truth`, nothing is hidden and the unmeasured visits are judged.

    With `alone`, the preset paper is fitted once more without fallback edges: the paper judges accuracy so.
    """
    trials = []
    for number in range(splits):
        seeded = replace(settings, random_state=settings.random_state + number)
        bare = without_fallback(seeded) if alone else None
        begun, done = number / splits, (number + 1) / splits
        turn = done if bare is None else (begun + done) / 2
        said = f"split {number + 1} of {splits}: "
        told = part_of(progress, begun, turn, said)
        start = time.perf_counter()
        if split_by == "patients":
            if truth is not None:
                raise OptionError("--truth judges the unmeasured visits of all patients: leave out --split patients.")
            fitted, calibrated = _by_patients(visits, seeded, test_fraction, plausible, device, told, limits)
        else:
            roles = draw_roles(visits, seeded.random_state, 0.0 if truth is not None else test_fraction)
            question = question_of(visits, seeded, roles)
            fitted, calibrated = fit_question(visits, question, seeded, plausible, device, told, limits)
        measured = visits.target_values
        known = measured if truth is None else np.where(np.isnan(measured), truth, measured)
        seconds = {**fitted.seconds, "total": time.perf_counter() - start}
        again = part_of(progress, turn, done, f"{said}without fallback, ")
        value = None if bare is None else fit_system(calibrated.question, bare, device, again).estimates.value
        trials.append(Trial(calibrated, known, seeded, seconds, value))
    return trials


def without_fallback(settings: Settings) -> Settings | None:
    """The preset paper as its accuracy alone is judged; None where that is what is there."""
    graph = settings.paper.graph
    if settings.preset != "paper" or not graph.fallback:
        return None
    return replace(settings, paper=replace(settings.paper, graph=replace(graph, fallback=False)))


def _by_patients(
    visits: VisitArrays,
    settings: Settings,
    test_fraction: float,
    plausible: Range | None,
    device: str,
    progress: Progress,
    limits: Sequence[float],
) -> tuple[Fitted, Calibrated]:
    """Whole patients are kept from the fit; each of their measured visits is then imputed without its own value.

    They are judged where they were measured, so all visits count alike.
    """
    if settings.preset == "paper" or settings.claim == "visits":
        raise OptionError("--split patients needs the preset 'best' and another claim than 'visits'.")
    patients = int(visits.patient[-1]) + 1
    rng = generator(settings.random_state, Stream.TEST)
    tested = np.zeros(patients, dtype=bool)
    tested[rng.permutation(patients)[: round(test_fraction * patients)]] = True
    apart = tested[visits.patient]
    measured = ~np.isnan(visits.target_values)
    nothing_hidden = ask(visits.take(~apart), settings, measured[~apart], ~measured[~apart])
    fitted = fit_system(nothing_hidden, settings, device, progress)
    assert fitted.frozen is not None  # the preset is best
    there = fitted.frozen.estimate(visits.take(apart), device)
    estimates = join_estimates(len(visits), [(apart, there), (~apart, fitted.estimates)])
    question = ask(visits, settings, measured & ~apart, measured & apart)
    calibrated = calibrate(question, visits.target_values, estimates, settings, plausible, weigh=False, limits=limits)
    return fitted, calibrated


Trials = Mapping[str, Sequence[Trial]]  # by lab; the same splits in each


def trials_of_labs(
    run: Callable[[str], list[Trial]], labs: Sequence[str], alphas: Sequence[float], visits: int
) -> dict[str, list[Trial]]:
    """Every lab's trials, several labs at once where each is small; decided together where one level is for all."""
    found = dict(zip(labs, side_by_side(run, labs, visits), strict=True))
    first = next(iter(found.values()))[0]
    return _decided_together(found, alphas) if first.settings.over == "cells" else found


def _decided_together(trials: Trials, alphas: Sequence[float]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {lab: [] for lab in trials}
    for split in zip(*trials.values(), strict=True):
        data_by_lab = {
            lab: trial.calibrated.selection_data(trial.settings.allowed_error)
            for lab, trial in zip(trials, split, strict=True)
        }
        decisions = {alpha: decide_together(data_by_lab, split[0].rule(alpha)) for alpha in alphas}
        for lab, trial in zip(trials, split, strict=True):
            found[lab].append(replace(trial, together={alpha: each[lab] for alpha, each in decisions.items()}))
    return found
