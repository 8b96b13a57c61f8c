"""Models of several labs on disk: one model folder per lab, and `labs.json`, which says which is which."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from safeimpute import __version__
from safeimpute.errors import InputError, ModelFolderError
from safeimpute.runtime.files import finished_folder, sha256_of
from safeimpute.runtime.text import folder_names
from safeimpute.scoring.folder import MANIFEST
from safeimpute.settings import Settings, make_settings

INDEX, FORMAT = "labs.json", 1


@dataclass(frozen=True)
class StoredLabs:
    """What was asked for as a whole, and where each lab's model lies."""

    settings: Settings
    places: Mapping[str, Path]


def holds_several(folder: Path) -> bool:
    """Whether a model folder is one of several labs."""
    return (folder / INDEX).is_file()


@contextmanager
def labs_folder(folder: Path, labs: tuple[str, ...], settings: Settings) -> Iterator[Mapping[str, Path]]:
    """Where to write each lab's model; the folder takes its name only when all of them are written."""
    names = folder_names(labs)
    with finished_folder(folder, force=False) as partial:
        yield {lab: partial / name for lab, name in names.items()}
        index = {
            "format": FORMAT,
            "safeimpute": __version__,
            "settings": asdict(settings),
            "labs": {
                lab: {"folder": name, "sha256": sha256_of(partial / name / MANIFEST)}
                for lab, name in names.items()
            },
        }
        (partial / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def read_labs(folder: Path) -> StoredLabs:
    """The index of a folder of several labs; what is damaged, foreign or missing is named."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        found, labs = index["format"], dict(index["labs"])
        settings = make_settings(**index["settings"])
        places = {lab: (str(entry["folder"]), str(entry["sha256"])) for lab, entry in labs.items()}
    except (OSError, ValueError, KeyError, TypeError, InputError):
        raise ModelFolderError(
            f"{folder.name!r} holds no readable index of several labs ({INDEX})."
        ) from None
    if found != FORMAT or not places:
        raise ModelFolderError(f"{folder.name!r} has an index of another version ({INDEX}). Fit again.")
    for lab, (name, expected) in places.items():
        manifest = folder / name / MANIFEST
        if Path(name).name != name or not manifest.is_file():
            raise ModelFolderError(
                f"the model of lab {lab!r} is missing from {folder.name!r}. Restore it or fit again."
            )
        if sha256_of(manifest) != expected:
            raise ModelFolderError(
                f"the model of lab {lab!r} in {folder.name!r} is damaged or belongs to another run (its checksum "
                "differs). Restore the folder or fit again."
            )
    return StoredLabs(settings, {lab: folder / name for lab, (name, _) in places.items()})
