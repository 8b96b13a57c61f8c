"""`release`: values another tool filled in, ranked by a risk, and released under the same promises as our own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from safeimpute.errors import GuaranteeRefused, ImputedError, OptionError
from safeimpute.foreign.filled import Filled, read_filled
from safeimpute.foreign.hidden import FEWEST_HIDDEN, Hidden
from safeimpute.foreign.ranking import rank_by_validation
from safeimpute.learning.protocol import Estimates, Imputation
from safeimpute.machine.files import finished_folder
from safeimpute.machine.looks_log import Look, earlier_looks, is_second_look, look_of, record_look
from safeimpute.model.fit import calibrate
from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.claims import (
    SECOND_LOOK,
    Promised,
    bound_in_words,
    headline_in_words,
    promise_in_words,
    without_promise,
)
from safeimpute.selection.cutoff import rule_of
from safeimpute.selection.enough import require_sides
from safeimpute.selection.reasons import NOT_FILLED, OUT_OF_RANGE
from safeimpute.selection.release import Decision
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.imputations import imputation_table
from safeimpute.visits.lab_settings import settings_of_one
from safeimpute.visits.limits import with_limits
from safeimpute.visits.tables import like, to_polars, write_csv
from safeimpute.visits.units import decision_limits, plausible_range

CLAIMS = ("visits", "unmeasured")
FOLDER = "release"  # inside hide's: it says that the calibration errors have been used


@dataclass(frozen=True)
class Release:
    """What was released of another tool's values, and what that promises."""

    table: Any  # one row per visit whose target was missing, as `SafeImputer.impute` gives it
    filled: Any  # the visits as measured, released values filled in and flagged
    promised: Promised
    bound: Bound  # with confidence, at most so many of the released values are risky
    decision: Decision
    calibrated: Calibrated
    settings: Settings
    mae: float  # of the tool, at validation visits
    own_risk: bool

    def summary(self) -> dict[str, Any]:
        """Counts, promise and levels, for release.json and the terminal."""
        decision, told = self.decision, self.settings
        withheld = decision.reason[~decision.released].tolist()
        cutoff, words = decision.cutoffs.get(0), told.allowed_error.fault(told.unit)
        return {
            "target": told.target,
            "tolerance": told.tolerance,
            "fdr": told.fdr,
            "claim": told.claim,
            "promise": self.promised.promise,
            "assumption": self.promised.assumption,
            "limits": self.promised.limits,
            "no_promise": self.promised.no_promise,
            "headline": headline_in_words(self.bound.values, words, told) if self.promised.promise else "",
            "bound": bound_in_words(self.bound, words, told.fdr if self.promised.promise else None),
            "missing": len(decision.released),
            "released": int(decision.released.sum()),
            "withheld_by_reason": {reason: withheld.count(reason) for reason in sorted(set(withheld))},
            "cutoff": None if cutoff is None else cutoff.risk,
            "risk": "as given" if self.own_risk else "learnt from the errors at validation visits",
            "validation_visits": int(np.isfinite(self.calibrated.question.validation_target).sum()),
            "calibration_visits": int(self.calibrated.question.judged.sum()),
            "validation_mae": self.mae,
        }


def release(
    hidden: Hidden | str | Path,
    imputed: Any,
    *,
    tolerance: float | str,
    fdr: float,
    risk: str | None = None,
    signals: Sequence[str] = (),
    **promise: Any,
) -> Release:
    """Release what can be promised of the values another tool filled in.

    Parameters
    ----------
    hidden : Hidden or path
        What `hide` gave, or its folder; the result is then written to its folder `release`.
    imputed : table
        hide's table with the target filled in; rows whose target was not empty may be left out.
    tolerance : float or str
        The error that counts as unacceptable.
    fdr : float
        Share of unacceptable errors tolerated among the released values.
    risk : str, optional
        Column of `imputed` that ranks its values, larger is riskier. Without it a risk is learnt from the tool's
        errors at validation visits.
    signals : sequence of str
        Columns of `imputed` that the learnt risk may look at, such as the spread over several draws.
    promise : dict
        `claim` (`visits`, the default, or `unmeasured`), `promise`, `confidence`, `groups`, `risk_cap`, `interval`.

    Returns
    -------
    Release
        The imputation table, the visits filled in, and what is promised.

    Raises
    ------
    ImputedError
        The filled-in table does not fit what was hidden, and why.
    GuaranteeRefused
        The hidden errors were used before, or nothing could be promised at this level.
    """
    found = hidden if isinstance(hidden, Hidden) else Hidden.load(hidden)
    settings = _settings(found, tolerance, fdr, promise)
    _refuse_second(found)
    if settings.allowed_error.words:
        raise OptionError(
            "tolerance: another tool's classes are numbers, and these are words. Write them as their places in the "
            "order (0<1) in the table before hide, and in the tolerance."
        )
    require_sides(settings.target, found.truth, settings.allowed_error)
    result = _decided(found, imputed, settings, risk, signals)
    if found.folder is not None:
        _write(found.folder, result, found)
    return result


def _decided(found: Hidden, imputed: Any, settings: Settings, risk: str | None, signals: Sequence[str]) -> Release:
    """Rank, calibrate, decide: from here on the calibration errors have been used."""
    names = [*([risk] if risk else []), *signals]
    filled = read_filled(found, imputed, names)
    filled = replace(filled, value=settings.allowed_error.settled(filled.value))
    estimates = _estimates(found, filled, settings, risk)
    calibrated = _calibrated(found, estimates, settings)
    decision = calibrated.release(settings.allowed_error, rule_of(settings))
    found.released = True
    told = _promised(found, calibrated, decision, settings)
    return Release(
        like(_table(found, calibrated, decision, settings), imputed),
        like(_filled_in(found, calibrated, decision), imputed),
        told,
        calibrated.bound(settings.allowed_error, rule_of(settings), decision),
        decision,
        calibrated,
        settings,
        _validation_mae(found, filled),
        risk is not None,
    )


def _settings(hidden: Hidden, tolerance: float | str, fdr: float, promise: Mapping[str, Any]) -> Settings:
    facts = hidden.facts
    known = {"claim", "promise", "confidence", "groups", "risk_cap", "interval", "limits", "cost"}
    if unknown := sorted(set(promise) - known):
        raise OptionError(f"{unknown[0]!r} is no option of release. Options: {', '.join(sorted(known))}.")
    told = make_settings(
        target=facts.choice.target,
        tolerance=tolerance,
        fdr=fdr,
        unit=facts.unit,
        random_state=facts.seed,
        **{"claim": "visits", **promise},
    )
    settings = settings_of_one(told)
    if settings.claim not in CLAIMS:
        raise GuaranteeRefused(
            f"claim {settings.claim!r} speaks of visits outside the table, which another tool's values do not reach. "
            "Claim 'visits' or 'unmeasured'."
        )
    return settings


def _refuse_second(hidden: Hidden) -> None:
    """Calibration errors decide once: a second choice after seeing a release would be promised for nothing."""
    if hidden.released or (hidden.folder is not None and (hidden.folder / FOLDER).exists()):
        place = f" It is in {hidden.folder / FOLDER}." if hidden.folder is not None else ""
        raise GuaranteeRefused(
            f"a release was decided from these hidden values before.{place} A second one, with other values or levels, "
            "would be chosen after looking and could promise nothing."
        )


def _estimates(hidden: Hidden, filled: Filled, settings: Settings, risk: str | None) -> Estimates:
    question = hidden.question(settings)
    signals = {name: column for name, column in filled.columns.items() if name != risk}
    if risk is not None:
        own = filled.columns[risk]
        nothing = np.zeros(len(own), dtype=bool)
        return Estimates(filled.value, own, np.ones(len(own)), nothing, None, signals)
    taught = int(np.sum(np.isfinite(question.validation_target) & np.isfinite(filled.value)))
    if taught < FEWEST_HIDDEN:
        raise ImputedError(
            f"the tool filled in {taught} of the hidden validation values; at least {FEWEST_HIDDEN} are needed to "
            "learn its risk. Let it fill in more, or name a column with its own risk."
        )
    asked = question.judged | question.candidate
    imputation = Imputation(filled.value, signals)
    return rank_by_validation(question.task, imputation, asked, settings.allowed_error, settings.random_state)


def _calibrated(hidden: Hidden, estimates: Estimates, settings: Settings) -> Calibrated:
    """Weighed where the claim asks for it; a visit the tool left empty is outside, measured or not."""
    plausible = plausible_range(settings.target, hidden.facts.unit)
    limits = settings.allowed_error.limits or decision_limits(settings.target, hidden.facts.unit)
    found = calibrate(hidden.question(settings), hidden.truth, estimates, settings, plausible, limits=limits)
    empty = ~np.isfinite(estimates.value)
    outside = {**found.outside, OUT_OF_RANGE: found.outside[OUT_OF_RANGE] & ~empty, NOT_FILLED: empty}
    return replace(found, outside=outside)


def _promised(hidden: Hidden, calibrated: Calibrated, decision: Decision, settings: Settings) -> Promised:
    if decision.refused:
        return without_promise(decision.refused)
    if is_second_look(earlier_looks(), _look(hidden, settings)):
        return without_promise(SECOND_LOOK)
    columns = () if calibrated.measuring is None else calibrated.measuring.columns
    return promise_in_words(settings, hidden.facts.unit, columns)


def _look(hidden: Hidden, settings: Settings) -> Look:
    return look_of(vars(settings), hidden.facts.fingerprint, hidden.prepared.fingerprint, "another tool")


def _table(hidden: Hidden, calibrated: Calibrated, decision: Decision, settings: Settings) -> pl.DataFrame:
    rows, estimates = calibrated.candidates, calibrated.estimates
    return imputation_table(
        hidden.prepared.subject[rows],
        hidden.prepared.time[rows],
        settings.target,
        hidden.facts.unit,
        estimates.value[rows],
        calibrated.half_widths(settings.interval),
        estimates.risk[rows],
        decision.cutoff,
        decision.p_value,
        decision.released,
        decision.reason,
        settings.allowed_error,
        None if estimates.above is None else estimates.above[rows],
    )


def _filled_in(hidden: Hidden, calibrated: Calibrated, decision: Decision) -> pl.DataFrame:
    """The table as measured, hidden values back in their place, with released values filled in and flagged."""
    target = hidden.facts.choice.target
    value = hidden.truth
    released = np.zeros(len(value), dtype=bool)
    released[calibrated.candidates[decision.released]] = True
    value = np.where(released, calibrated.estimates.value, value)
    row = hidden.prepared.row_visit
    return with_limits(to_polars(hidden.visits), [target]).with_columns(
        pl.Series(target, value[row]).fill_nan(None), pl.Series(f"{target}_released", released[row])
    )


def _validation_mae(hidden: Hidden, filled: Filled) -> float:
    error = np.abs(filled.value - hidden.validation_target)
    return float(np.nanmean(error)) if np.isfinite(error).any() else float("nan")


def _write(folder: Path, result: Release, hidden: Hidden) -> None:
    """Whole or not at all: while it is not there, nothing was looked at."""
    with finished_folder(folder / FOLDER, force=False) as partial:
        table = to_polars(result.table)
        table.write_parquet(partial / "imputations.parquet")
        write_csv(table, partial / "imputations.csv")
        to_polars(result.filled).write_parquet(partial / "filled.parquet")
        content = {**result.summary(), "config": asdict(result.settings)}
        text = json.dumps(content, indent=2, default=str)
        (partial / "release.json").write_text(text + "\n", encoding="utf-8")
    record_look(_look(hidden, result.settings))
