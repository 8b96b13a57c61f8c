"""Every imputation method by name, and what it needs to run here."""

import importlib
import importlib.util
from dataclasses import dataclass

from safeimpute.errors import OptionError
from safeimpute.imputers.protocol import Imputer


@dataclass(frozen=True)
class Method:
    """Where a method lives and what it is."""

    module: str
    factory: str
    summary: str
    needs: tuple[str, ...] = ()  # modules that must be importable

    def missing(self) -> list[str]:
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def make(self) -> Imputer:
        imputer: Imputer = getattr(importlib.import_module(self.module), self.factory)()
        return imputer


_SIMPLE = "safeimpute.imputers.baselines.simple"
METHODS: dict[str, Method] = {
    "mean": Method(_SIMPLE, "Mean", "mean of the training values"),
    "locf": Method(_SIMPLE, "LastValue", "the patient's last value carried forward"),
    "patient_mean": Method(_SIMPLE, "PatientMean", "mean of the patient's other values"),
    "lightgbm": Method(
        "safeimpute.imputers.baselines.boosted_lags",
        "BoostedLags",
        "gradient-boosted trees on lag features",
        ("lightgbm",),
    ),
    "paper": Method(
        "safeimpute.imputers.gcn", "GcnImputer", "two-relation graph network of the paper", ("torch",)
    ),
    "best": Method(
        "safeimpute.imputers.blend",
        "BlendImputer",
        "course, boosted trees and attention over one table of evidence, blended (the default)",
        ("torch", "lightgbm"),
    ),
}


def make_imputer(name: str) -> Imputer:
    if name not in METHODS:
        raise OptionError(f"method {name!r} is not known. Methods: {', '.join(METHODS)}.")
    return METHODS[name].make()
