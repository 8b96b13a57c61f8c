"""Model folders that are damaged, incomplete, mixed, foreign or of another version: refused by name."""

import json
import pickletools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.scored_cohorts import saved_model
from safeimpute import SafeImputer
from safeimpute.errors import ModelFolderError
from safeimpute.model.manifest import own_checksum
from safeimpute.model.scorer import Scorer

pytestmark = pytest.mark.surface("models")

MANIFEST = "model.json"
FILES = ("model.json", "arrays.safetensors", "state.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("other"), claim="later")


@pytest.fixture
def model(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "model")
    return tmp_path / "model"


def refused(model: Path, words: str) -> None:
    """Both ways to load a folder refuse it, without a trace of another error."""
    for load in (Scorer.load, SafeImputer.load):
        with pytest.raises(ModelFolderError, match=words):
            load(model)


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0x10
    path.write_bytes(bytes(content))


def edit(model: Path, change: Callable[[dict[str, object]], object]) -> None:
    manifest = json.loads((model / MANIFEST).read_text())
    change(manifest)
    (model / MANIFEST).write_text(json.dumps(manifest))


def test_a_whole_folder_loads_and_holds_what_it_says(model: Path) -> None:
    assert {path.name for path in model.iterdir()} == {*FILES, ".safeimpute.json"}
    Scorer.load(model)
    SafeImputer.load(model)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.999])
def test_truncated(model: Path, name: str, kept: float) -> None:
    content = (model / name).read_bytes()
    (model / name).write_bytes(content[: int(kept * len(content))])
    refused(model, name)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.3, 0.7, 0.99])
def test_one_bit_flipped(model: Path, name: str, place: float) -> None:
    flip(model / name, place)
    refused(model, name)


@pytest.mark.parametrize("name", FILES)
def test_missing(model: Path, name: str) -> None:
    (model / name).unlink()
    refused(model, name)


@pytest.mark.parametrize("name", FILES)
def test_swapped_with_another_models_file(model: Path, other: Path, name: str) -> None:
    shutil.copy(other / name, model / name)
    refused(model, "arrays.safetensors" if name == MANIFEST else name)


@pytest.mark.parametrize("name", FILES[1:])
def test_swapped_with_its_checksum_edited(model: Path, other: Path, name: str) -> None:
    shutil.copy(other / name, model / name)
    told = json.loads((other / MANIFEST).read_text())["files"][name]
    edit(model, lambda manifest: manifest["files"].update({name: told}))  # type: ignore[attr-defined]
    refused(model, MANIFEST)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["settings"].update(fdr=0.5),
        lambda manifest: manifest["settings"].update(claim="visits"),
        lambda manifest: manifest.update(looked=False),
        lambda manifest: manifest["scoring"]["cutoffs"]["0"].update(risk=0.99),
        lambda manifest: manifest["scoring"].update(no_promise="none"),
        lambda manifest: manifest["scoring"].update(calendar=None),
        lambda manifest: manifest["files"].pop("state.json"),
        lambda manifest: manifest.pop("checksum"),
        lambda manifest: manifest.update(checksum="0" * 64),
    ],
)
def test_an_edited_manifest(model: Path, change: Callable[[dict[str, object]], object]) -> None:
    edit(model, change)
    refused(model, MANIFEST)


@pytest.mark.parametrize(
    ("found", "words"),
    [(1, "format 1.*Fit again"), (2, "format 2.*Fit again"), (99, "format 99.*Upgrade"), ("x", "format")],
)
def test_another_format(model: Path, found: object, words: str) -> None:
    edit(model, lambda manifest: manifest.update(format=found))
    refused(model, words)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "null", '{"format": 3}', '{"format": 3, "safeimpute": "9"}', "é\0"]
)
def test_foreign_manifests(model: Path, content: str) -> None:
    (model / MANIFEST).write_text(content)
    refused(model, "model")


def test_a_manifest_that_is_no_text(model: Path) -> None:
    (model / MANIFEST).write_bytes(bytes(range(256)))
    refused(model, MANIFEST)


def test_a_file_too_many(model: Path) -> None:
    (model / ".DS_Store").write_bytes(b"left by a file browser")
    Scorer.load(model)
    (model / "weights.pkl").write_bytes(b"\x80\x04.")
    refused(model, "weights.pkl")


def test_a_folder_in_a_files_place(model: Path) -> None:
    (model / "state.json").unlink()
    (model / "state.json").mkdir()
    refused(model, "state.json")


def test_files_outside_the_folder_are_not_read(model: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"secret")
    edit(model, lambda manifest: manifest["files"].update({"../outside.bin": "0"}))  # type: ignore[attr-defined]
    refused(model, MANIFEST)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["settings"].update(best={"folds": 2}),
        lambda manifest: manifest["settings"].update(unheard_of=1),
        lambda manifest: manifest.pop("reading"),
        lambda manifest: manifest["reading"].pop("categories"),
    ],
)
def test_a_manifest_of_another_program(model: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Its checksum is right, what it says is not: refused as another program's, not with a trace."""
    edit(model, change)
    manifest = json.loads((model / MANIFEST).read_text())
    (model / MANIFEST).write_text(json.dumps(manifest | {"checksum": own_checksum(manifest)}))
    refused(model, MANIFEST)


def test_nothing_in_a_model_is_a_pickle(model: Path) -> None:
    for path in model.iterdir():
        with pytest.raises(ValueError, match=r".*"):
            list(pickletools.genops(path.read_bytes()))


def test_the_message_quotes_nothing_from_the_file(model: Path) -> None:
    flip(model / "state.json", 0.5)
    with pytest.raises(ModelFolderError) as caught:
        Scorer.load(model)
    assert "subject" not in str(caught.value)
    assert not re.search(r"\d\.\d|\d{4}", str(caught.value))  # neither a value nor an identifier
