"""The manifest of a model folder: what a model says about itself, the checksums of its files, and its signature.

The signature (Ed25519) is over the manifest, which holds the checksums of everything else; keys are PEM files as
`openssl genpkey -algorithm ed25519` makes them.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from safeimpute import __version__
from safeimpute.errors import MissingExtra, ModelFolderError, OptionError
from safeimpute.machine.files import plain_text, sha256_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = 9
MANIFEST = "model.json"
TENSORS = "arrays.safetensors"
STATE = "state.json"
PACKAGES = ("numpy", "scipy", "torch", "lightgbm", "polars", "pyarrow", "safetensors")
SIGNATURE = "model.sig"
CONTEXT = b"safeimpute model\n"  # a signature of something else never passes for one of a model
LARGEST_KEY = 2**16


class ScoringFacts(TypedDict):
    """What decides about new visits, beside the arrays."""

    plausible: tuple[float, float] | None
    past_only: bool
    calendar: bool
    coverage: float
    no_promise: str
    help: str
    since: float | None
    until: float
    cutoffs: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Sequence[int]] | None
    panel_visits: int
    folds: int


class Facts(TypedDict):
    """What a fit says about itself."""

    settings: Mapping[str, Any]
    unit: str | None
    visits_sha256: str
    fitted_on: Mapping[str, int]  # visits, patients
    reading: Mapping[str, Any]
    seconds: Mapping[str, float]
    outside: list[str]
    looked: bool
    second_look: bool  # the levels were chosen after looking: nothing is promised
    grouping: Mapping[str, Any] | None
    shown: Mapping[str, Any]
    scoring: ScoringFacts | None
    calibrated_on: NotRequired[Mapping[str, Any]]  # the whole table, where the fit saw a sample


class Manifest(Facts):
    """The same with what wrote it, and checksums."""

    format: int
    safeimpute: str
    written: str
    packages: Mapping[str, str]
    files: Mapping[str, str]
    checksum: str  # of everything else here


def write_manifest(folder: Path, facts: Facts, key_file: Path | None = None) -> None:
    """Beside the files of a model; signed, where a key is given."""
    manifest: Manifest = {
        "format": FORMAT,
        "safeimpute": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        **facts,
        "files": {name: sha256_of(folder / name) for name in (TENSORS, STATE)},
        "checksum": "",
    }
    manifest["checksum"] = own_checksum(manifest)
    content = (json.dumps(manifest, indent=2) + "\n").encode()
    (folder / MANIFEST).write_bytes(content)
    if key_file is not None:
        signature = private_key(key_file).sign(CONTEXT + content)
        (folder / SIGNATURE).write_bytes(base64.b64encode(signature) + b"\n")


def verified_manifest(folder: Path, key_file: Path | None = None) -> Manifest:
    """The manifest of a folder that is whole, as it was written, of this version's format, and signed if asked for."""
    content = _content(folder)
    if key_file is not None:
        require_signed(folder, content, key_file)
    manifest = _manifest(folder, content)
    if manifest.get("checksum") != own_checksum(manifest):
        raise ModelFolderError(
            f"model file {MANIFEST!r} in {folder.name!r} was changed after it was written (its own checksum differs). "
            "Restore the folder or fit again."
        )
    files = manifest["files"]
    for name, expected in files.items():
        if not (folder / name).is_file():
            raise ModelFolderError(
                f"model file {name!r} is missing from {folder.name!r}. Restore the folder or fit again."
            )
        if sha256_of(folder / name) != expected:
            raise ModelFolderError(
                f"model file {name!r} in {folder.name!r} is damaged or belongs to another model (its checksum "
                "differs). Restore the folder or fit again."
            )
    for path in sorted(folder.iterdir()):
        if path.name not in (*files, MANIFEST, SIGNATURE) and not path.name.startswith("."):
            raise ModelFolderError(
                f"{folder.name!r} holds {path.name!r}, which the model did not write. Move it elsewhere."
            )
    return manifest


def _content(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:
        raise ModelFolderError(f"{folder.name!r} holds no readable safeimpute model ({MANIFEST}).") from None


def _manifest(folder: Path, content: bytes) -> Manifest:
    try:
        manifest = json.loads(content.decode())
        found, version = manifest["format"], plain_text(manifest["safeimpute"], 40)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelFolderError(f"{folder.name!r} holds no readable safeimpute model ({MANIFEST}).") from None
    if found != FORMAT:
        older = isinstance(found, int) and found < FORMAT
        remedy = "Fit again." if older else "Upgrade safeimpute, or fit again."
        raise ModelFolderError(
            f"{folder.name!r} has model format {plain_text(found, 40)}, written by safeimpute {version}; this "
            f"version reads {FORMAT}. {remedy}"
        )
    if not isinstance(manifest.get("files"), dict) or set(manifest["files"]) != {TENSORS, STATE}:
        raise ModelFolderError(
            f"{MANIFEST!r} in {folder.name!r} lists other files than a model has. Restore the folder or fit again."
        )
    return cast(Manifest, manifest)


def own_checksum(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of everything else the manifest says."""
    said = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def private_key(path: Path) -> "Ed25519PrivateKey":
    """The key to sign with, or an error before any work."""
    keys = _library()
    with _no_key(path, "private", "sign with", "key without a password", "openssl genpkey -algorithm ed25519"):
        key = keys.load_pem_private_key(_read(path), password=None)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not isinstance(key, Ed25519PrivateKey):
        raise OptionError(f"{path} is a private key of another kind. Ed25519 is needed.")
    return key


def public_key(path: Path) -> "Ed25519PublicKey":
    """The key to verify with."""
    keys = _library()
    with _no_key(path, "public", "verify by", "key", "openssl pkey -in KEY -pubout"):
        key = keys.load_pem_public_key(_read(path))
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(key, Ed25519PublicKey):
        raise OptionError(f"{path} is a public key of another kind. Ed25519 is needed.")
    return key


@contextmanager
def _no_key(path: Path, kind: str, use: str, needed: str, made_by: str) -> Iterator[None]:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        yield
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise OptionError(
            f"{path} is no {kind} key to {use}: a PEM file of an Ed25519 {needed} is needed ({made_by})."
        ) from None


def require_signed(folder: Path, manifest: bytes, key_file: Path) -> None:
    """Refuse a model whose manifest was not signed by the owner of the key."""
    from cryptography.exceptions import InvalidSignature

    key = public_key(key_file)
    place = folder / SIGNATURE
    if not place.is_file():
        raise ModelFolderError(f"{folder.name!r} is not signed ({SIGNATURE} is missing), and a signature is required.")
    try:
        key.verify(base64.b64decode(place.read_bytes()[:200].strip(), validate=True), CONTEXT + manifest)
    except (InvalidSignature, ValueError):
        raise ModelFolderError(
            f"{folder.name!r} is not signed by the owner of {key_file.name!r}, or was changed since."
        ) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_KEY)
    except OSError as error:
        raise OptionError(f"key {path} cannot be read: {error.strerror}.") from None


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError:
        raise MissingExtra("Signing models", "sign") from None
    return serialization
