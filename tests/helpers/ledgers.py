"""Small drawn ledgers and selection data for tests of the release."""

from collections.abc import Mapping

import numpy as np

from safeimpute.selection.ledger import Entries
from safeimpute.selection.release import SelectionData
from safeimpute.visits.arrays import BoolArray, IntArray


def drawn_entries(rng: np.random.Generator, visits: int, patients: int) -> Entries:
    """Visits of some patients, risks in twentieths so that many are equal, risky about as often as the risk says."""
    risk = rng.integers(0, 20, visits) / 20
    return Entries(rng.integers(0, patients, visits), risk, rng.gamma(2.0, size=visits), rng.random(visits) < risk)


def drawn_selection_data(
    rng: np.random.Generator,
    patients: int = 300,
    outside: Mapping[str, BoolArray] | None = None,
    cell: IntArray | None = None,
) -> SelectionData:
    """Four visits a patient, half of them measured; the risk is the chance of being risky."""
    visits = 4 * patients
    risk = rng.random(visits) ** 2
    measured = rng.random(visits) < 0.5
    return SelectionData(
        risk=risk,
        tie=rng.random(visits),
        patient=np.repeat(np.arange(patients), 4),
        weight=np.exp(0.3 * rng.standard_normal(visits)),
        outside=dict(outside or {}),
        judged=measured,
        risky=(rng.random(visits) < risk) & measured,
        candidate=~measured,
        cell=cell,
    )
