"""Names from the data made safe to print: no invisible or control characters, no more than fits."""

import re
import unicodedata


def plain_text(text: object, longest: int = 200) -> str:
    """A name from the data without invisible or control characters, cut where it would not fit."""
    shown = "".join("\ufffd" if unicodedata.category(c).startswith("C") else c for c in str(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def folder_names(labs: tuple[str, ...]) -> dict[str, str]:
    """A folder's name for every lab: its number, and what of its name any file system takes."""
    plain = {lab: re.sub(r"[^a-z0-9]+", "-", lab.lower()).strip("-")[:40] for lab in labs}
    return {lab: f"{number:02d}-{plain[lab]}".rstrip("-") for number, lab in enumerate(labs, start=1)}
