"""The named random streams: every random number of a run comes from one of these, so that no two uses share a draw."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import FloatArray, mix, uniform_per_visit


class Stream(IntEnum):
    """Numbers of generators; each belongs to one use."""

    SPLIT = 11
    FIT = 12
    MEASURING = 13
    REPARTITION = 14
    RISK = 15
    TEST = 16
    DRAWS = 21
    ROUGH = 22


class Hashed(IntEnum):
    """Numbers of hashed draws, which depend on a visit or patient and the seed alone."""

    TIE = 0
    FOLD = 3
    TEST_PATIENT = 4


def generator(seed: int, stream: Stream, *part: int) -> np.random.Generator:
    """The generator of one stream; `part` tells folds or members apart."""
    return np.random.default_rng([seed, int(stream), *part])


def ties(visit_key: NDArray[np.uint64], seed: int) -> FloatArray:
    """One uniform number per visit that orders equal risks."""
    return uniform_per_visit(visit_key, seed, Hashed.TIE)


def hashed_number(key: NDArray[np.uint64], seed: int, stream: Hashed) -> NDArray[np.uint64]:
    """A 64-bit number per key that depends on nothing but the key, the seed and the stream."""
    salt = mix(np.array([seed], dtype=np.uint64)) + np.uint64(stream)
    return mix(key ^ mix(salt))
