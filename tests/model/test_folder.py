"""A saved model is the fitted one: the same table, the same scores, fixed levels, no code in the folder."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from helpers.scored_cohorts import fitted_cohort, new_visits
from helpers.unseen import unseen
from safeimpute import SafeImputer
from safeimpute.errors import GuaranteeRefused, NotFittedError, OptionError
from safeimpute.model.folder import load_model
from safeimpute.model.scorer import Scorer


@pytest.fixture(scope="module", params=["unmeasured", "later", "visits"])
def claim(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(claim: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    fitted_cohort(claim)[0].save(path)
    return path


def test_a_loaded_model_imputes_and_scores_the_same(claim: str, folder: Path) -> None:
    imputer, visits = fitted_cohort(claim)
    loaded = SafeImputer.load(folder)
    fresh = new_visits()
    assert loaded.impute(visits).equals(imputer.impute(visits))
    assert loaded.transform(visits).equals(imputer.transform(visits))
    for other in (loaded.score(fresh), Scorer.load(folder).score(fresh)):
        assert other.equals(imputer.score(fresh))
    assert Scorer.load(folder).score_whole(fresh).accounts[0] == imputer.scorer().score_whole(fresh).accounts[0]
    assert loaded.promised() == imputer.promised()
    assert loaded.settings_ == imputer.settings_


def test_what_was_learnt_comes_back_to_the_byte(claim: str, folder: Path) -> None:
    kept, found = fitted_cohort(claim)[0].scorer().model, load_model(folder).frozen()
    arrays, plain = kept.system.state()
    loaded_arrays, loaded_plain = found.system.state()
    assert loaded_plain == json.loads(json.dumps(plain))
    assert loaded_arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded_arrays[name].tobytes() == array.tobytes(), name
    assert (found.measuring is None) == (kept.measuring is None)
    if kept.measuring is not None and found.measuring is not None:
        (arrays, plain), (loaded, loaded_plain) = kept.measuring.state(), found.measuring.state()
        assert loaded_plain == plain
        assert {name: each.tobytes() for name, each in loaded.items()} == {
            name: each.tobytes() for name, each in arrays.items()
        }
        assert found.measuring.columns == kept.measuring.columns
    assert found.cutoffs == kept.cutoffs
    assert (found.plausible, found.past_only, found.calendar) == (kept.plausible, kept.past_only, kept.calendar)
    assert np.array_equal(found.intervals.ratio, kept.intervals.ratio)


def test_a_second_save_is_refused(folder: Path, claim: str) -> None:
    imputer = fitted_cohort(claim)[0]
    with pytest.raises(OptionError, match="exists"):
        imputer.save(folder)
    with pytest.raises(NotFittedError, match="loaded from a folder"):
        SafeImputer.load(folder).save(folder.parent / "copy")
    assert not (folder.parent / "copy").exists()


def test_the_folder_is_plain_data(folder: Path) -> None:
    """JSON as the standard has it: no NaN and no infinity."""
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}

    def no_number(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    for path in folder.glob("*.json"):
        json.loads(path.read_text(), parse_constant=no_number)


def test_loading_runs_no_code(tmp_path: Path) -> None:
    """No unpickling, compiling or importing from the folder: a process that forbids them loads it all the same."""
    folder, script = tmp_path / "model", tmp_path / "load.py"
    fitted_cohort()[0].save(folder)
    script.write_text(
        "import sys\n"
        "from safeimpute.model.scorer import Scorer\n"
        "import lightgbm, polars, safetensors.numpy, torch\n"
        "Scorer.load(sys.argv[1])\n"  # libraries import their own parts when first used
        "def hook(event, arguments):\n"
        "    if event in ('pickle.find_class', 'compile', 'exec', 'marshal.loads', 'subprocess.Popen'):\n"
        "        raise SystemExit(f'{event} while loading')\n"
        "    if event == 'import' and sys.argv[1] in str(arguments):\n"
        "        raise SystemExit('imports from the folder')\n"
        "sys.addaudithook(hook)\n"
        "Scorer.load(sys.argv[1])\n"
        "print('loaded')\n"
    )
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "loaded", done.stderr


def test_a_loaded_model_keeps_its_levels(folder: Path, claim: str) -> None:
    loaded, fresh = SafeImputer.load(folder), new_visits()
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        loaded.set_params(fdr=0.25).score(fresh)
    with pytest.raises(NotFittedError, match="call fit again"):
        SafeImputer.load(folder).set_params(tolerance=0.9).impute(fitted_cohort(claim)[1])


def test_saving_fixes_the_levels(tmp_path: Path) -> None:
    """What scores new visits holds a cut-off, which is a look at the measured errors."""
    imputer, visits = fitted_cohort()
    imputer = unseen(imputer)
    imputer.save(tmp_path / "model")
    with pytest.raises(GuaranteeRefused, match="changed after impute"):
        imputer.set_params(fdr=0.25).impute(visits)
    assert json.loads((tmp_path / "model" / "model.json").read_text())["looked"]


def test_another_table_is_refused(folder: Path, claim: str) -> None:
    visits = fitted_cohort(claim)[1]
    with pytest.raises(GuaranteeRefused, match="another table"):
        SafeImputer.load(folder).impute(visits.head(len(visits) - 1))
    shuffled = visits.sample(fraction=1.0, shuffle=True, seed=0).select(sorted(visits.columns))
    assert SafeImputer.load(folder).impute(shuffled).equals(fitted_cohort(claim)[0].impute(visits))


def test_the_manifest_says_what_was_fitted(folder: Path, claim: str) -> None:
    manifest = json.loads((folder / "model.json").read_text())
    visits = fitted_cohort(claim)[1]
    assert manifest["fitted_on"] == {"visits": len(visits), "patients": visits["subject_id"].n_unique()}
    assert manifest["settings"]["claim"] == claim
    assert manifest["unit"] == "%"
    assert set(manifest["files"]) == {"arrays.safetensors", "state.json"}
    text = (folder / "model.json").read_text() + (folder / "state.json").read_text()
    assert not any(f'"{subject}"' in text for subject in visits["subject_id"].cast(pl.String).unique())
