"""docs/reasons.md, made from the reasons: `python -m safeimpute.cli.reasons_page > docs/reasons.md`."""

import sys

from safeimpute.selection.reasons import IN_WORDS, WHAT_HELPS

BEGINNING = """# Why a value is withheld

Every missing value gets an imputation; what cannot be promised is withheld. The column `reason` of the imputation table
says why; released values have an empty one. These are all reasons there are, made from `selection/reasons.py`. A
withheld value is not wrong: nothing is promised about it.

| `reason` | means | what helps |
|---|---|---|
"""
END = """
Two reasons may hold at once; the table names one of them. How many values met which reason stands in the terminal,
in `summary.json` and in the [report](report.md). A level or a tolerance chosen after looking at these counts is a
second look, and promises nothing on the same visits ([which promise for which use](promises.md)).
"""


def reasons_page() -> str:
    """The whole page."""
    rows = (f"| `{reason}` | {means} | {WHAT_HELPS[reason]} |\n" for reason, means in IN_WORDS.items())
    return BEGINNING + "".join(rows) + END


if __name__ == "__main__":
    sys.stdout.write(reasons_page())
