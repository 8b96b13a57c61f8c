"""Forged model folders, whose checksums are right: refused before LightGBM sees them, or harmless."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from helpers.fuzzing import fuzzed
from helpers.scored_cohorts import new_visits, saved_model
from safeimpute import SafeImputer
from safeimpute.cli import app, score_process
from safeimpute.errors import ModelFolderError, OptionError, SafeImputeError
from safeimpute.learning.tree_text import valid_trees
from safeimpute.machine.files import sha256_of
from safeimpute.model.manifest import own_checksum
from safeimpute.model.scorer import Scorer

pytestmark = pytest.mark.surface("models")
MANIFEST, STATE, TENSORS = "model.json", "state.json", "arrays.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("forged"))


@pytest.fixture
def model(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "model")
    return tmp_path / "model"


def seal(model: Path) -> None:
    """Make every checksum right again, as a forger would."""
    manifest = json.loads((model / MANIFEST).read_text())
    manifest["files"] = {name: sha256_of(model / name) for name in (TENSORS, STATE)} | {
        name: told for name, told in manifest["files"].items() if name not in (TENSORS, STATE)
    }
    manifest["checksum"] = own_checksum(manifest)
    (model / MANIFEST).write_text(json.dumps(manifest))


def forge(model: Path, change: Callable[[Any], object], name: str = STATE) -> None:
    """Change a JSON file of the model and seal it."""
    content = json.loads((model / name).read_text())
    change(content)
    (model / name).write_text(json.dumps(content))
    seal(model)


def forge_array(model: Path, name: str, change: Callable[[Any], Any]) -> None:
    tensors = load_file(model / TENSORS)
    tensors[name] = np.ascontiguousarray(change(tensors[name]))
    save_file(tensors, model / TENSORS)
    seal(model)


def refused(model: Path) -> str:
    with pytest.raises(ModelFolderError) as caught:
        Scorer.load(model)
    return str(caught.value)


# ---- trees


@cache
def tree_text() -> str:
    """Trees with categories, absent values and a tree of one leaf at the end of training."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(300, 4))
    table[:, 3] = rng.integers(0, 30, 300)
    table[rng.random(table.shape) < 0.1] = np.nan
    label = 5 * (np.nan_to_num(table[:, 3]) % 3) + np.nan_to_num(table[:, 0])
    options = {"objective": "regression", "verbose": -1, "min_data_in_leaf": 5, "num_leaves": 5, "num_threads": 1}
    data = lgb.Dataset(table, label, categorical_feature=[3])
    return str(lgb.train({**options, "min_data_per_group": 5}, data, 6).model_to_string())


def with_sizes(text: str) -> str:
    """The text with its sizes of trees made right."""
    head, _, rest = text.partition("\n\n")
    body, end, tail = rest.partition("end of trees")
    parts = ["Tree=" + part for part in body.split("Tree=")[1:]]
    lines = [
        "tree_sizes=" + " ".join(str(len(part)) for part in parts) if line.startswith("tree_sizes=") else line
        for line in head.split("\n")
    ]
    return "\n".join(lines) + "\n\n" + "".join(parts) + end + tail


def test_true_trees_pass_unchanged() -> None:
    assert "num_cat=1" in tree_text()
    assert valid_trees(tree_text()) == tree_text()
    lone = lgb.train(
        {"objective": "regression", "verbose": -1, "num_threads": 1}, lgb.Dataset(np.zeros((5, 1)), np.ones(5)), 1
    )
    assert valid_trees(lone.model_to_string())


@pytest.mark.parametrize(
    ("line", "old", "new", "words"),
    [
        ("left_child", None, "999999", "no node"),
        ("left_child", None, "-999999", "no leaf"),
        ("right_child", None, "0", "no node|twice"),
        ("split_feature", None, "4", "column"),
        ("split_feature", None, "-1", "column"),
        ("split_feature", None, "0.5", "column"),
        ("leaf_value", None, "nan", "finite"),
        ("leaf_value", None, "inf", "finite"),
        ("leaf_value", None, "1x", "none"),
        ("threshold", None, "nan", "finite"),
        ("decision_type", None, "99", "kind"),
        ("num_leaves", None, "2", "numbers"),
        ("num_leaves", None, "99999999", "numbers"),
        ("num_leaves", None, "-1", "whole"),
        ("num_cat", None, "7", "categories"),
        ("cat_boundaries", None, "-5", "categor|line"),
        ("cat_threshold", None, "5000000000", "categor|line"),
        ("is_linear", None, "1", "kind"),
        ("shrinkage", None, "nan", "finite"),
    ],
)
def test_forged_trees_are_refused_by_their_rule(line: str, old: None, new: str, words: str) -> None:
    """Such numbers once ended the process with SIGSEGV."""
    start = tree_text().index(f"\n{line}=") + len(line) + 2
    stop = min(place for place in (tree_text().find(mark, start) for mark in " \n") if place > 0)
    forged = with_sizes(tree_text()[:start] + new + tree_text()[stop:])
    with pytest.raises(ModelFolderError, match=words):
        valid_trees(forged)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("max_feature_idx=3", "max_feature_idx=2"),
        lambda text: text.replace("num_class=1", "num_class=9"),
        lambda text: text.replace("num_tree_per_iteration=1", "num_tree_per_iteration=0"),
        lambda text: text.replace("objective=regression", "objective=lambdarank"),
        lambda text: text.replace("version=v4", "version=v4\naverage_output"),
        lambda text: text.replace("tree_sizes=", "tree_sizes=1 "),
        lambda text: text.replace("end of trees", "end of threes"),
        lambda text: text.replace("[data: ]", "[forcedsplits_filename: /etc/passwd]"),
        lambda text: text.replace("pandas_categorical:null", 'pandas_categorical:[["x"]]'),
        lambda text: text + "\nmore",
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "tree\n",
        lambda text: text.replace("Tree=1\n", "Tree=0\n"),
        lambda text: text.replace("Column_0", "Cölumn_0"),
    ],
)
def test_another_head_or_tail_is_refused(change: Callable[[str], str]) -> None:
    assert change(tree_text()) != tree_text()
    with pytest.raises(ModelFolderError):
        valid_trees(change(tree_text()))


ODD = [
    "-1",
    "0",
    "1",
    "2",
    "7",
    "-3",
    "99",
    "2147483647",
    "-2147483648",
    "1e308",
    "-1e308",
    "nan",
    "inf",
    "",
    "x",
    "0x1",
]


def check_forged_trees(place: float, word: str, mend: bool) -> None:
    """Any cell of the trees replaced by anything: refused, or loaded by LightGBM to predict finite numbers."""
    text = tree_text()
    body = text.partition("end of trees")[0]
    marks = [number for number, mark in enumerate(body) if mark in " ="]
    start = marks[int(place * (len(marks) - 1))] + 1
    stop = min(each for each in (text.find(mark, start) for mark in " \n") if each > 0)
    forged = text[:start] + word + text[stop:]
    try:
        sound = valid_trees(with_sizes(forged) if mend else forged)
    except ModelFolderError:
        return
    booster = lgb.Booster(model_str=sound)
    table = np.random.default_rng(1).normal(size=(64, booster.num_feature())) * 10
    table[::5, 1] = np.nan
    assert np.isfinite(booster.predict(table)).all()


test_forged_trees, test_forged_trees_at_length = fuzzed(
    check_forged_trees, st.floats(0, 1), st.sampled_from(ODD), st.booleans(), few=250, many=8000
)


# ---- the rest of the folder


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/hostname", "sub/state.json", "state.json\0", "..", "arrays.safetensors/../x"]
)
def test_names_that_leave_the_folder_are_refused(model: Path, name: str) -> None:
    forge(model, lambda manifest: manifest["files"].update({name: "0" * 64}), MANIFEST)
    assert "other files" in refused(model)


SYSTEM = "system.0.source."


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (f"{SYSTEM}panel.values", lambda array: array[:, :1]),
        (f"{SYSTEM}panel.values", lambda array: array[:5]),
        (f"{SYSTEM}panel.values", lambda array: np.full_like(array, np.inf)),
        (f"{SYSTEM}panel.target", lambda array: np.full_like(array, np.nan)),
        (f"{SYSTEM}panel.patient", lambda array: array.astype(np.float64)),
        (f"{SYSTEM}panel.regression", lambda array: array.reshape(1, -1)),
        (f"{SYSTEM}units.labs.scale", lambda array: array * 0),
        (f"{SYSTEM}units.labs.centre", lambda array: array[:1]),
        (f"{SYSTEM}units.labs.log", lambda array: array.astype(np.int64)),
        (f"{SYSTEM}units.trends.centre", lambda array: array * np.nan),
        (f"{SYSTEM}course.coefficients", lambda array: array[:2]),
        (f"{SYSTEM}course.coefficients", lambda array: array * np.inf),
        (f"{SYSTEM}joint.levels", lambda array: -array),
        (f"{SYSTEM}joint.levels", lambda array: array * 1e15),
        (f"{SYSTEM}joint.visits", lambda array: array * 0.0),
        (f"{SYSTEM}joint.drifts", lambda array: array[:1]),
        (f"{SYSTEM}joint.memory_days", lambda array: array * 0.0),
        (f"{SYSTEM}joint.means", lambda array: array[:, :1]),
        (f"{SYSTEM}joint.coefficients", lambda array: array[:2]),
        ("measuring.0.0.coefficients", lambda array: array[:3]),
        ("measuring.0.0.plain", lambda array: array + 10_000),
        ("measuring.0.0.plain", lambda array: array - 10_000),
        ("measuring.0.0.scale", lambda array: array * 0),
        ("interval.ratio", lambda array: array[:2]),
        ("interval.ratio", lambda array: array * np.nan),
        ("visit.value", lambda array: array[:3]),
        ("visit.outside", lambda array: array[:, :1]),
    ],
)
def test_forged_arrays_are_refused(model: Path, name: str, change: Callable[[Any], Any]) -> None:
    forge_array(model, name, change)
    refused(model)


def first(state: Any) -> Any:
    return state["system"]["models"][0]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["system"].update(seed="x"),
        lambda state: state["system"].update(seed=-1),
        lambda state: state["system"].update(models=[]),
        lambda state: state["system"].update(models=state["system"]["models"][:1]),
        lambda state: first(state).update(trees=[]),
        lambda state: first(state).update(trees=first(state)["probability"]),  # of another number of columns
        lambda state: first(state).update(trees=[7]),
        lambda state: first(state).update(weights={}),
        lambda state: first(state)["weights"].update(trees=float("nan")),
        lambda state: first(state).update(block_visits=0),
        lambda state: first(state).update(calendar="yes"),
        lambda state: first(state)["source"].update(target=1),
        lambda state: first(state)["source"].update(target=99),
        lambda state: first(state)["source"].update(own_each_way=10**9),
        lambda state: first(state)["source"].update(analogues=-1),
        lambda state: first(state)["source"]["panel"].update(radius=float("nan")),
        lambda state: first(state)["source"]["course"]["variances"].update(memory_days=0.0),
        lambda state: first(state)["source"]["course"]["variances"].update(steady=2.0**51),
        lambda state: first(state)["source"]["course"]["variances"].update(noise=0.0),
        lambda state: first(state)["source"]["joint"].update(patient_scale=50.0),
        lambda state: first(state)["source"]["joint"].update(patient_scale=-1.0),
        lambda state: first(state)["source"]["joint"].update(patient_scale="much"),
        lambda state: first(state).update(deviation_share=-1.0),
        lambda state: first(state).update(deviation_share=float("inf")),
        lambda state: first(state).update(course_weight=1.5),
        lambda state: first(state).update(course_weight="half"),
        lambda state: first(state).update(largest=0.0),
        lambda state: first(state).pop("deviation_share"),
        lambda state: first(state)["tolerance"].update(absolute="wide"),
        lambda state: state["measuring"].update(folds=[]),
        lambda state: state["measuring"]["folds"][0].update(members=[]),
        lambda state: state["measuring"]["folds"][0].update(reach=[5.0, 1.0]),
        lambda state: state["measuring"]["folds"][0]["members"][0].update(high_cardinality=[10**6]),
        lambda state: state.clear(),
    ],
)
def test_forged_states_are_refused(model: Path, change: Callable[[Any], object]) -> None:
    forge(model, change)
    refused(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["scoring"]["cutoffs"]["0"].update(risk=float("nan")),
        lambda manifest: manifest["scoring"]["cutoffs"]["0"].update(risk=7),
        lambda manifest: manifest["scoring"].update(coverage=2),
        lambda manifest: manifest["scoring"].update(plausible=[9, 1]),
        lambda manifest: manifest["scoring"].update(no_promise=None),
        lambda manifest: manifest["scoring"].pop("cutoffs"),
        lambda manifest: manifest["reading"].update(labs=["hba1c"]),
        lambda manifest: manifest["reading"].update(target="unheard"),
        lambda manifest: manifest["fitted_on"].update(visits=-1),
        lambda manifest: manifest.update(outside="all"),
        lambda manifest: manifest.update(settings=[]),
    ],
)
def test_forged_manifests_are_refused(model: Path, change: Callable[[Any], object]) -> None:
    forge(model, change, MANIFEST)
    refused(model)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 50_000, "{}", "null", "1e999"])
def test_json_that_is_deep_or_empty_is_refused(model: Path, content: str) -> None:
    (model / STATE).write_text(content)
    seal(model)
    refused(model)
    (model / MANIFEST).write_text(content)
    refused(model)


def leaves(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(content, dict):
        return [leaf for name, each in content.items() for leaf in leaves(each, (*path, name))]
    if isinstance(content, list):
        return [leaf for place, each in enumerate(content[:3]) for leaf in leaves(each, (*path, place))]
    return [path]


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5), st.just([]), st.just({})
)


@pytest.fixture(scope="module")
def playground(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("playground") / "model"
    shutil.copytree(whole, folder)
    return folder


@cache
def scored_rows() -> pl.DataFrame:
    return new_visits(20)


def check_forged_leaf(playground: Path, whole: Path, name: str, place: float, value: Any) -> None:
    """Any single entry of the JSON files replaced by anything: refused on purpose, or scored to finite numbers."""
    content = json.loads((whole / name).read_text())
    paths = [path for path in leaves(content) if path[0] not in ("format", "checksum", "files", "packages")]
    *above, last = paths[int(place * (len(paths) - 1))]
    inner = content
    for part in above:
        inner = inner[part]
    inner[last] = value
    for each in (MANIFEST, STATE, TENSORS):
        shutil.copy(whole / each, playground / each)
    (playground / name).write_text(json.dumps(content))
    seal(playground)
    try:
        table = Scorer.load(playground).score(scored_rows())
    except SafeImputeError:
        return
    assert np.isfinite(table.filter("released")["value"].to_numpy()).all()


test_forged_entries, test_forged_entries_at_length = (
    pytest.mark.parametrize("name", [MANIFEST, STATE])(each)
    for each in fuzzed(check_forged_leaf, st.floats(0, 1), ANYTHING, few=8, many=150)
)


# ---- apart


def test_a_worker_that_dies_takes_nothing_along(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child is told to end itself as a crash would: the parent says so, and no result stands."""
    visits, out = tmp_path / "new.parquet", tmp_path / "scored.parquet"
    new_visits(10).write_parquet(visits)
    crash = tmp_path / "sitecustomize.py"
    crash.write_text(
        "import os, sys\nif 'safeimpute.cli.score_process' in sys.orig_argv:\n    os.kill(os.getpid(), 11)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(ModelFolderError, match="SIGSEGV"):
        score_process.score_apart(score_process.ScoreJob(model, visits, out))
    assert not out.exists()
    assert not list(tmp_path.glob(".scored*"))


@pytest.mark.full
def test_scoring_apart_gives_what_scoring_here_gives(model: Path, tmp_path: Path) -> None:
    visits = tmp_path / "new.parquet"
    new_visits(30).write_parquet(visits)
    result = CliRunner().invoke(app, ["score", str(model), str(visits), "-o", str(tmp_path / "scored.parquet")])
    assert result.exit_code == 0, result.output
    assert pl.read_parquet(tmp_path / "scored.parquet").equals(Scorer.load(model).score(new_visits(30)))
    (tmp_path / "empty").mkdir()
    told = ["score", str(tmp_path / "empty"), str(visits), "-o", str(tmp_path / "x.csv")]
    with pytest.raises(ModelFolderError, match="holds no readable safeimpute model"):
        CliRunner().invoke(app, told, catch_exceptions=False)
    assert not (tmp_path / "x.csv").exists()


# ---- signatures


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    folder, found = tmp_path_factory.mktemp("keys"), {}
    plain = serialization.NoEncryption()
    pem, private, public = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.PublicFormat.SubjectPublicKeyInfo,
    )
    for name, key in (
        ("ours", ed25519.Ed25519PrivateKey.generate()),
        ("theirs", ed25519.Ed25519PrivateKey.generate()),
        ("curve", ec.generate_private_key(ec.SECP256R1())),
    ):
        found[name], found[f"{name}.pub"] = folder / f"{name}.pem", folder / f"{name}.pub"
        found[name].write_bytes(key.private_bytes(pem, private, plain))
        found[f"{name}.pub"].write_bytes(key.public_key().public_bytes(pem, public))
    return found


@pytest.fixture
def signed(keys: dict[str, Path], tmp_path: Path) -> Path:
    from helpers.scored_cohorts import fitted_cohort

    fitted_cohort()[0].save(tmp_path / "signed", sign=keys["ours"])
    return tmp_path / "signed"


def test_a_signed_model_passes_by_its_key_only(signed: Path, model: Path, keys: dict[str, Path]) -> None:
    Scorer.load(signed)
    Scorer.load(signed, public_key=keys["ours.pub"])
    SafeImputer.load(signed, public_key=keys["ours.pub"])
    with pytest.raises(ModelFolderError, match=r"not signed by the owner of 'theirs.pub'"):
        Scorer.load(signed, public_key=keys["theirs.pub"])
    with pytest.raises(ModelFolderError, match=r"model\.sig is missing"):
        Scorer.load(model, public_key=keys["ours.pub"])
    told = CliRunner().invoke(app, ["doctor", str(signed), "--require-signature", str(keys["ours.pub"])])
    assert "by the owner of ours.pub" in told.output


@pytest.mark.parametrize("content", [b"", b"not base64!", base64.b64encode(b"\0" * 64), b"\xff" * 300])
def test_a_spoilt_signature_is_refused(signed: Path, keys: dict[str, Path], content: bytes) -> None:
    (signed / "model.sig").write_bytes(content)
    with pytest.raises(ModelFolderError, match="not signed by"):
        Scorer.load(signed, public_key=keys["ours.pub"])


def test_a_sealed_change_breaks_the_signature(signed: Path, keys: dict[str, Path]) -> None:
    forge(signed, lambda manifest: manifest["scoring"]["cutoffs"]["0"].update(risk=0.99), MANIFEST)
    Scorer.load(signed)  # nobody asked for a signature
    with pytest.raises(ModelFolderError, match="not signed by"):
        Scorer.load(signed, public_key=keys["ours.pub"])


@pytest.mark.parametrize("wrong", ["curve", "ours.pub", "nothing", "text"])
def test_keys_that_cannot_sign_are_refused(keys: dict[str, Path], tmp_path: Path, wrong: str) -> None:
    from safeimpute.model.manifest import private_key, public_key

    (tmp_path / "text").write_text("secret words")
    path = keys.get(wrong, tmp_path / wrong)
    with pytest.raises(OptionError):
        private_key(path)
    with pytest.raises(OptionError):
        public_key(keys["curve.pub"] if wrong == "ours.pub" else path)


def test_without_the_extra_the_message_is_its_install_line(model: Path, keys: dict[str, Path]) -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from safeimpute.model.manifest import public_key; from pathlib import Path\n"
        f"public_key(Path({str(keys['ours.pub'])!r}))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr
    assert "pip install 'safeimpute[sign]'" in said
