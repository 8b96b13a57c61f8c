"""Names from the data made safe to print: no invisible or control characters, no more than fits."""

import unicodedata


def plain_text(text: object, longest: int = 200) -> str:
    """A name from the data without invisible or control characters, cut where it would not fit."""
    shown = "".join("\ufffd" if unicodedata.category(c).startswith("C") else c for c in str(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
