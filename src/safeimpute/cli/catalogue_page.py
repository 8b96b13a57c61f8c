"""docs/catalogue.md, made from the catalogue: python -m safeimpute.cli.catalogue_page > docs/catalogue.md"""

import sys
from collections.abc import Iterator

from safeimpute.records.catalogue import Catalogue, Lab, load_catalogue
from safeimpute.records.catalogue_facts import Fact, facts, unverified

HEAD = """\
# The catalogue of labs, and what of it was checked

Made from `src/safeimpute/records/catalogue.toml` by `python -m safeimpute.cli.catalogue_page`. Every code, factor,
range, decision limit and allowable error has a source; a verified one was also found in the tables named below. The
list of clinical facts is the one this project was given, itself checked against public sources. Where an allowable
error that was not verified is used as a tolerance, the program says so.
"""


def page(catalogue: Catalogue) -> str:
    """The page's text."""
    return "\n".join([HEAD, *_sources(catalogue), *_labs(catalogue), *_unverified(catalogue)]) + "\n"


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


if __name__ == "__main__":
    sys.stdout.write(page(load_catalogue()))
