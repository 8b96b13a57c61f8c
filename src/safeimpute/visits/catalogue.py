"""The labs this project knows, read from one TOML file: codes, units, ranges, where each fact comes from."""

import difflib
import re
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from safeimpute.errors import OptionError

Vocabulary = Literal["mimic", "loinc", "omop", "meds"]
Code = int | str
Document = dict[str, Any]  # a TOML file as read; pydantic checks it

_LOOKBACK = re.compile(r"(\d+)([dh])")
_LAB_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
CODES: tuple[Vocabulary, ...] = ("mimic", "loinc", "omop")
VOCABULARIES: tuple[Vocabulary, ...] = (*CODES, "meds")


def parse_lookback(text: str) -> timedelta:
    """`7d` or `12h` as a duration."""
    match = _LOOKBACK.fullmatch(text.strip())
    if match is None:
        raise ValueError("a look-back is a whole number of days or hours: 7d, 90d, 12h")
    amount = int(match[1])
    return timedelta(days=amount) if match[2] == "d" else timedelta(hours=amount)


def normal_unit(text: str) -> str:
    """The spelling by which units are compared; readers apply the same rule to the source's units."""
    return text.strip().lower()


def normal_name(text: str) -> str:
    """The spelling by which names of labs are compared: letters and digits, in lower case."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Conversion(_Entry):
    """Value in the lab's unit = result x times + plus."""

    times: float = Field(default=1.0, gt=0)
    plus: float = 0.0

    @property
    def changes(self) -> bool:
        return (self.times, self.plus) != (1.0, 0.0)


class Codes(_Entry):
    """One specimen's codes by vocabulary; MIMIC's item numbers also name its MEDS codes."""

    mimic: tuple[int, ...] = ()
    loinc: tuple[str, ...] = ()
    omop: tuple[int, ...] = ()
    meds: tuple[str, ...] = ()

    def of(self, vocabulary: Vocabulary) -> tuple[Code, ...]:
        if vocabulary == "meds":
            return (*self.meds, *(f"LAB//{item}" for item in self.mimic))
        codes: tuple[Code, ...] = getattr(self, vocabulary)
        return codes


class Derivatives(Codes):
    """What is calculated from a lab: single codes, and whole labs by name."""

    labs: tuple[str, ...] = ()


class AllowableError(_Entry):
    """What a regulator tolerates from the analyser; the larger where both are given."""

    percent: float | None = Field(default=None, gt=0)
    absolute: float | None = Field(default=None, gt=0)
    source: str

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.percent is None and self.absolute is None:
            raise ValueError("give percent, absolute or both")
        return self

    def describe(self, unit: str) -> str:
        absolute = f"{self.absolute:g} {unit}" if self.absolute else ""
        percent = f"{self.percent:g} %" if self.percent else ""
        return " or ".join(filter(None, (absolute, percent)))


class Range(_Entry):
    """From `low` to `high`, both included."""

    low: float
    high: float

    @model_validator(mode="before")
    @classmethod
    def _from_pair(cls, pair: Any) -> Any:
        if isinstance(pair, list) and len(pair) == 2:
            return {"low": pair[0], "high": pair[1]}
        return pair

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low < self.high:
            raise ValueError("the first number of a range must be below the second")
        return self


def _checked_lookback(text: str) -> str:
    parse_lookback(text)
    return text


class DecisionLimits(_Entry):
    """Values at which a clinician decides, in the lab's unit, increasing."""

    values: tuple[float, ...]
    source: str

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        if not self.values or list(self.values) != sorted(set(self.values)):
            raise ValueError("decision limits are one or more increasing numbers")
        return self


class Reference(_Entry):
    """Between which values most healthy adults lie, in the lab's unit."""

    low: float
    high: float
    source: str

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low < self.high:
            raise ValueError("a reference range's low must be below its high")
        return self


class Lab(_Entry):
    """One lab: what it is called, how it is coded and measured, which values are possible."""

    name: str
    title: str
    unit: str
    units: dict[str, Conversion] = {}
    decimals: int | None = Field(default=None, ge=0, le=9)  # how many a result is usually reported with
    names: tuple[str, ...] = ()  # what exports call it
    reject: Range
    flag: Range
    lookback: Annotated[str, AfterValidator(_checked_lookback)]
    category: Literal["laboratory", "vital-signs"] = "laboratory"
    codes: dict[str, Codes]
    derivatives: Derivatives = Derivatives()
    allowable_error: AllowableError | None = None
    decision_limits: DecisionLimits | None = None
    reference: Reference | None = None
    verified: tuple[str, ...] = ()  # facts checked against a public table, by the names of `facts`

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not _LAB_NAME.fullmatch(self.name):
            raise ValueError("a lab's name is lower-case letters, digits and single underscores")
        if not (self.reject.low <= self.flag.low and self.flag.high <= self.reject.high):
            raise ValueError("the flag range must lie inside the reject range")
        return self

    @property
    def spoken(self) -> str:
        """The title as it is said: "total cholesterol" for "cholesterol, total"."""
        what, comma, rest = self.title.partition(", ")
        kind, more, detail = rest.partition(", ")
        return f"{kind} {what}{more}{detail}" if comma else what

    @property
    def conversions(self) -> dict[str, Conversion]:
        """How to reach the lab's unit from each accepted unit, by normal spelling."""
        accepted = {normal_unit(unit): conversion for unit, conversion in self.units.items()}
        return {normal_unit(self.unit): Conversion()} | accepted

    def codes_in(self, vocabulary: Vocabulary, specimens: tuple[str, ...] | None = None) -> tuple[Code, ...]:
        """This lab's codes in one vocabulary, of all specimens or of the named ones."""
        chosen = self.codes if specimens is None else {name: self.codes[name] for name in specimens}
        return tuple(code for codes in chosen.values() for code in codes.of(vocabulary))


class DiseaseCodes(_Entry):
    """Diagnosis codes by vocabulary; ICD codes are matched by their beginning, with or without dots."""

    icd9: tuple[str, ...] = ()
    icd10: tuple[str, ...] = ()
    omop: tuple[int, ...] = ()
    snomed: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_dots(cls, entry: Any) -> Any:
        if not isinstance(entry, dict):
            return entry
        plain = {
            name: [code.upper().replace(".", "") if isinstance(code, str) else code for code in entry[name]]
            for name in ("icd9", "icd10")
            if isinstance(entry.get(name), list)
        }
        return {**entry, **plain}

    @model_validator(mode="after")
    def _has_a_code(self) -> Self:
        if not (self.icd9 or self.icd10 or self.omop or self.snomed):
            raise ValueError("give icd9, icd10, omop or snomed codes")
        if "" in (*self.icd9, *self.icd10):
            raise ValueError("an empty ICD code would match everybody")
        return self


class Catalogue(_Entry):
    """All labs by name, and the codes of diabetes and of a user's diseases by vocabulary."""

    labs: dict[str, Lab]
    diabetes: dict[str, DiseaseCodes]
    diseases: dict[str, DiseaseCodes] = {}
    omop_units: dict[int, str]
    sources: dict[str, tuple[str, str]]  # kind of fact -> where it comes from, what a verified one was checked against

    def lab(self, name: str) -> Lab:
        if name not in self.labs:
            close = difflib.get_close_matches(name, self.labs, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise OptionError(
                f"lab {name!r} is not in the catalogue.{hint} Known labs: {', '.join(sorted(self.labs))}. "
                "Others can be added with --catalogue FILE.toml."
            )
        return self.labs[name]

    @cached_property
    def by_name(self) -> dict[str, Lab]:
        """Labs by everything they are called (in normal spelling), and by their codes in every vocabulary."""
        found: dict[str, Lab] = {}
        for lab in self.labs.values():
            named = (lab.name, lab.title, lab.spoken, *lab.names)
            codes = [code for vocabulary in VOCABULARIES for code in lab.codes_in(vocabulary)]
            for each in (*map(normal_name, named), *(str(code).lower() for code in codes)):
                found.setdefault(each, lab)
        return found

    def disease(self, name: str) -> DiseaseCodes:
        """A disease of the user's file, or an error that says how to write one."""
        if name not in self.diseases:
            known = f"Known: {', '.join(sorted(self.diseases))}." if self.diseases else "None is there."
            raise OptionError(
                f"disease {name!r} is not in the catalogue. {known} Write [diseases.{name}] with icd9 and icd10 codes, "
                "matched by their beginning, into a file and name it with --catalogue FILE.toml."
            )
        return self.diseases[name]

    @property
    def roots(self) -> list[int]:
        """OMOP concepts of every disease here, whose descendants count too."""
        every = (*self.diabetes.values(), *self.diseases.values())
        return sorted({concept for codes in every for concept in codes.omop})

    @model_validator(mode="after")
    def _each_code_names_one_lab(self) -> Self:
        owners: dict[tuple[Vocabulary, Code], str] = {}
        for vocabulary, code, lab in _coded(self.labs):
            if owners.setdefault((vocabulary, code), lab) != lab:
                raise ValueError(f"{vocabulary} code {code} stands for both {owners[vocabulary, code]} and {lab}")
        return self


def _coded(labs: dict[str, Lab]) -> Iterator[tuple[Vocabulary, Code, str]]:
    for lab in labs.values():
        for vocabulary in VOCABULARIES:
            for code in lab.codes_in(vocabulary):
                yield vocabulary, code, lab.name


def load_catalogue(added: Path | None = None) -> Catalogue:
    """The bundled catalogue, with the labs and diseases of a user's TOML file added to it."""
    bundled = _bundled()
    if added is None:
        return _bundled_catalogue()
    own = _users(added)
    extra = own.get("labs", {})
    if known := sorted(set(extra) & set(bundled["labs"])):
        raise OptionError(f"{added}: {', '.join(known)} already in the catalogue. Give the lab another name.")
    document = bundled | {"labs": bundled["labs"] | extra, "diseases": own.get("diseases", {})}
    return _validated(document, str(added))


@cache
def _bundled_catalogue() -> Catalogue:
    return _validated(_bundled(), "the bundled catalogue")


@cache
def _bundled() -> Document:
    text = (resources.files("safeimpute.visits") / "catalogue.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _users(path: Path) -> Document:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"catalogue {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"catalogue {path} is not valid TOML: {error}.") from None
    tables = all(isinstance(each, dict) for each in document.values())
    if not document or set(document) - {"labs", "diseases"} or not tables:
        raise OptionError(
            f"catalogue {path} must hold [labs.NAME] tables and [diseases.NAME] tables, and nothing else."
        )
    return document


def _validated(document: Document, origin: str) -> Catalogue:
    named = {
        name: entry | {"name": name} if isinstance(entry, dict) else entry for name, entry in document["labs"].items()
    }
    try:
        return Catalogue.model_validate(document | {"labs": named})
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise OptionError(f"{origin}: {faults}.") from None


class Fact(NamedTuple):
    """One code, factor, range or limit of a lab."""

    lab: str
    name: str  # "loinc 4548-4", "unit mmol/L", "reject", "flag", "allowable_error", "decision_limits", "reference"
    value: str
    source: str
    verified: bool


def lab_title(name: str, catalogue: Catalogue | None = None) -> str:
    """A lab's name as people write it: the catalogue's title, or the column's own name without its underscores."""
    known = (catalogue or load_catalogue()).labs.get(name)
    text = known.spoken if known else name.replace("_", " ").strip() or name
    return text[:1].upper() + text[1:]


def facts(lab: Lab, catalogue: Catalogue) -> Iterator[Fact]:
    """Every fact of a lab's entry."""
    for name, value in _named(lab):
        kind = name.partition(" ")[0]
        source = catalogue.sources[kind][0]
        if not source:  # the entry names its own
            source = getattr(lab, kind).source
        yield Fact(lab.name, name, value, source, name in lab.verified)


def _named(lab: Lab) -> Iterator[tuple[str, str]]:
    for vocabulary in CODES:
        for code in lab.codes_in(vocabulary):
            yield f"{vocabulary} {code}", "code"
        for code in getattr(lab.derivatives, vocabulary):
            yield f"{vocabulary} {code}", "code of what is calculated from it"
    for unit, rule in lab.units.items():
        shift = f" + {rule.plus:g}" if rule.plus else ""
        yield f"unit {unit}", f"x {rule.times:g}{shift} = {lab.unit}" if rule.changes else f"= {lab.unit}"
    for name in ("reject", "flag"):
        limits = getattr(lab, name)
        yield name, f"{limits.low:g} to {limits.high:g} {lab.unit}"
    if lab.allowable_error is not None:
        yield "allowable_error", lab.allowable_error.describe(lab.unit)
    if lab.decision_limits is not None:
        yield ("decision_limits", ", ".join(f"{limit:g}" for limit in lab.decision_limits.values) + f" {lab.unit}")
    if lab.reference is not None:
        yield "reference", f"{lab.reference.low:g} to {lab.reference.high:g} {lab.unit}"


def unverified(catalogue: Catalogue) -> list[Fact]:
    """The facts nobody checked."""
    return [fact for lab in catalogue.labs.values() for fact in facts(lab, catalogue) if not fact.verified]
