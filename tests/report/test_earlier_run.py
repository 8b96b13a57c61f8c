"""A finished run read back: the same visits, and whether a further run on them is a second look."""

from dataclasses import asdict
from pathlib import Path

import pytest

from safeimpute.errors import OptionError
from safeimpute.report.run_folder import Origin, make_manifest, read_earlier_run, write_json
from safeimpute.settings import make_settings
from safeimpute.visits.examples import load_pbc
from safeimpute.visits.units import column_choice
from safeimpute.visits.visits import prepare_visits

SETTINGS = make_settings(target="cholesterol", tolerance="20%", fdr=0.2)


def _written(folder: Path, *, second_look: bool = False) -> Path:
    visits = prepare_visits(load_pbc(), column_choice(SETTINGS))
    write_json(make_manifest(SETTINGS, visits, Origin(), second_look=second_look), folder / "run.json")
    return folder


def test_a_run_is_read_back_as_it_was_told(tmp_path: Path) -> None:
    earlier = read_earlier_run(_written(tmp_path))
    assert make_settings(**earlier.config) == SETTINGS
    assert earlier.visits().equals(load_pbc())
    assert earlier.origin.source is None


@pytest.mark.parametrize(
    "other", [{"fdr": 0.1}, {"tolerance": "25%"}, {"random_state": 1}, {"claim": "patients"}, {"promise": "confident"}]
)
def test_another_choice_is_a_second_look(tmp_path: Path, other: dict[str, object]) -> None:
    earlier = read_earlier_run(_written(tmp_path))
    assert not earlier.chose_otherwise(SETTINGS)
    assert earlier.chose_otherwise(make_settings(**asdict(SETTINGS) | other))


def test_a_run_after_a_second_look_is_one_too(tmp_path: Path) -> None:
    assert read_earlier_run(_written(tmp_path, second_look=True)).chose_otherwise(SETTINGS)


def test_other_visits_are_refused(tmp_path: Path) -> None:
    path = _written(tmp_path) / "run.json"
    path.write_text(path.read_text().replace('"visits_sha256": "', '"visits_sha256": "0'))
    with pytest.raises(OptionError, match="have changed"):
        read_earlier_run(tmp_path).visits()


def test_a_folder_that_records_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"run\.json"):
        read_earlier_run(tmp_path)
