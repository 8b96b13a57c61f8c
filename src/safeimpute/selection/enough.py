"""Whether what is measured can bear a level: what cannot succeed is refused before anything is learnt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safeimpute.errors import GuaranteeRefused, OptionError, VisitsError
from safeimpute.learning.roles import CALIBRATION_SHARE
from safeimpute.settings import Settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays

# What the level times the effective number of measured visits, and of their patients, must come to.
RISKY_VISITS, RISKY_PATIENTS = 4.0, 2.0


@dataclass(frozen=True)
class EffectiveSize:
    """Effective sizes, (sum w)^2 / sum w^2."""

    visits: float
    patients: float


def enough(effective_size: EffectiveSize, alpha: float) -> bool:
    """Whether a level of alpha stands for a countable number of risky values; reads no error."""
    return alpha * effective_size.visits >= RISKY_VISITS and alpha * effective_size.patients >= RISKY_PATIENTS


def fewest_calibration(alpha: float) -> int:
    """Below it even a candidate safer than every risky calibration visit has p = 1 / (n + 1) > alpha."""
    return math.ceil(1.0 / alpha - 1.0 - 1e-9)


def too_few(alpha: float, effective_size: EffectiveSize) -> str:
    """Why a ledger of so many visits and patients promises nothing at a level, and which level it could bear."""
    visits, patients = math.ceil(RISKY_VISITS / alpha), math.ceil(RISKY_PATIENTS / alpha)
    words = (
        f"a level of {alpha:g} needs measured visits worth {visits} of equal weight, of patients worth {patients}; "
        f"these are worth {effective_size.visits:.0f} and {effective_size.patients:.0f}"
    )
    level = lowest_level(effective_size)
    if level is None:
        return f"{words}. Give more patients with measured values"
    return f"{words}. Give more patients with measured values, or a level of {level:g} or higher"


def lowest_level(effective_size: EffectiveSize) -> float | None:
    """The lowest level, in whole percent, that so many visits and patients bear; None where that is half or more."""
    level = max(RISKY_VISITS / max(effective_size.visits, 1e-9), RISKY_PATIENTS / max(effective_size.patients, 1e-9))
    return None if level >= 0.5 else max(math.ceil(100 * level - 1e-9), 1) / 100


def lowest_level_held_out(measured: int) -> float | None:
    """The same under the claim `visits`, where a share of the measured visits calibrates."""
    level = 1.0 / (round(CALIBRATION_SHARE * measured) + 1)
    return None if level >= 0.5 else max(math.ceil(100 * level - 1e-9), 1) / 100


def fewest_measured(alpha: float) -> int:
    """Measured visits that the claim `visits` needs at a level."""
    return math.ceil((fewest_calibration(alpha) - 0.5) / CALIBRATION_SHARE)


def require_sides(target: str, truth: FloatArray, tolerance: Tolerance) -> None:
    """Refuse limits that no measured value (NaN elsewhere) lies below, or none above; classes that are not measured."""
    measured = truth[~np.isnan(truth)]
    if tolerance.levels:
        strange = int(np.sum(~np.isin(measured, tolerance.levels)))
        if strange:
            raise VisitsError(
                f"column {target!r} (target) holds another number than its classes ({' < '.join(tolerance.bands)}) in "
                f"{strange:,} of {len(measured):,} measured rows. Name every class in order, or empty those cells."
            )
        named = zip(tolerance.bands, tolerance.levels, strict=True)
        if absent := [band for band, each in named if each not in measured]:
            raise VisitsError(
                f"class {absent[0]} of {target!r} was never measured, so nothing can be learnt about it. Leave it out; "
                "of one class alone nothing is to be told."
            )
    for limit in tolerance.limits:
        above = measured >= limit
        if above.all() or not above.any():
            raise VisitsError(
                f"limit {limit:g}: no measured value of {target!r} lies {'below' if above.any() else 'above'} it, so "
                "nothing can be learnt about it. Give limits within what was measured, in the column's unit."
            )


def require_promisable(visits: VisitArrays, settings: Settings) -> None:
    """Refuse a table without holes, and one whose measured visits could not bear the level even at equal weights."""
    measured = ~np.isnan(visits.target_values)
    if (measured | visits.target_censored).all():
        raise VisitsError(
            f"target {settings.target!r} is measured at every visit: there is nothing to impute. To see how well "
            "known values would be imputed, use evaluate."
        )
    if settings.claim == "visits":
        _require_held_out(int(measured.sum()), settings.fdr)
        return
    measured &= calibrated_on(visits, settings)
    effective_size = EffectiveSize(float(measured.sum()), float(len(np.unique(visits.patient[measured]))))
    if not enough(effective_size, settings.fdr):
        raise GuaranteeRefused(f"{too_few(settings.fdr, effective_size)}{_or_held_out(measured, settings)}.")


def _require_held_out(measured: int, alpha: float) -> None:
    """Refuse the claim `visits` where too few of the measured visits would calibrate."""
    needed, there = fewest_calibration(alpha), round(CALIBRATION_SHARE * measured)
    if there < needed:
        raise GuaranteeRefused(
            f"an FDR level of {alpha:g} needs at least {needed} calibration visits; {100 * CALIBRATION_SHARE:g} % of "
            f"the measured ones are {there}. {fewest_measured(alpha):,} measured visits would do, or "
            f"{_level_in_words(lowest_level_held_out(measured))}."
        )


def _or_held_out(measured: BoolArray, settings: Settings) -> str:
    """The claim `visits`, where it bears the level: it asks for visits, whoever's they are."""
    if round(CALIBRATION_SHARE * int(measured.sum())) < fewest_calibration(settings.fdr):
        return ""
    return "; or the claim 'visits', which bears this level here, but speaks only for visits like the measured ones"


def _level_in_words(level: float | None) -> str:
    return "no level below 0.5" if level is None else f"a level of {level:g} or higher"


def calibrated_on(visits: VisitArrays, settings: Settings) -> BoolArray:
    """Visits of the period that calibrates."""
    since = settings.since_days
    return np.ones(len(visits), dtype=bool) if since is None else visits.time >= since


def require_groups(names: Sequence[str], visits: VisitArrays) -> None:
    """Refuse groups that cannot be told, or that a hidden target could decide."""
    known = ("value", "history", *attribute_groups(visits))
    target = visits.lab_names[visits.target]
    for name in names:
        if name == target:
            raise OptionError(
                f"groups: {name!r} is the target, which is hidden where it is imputed. Group by value, the band of the "
                "imputed value, instead."
            )
        if name in visits.lab_names or name in visits.high_cardinality_names:
            raise OptionError(
                f"groups: {name!r} is {'a lab' if name in visits.lab_names else 'a text column of many levels'}, not "
                f"an attribute. Groups here: {', '.join(known)}."
            )
        if name not in known:
            raise OptionError(f"groups: there is no attribute {name!r}. Groups here: {', '.join(known)}.")
    if len(set(names)) < len(names):
        raise OptionError("groups: a group is named twice. Name each once.")


def attribute_groups(visits: VisitArrays) -> tuple[str, ...]:
    """Attributes a table can be grouped by: amounts by name, categories once for all their levels."""
    return tuple(dict.fromkeys(name.split("=", 1)[0] for name in visits.attribute_names))
