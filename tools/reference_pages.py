"""Pages of the documentation that are made from the code: `python tools/reference_pages.py PAGE`.

PAGE is options (settings.py), reasons (why a value is withheld) or catalogue (the labs, and what of them was checked).
"""

import sys
from collections.abc import Iterator
from itertools import groupby

from safeimpute.machine.options import Declared, TableFormat, declared
from safeimpute.selection.reasons import IN_WORDS, WHAT_HELPS
from safeimpute.settings import Settings
from safeimpute.visits.catalogue import Catalogue, Fact, Lab, facts, load_catalogue, unverified

OPTIONS = """# Options

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
    parts = [OPTIONS]
    for table, options in groupby(declared(Settings), lambda option: option.path[:-1]):
        heading = f"Table `[{'.'.join(table)}]`" if table else "Options of a fit"
        parts.append(f"## {heading}\n\n{option_table(list(options))}")
    parts.append(f"## How a file is written\n\n{FORMAT}\n{option_table(list(declared(TableFormat)))}")
    return "\n".join(parts)


def option_table(options: list[Declared]) -> str:
    """Options as a markdown table: what each takes, its default, what it means."""
    rows = [(_option_name(each), each.takes, _default(each), each.about.means) for each in options]
    head = ("option", "takes", "default", "meaning")
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '¦') for cell in line)} |\n" for line in lines)


def _option_name(option: Declared) -> str:
    return f"`{option.name}`" + (f" (`{option.flag}`)" if option.about.flag else "")


def _default(option: Declared) -> str:
    if option.needed:
        return "must be given"
    return option.about.default or f"`{option.default_in_words}`"


REASONS = """# Why a value is withheld

Every missing value gets an imputation; what cannot be promised is withheld. The column `reason` of the imputation table
says why; released values have an empty one. These are all reasons there are, made from `selection/reasons.py`. A
withheld value is not wrong: nothing is promised about it.

| `reason` | means | what helps |
|---|---|---|
"""
REASONS_END = """
Two reasons may hold at once; the table names one of them. How many values met which reason stands in the terminal,
in `summary.json` and in the [report](report.md). A level or a tolerance chosen after looking at these counts is a
second look, and promises nothing on the same visits ([which promise for which use](promises.md)).
"""


def reasons_page() -> str:
    """The whole page."""
    rows = (f"| `{reason}` | {means} | {WHAT_HELPS[reason]} |\n" for reason, means in IN_WORDS.items())
    return REASONS + "".join(rows) + REASONS_END


CATALOGUE = """\
# The catalogue of labs, and what of it was checked

Made from `src/safeimpute/visits/catalogue.toml` by `python tools/reference_pages.py catalogue`. Every code, factor,
range, decision limit and allowable error has a source; a verified one was also found in the tables named below. The
list of clinical facts is the one this project was given, itself checked against public sources. Where an allowable
error that was not verified is used as a tolerance, the program says so.
"""


def catalogue_page(catalogue: Catalogue) -> str:
    """The page's text."""
    return "\n".join([CATALOGUE, *_sources(catalogue), *_labs(catalogue), *_unverified(catalogue)]) + "\n"


def _sources(catalogue: Catalogue) -> Iterator[str]:
    yield "## Sources\n"
    yield "| kind | comes from | a verified one was checked against |\n|---|---|---|"
    for kind, (source, checked) in catalogue.sources.items():
        yield f"| {kind.replace('_', ' ')} | {source or 'as each entry says'} | {checked} |"


def _labs(catalogue: Catalogue) -> Iterator[str]:
    yield "\n## Labs\n"
    yield "| lab | unit | LOINC | OMOP | MIMIC | set aside outside | allowable error | verified facts |"
    yield "|---|---|---|---|---|---|---|---|"
    for lab in catalogue.labs.values():
        every = list(facts(lab, catalogue))
        checked = sum(fact.verified for fact in every)
        allowed = lab.allowable_error.describe(lab.unit) if lab.allowable_error else ""
        codes = " | ".join(_codes(lab, kind) for kind in ("loinc", "omop", "mimic"))
        limits = f"{lab.reject.low:g} to {lab.reject.high:g}"
        yield f"| {lab.name} | {lab.unit} | {codes} | {limits} | {allowed} | {checked} of {len(every)} |"


def _codes(lab: Lab, vocabulary: str) -> str:
    return ", ".join(str(code) for codes in lab.codes.values() for code in getattr(codes, vocabulary))


def _unverified(catalogue: Catalogue) -> Iterator[str]:
    listed = unverified(catalogue)
    yield f"\n## Not verified: {len(listed)} facts\n"
    yield "| lab | fact | value | source |\n|---|---|---|---|"
    yield from (_row(fact) for fact in listed)


def _row(fact: Fact) -> str:
    return f"| {fact.lab} | {fact.name.replace('_', ' ')} | {fact.value} | {fact.source} |"


def main(name: str) -> str:
    """The text of a page."""
    if name == "catalogue":
        return catalogue_page(load_catalogue())
    return {"options": options_page, "reasons": reasons_page}[name]()


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1]))
