"""Second looks: whatever reaches a decision makes another choice, and the log is the user's, wherever results go."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.command_line import invoke
from safeimpute.machine import looks_log
from safeimpute.machine.looks_log import LOG, VARIABLE, Look, earlier_looks, is_second_look, look_of, record_look
from safeimpute.settings import make_settings
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import looks_fingerprint, prepare_visits

ASKED: dict[str, Any] = {"target": "hba1c", "tolerance": 0.5, "fdr": 0.2}


def looked(asked: dict[str, Any], fingerprint: str = "visits", table: str = "table") -> Look:
    return look_of(vars(make_settings(**asked)), fingerprint, table)


FIRST = looked(ASKED)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_plain_repetition_is_the_same_choice() -> None:
    assert not is_second_look([], FIRST)
    again = looked(ASKED)
    assert not is_second_look([FIRST, FIRST], again)


@pytest.mark.parametrize(
    "chosen",
    [
        {"fdr": 0.1},
        {"tolerance": "10%"},
        {"random_state": 1},
        {"preset": "paper", "claim": "visits"},
        {"groups": ("value",)},
        {"risk_cap": 0.3},
        {"over": "cells"},
        {"past_only": True},
        {"promise": "confident"},
        {"confidence": 0.95},
        {"claim": "later"},
        {"unit": "mmol/mol"},
        {"best": {"effort": "light"}},
        {"best": {"analogues": 4}},
    ],
)
def test_what_is_chosen_after_looking_is_a_second_look(chosen: dict[str, Any]) -> None:
    again = looked(ASKED | chosen)
    assert is_second_look([FIRST], again)
    assert is_second_look([FIRST, again], FIRST), "having seen both, neither stands alone"
    assert not is_second_look([again], looked(ASKED | chosen))


def test_another_date_since_which_is_calibrated_is_another_choice() -> None:
    since = [looked(ASKED | {"claim": "later", "since": date}) for date in ("2026-01-01", "2026-02-01")]
    assert is_second_look(since[:1], since[1])


@pytest.mark.parametrize("shown", [{"interval": 0.8}, {"gammas": (1.0, 2.0)}, {"device": "cpu"}])
def test_what_reaches_no_decision_is_no_choice(shown: dict[str, Any]) -> None:
    assert not is_second_look([FIRST], looked(ASKED | shown))


def test_other_visits_are_no_look_at_these() -> None:
    assert not is_second_look([looked(ASKED | {"fdr": 0.3}, "others")], FIRST)


def test_a_target_under_another_name_is_the_same_target() -> None:
    first, renamed = look(table()), prepare_visits(table().rename({"hba1c": "a1c"}), ColumnChoice("a1c"))
    asked = {"target": "a1c", "tolerance": 0.5, "fdr": 0.3}
    assert is_second_look([first], looked(asked, looks_fingerprint(renamed.arrays), renamed.fingerprint))
    other = prepare_visits(table(), ColumnChoice("glucose"))
    assert not is_second_look([first], looked(asked, looks_fingerprint(other.arrays), other.fingerprint))


def test_what_is_recorded_is_found_again_from_anywhere(state: Path) -> None:
    assert earlier_looks() == []
    second = replace(FIRST, choices="other")
    assert record_look(FIRST) == ""
    assert record_look(second) == ""
    assert earlier_looks() == [FIRST, second]
    assert state.stat().st_mode & 0o077 == 0, "the user's alone"


def test_where_the_log_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert looks_log.state_folder() == tmp_path / "safeimpute"
        assert f"kept in {tmp_path / 'safeimpute' / LOG}" in invoke("doctor")
    monkeypatch.setenv(VARIABLE, "off")
    assert looks_log.state_folder() is None
    assert "not kept" in invoke("doctor")


def test_without_a_log_the_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert "No log of looks" in record_look(FIRST)
    assert earlier_looks() == []


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe\x00 no text",
        b"{",
        b"[]",
        b"null",
        b"\n\n",
        b"[" * 100_000,
        json.dumps(asdict(FIRST) | {"choices": None}).encode(),
        json.dumps({"visits": "a", "when": "b"}).encode(),
    ],
)
def test_damaged_lines_are_passed_over_and_swallow_nothing(state: Path, damage: bytes) -> None:
    record_look(FIRST)
    with (state / LOG).open("ab") as file:
        file.write(damage)  # torn: without the end of its line
    second = replace(FIRST, choices="other")
    assert record_look(second) == ""
    assert earlier_looks() == [FIRST, second]


@given(st.binary(max_size=300))
def test_any_file_can_be_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("state")
    (folder / LOG).write_bytes(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(VARIABLE, str(folder))
        assert earlier_looks() == []


def test_where_nothing_can_be_written_a_warning_comes_back(state: Path) -> None:
    (state / LOG).mkdir(parents=True)
    assert "could not be entered" in record_look(FIRST)
    assert earlier_looks() == []


def test_the_log_is_bounded_and_keeps_the_newest(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks_log, "MOST_BYTES", 2_000)
    for number in range(40):
        assert record_look(replace(FIRST, choices=str(number))) == ""
    assert (state / LOG).stat().st_size < 3_000
    assert [each.choices for each in earlier_looks()][-5:] == ["35", "36", "37", "38", "39"]


WRITER = """
import sys
from safeimpute.machine.looks_log import Look, record_look
for number in range(100):
    assert record_look(Look("f" * 64, str(number), sys.argv[1])) == ""
"""


def test_two_writers_do_not_mix(state: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, name * 300], env=os.environ | {VARIABLE: str(state)})
        for name in ("a", "b")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    found = earlier_looks()
    for name in ("a", "b"):
        assert [int(look.choices) for look in found if look.when == name * 300] == list(range(100))


def table() -> pl.DataFrame:
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "subject_id": np.repeat(["Ada", "Bo", "Cy"], 10),
            "time": np.tile(np.arange(10.0), 3),
            "hba1c": [None if i % 4 == 0 else float(value) for i, value in enumerate(rng.normal(7, 1, 30))],
            "glucose": rng.normal(150, 30, 30),
            "sex": np.repeat(["f", "m", "f"], 10),
        }
    )


def print_of(frame: pl.DataFrame, **choice: Any) -> str:
    return looks_fingerprint(prepare_visits(frame, ColumnChoice("hba1c", **choice)).arrays)


def look(frame: pl.DataFrame, **choice: Any) -> Look:
    visits = prepare_visits(frame, ColumnChoice("hba1c", **choice))
    return looked(ASKED, looks_fingerprint(visits.arrays), visits.fingerprint)


def test_other_columns_are_another_look_at_the_same_visits() -> None:
    first, frame = look(table()), table()
    assert not is_second_look([first], look(frame.reverse()))
    assert not is_second_look([first], look(frame, labs=("glucose",))), "as it was read anyway"
    for other in (look(frame, exclude=("glucose",)), look(frame, attributes=("glucose",)), look(frame.drop("sex"))):
        assert is_second_look([first], other)


def test_another_value_time_or_patient_has_another_fingerprint() -> None:
    frame = table()
    changed = [
        frame.with_columns(pl.col("hba1c") + 0.1),
        frame.with_columns(pl.col("time") + 1),
        frame.with_columns(pl.col("subject_id").str.replace("Bo", "Bob")),
        frame.head(29),
        frame.with_columns(hba1c=pl.when(pl.col("time") == 3).then(None).otherwise("hba1c")),
    ]
    assert len({print_of(each) for each in [frame, *changed]}) == 6


def test_the_log_holds_hashes_only(state: Path) -> None:
    record_look(look(table()))
    content = (state / LOG).read_text()
    assert set(json.loads(content)) == set(asdict(FIRST))
    assert not any(name in content for name in ("Ada", "Bo", "Cy", "hba1c"))
