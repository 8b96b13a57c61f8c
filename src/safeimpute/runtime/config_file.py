"""Options in a TOML file; loads nothing heavy, so that `--threads` is heard before the numerical libraries start."""

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safeimpute.errors import OptionError


def read_config_file(path: Path, tables: Collection[str]) -> dict[str, Any]:
    """The file's options and tables by name; of tables it may have only the named ones."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"configuration file {path.name!r} cannot be read: {error}.") from None
    for name, value in found.items():
        if isinstance(value, dict) and name not in tables:
            raise OptionError(
                f"configuration file: [{name}] is no table it may have. Write options without a table; "
                f"{' and '.join(f'[{each}]' for each in tables)} hold settings of the presets."
            )
        if name in tables and not isinstance(value, dict):
            raise OptionError(f"configuration file: {name!r} is a table. Write its settings under [{name}].")
    return found
