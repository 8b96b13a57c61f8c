"""SafeImputer, which leads the walk from visits to a release: for one lab, or for several in one run."""

from safeimpute.estimator.imputer import SafeImputer
from safeimpute.estimator.one_lab import LabImputer
from safeimpute.estimator.several import SeveralLabs

__all__ = ["LabImputer", "SafeImputer", "SeveralLabs"]
