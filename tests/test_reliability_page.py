"""docs/reliability.md says what the tests are, counted from them."""

from pathlib import Path

import pytest
import reliability

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def test_promises_are_held_by_tests_that_exist() -> None:
    assert reliability.HELD
    assert reliability.missing_tests() == []
    told = PAGE.read_text(encoding="utf-8")
    assert all(promise in told for promise in reliability.HELD)


def test_a_test_that_is_not_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reliability.HELD, "x", ("test_cli.py::test_that_nobody_wrote",))
    assert reliability.missing_tests() == ["test_cli.py::test_that_nobody_wrote"]


@pytest.mark.full
def test_the_page_counts_the_cases_there_are() -> None:
    assert PAGE.read_text(encoding="utf-8") == reliability.page(reliability.collect()), (
        "run: python tools/reliability.py > docs/reliability.md"
    )
