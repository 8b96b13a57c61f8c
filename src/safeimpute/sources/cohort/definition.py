"""What a cohort is: targets, labs, anchors, whose disease, how far back a visit looks; made from options."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Literal, get_args

from safeimpute.errors import OptionError
from safeimpute.visits.catalogue import Catalogue, Code, DiseaseCodes, Lab, Vocabulary, parse_lookback

_ORDER = ((False, False), (False, True), (True, False), (True, True))
Anchors = Literal["target", "any"]
Diabetes = Literal["any", "primary", "type1", "none"]
Attribute = Literal["sex", "age"]
PAPER_LABS = ("hba1c", "glucose", "cholesterol")


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


def _number(concept: Mapping[str, int]) -> int:
    return int(concept["CONCEPT_ID"] if "CONCEPT_ID" in concept else concept["conceptId"])


@dataclass(frozen=True)
class CohortLab:
    """One lab as this cohort uses it."""

    lab: Lab
    lookback: timedelta
    specimens: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.lab.name

    def codes_in(self, vocabulary: Vocabulary) -> tuple[Code, ...]:
        return self.lab.codes_in(vocabulary, self.specimens)


@dataclass(frozen=True)
class CohortDefinition:
    """The targets, the other labs and whose visits a cohort holds."""

    targets: tuple[CohortLab, ...]
    inputs: tuple[CohortLab, ...]
    anchors: Anchors
    diabetes: Diabetes
    disease: str = ""  # of the user's catalogue, in place of diabetes
    codes: DiseaseCodes | None = None  # whose patients belong; None: everybody's
    since: date | None = None  # visits on this day and later
    until: date | None = None  # visits before this day
    attributes: tuple[Attribute, ...] = ("sex", "age")
    concept_set: ConceptSet | None = None  # of OMOP, in place of diabetes
    snomed: tuple[str, ...] = ()  # likewise

    @property
    def labs(self) -> tuple[CohortLab, ...]:
        return (*self.targets, *self.inputs)

    def derivatives_in(self, vocabulary: Vocabulary) -> tuple[Code, ...]:
        """Codes of results calculated from a target: counted, never used."""
        return tuple(code for item in self.targets for code in item.lab.derivatives.of(vocabulary))

    def resolved(self, vocabulary: Vocabulary) -> dict[str, object]:
        """Everything the build used, for its record."""
        return {
            "target": ",".join(item.name for item in self.targets),
            "anchors": self.anchors,
            "diabetes": "none" if self.disease else self.diabetes,
            "disease": self.disease or None,
            "diagnosis_codes": None if self.codes is None else self.codes.model_dump(),
            "from": None if self.since is None else self.since.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
            "attributes": list(self.attributes),
            "concept_set": None if self.concept_set is None else self.concept_set.resolved(),
            "snomed": list(self.snomed),
            "labs": {
                **{item.name: _lab_record(item, vocabulary) | {"lookback_hours": 0} for item in self.targets},
                **{item.name: _lab_record(item, vocabulary) for item in self.inputs},
            },
            "derivatives_set_aside": list(self.derivatives_in(vocabulary)),
        }


def _lab_record(item: CohortLab, vocabulary: Vocabulary) -> dict[str, object]:
    lab = item.lab
    return {
        "unit": lab.unit,
        "codes": list(item.codes_in(vocabulary)),
        "specimens": list(item.specimens),
        "lookback_hours": item.lookback / timedelta(hours=1),
        "units": {unit: [rule.times, rule.plus] for unit, rule in lab.conversions.items()},
        "reject_outside": [lab.reject.low, lab.reject.high],
        "flag_outside": [lab.flag.low, lab.flag.high],
    }


def define_cohort(
    catalogue: Catalogue,
    *,
    target: str,
    labs: tuple[str, ...] | None = None,
    anchors: str = "target",
    diabetes: str = "any",
    lookback: str = "",
    glucose: str = "serum,blood-gas",
    disease: str = "",
    since: str = "",
    until: str = "",
    attributes: tuple[str, ...] = ("sex", "age"),
    concept_set: ConceptSet | None = None,
    snomed: tuple[str, ...] = (),
) -> CohortDefinition:
    """The options of a build as a checked definition; without `labs`, the labs of the published cohort.

    `target` is a lab or several, comma separated. A `concept_set` or `snomed` codes take the place of `diabetes`.
    """
    _require(anchors, get_args(Anchors), "anchors")
    _require(diabetes, get_args(Diabetes), "diabetes")
    for attribute in attributes:
        _require(attribute, get_args(Attribute), "attribute")
    if concept_set is not None and snomed:
        raise OptionError("a disease is defined by a concept set or by SNOMED codes, not by both. Give one.")
    targets = tuple(dict.fromkeys(_split(target)))
    if not targets:
        raise OptionError("target is empty. Name a lab of the catalogue, or several, comma separated.")
    names = tuple(dict.fromkeys(PAPER_LABS if labs is None else labs))
    inputs = tuple(name for name in names if name not in targets)
    for each in targets:
        _refuse_derivatives(catalogue, each, (*(other for other in targets if other != each), *inputs))
    windows = _lookbacks(lookback, inputs)
    specimens = {"glucose": _split(glucose)}

    def planned(name: str) -> CohortLab:
        lab = catalogue.lab(name)
        chosen = specimens.get(name) or tuple(lab.codes)
        for specimen in chosen:
            _require(specimen, tuple(lab.codes), f"specimen of {name}")
        return CohortLab(lab, windows.get(name, parse_lookback(lab.lookback)), chosen)

    return CohortDefinition(
        targets=tuple(planned(name) for name in targets),
        inputs=tuple(planned(name) for name in inputs),
        anchors="any" if anchors == "any" else "target",
        diabetes=next(choice for choice in get_args(Diabetes) if choice == diabetes),
        disease=disease,
        codes=_codes(catalogue, diabetes, disease),
        attributes=tuple(known for known in get_args(Attribute) if known in attributes),
        **_window(since, until),
        concept_set=concept_set,
        snomed=snomed,
    )


def _codes(catalogue: Catalogue, diabetes: str, disease: str) -> DiseaseCodes | None:
    if disease:
        return catalogue.disease(disease)
    return None if diabetes == "none" else catalogue.diabetes[diabetes]


def _window(since: str, until: str) -> dict[str, date | None]:
    """From the first day to the day before the last one."""
    days = {"since": _day(since, "from"), "until": _day(until, "until")}
    first, last = days.values()
    if first is not None and last is not None and first >= last:
        raise OptionError(f"the window from {first} until {last} is empty. Give a later end.")
    return days


def _day(text: str, option: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise OptionError(f"{option} {text!r} is no day. Write it year first: 2022-01-01.") from None


def _require(given: str, choices: tuple[str, ...], option: str) -> None:
    if given not in choices:
        raise OptionError(f"{option} {given!r} is not understood. Choose from: {', '.join(choices)}.")


def _refuse_derivatives(catalogue: Catalogue, target: str, inputs: tuple[str, ...]) -> None:
    derived = catalogue.lab(target).derivatives
    vocabularies: tuple[Vocabulary, ...] = get_args(Vocabulary)
    for name in inputs:
        lab = catalogue.lab(name)
        if name in derived.labs or any(set(derived.of(v)) & set(lab.codes_in(v)) for v in vocabularies):
            raise OptionError(
                f"lab {name!r} is calculated from the target {target!r} and would give the answer away. Leave it out."
            )


def _lookbacks(text: str, names: tuple[str, ...]) -> dict[str, timedelta]:
    """`glucose=7d,cholesterol=90d`."""
    windows = {}
    for part in _split(text):
        name, _, window = part.partition("=")
        _require(name, names, "look-back for lab")
        try:
            windows[name] = parse_lookback(window)
        except ValueError as error:
            raise OptionError(f"look-back {part!r} is not understood: {error}.") from None
    return windows


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
