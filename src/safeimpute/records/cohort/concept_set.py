"""A disease as an OHDSI concept set, in the JSON that ATLAS exports; read here, applied in `diseases`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safeimpute.errors import OptionError


@dataclass(frozen=True)
class ConceptSet:
    """Concepts that count, by themselves or with all their descendants, less those left out alike."""

    included: frozenset[int]
    included_below: frozenset[int]  # with their descendants
    excluded: frozenset[int] = frozenset()
    excluded_below: frozenset[int] = frozenset()

    @property
    def with_descendants(self) -> frozenset[int]:
        return self.included_below | self.excluded_below

    def resolved(self) -> dict[str, list[int]]:
        """For the build's record."""
        return {name: sorted(concepts) for name, concepts in vars(self).items()}


def read_concept_set(path: Path) -> ConceptSet:
    """The concept set of a file, or an error that says what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        items = content["items"] if "items" in content else content["expression"]["items"]
        parts: dict[tuple[bool, bool], set[int]] = {}
        for item in items:
            kind = bool(item.get("isExcluded", False)), bool(item.get("includeDescendants", False))
            parts.setdefault(kind, set()).add(_number(item["concept"]))
    except OSError as error:
        raise OptionError(f"concept set {path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OptionError(
            f"{path} is no concept set as ATLAS exports it: an object with 'items', each with a 'concept'."
        ) from None
    chosen = ConceptSet(*(frozenset(parts.get(kind, ())) for kind in _ORDER))
    if not chosen.included and not chosen.included_below:
        raise OptionError(f"concept set {path} includes no concept.")
    return chosen


_ORDER = ((False, False), (False, True), (True, False), (True, True))


def _number(concept: dict[str, Any]) -> int:
    return int(concept["CONCEPT_ID"] if "CONCEPT_ID" in concept else concept["conceptId"])
