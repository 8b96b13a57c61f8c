"""A fault of ours as a file that can be sent: where it happened, and nothing of what was worked on."""

import os
import platform
import re
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path


def our_fault(error: BaseException) -> str:
    """One line about an error nobody meant, which names the file with its trace."""
    kind = type(error).__name__
    try:
        path = write_trace(error)
    except OSError:
        return f"internal error ({kind}), our fault; its trace could not be written. SAFEIMPUTE_DEBUG=1 shows it."
    return (
        f"internal error ({kind}), our fault. Please report it with {path}, which holds no values and no messages, "
        "only where it happened."
    )


def write_trace(error: BaseException) -> Path:
    """The trace in a file that only the user may read: places in the code, kinds of errors, versions.

    Messages of errors, arguments and variables are left out, since they may quote a patient.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    handle, name = tempfile.mkstemp(prefix=f"safeimpute-trace-{stamp}-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join((*_about(), *_chain(error))) + "\n")
    return Path(name)


def _about() -> list[str]:
    from safeimpute import __version__

    command = sys.argv[1] if len(sys.argv) > 1 and re.fullmatch(r"[a-z]+", sys.argv[1]) else "?"
    flags = sorted({each.partition("=")[0] for each in sys.argv[2:] if re.match(r"--[a-z-]+(=|$)", each)})
    return [
        f"safeimpute {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"command: {command} {' '.join(flags)}",
    ]


def _chain(error: BaseException) -> list[str]:
    """Where each error of the chain happened, the first cause first."""
    lines, seen = [], error
    chain = []
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__  # type: ignore[assignment]
    for each in reversed(chain):
        lines.append(f"{type(each).__module__}.{type(each).__qualname__}")
        lines += [_place(frame) for frame in traceback.extract_tb(each.__traceback__)]
    return lines


def _place(frame: traceback.FrameSummary) -> str:
    parts = Path(frame.filename).parts
    known = [place for place, part in enumerate(parts) if part in ("safeimpute", "site-packages")]
    short = "/".join(parts[known[-1] :]) if known else parts[-1]
    return f"  {short}:{frame.lineno} in {frame.name}"
