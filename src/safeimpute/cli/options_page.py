"""docs/options.md, made from settings.py: `python -m safeimpute.cli.options_page > docs/options.md`."""

import sys
from itertools import groupby

from safeimpute.runtime.options import Declared, declared
from safeimpute.runtime.table_format import TableFormat
from safeimpute.settings import Settings

BEGINNING = """# Options

Every option of a fit is declared once, in `src/safeimpute/settings.py`; this page, the command line's flags, the
parameters of `SafeImputer` and the configuration file are made from there.

- **Python:** `SafeImputer(target="hba1c", tolerance=0.5, fdr=0.1, past_only=True)`; settings of the presets as
  `best={"folds": 7}` or `best=BestSettings(folds=7)`.
- **Command line:** `--past-only` for `past_only`, and so on; where the flag has another name, it stands beside the
  option. `safeimpute COMMAND --help` says which options and further flags a command takes.
- **Configuration file:** `--config FILE.toml`, with every command that fits. What is typed wins over the file; an
  unknown name is an error. Settings of the presets stand in tables and have no flags:

```toml
target = "hba1c"
tolerance = 0.5
fdr = 0.1
exclude = ["ward", "bed"]

[best]
folds = 7

[paper.graph]
max_neighbors = "none"
```

The options of a run, as resolved, are kept in its `run.json`.
"""


FORMAT = """Flags of every command that reads visits, and arguments of `read_visits` (there
`unit_of={"glucose": "mmol/L"}`). Nothing is guessed: a table written otherwise is refused, and the message names
the flag."""


def options_page() -> str:
    """The whole page."""
    parts = [BEGINNING]
    for table, options in groupby(declared(Settings), lambda option: option.path[:-1]):
        heading = f"Table `[{'.'.join(table)}]`" if table else "Options of a fit"
        parts.append(f"## {heading}\n\n{option_table(list(options))}")
    parts.append(f"## How a file is written\n\n{FORMAT}\n{option_table(list(declared(TableFormat)))}")
    return "\n".join(parts)


def option_table(options: list[Declared]) -> str:
    """Options as a markdown table: what each takes, its default, what it means."""
    rows = [(_named(each), each.takes, _default(each), each.about.means) for each in options]
    head = ("option", "takes", "default", "meaning")
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '¦') for cell in line)} |\n" for line in lines)


def _named(option: Declared) -> str:
    return f"`{option.name}`" + (f" (`{option.flag}`)" if option.about.flag else "")


def _default(option: Declared) -> str:
    if option.needed:
        return "must be given"
    return option.about.default or f"`{option.default_in_words}`"


if __name__ == "__main__":
    sys.stdout.write(options_page())
