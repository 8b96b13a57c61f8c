"""Options in a TOML file; loads nothing heavy, so that `--threads` is heard before the numerical libraries start."""

import tomllib
from pathlib import Path
from typing import Any

from safeimpute.errors import OptionError

TABLES = ("best", "paper")  # settings of the presets


def read_config_file(path: Path) -> dict[str, Any]:
    """What is typed on the command line wins over it; a table is refused unless a preset has that name."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"configuration file {path.name!r} cannot be read: {error}.") from None
    for name, value in found.items():
        if isinstance(value, dict) and name not in TABLES:
            raise OptionError(
                f"configuration file: [{name}] is no table it may have. Write options without a table; "
                "[best] and [paper] hold settings of the presets."
            )
    return found
