"""The diagnosis of who gets measured in plain words and figures, for summary and report."""

import numpy as np

from safeimpute.evaluation.run_summary import MeasuringSummary
from safeimpute.measuring.diagnosis import CalibrationGroup, MeasuringDiagnosis
from safeimpute.records.visits import Visits

# Up to which area under the curve which words hold.
HOW_WELL = (
    (0.6, "Hardly: measured and unmeasured visits look alike."),
    (0.75, "Somewhat: measured and unmeasured visits differ a little."),
    (0.9, "Well: measured and unmeasured visits differ clearly."),
    (
        1.0,
        "Very well: measured and unmeasured visits differ so much that few of the former can stand for the latter.",
    ),
)


def summarise_measuring(
    diagnosis: MeasuringDiagnosis | None, visits: Visits, missing: int
) -> MeasuringSummary | None:
    """The diagnosis of a run; None where its claim does not look at who gets measured."""
    if diagnosis is None:
        return None
    return {
        "words": how_well(diagnosis.auc),
        "worth": _worth(diagnosis, missing),
        "auc": diagnosis.auc,
        "miscalibration": _miscalibration(diagnosis.calibration),
        "calibration": [
            {"visits": each.visits, "predicted": each.predicted, "observed": each.observed}
            for each in diagnosis.calibration
        ],
        "measured": diagnosis.measured,
        "effective_visits": diagnosis.effective_visits,
        "effective_patients": diagnosis.effective_patients,
        "outside": diagnosis.outside,
        "reasons": [
            {"column": each.column, "share": each.share, "direction": each.direction}
            for each in diagnosis.reasons
        ],
        "columns": list(diagnosis.columns),
        "not_used": dict(visits.ignored),
    }


def how_well(auc: float | None) -> str:
    """How well the table tells measured from unmeasured visits."""
    if auc is None:
        return "This cannot be said: all visits were measured, or none."
    words = next(words for most, words in HOW_WELL if auc <= most)
    return (
        f"{words} Of one measured and one unmeasured visit, the table tells which is which {100 * auc:.0f} times in "
        "100; 50 would be guessing."
    )


def _worth(diagnosis: MeasuringDiagnosis, missing: int) -> str:
    """What the weights leave of the measured visits, and whom they leave out."""
    said = (
        f"Measured visits are weighted to stand for unmeasured ones; {diagnosis.measured:,} of them are then worth "
        f"{diagnosis.effective_visits:,.0f} visits, or {diagnosis.effective_patients:,.0f} patients, of equal weight."
    )
    if not diagnosis.outside:
        return said
    outside = f"{diagnosis.outside:,} of the {missing:,} missing values"
    return f"{said} {outside} resemble no measured visit and are withheld."


def _miscalibration(groups: tuple[CalibrationGroup, ...]) -> float:
    if not groups:
        return 0.0
    apart = [abs(each.predicted - each.observed) for each in groups]
    return float(np.average(apart, weights=[each.visits for each in groups]))
