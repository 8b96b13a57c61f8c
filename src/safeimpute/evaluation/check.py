"""What a run would meet in a table, before any fit: columns, units, holes, what each claim can do, a rough forecast."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import polars as pl

from safeimpute.errors import InputError, OptionError
from safeimpute.evaluation.release_forecast import Rough, look_roughly
from safeimpute.learning.roles import CALIBRATION_SHARE
from safeimpute.machine.progress import fit_seconds
from safeimpute.selection.enough import (
    EffectiveSize,
    calibrated_on,
    enough,
    fewest_calibration,
    fewest_measured,
    lowest_level,
    lowest_level_held_out,
    require_promisable,
    too_few,
)
from safeimpute.selection.several import unlearnable
from safeimpute.settings import ClaimName, Settings
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.checks import require_columns, require_rows
from safeimpute.visits.columns import ColumnRole, read_columns
from safeimpute.visits.imputations import refuse_known_values
from safeimpute.visits.lab_settings import settings_of_one, tolerances_of
from safeimpute.visits.units import column_choice, require_known_units, target_unit
from safeimpute.visits.visits import Visits, prepare_visits, row_keys

CLAIMS: tuple[ClaimName, ...] = ("unmeasured", "patients", "later", "visits")
SEEN = (
    "a guess by a part of what a run learns, from its errors at measured visits. Choose level and tolerance by what "
    "the values are for: one chosen because of this guess was chosen after a look at these visits."
)


class ColumnCheck(TypedDict):
    """What a column was taken for, and how to say otherwise."""

    role: str
    reason: str
    otherwise: str
    unit: str | None  # by the catalogue, of labs it knows
    missing: int  # rows


class ClaimCheck(TypedDict):
    """What a claim has to calibrate on, and whether it will be refused."""

    visits: float  # of equal weight
    patients: float  # likewise; 0 under `visits`, which does not ask for them
    lowest_level: float | None  # that these bear; None: none below one half
    refused: str  # why; empty where it will not be
    certain: bool  # refused at equal weights already: `run` stops at once


class Forecast(TypedDict):
    """What a run may come to."""

    seconds: float  # of the fit, on an idle machine
    tolerance: str
    risky: float | None  # share of measured visits at which the linear imputer is off by it or more
    released: tuple[float, float] | None  # share of the missing values: from, to
    out_of_scope: float | None  # share of the missing values no promise could cover
    how: str


class LabCheck(TypedDict):
    """One lab as the target."""

    unit: str | None
    measured: int
    missing: int
    beyond_limit: int  # measured, but known only by a limit (<, >)
    words: dict[str, int]  # rows with a word in place of a result, by its kind
    patients: int  # with a measured value
    fdr: float
    claim: str
    problem: str  # why a run is refused at once; empty where it is not
    claims: dict[str, ClaimCheck]
    forecast: Forecast | None
    nearest: str  # what would work, where the settings would not


class Check(TypedDict):
    """A table, before any fit."""

    rows: int
    visits: int
    patients: int
    merged_rows: int
    columns: dict[str, ColumnCheck]
    labs: dict[str, LabCheck]
    findings: NotRequired[list[dict[str, str]]]  # of the file: column, what, and the flag that mends it
    command: NotRequired[str]  # that reads the file as it was checked


def check_table(
    frame: pl.DataFrame,
    settings: Settings,
    each: Mapping[str, Settings],
    *,
    tolerance: bool = True,
    beside: Sequence[Path] = (),
) -> Check:
    """Look at a table with each of some labs as the target, under its own settings.

    `tolerance` says whether one was given; `beside` are places where ledgers of released values may stand.
    Raises VisitsError where the table cannot be read as visits at all.
    """
    roles, visits, patients = _columns(frame, settings, next(iter(each)) if len(each) == 1 else "")
    return {
        "rows": len(frame),
        "visits": visits,
        "patients": patients,
        "merged_rows": len(frame) - visits,
        "columns": {name: _column(frame[name], roles[name]) for name in frame.columns if name in roles},
        "labs": {lab: check_lab(frame, own, tolerance=tolerance, beside=beside) for lab, own in each.items()},
    }


def labs_with_holes(frame: pl.DataFrame, settings: Settings) -> tuple[str, ...]:
    """Columns taken for labs that lack values: what could be imputed."""
    roles, *_ = _columns(frame, settings, "")
    return tuple(
        name
        for name, each in sorted(roles.items())
        if each.role == "lab" and _missing(frame[name]) not in (0, len(frame))
    )


def _columns(frame: pl.DataFrame, settings: Settings, target: str) -> tuple[Mapping[str, ColumnRole], int, int]:
    """What every column is taken for, and how many visits and patients there are."""
    require_columns(frame, [settings.subject, settings.time], "needed in every visits table")
    require_rows(frame)
    choice = replace(column_choice(settings), target=target)
    keys = row_keys(frame, choice)
    roles = read_columns(frame, choice, keys.patient, keys.visit).roles
    return roles, len(keys.first_row), int(keys.patient.max()) + 1


def _column(column: pl.Series, role: ColumnRole) -> ColumnCheck:
    known = load_catalogue().labs.get(column.name) if role.role in ("lab", "target") else None
    return {
        "role": role.role,
        "reason": role.reason,
        "otherwise": role.otherwise,
        "unit": known.unit if known else None,
        "missing": _missing(column),
    }


def _missing(column: pl.Series) -> int:
    empty = column.is_null()
    if column.dtype.is_float():
        empty |= column.is_nan().fill_null(True)
    elif column.dtype == pl.String:
        empty |= (column.str.strip_chars() == "").fill_null(True)
    return int(empty.sum())


def check_lab(frame: Any, settings: Settings, *, tolerance: bool = True, beside: Sequence[Path] = ()) -> LabCheck:
    """One lab: whether a run would be refused, on what each claim would calibrate, and what may come out."""
    found: LabCheck = {
        "unit": target_unit(settings),
        "measured": 0,
        "missing": 0,
        "beyond_limit": 0,
        "words": {},
        "patients": 0,
        "fdr": settings.fdr,
        "claim": settings.claim,
        "problem": "",
        "claims": {},
        "forecast": None,
        "nearest": "",
    }
    try:
        settings = settings_of_one(settings if tolerance else _usual_tolerance(settings))
        visits = prepare_visits(frame, column_choice(settings))
        measured = ~np.isnan(visits.arrays.target_values)
        found |= {
            "measured": int(measured.sum()),
            "missing": int((~measured & ~visits.arrays.target_censored).sum()),
            "beyond_limit": visits.censored.get(settings.target, 0),
            "words": visits.words.get(settings.target, {}),
            "patients": len(np.unique(visits.arrays.patient[measured])),
        }
        require_known_units(settings, visits.arrays)
        refuse_known_values(visits.arrays, *beside)
        found["problem"] = _refusal(visits, settings)
    except InputError as error:
        found["problem"] = str(error)
        return found
    if found["missing"] and not unlearnable(visits.arrays, settings):
        _look(visits, settings, found, tolerance=tolerance)
    return found


def _refusal(visits: Visits, settings: Settings) -> str:
    """What `run` says before it learns anything; empty where it says nothing."""
    if why := unlearnable(visits.arrays, settings):
        return why
    try:
        require_promisable(visits.arrays, settings)
    except InputError as error:
        return str(error)
    return ""


def _usual_tolerance(settings: Settings) -> Settings:
    """The catalogue's allowable error, where it has one; else a fifth of the value stands in."""
    try:
        own = tolerances_of(replace(settings, tolerance="allowable"), (settings.target,))
    except OptionError:
        return replace(settings, tolerance="20%")
    return replace(settings, tolerance=own[settings.target])


def _look(visits: Visits, settings: Settings, found: LabCheck, *, tolerance: bool) -> None:
    """Enter what each claim has to calibrate on, the forecast, and the nearest that would work."""
    arrays, seed = visits.arrays, settings.random_state
    whole = look_roughly(arrays, seed, past_only=settings.past_only, calendar=True)
    later = look_roughly(arrays, seed, past_only=True, calendar=False)
    looks = {"unmeasured": whole, "patients": whole, "later": later, "visits": whole}
    told = [claim for claim in CLAIMS if claim != "visits" or not settings.allowed_error.graded]  # it knows no costs
    claims: dict[str, ClaimCheck] = {
        claim: _claim(visits, replace_claim(settings, claim), looks[claim]) for claim in told
    }
    found["claims"] = claims
    own, best = looks[settings.claim], settings.best
    allowed = settings.allowed_error
    released = None if own is None or found["problem"] else own.released(allowed, settings.fdr)
    found["forecast"] = {
        "seconds": round(fit_seconds(len(arrays), best.folds, best.pace), 1),
        "tolerance": allowed.describe(target_unit(settings)) + ("" if tolerance else ", as none was given"),
        "risky": None if own is None else round(own.risky_share(allowed), 2),
        "released": released,
        "out_of_scope": None if own is None else round(own.out_of_scope, 2),
        "how": SEEN,
    }
    if claims[settings.claim]["refused"]:
        found["nearest"] = _nearest(claims, settings)


def replace_claim(settings: Settings, claim: ClaimName) -> Settings:
    since = settings.since if claim == "later" else None
    past = settings.past_only and settings.claim != "later"
    return replace(settings, claim=claim, since=since, past_only=past, preset="best")


def _claim(visits: Visits, settings: Settings, rough: Rough | None) -> ClaimCheck:
    arrays, alpha = visits.arrays, settings.fdr
    measured = ~np.isnan(arrays.target_values) & calibrated_on(arrays, settings)
    if settings.claim == "visits":
        there, needed = round(CALIBRATION_SHARE * int(measured.sum())), fewest_calibration(alpha)
        why = f"needs {needed} calibration visits, {fewest_measured(alpha):,} measured ones in all; here are {there}"
        return {
            "visits": float(there),
            "patients": 0.0,
            "lowest_level": lowest_level_held_out(int(measured.sum())),
            "refused": why if there < needed else "",
            "certain": there < needed,
        }
    equal = EffectiveSize(float(measured.sum()), float(len(np.unique(arrays.patient[measured]))))
    effective_size = equal if rough is None else rough.effective_size
    effective_size = EffectiveSize(
        min(effective_size.visits, equal.visits), min(effective_size.patients, equal.patients)
    )
    return {
        "visits": round(effective_size.visits, 1),
        "patients": round(effective_size.patients, 1),
        "lowest_level": lowest_level(effective_size),
        "refused": "" if enough(effective_size, alpha) else too_few(alpha, effective_size),
        "certain": not enough(equal, alpha),
    }


def _nearest(claims: dict[str, ClaimCheck], settings: Settings) -> str:
    """The level and claim for which enough is measured; no error is read, so either may be chosen."""
    level = claims[settings.claim]["lowest_level"]
    said = [] if level is None else [f"a level of {level:g} or higher"]
    said += [f"the claim {each}" for each in claims if not claims[each]["refused"]][:1]
    return f"enough is measured for {', or '.join(said)}" if said else "too little is measured for any level"
