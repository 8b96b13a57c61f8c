"""What cannot succeed is refused before anything is learnt: nothing to impute, or too little measured for the level."""

import numpy as np

from safeimpute.errors import GuaranteeRefused, VisitsError
from safeimpute.records.arrays import VisitArrays
from safeimpute.selection.cutoff import enough
from safeimpute.selection.late import calibrated_on
from safeimpute.selection.ledger import Worth
from safeimpute.selection.p_values import fewest_calibration
from safeimpute.selection.release import too_few
from safeimpute.settings import Settings


def require_promisable(visits: VisitArrays, settings: Settings) -> None:
    """Refuse a table without holes, and one whose measured visits could not bear the level even at equal weights."""
    measured = ~np.isnan(visits.target_values)
    if measured.all():
        raise VisitsError(
            f"target {settings.target!r} is measured at every visit: there is nothing to impute. To see how well "
            "known values would be imputed, use evaluate."
        )
    if settings.claim == "visits":
        needed, there = fewest_calibration(settings.fdr), round(0.15 * int(measured.sum()))
        if there < needed:
            raise GuaranteeRefused(
                f"an FDR level of {settings.fdr:g} needs at least {needed} calibration visits; 15 % of the measured "
                f"ones are {there}. Give more measured visits or a higher level."
            )
        return
    measured &= calibrated_on(visits, settings)
    worth = Worth(float(measured.sum()), float(len(np.unique(visits.patient[measured]))))
    if not enough(worth, settings.fdr):
        raise GuaranteeRefused(f"{too_few(settings.fdr, worth)}.")
