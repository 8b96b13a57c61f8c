"""Signed models: an Ed25519 signature over the manifest, which holds the checksums of everything else.

Keys are PEM files as `openssl genpkey -algorithm ed25519` makes them; the cryptography package does the work.
"""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeimpute.errors import MissingExtra, ModelFolderError, OptionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE = "model.sig"
CONTEXT = b"safeimpute model\n"  # a signature of something else never passes for one of a model
LARGEST_KEY = 2**16


def private_key(path: Path) -> "Ed25519PrivateKey":
    """The key to sign with, or an error before any work."""
    keys = _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = keys.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, _unsupported()):
        raise OptionError(
            f"{path} is no private key to sign with: a PEM file of an Ed25519 key without a password is needed "
            "(openssl genpkey -algorithm ed25519)."
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise OptionError(f"{path} is a private key of another kind. Ed25519 is needed.")
    return key


def public_key(path: Path) -> "Ed25519PublicKey":
    """The key to verify with."""
    keys = _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = keys.load_pem_public_key(_read(path))
    except (ValueError, TypeError, _unsupported()):
        raise OptionError(
            f"{path} is no public key to verify by: a PEM file of an Ed25519 key is needed "
            "(openssl pkey -in KEY -pubout)."
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise OptionError(f"{path} is a public key of another kind. Ed25519 is needed.")
    return key


def sign_manifest(manifest: Path, key: "Ed25519PrivateKey") -> None:
    """Write the signature of a manifest beside it."""
    signature = key.sign(CONTEXT + manifest.read_bytes())
    manifest.with_name(SIGNATURE).write_bytes(base64.b64encode(signature) + b"\n")


def require_signed(folder: Path, manifest: bytes, key_file: Path) -> None:
    """Refuse a model whose manifest was not signed by the owner of the key."""
    from cryptography.exceptions import InvalidSignature

    key = public_key(key_file)
    place = folder / SIGNATURE
    if not place.is_file():
        raise ModelFolderError(
            f"{folder.name!r} is not signed ({SIGNATURE} is missing), and a signature is required."
        )
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


def _unsupported() -> type[Exception]:
    from cryptography.exceptions import UnsupportedAlgorithm

    return UnsupportedAlgorithm
