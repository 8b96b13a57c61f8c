"""Everything a run can be told, checked once, frozen, and saved with its results."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from safeimpute.errors import OptionError, VisitsError
from safeimpute.records.arrays import FloatArray
from safeimpute.records.catalogue import load_catalogue
from safeimpute.records.visits import ColumnChoice
from safeimpute.selection.claims import Claim, parse_claim
from safeimpute.systems.presets import BestSettings, PaperSettings, Plan, PresetName
from safeimpute.tolerance import Tolerance, parse_tolerance

OpenUnit = Annotated[float, Field(gt=0, lt=1)]


class Config(BaseModel):
    """The resolved configuration of one fit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    tolerance: float | str
    fdr: OpenUnit
    preset: PresetName = "best"
    claim: str = "unmeasured"
    labs: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    subject: str = "subject_id"
    time: str = "time"
    unit: str | None = None
    past_only: bool = False
    interval: OpenUnit = 0.9
    gammas: tuple[Annotated[float, Field(ge=1)], ...] = (1.0, 1.25, 1.5, 2.0, 3.0)
    random_state: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    paper: PaperSettings = Field(default_factory=PaperSettings)
    best: BestSettings = Field(default_factory=BestSettings)

    @field_validator("tolerance")
    @classmethod
    def _tolerance_is_readable(cls, given: float | str) -> float | str:
        """A plain number stays one, however it was typed; the other forms are kept as given."""
        tolerance = parse_tolerance(given)
        return given if tolerance.share else tolerance.absolute

    @field_validator("claim")
    @classmethod
    def _claim_is_known(cls, given: str) -> str:
        return parse_claim(given).name

    @property
    def allowed_error(self) -> Tolerance:
        return parse_tolerance(self.tolerance)

    @property
    def promise(self) -> Claim:
        return parse_claim(self.claim)

    @property
    def unit_known(self) -> str | None:
        """The target's unit: as given, else from the catalogue of labs."""
        known = load_catalogue().labs.get(self.target)
        return self.unit or (known.unit if known else None)

    @property
    def plausible_range(self) -> tuple[float, float] | None:
        """What the target can be in a living patient, where the catalogue knows it in this unit."""
        known = load_catalogue().labs.get(self.target)
        if known is None or self.unit_known != known.unit:
            return None
        return known.reject.low, known.reject.high

    def require_plausible(self, values: FloatArray) -> None:
        """Refuse a target that is in another unit than the catalogue's, before any work."""
        limits = self.plausible_range
        measured = values[~np.isnan(values)]
        if limits is None or not len(measured):
            return
        outside = int(np.sum((measured < limits[0]) | (measured > limits[1])))
        if outside > len(measured) / 2:
            raise VisitsError(
                f"column {self.target!r} (target) lies outside {limits[0]:g} to {limits[1]:g} {self.unit_known} in "
                f"{outside:,} of {len(measured):,} measured rows. If it is in another unit, name it: --unit, or unit= "
                "in Python."
            )

    def plan(self) -> Plan:
        """What the array core needs to know."""
        if self.past_only and self.preset == "paper":
            raise OptionError(
                "past_only needs the preset 'best': the paper's graph joins visits to later ones as well."
            )
        evidence = replace(self.best.blend.evidence, past_only=self.past_only)
        best = BestSettings(replace(self.best.blend, evidence=evidence))
        device = resolve_device(self.device)
        return Plan(self.preset, self.allowed_error, self.random_state, device, self.paper, best)

    @property
    def columns(self) -> ColumnChoice:
        return ColumnChoice(self.target, self.subject, self.time, self.labs, self.attributes, self.exclude)


def resolve_device(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise OptionError("device 'cuda' was asked for, but no GPU was found. Use 'auto' or 'cpu'.")
    return "cpu"


def make_config(**given: Any) -> Config:
    """A checked configuration, or an error that names the option and what it takes."""
    try:
        return Config(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = ".".join(str(part) for part in first["loc"]) or "option"
        hint = f" (given: {first['input']!r})" if not isinstance(first["input"], dict) else ""
        raise OptionError(f"{option}: {first['msg']}{hint}. See the documentation of this option.") from None
