"""One check as two tests: a few invented cases in the quick suite, many in the long one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

Test = Callable[..., None]


def fuzzed(check: Test, *strategies: SearchStrategy[Any], few: int, many: int) -> tuple[Test, Test]:
    """The check on invented cases, as a quick and as a long test; fixtures come before the strategies' arguments."""
    quick: Any = settings(max_examples=few)(given(*strategies)(check))
    long: Any = settings(max_examples=many)(given(*strategies)(check))
    return quick, pytest.mark.full(long)
