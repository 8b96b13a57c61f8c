"""A model fitted to a sample, calibrated on all patients of a table: on this machine, batch by batch."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from safeimpute.errors import GuaranteeRefused
from safeimpute.records.arrays import VisitArrays
from safeimpute.records.new_visits import read_new_visits
from safeimpute.records.tables import read_visits
from safeimpute.scoring.folder import SavedModel, load_model, save_calibrated
from safeimpute.scoring.frozen import VISITS_AT_ONCE, FrozenModel
from safeimpute.scoring.whole_table import (
    TableDiagnosis,
    TableSums,
    calibrated_anew,
    stakes_for,
    summed,
    table_sums,
    table_wealth,
)
from safeimpute.selection.release import rule_of
from safeimpute.selection.sums import Whole


def calibrate_files(
    model: Path, visits: Path, out: Path, *, columns: Mapping[str, str] | None = None, force: bool = False
) -> TableDiagnosis:
    """Calibrate a saved model on a whole table and save it anew; nothing is learnt again.

    Parameters
    ----------
    model : Path
        The model folder, fitted to a sample of the table's patients.
    visits : Path
        All patients.
    out : Path
        Folder for the calibrated model.
    columns : mapping, optional
        Names in the file -> names the model knows.
    force : bool
        Replace an earlier model there.
    """
    saved = load_model(model)
    frozen = calibratable(saved)
    arrays = read_new_visits(read_visits(visits, dict(columns or {})), saved.reading).arrays
    sums = summed(table_sums(part, frozen, saved.settings) for part in _batches(arrays))
    wealth = None
    rule = rule_of(saved.settings)
    if rule.promise == "confident":
        stakes = stakes_for(sums, rule)
        wealth = added(table_wealth(part, frozen, saved.settings, stakes) for part in _batches(arrays))
    return save_with(saved, frozen, sums, wealth, out, force=force)


def calibratable(saved: SavedModel) -> FrozenModel:
    """The frozen model, unless its claim has no ledger."""
    if saved.settings.claim == "visits":
        raise GuaranteeRefused("the claim 'visits' speaks for the fitted table only: fit with another claim.")
    frozen = saved.frozen()
    if frozen.grouping is not None:
        raise GuaranteeRefused(
            "this model keeps its level within groups; calibration on a whole table knows one group only. Fit on the "
            "whole table, or without groups."
        )
    if frozen.measuring is None:
        raise GuaranteeRefused(f"nothing can be calibrated: {frozen.no_promise}.")
    return frozen


def save_with(
    saved: SavedModel,
    frozen: FrozenModel,
    sums: TableSums,
    wealth: list[Whole] | None,
    out: Path,
    *,
    force: bool,
) -> TableDiagnosis:
    """Decide from the sums and write the model."""
    anew, diagnosis = calibrated_anew(frozen, saved.settings, sums, wealth)
    save_calibrated(out, saved, anew, asdict(diagnosis), force=force)
    return diagnosis


def added(parts: Iterator[list[Whole]]) -> list[Whole]:
    """Bets of several batches together."""
    total: list[Whole] = []
    for part in parts:
        total = (
            [[one + two for one, two in zip(*pair, strict=True)] for pair in zip(total, part, strict=True)]
            if total
            else part
        )
    return total


def _batches(visits: VisitArrays) -> Iterator[VisitArrays]:
    """Whole patients, about so many visits at once."""
    starts = np.flatnonzero(np.r_[True, visits.patient[1:] != visits.patient[:-1]])
    group = starts // VISITS_AT_ONCE
    for number in np.unique(group):
        chosen = np.isin(visits.patient, visits.patient[starts[group == number]])
        yield visits.take(chosen)
