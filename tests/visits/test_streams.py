"""The named random streams: no two uses share a draw, and none depends on the rest of the table."""

from itertools import combinations

import numpy as np

from safeimpute.visits.arrays import Hashed, Stream, generator, hashed_number, ties


def test_streams_and_their_parts_differ() -> None:
    draws = [generator(7, stream).random(50) for stream in Stream]
    draws += [generator(7, Stream.FIT, part).random(50) for part in range(1, 5)]  # part 0 is the stream itself
    draws += [generator(8, Stream.FIT).random(50)]
    for one, other in combinations(draws, 2):
        assert not np.intersect1d(one, other).size
    assert np.array_equal(generator(7, Stream.FIT, 2).random(5), generator(7, Stream.FIT, 2).random(5))


def test_hashed_numbers_depend_on_key_seed_and_stream_alone() -> None:
    keys = np.random.default_rng(0).integers(0, 2**63, 5_000).astype(np.uint64)
    number = hashed_number(keys, 3, Hashed.FOLD)
    order = np.random.default_rng(1).permutation(len(keys))
    assert np.array_equal(hashed_number(keys[order], 3, Hashed.FOLD), number[order])
    assert len(np.unique(number)) == len(np.unique(keys)), "one to one"
    uniform = number.astype(np.float64) / 2.0**64
    for other in (hashed_number(keys, 4, Hashed.FOLD), hashed_number(keys, 3, Hashed.TIE)):
        assert abs(np.corrcoef(uniform, other.astype(np.float64))[0, 1]) < 4 / np.sqrt(len(keys))


def test_ties_are_uniform_and_unlike_folds() -> None:
    keys = np.random.default_rng(0).integers(0, 2**63, 20_000).astype(np.uint64)
    tie = ties(keys, 3)
    assert ((tie >= 0) & (tie < 1)).all()
    assert abs(tie.mean() - 0.5) < 4 / np.sqrt(12 * len(keys))
    fold = hashed_number(keys, 3, Hashed.FOLD) % np.uint64(5)
    means = [tie[fold == number].mean() for number in range(5)]
    assert np.ptp(means) < 0.05
