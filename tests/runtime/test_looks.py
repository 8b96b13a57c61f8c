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

from safeimpute.records.visits import ColumnChoice, looks_fingerprint, prepare_visits
from safeimpute.runtime.looks import (
    CHOICES,
    LEDGER,
    Look,
    earlier_looks,
    is_second_look,
    record_look,
)

FIRST = Look(
    fingerprint="f" * 64,
    target="hba1c",
    tolerance=0.5,
    fdr=0.1,
    seed=0,
    claim="unmeasured",
    preset="best",
    promise="average",
    confidence=0.9,
    when="2026-01-31T08:00:00+00:00",
    run="one",
)
OTHER: dict[str, Any] = {
    "tolerance": "10% or 6",
    "fdr": 0.2,
    "seed": 1,
    "claim": "patients",
    "preset": "paper",
    "promise": "confident",
    "confidence": 0.95,
}


def looks_beside(folder: Path) -> list[Look]:
    return earlier_looks(folder, FIRST.fingerprint, FIRST.target)


def test_what_is_recorded_is_found_again_beside_any_run(tmp_path: Path) -> None:
    assert looks_beside(tmp_path / "one") == []
    second = replace(FIRST, tolerance="20%", run="two")
    assert record_look(tmp_path / "one", FIRST) == ""
    assert record_look(tmp_path / "two", second) == ""
    assert looks_beside(tmp_path / "three") == [FIRST, second]
    assert looks_beside(tmp_path / "deeper" / "three") == []
    assert earlier_looks(tmp_path / "three", "0" * 64, "hba1c") == []
    assert earlier_looks(tmp_path / "three", FIRST.fingerprint, "ldl") == []


def test_a_repetition_is_no_second_look() -> None:
    again = replace(FIRST, when="2026-02-01T08:00:00+00:00", run="again")
    assert not is_second_look([], FIRST)
    assert not is_second_look([FIRST, FIRST], again)


@pytest.mark.parametrize("name", CHOICES)
def test_every_other_choice_is_a_second_look(name: str) -> None:
    changed = replace(FIRST, **{name: OTHER[name]})
    assert is_second_look([FIRST], changed)
    assert is_second_look([FIRST, changed], FIRST)  # having seen both, neither stands alone


def test_other_visits_and_other_targets_are_no_look_at_these() -> None:
    other_visits = replace(FIRST, fingerprint="0" * 64, fdr=0.3)
    assert not is_second_look([other_visits, replace(FIRST, target="ldl", fdr=0.3)], FIRST)


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe\x00 no text",
        b"{",
        b"[]",
        b"null",
        b"\n\n",
        b"[" * 100_000,
        json.dumps(asdict(FIRST) | {"fdr": None}).encode(),
        json.dumps(asdict(FIRST) | {"seed": True}).encode(),
        json.dumps(asdict(FIRST) | {"claim": ["unmeasured"]}).encode(),
        json.dumps({k: v for k, v in asdict(FIRST).items() if k != "claim"}).encode(),
    ],
)
def test_damaged_lines_are_passed_over_and_swallow_nothing(tmp_path: Path, damage: bytes) -> None:
    record_look(tmp_path / "one", FIRST)
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(damage)  # torn: without the end of its line
    second = replace(FIRST, seed=7)
    assert record_look(tmp_path / "two", second) == ""
    assert looks_beside(tmp_path / "two") == [FIRST, second]


@given(st.binary(max_size=300))
def test_any_file_can_be_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    (folder / LEDGER).write_bytes(content)
    assert looks_beside(folder / "run") == []


def test_where_nothing_can_be_written_a_warning_comes_back(tmp_path: Path) -> None:
    (tmp_path / LEDGER).mkdir()
    warning = record_look(tmp_path / "one", FIRST)
    assert "second look" in warning
    assert LEDGER in warning
    assert looks_beside(tmp_path / "one") == []
    assert "could not be entered" in record_look(tmp_path / "nowhere" / "one", FIRST)
    assert "could not be entered" in record_look(tmp_path / "two", replace(FIRST, fdr=float("nan")))


def test_a_read_only_folder_gives_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write everywhere")
        assert "rights" in record_look(folder / "one", FIRST)
    finally:
        folder.chmod(0o755)


def test_a_refused_file_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr("safeimpute.runtime.looks.os.open", refuse)
    assert "PermissionError" in record_look(tmp_path / "one", FIRST)


def test_a_full_disk_gives_a_warning_and_the_next_line_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr("safeimpute.runtime.looks.os.write", lambda handle, text: write(handle, text[:20]))
        assert "could not be entered" in record_look(tmp_path / "one", FIRST)
    assert record_look(tmp_path / "two", FIRST) == ""
    assert looks_beside(tmp_path / "two") == [FIRST]


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from safeimpute.runtime.looks import Look, record_look
first = Look("f" * 64, "hba1c", 0.5, 0.1, 0, "unmeasured", "best", "average", 0.9, "now", sys.argv[2])
for seed in range(150):
    assert record_look(Path(sys.argv[1]) / "run", replace(first, seed=seed)) == ""
"""


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name * 300]) for name in ("a", "b")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    looks = looks_beside(tmp_path / "run")
    assert len(looks) == 300
    for name in ("a", "b"):
        assert [look.seed for look in looks if look.run == name * 300] == list(range(150))


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


def test_the_same_visits_with_other_columns_have_the_same_fingerprint() -> None:
    frame = table()
    same = {
        print_of(frame),
        print_of(frame, exclude=("glucose",)),
        print_of(frame, attributes=("glucose",)),
        print_of(frame.drop("sex", "glucose")),
        print_of(frame.reverse()),
    }
    assert len(same) == 1


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


def test_the_ledger_holds_no_patient_data(tmp_path: Path) -> None:
    record_look(tmp_path / "one", replace(FIRST, fingerprint=print_of(table())))
    content = (tmp_path / LEDGER).read_text()
    assert set(json.loads(content)) == set(asdict(FIRST))
    assert not any(name in content for name in ("Ada", "Bo", "Cy"))
