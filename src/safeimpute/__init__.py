"""Impute missing lab values and release only those whose error rate can be promised."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeimpute.draws.pooling import pool as pool
    from safeimpute.errors import SafeImputeError as SafeImputeError
    from safeimpute.foreign.hidden import hide as hide
    from safeimpute.foreign.release import release as release
    from safeimpute.model.imputer import SafeImputer as SafeImputer
    from safeimpute.visits.tables import read_visits as read_visits

__version__ = "0.2.0"
__all__ = ["SafeImputeError", "SafeImputer", "hide", "pool", "read_visits", "release"]

_HOMES = {
    "SafeImputeError": "safeimpute.errors",
    "SafeImputer": "safeimpute.model.imputer",
    "pool": "safeimpute.draws.pooling",
    "hide": "safeimpute.foreign.hidden",
    "release": "safeimpute.foreign.release",
    "read_visits": "safeimpute.visits.tables",
}


def __dir__() -> list[str]:
    """The public names, whether or not they were loaded."""
    return sorted((*__all__, "__version__"))


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package loads neither torch nor polars."""
    if name not in _HOMES:
        raise AttributeError(f"module 'safeimpute' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
