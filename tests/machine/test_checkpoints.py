"""Work that was stopped goes on from what it had finished, and comes to the same bytes."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from helpers.scored_cohorts import cohort_of, fitted_cohort
from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused
from safeimpute.learning.best import system
from safeimpute.machine.endings import Stopped
from safeimpute.machine.places import clear, leftovers_in, taken
from safeimpute.machine.state import CHECKPOINTS, Checkpoint, checkpoint_beside


def test_a_part_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "kept").of("visits", "settings")
    assert checkpoint.get("a") is None
    checkpoint.put("a", ({"x": np.arange(3.0), "yes": np.array([True])}, {"n": 1}))
    found = checkpoint.get("a")
    assert found is not None
    assert found[0]["x"].tolist() == [0.0, 1.0, 2.0]
    assert found[1] == {"n": 1}
    assert Checkpoint(tmp_path / "kept").of("visits", "other settings").get("a") is None
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0, "only its owner may read patients' data"


@pytest.mark.parametrize("damage", ["a.safetensors", "a.json"])
def test_a_damaged_part_counts_as_not_there(tmp_path: Path, damage: str) -> None:
    checkpoint = Checkpoint(tmp_path / "kept").of("visits")
    checkpoint.put("a", ({"x": np.arange(3.0)}, {}))
    file = checkpoint.folder / damage
    file.write_bytes(file.read_bytes()[:-1])
    assert checkpoint.get("a") is None


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kept").symlink_to(tmp_path / "elsewhere")
    checkpoint = Checkpoint(tmp_path / "kept").of("visits")
    checkpoint.put("a", ({"x": np.arange(3.0)}, {}))
    assert checkpoint.get("a") is None
    assert not list((tmp_path / "elsewhere").rglob("*.json"))


def test_what_is_kept_goes_when_the_work_is_done_and_stays_when_it_is_not(tmp_path: Path) -> None:
    out = tmp_path / "run"
    part = ({"x": np.arange(3.0)}, {"n": 1})
    with suppress(Stopped), checkpoint_beside(out) as checkpoint:
        checkpoint.of("a").put("fold-0", part)
        raise Stopped(15)
    assert checkpoint.folder == tmp_path / f".run{CHECKPOINTS}"
    assert checkpoint.count() == 1
    with taken(out):
        assert [each for each in leftovers_in(tmp_path) if each.kind == "kept"] == [], "it is worked on"
    (found,) = leftovers_in(tmp_path)
    assert (found.kind, found.name) == ("kept", "run")
    with checkpoint_beside(out) as checkpoint:
        assert checkpoint.count() == 1
    assert not checkpoint.folder.exists()
    checkpoint.of("a").put("fold-0", part)
    assert "finished folds" in clear(leftovers_in(tmp_path)[0])
    assert not checkpoint.folder.exists()


def test_nothing_is_kept_of_work_that_was_refused(tmp_path: Path) -> None:
    with suppress(GuaranteeRefused), checkpoint_beside(tmp_path / "run") as checkpoint:
        checkpoint.of("a").put("fold-0", ({"x": np.arange(3.0)}, {}))
        raise GuaranteeRefused("nothing can be promised")
    assert not list(tmp_path.iterdir())


def test_a_part_without_room_leaves_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    Checkpoint(tmp_path / "kept").of("visits").put("a", ({"x": np.arange(3.0)}, {}))
    assert not list(tmp_path.iterdir())


def test_a_stopped_fit_goes_on_and_comes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, visits = fitted_cohort()[0], cohort_of(250)
    told, checkpoint = whole.get_params(), Checkpoint(tmp_path / "kept")

    def stop_after_two(stage: str, share: float) -> None:
        if "2 of 3 folds" in stage:
            raise Stopped(15)

    with pytest.raises(Stopped):
        SafeImputer(**told).fit(visits, progress=stop_after_two, checkpoint=checkpoint)
    finished = checkpoint.count()
    assert finished >= 2, "folds that ran beside may be finished too"
    fitted: list[int] = []
    fit_fold = system._fit_fold
    monkeypatch.setattr(system, "_fit_fold", lambda *given: fitted.append(given[2]) or fit_fold(*given))  # type: ignore[func-returns-value]
    again = SafeImputer(**told).fit(visits, checkpoint=checkpoint)
    assert len(fitted) == 3 - finished, "only what was not finished is fitted"
    assert again.impute(visits).equals(whole.impute(visits))
    again.save(tmp_path / "again")
    whole.save(tmp_path / "whole")
    for file in ("arrays.safetensors", "state.json"):
        same = [(tmp_path / run / file) for run in ("again", "whole")]
        assert same[0].read_bytes() == same[1].read_bytes(), file
    fitted.clear()
    SafeImputer(**told | {"random_state": 1}).fit(visits, checkpoint=checkpoint)
    assert sorted(fitted) == [0, 1, 2], "another seed is other work"
