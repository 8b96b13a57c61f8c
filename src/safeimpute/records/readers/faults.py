"""Engine errors turned into plain ones: their texts can quote a patient's row, so none is passed on."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safeimpute.errors import SafeImputeError, SourceError

_CSV_LINE = re.compile(r"CSV Error on Line: (\d+)")
_FILE = re.compile(r"(?:^\s*file = |stream: |file ')(?P<path>[^\n']+)", re.MULTILINE)
_CAUSES = (
    ("gzip", "is damaged or incomplete. Fetch it again and check its SHA-256"),
    ("magic bytes", "is damaged or no parquet file. Fetch it again"),
    ("parquet", "is damaged or no parquet file. Fetch it again"),
    ("unicode", "is not UTF-8 text. Fetch it again"),
    ("not a valid duckdb", "is no DuckDB database"),
    ("no space left", "cannot be worked on: the disk is full. Write the output where there is more room"),
    ("not enough memory", "needs more than the memory limit. Allow more with --memory"),
    ("out of memory", "needs more than the memory limit. Allow more with --memory"),
    ("permission denied", "may not be read, or no temporary tables kept, by this user. Ask for that right"),
    ("conversion error", "holds text where numbers or dates belong"),
)
_PROGRAMMING = (TypeError, AttributeError, NameError, LookupError, AssertionError)


@contextmanager
def translated_faults(place: str) -> Iterator[None]:
    """Raise a `SourceError` without the engine's own text for whatever an engine raises inside."""
    try:
        yield
    except (SafeImputeError, *_PROGRAMMING):
        raise
    except Exception as error:
        raise SourceError(_explained(error, place)) from None


def _explained(error: Exception, place: str) -> str:
    text = str(error)
    file = _FILE.search(text)
    subject = f"{Path(file['path']).name} in {place}" if file else place
    if line := _CSV_LINE.search(text):
        return f"line {line[1]} of {subject} does not have the columns of the header. Fetch the file again."
    lowered = text.lower()
    for sign, cause in _CAUSES:
        if sign in lowered:
            return f"{subject} {cause}."
    return f"{subject} could not be read: the database engine stopped with {type(error).__name__}."
