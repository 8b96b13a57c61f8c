"""How the paper's experiments are set: the share held out, tolerances, levels and cohorts of its two protocols."""

from dataclasses import dataclass

from safeimpute.errors import OptionError
from safeimpute.tolerance import Tolerance

LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 11))
# In the order of the paper's tables, by kind.
METHODS = {
    "statistical": ("mean", "knn", "mice", "missforest", "hyperimpute"),
    "deep learning": ("gain", "grape", "tdm", "miwae", "remasker", "diffputer"),
    "sequential": ("lstm", "transformer"),
    "ours": ("paper", "best"),
}


@dataclass(frozen=True)
class Protocol:
    """One of the paper's two settings."""

    name: str
    test_fraction: float
    alpha: float
    tolerance: float  # percentage points of HbA1c
    curve_factors: tuple[float, ...]  # of the tolerance
    risk_groups: int
    cohorts: tuple[str, ...]  # whose published figures stand beside ours

    def curve_tolerances(self, tolerance: Tolerance) -> tuple[Tolerance, ...]:
        """The tolerances of the FDR-power curves, in the paper's proportions to the chosen one."""
        return tuple(
            Tolerance(_short(tolerance.absolute * factor), _short(tolerance.share * factor))
            for factor in self.curve_factors
        )


def _short(value: float) -> float:
    """Three digits, as people name tolerances."""
    return float(f"{value:.3g}")


PROTOCOLS = {
    "mayo": Protocol("mayo", 0.1, 0.15, 0.6, (5 / 6, 1.0, 7 / 6, 4 / 3), 5, ("Mayo Clinic",)),
    "mimic": Protocol("mimic", 0.4, 0.35, 1.0, (1.0,), 10, ("MIMIC-III", "MIMIC-IV")),
}


def protocol_named(name: str) -> Protocol:
    """A protocol, or an error that lists them."""
    if name not in PROTOCOLS:
        raise OptionError(f"protocol {name!r} is not known. Protocols: {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


def tolerance_of(protocol: Protocol, target: str, given: float | str | None) -> float | str:
    """The tolerance: as given, else the paper's, which speaks of HbA1c alone."""
    if given is not None:
        return given
    if target != "hba1c":
        raise OptionError(
            f"tolerance is needed: the paper's {protocol.tolerance:g} is in percentage points of HbA1c, and the target "
            f"is {target!r}."
        )
    return protocol.tolerance
