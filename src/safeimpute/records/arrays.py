"""Visits as plain arrays: what the graph, the imputers and the risk work on (NumPy only)."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class VisitArrays:
    """One row per visit, sorted by patient, then time; NaN marks a value nobody measured.

    The order is canonical (patients by identifier, labs by name), so neither the row order nor the
    column order of the user's table reaches any result.
    """

    patient: IntArray  # 0 … number of patients - 1, in blocks
    time: FloatArray  # days, strictly increasing within a patient
    labs: FloatArray  # visits x labs, in the labs' own units
    lab_names: tuple[str, ...]
    target: int  # column of `labs` that is imputed
    attributes: FloatArray  # visits x attributes; categories as one column per level
    attribute_names: tuple[str, ...]
    patient_key: NDArray[np.uint64]  # hash of the subject: tells patients apart across tables
    visit_key: NDArray[np.uint64]  # hash of subject and time: seeds every per-visit random number
    known: FloatArray | None = None  # visits x labs: when each value became known, where the table says so
    fine: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # visits x fine columns: codes of text
    fine_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.fine_names) == 0:  # a table without fine columns still has one (empty) row per visit
            object.__setattr__(self, "fine", np.empty((len(self.patient), 0)))
        if self.fine.shape != (len(self.patient), len(self.fine_names)):
            raise ValueError(f"fine columns {self.fine.shape} do not fit {len(self.patient)} visits")

    def __len__(self) -> int:
        return len(self.patient)

    @property
    def target_values(self) -> FloatArray:
        return self.labs[:, self.target]

    @property
    def other_labs(self) -> IntArray:
        """Columns of `labs` other than the target."""
        return np.delete(np.arange(self.labs.shape[1]), self.target)

    def take(self, rows: BoolArray) -> "VisitArrays":
        """The visits at `rows`, patients numbered anew."""
        patient = self.patient[rows]
        return replace(
            self,
            patient=np.cumsum(np.r_[0, patient[1:] != patient[:-1]]) if len(patient) else patient,
            time=self.time[rows],
            labs=self.labs[rows],
            attributes=self.attributes[rows],
            patient_key=self.patient_key[rows],
            visit_key=self.visit_key[rows],
            known=None if self.known is None else self.known[rows],
            fine=self.fine[rows],
        )

    def with_target(self, values: FloatArray) -> "VisitArrays":
        """The same visits with another target column; where it is the same, nothing is copied."""
        if np.array_equal(values, self.target_values, equal_nan=True):
            return self
        labs = self.labs.copy()
        labs[:, self.target] = values
        return replace(self, labs=labs)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: spreads 64 bits over 64 bits, one to one."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def uniform_per_visit(visit_key: NDArray[np.uint64], seed: int, stream: int = 0) -> FloatArray:
    """One uniform number per visit that depends on nothing but the visit, the seed and the stream.

    Neither row order nor partitioning changes a draw.
    """
    salt = mix(np.array([seed], dtype=np.uint64)) + np.uint64(stream)
    return (mix(visit_key ^ mix(salt)) >> np.uint64(11)).astype(np.float64) / float(2**53)
