"""Every imputation method by name, and what it needs to run here."""

import importlib
import importlib.util
import inspect
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.learning import SYSTEMS
from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Task


class FittedImputer(Protocol):
    """A trained imputation method; frozen from here on."""

    def impute(self, task: Task) -> Imputation:
        """Impute every visit of a task; what is said where the target is hidden never depends on a hidden target.

        Where it is visible, methods that complete one graph or table (`grape`, `tdm`) may use it; nobody judges them
        there.
        """
        ...


class Imputer(Protocol):
    """An imputation method with its settings, not yet trained."""

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedImputer:
        """Learn from the task's training targets; validation targets may steer settings and stopping only."""
        ...


@dataclass(frozen=True)
class Method:
    """Where a method lives and what it is."""

    module: str
    factory: str
    summary: str
    needs: tuple[str, ...] = ()  # modules that must be importable
    outside: bool = False  # runs in the baselines environment
    stops: bool = False  # decides by validation values when to stop; any other method learns from them too
    in_r: tuple[str, ...] = ()  # R's packages it needs

    def missing(self) -> list[str]:
        """What must be installed before the method can run here."""
        from safeimpute_lab.methods import outside

        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return absent + (outside.missing() if self.outside else []) + outside.missing_in_r(*self.in_r)

    def make(self, effort: float = 1.0) -> Imputer:
        """The method with its published settings; `effort` below one trains for fewer rounds."""
        factory = getattr(importlib.import_module(self.module), self.factory)
        trains_in_rounds = "effort" in inspect.signature(factory).parameters
        imputer: Imputer = factory(effort=effort) if trains_in_rounds else factory()
        return imputer


def _baseline(
    module: str,
    factory: str,
    summary: str,
    *needs: str,
    outside: bool = False,
    stops: bool = False,
    in_r: tuple[str, ...] = (),
) -> Method:
    where = f"safeimpute_lab.methods.{module}"
    return Method(where, factory, summary, needs, outside, stops, in_r)


METHODS: dict[str, Method] = {
    "mean": _baseline("simple", "Mean", "mean of the training values"),
    "locf": _baseline("simple", "LastValue", "the patient's last value carried forward"),
    "patient_mean": _baseline("simple", "PatientMean", "mean of the patient's other values"),
    "knn": _baseline("knn", "NearestNeighbours", "ten nearest visits", "sklearn"),
    "mice": _baseline("chained", "Mice", "chained Bayesian regressions", "sklearn"),
    "missforest": _baseline("chained", "MissForest", "chained random forests", "sklearn"),
    "hyperimpute": _baseline("hyperimpute", "HyperImpute", "columnwise choice of learner, iterated", outside=True),
    "gain": _baseline("hyperimpute", "Gain", "adversarial imputation network", outside=True),
    "grape": _baseline("grape", "Grape", "graph of visits and labs, edge values predicted", "torch"),
    "tdm": _baseline("tdm", "Tdm", "transformed distribution matching", "torch", "ot"),
    "miwae": _baseline("miwae", "Miwae", "importance-weighted autoencoder", "torch"),
    "remasker": _baseline("remasker", "ReMasker", "masked autoencoder, masked again", "torch"),
    "diffputer": _baseline("diffputer", "DiffPuter", "diffusion model inside EM", "torch"),
    "lstm": _baseline("lstm", "Lstm", "recurrent network over the patient's visits", "torch", stops=True),
    "transformer": _baseline("transformer", "Transformer", "self-attention over the visits", "torch", stops=True),
    "saits": _baseline("saits", "Saits", "two masked self-attention blocks over the visits", "torch", stops=True),
    "brits": _baseline("brits", "Brits", "recurrent imputation in both directions", "torch", stops=True),
    "grud": _baseline("grud", "GruD", "recurrent network with decay over gaps", "torch", stops=True),
    "grin": _baseline("grin", "Grin", "recurrent graph network over the labs", "torch", stops=True),
    "csdi": _baseline("csdi", "Csdi", "conditional diffusion over visits and labs", "torch"),
    "lightgbm": _baseline(
        "boosted_lags", "BoostedLags", "gradient-boosted trees on lag features", "lightgbm", stops=True
    ),
    "pypots-saits": _baseline("peers", "PyPotsSaits", "PyPOTS's SAITS", "torch", outside=True, stops=True),
    "pypots-brits": _baseline("peers", "PyPotsBrits", "PyPOTS's BRITS", "torch", outside=True, stops=True),
    "pypots-csdi": _baseline("peers", "PyPotsCsdi", "PyPOTS's CSDI", "torch", outside=True),
    "pypots-helix": _baseline("peers", "PyPotsHelix", "PyPOTS's HELIX", "torch", outside=True, stops=True),
    "miceforest": _baseline("peers", "MiceForest", "chained LightGBM, mean matching", "torch", outside=True),
    "r-mice": _baseline("peers", "r_mice", "R's mice, predictive mean matching", "torch", in_r=("mice",)),
    "r-mice-2l": _baseline("peers", "r_mice_two_levels", "R's mice, two levels", "torch", in_r=("mice", "pan")),
    "r-missforest": _baseline("peers", "r_missforest", "R's missForest", "torch", in_r=("missForest",)),
    "paper": Method("safeimpute.learning.paper.gcn", "GcnImputer", SYSTEMS["paper"], ("torch",), stops=True),
    "best": Method("safeimpute_lab.methods.best", "BestImputer", SYSTEMS["best"], ("torch", "lightgbm")),
}


def method_named(name: str) -> Method:
    """A method, or an error that lists them all."""
    if name not in METHODS:
        raise OptionError(f"method {name!r} is not known. Methods: {', '.join(METHODS)}.")
    return METHODS[name]


def make_imputer(name: str, effort: float = 1.0) -> Imputer:
    """A method with its published settings, ready to be fitted."""
    return method_named(name).make(effort)
