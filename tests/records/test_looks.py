"""Everything that was chosen about a promise makes another look of the same visits."""

from typing import Any

import pytest

from safeimpute.records.looks import look_of
from safeimpute.runtime.looks import is_second_look
from safeimpute.settings import make_settings

ASKED: dict[str, Any] = {"target": "hba1c", "tolerance": 0.5, "fdr": 0.2}
FIRST = look_of(make_settings(**ASKED), "visits", "first")


def test_a_plain_repetition_is_the_same_choice() -> None:
    assert FIRST.promise == "average"  # as ledgers of earlier versions say it
    assert not is_second_look([FIRST], look_of(make_settings(**ASKED), "visits", "again"))


@pytest.mark.parametrize(
    "chosen",
    [
        {"groups": ("value",)},
        {"risk_cap": 0.3},
        {"over": "cells"},
        {"past_only": True},
        {"promise": "confident"},
        {"claim": "later"},
        {"best": {"effort": "light"}},
        {"best": {"analogues": 4}},
    ],
)
def test_what_is_chosen_after_looking_is_a_second_look(chosen: dict[str, Any]) -> None:
    again = look_of(make_settings(**ASKED | chosen), "visits", "again")
    assert is_second_look([FIRST], again)
    assert not is_second_look([again], look_of(make_settings(**ASKED | chosen), "visits", "more"))


def test_another_date_since_which_is_calibrated_is_another_choice() -> None:
    since = [
        look_of(make_settings(**ASKED, claim="later", since=date), "visits", date)
        for date in ("2026-01-01", "2026-02-01")
    ]
    assert is_second_look(since[:1], since[1])
