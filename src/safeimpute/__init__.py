"""Impute missing lab values and release only those whose error rate can be promised."""

from typing import TYPE_CHECKING, Any

from safeimpute.runtime.waiting import wait_passively

if TYPE_CHECKING:
    from safeimpute.errors import SafeImputeError as SafeImputeError
    from safeimpute.estimator import SafeImputer as SafeImputer
    from safeimpute.evaluation.pooling import pool as pool
    from safeimpute.foreign.hidden import hide as hide
    from safeimpute.foreign.release import release as release
    from safeimpute.records.tables import read_visits as read_visits

wait_passively()  # libraries read it once, when they load
__version__ = "0.2.0"
__all__ = ["SafeImputeError", "SafeImputer", "hide", "pool", "read_visits", "release"]

_HOMES = {
    "SafeImputeError": "safeimpute.errors",
    "SafeImputer": "safeimpute.estimator",
    "pool": "safeimpute.evaluation.pooling",
    "hide": "safeimpute.foreign.hidden",
    "release": "safeimpute.foreign.release",
    "read_visits": "safeimpute.records.tables",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package loads neither torch nor polars."""
    if name not in _HOMES:
        raise AttributeError(f"module 'safeimpute' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
