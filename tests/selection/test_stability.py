"""How much a release hangs on which patients decide it."""

from dataclasses import replace

import numpy as np

from helpers.ledgers import drawn_selection_data
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.release import decide
from safeimpute.selection.what_if import Stability, released_without_folds

RULE = Rule("unmeasured", 0.2)


def test_every_part_is_left_out_once_and_its_patients_alone() -> None:
    data = drawn_selection_data(np.random.default_rng(3), 400)
    fold = (data.patient % 4).astype(np.int64)
    found = released_without_folds(data, RULE, fold)
    by_hand = [decide(replace(data, judged=data.judged & (fold != each)), RULE).released for each in range(4)]
    counts = [int(each.sum()) for each in by_hand]
    assert (found.parts, found.fewest, found.most) == (4, min(counts), max(counts))
    own = decide(data, RULE).released
    assert found.always == int((own & by_hand[0] & by_hand[1] & by_hand[2] & by_hand[3]).sum())
    assert 0 < found.fewest < found.most
    assert found.always <= own.sum()


def test_more_patients_make_a_release_hang_on_the_draw_less() -> None:
    spread = {}
    for patients in (200, 4000):
        data = drawn_selection_data(np.random.default_rng(5), patients)
        found = released_without_folds(data, RULE, (data.patient % 5).astype(np.int64))
        spread[patients] = (found.most - found.fewest) / decide(data, RULE).released.sum()
    assert spread[4000] < spread[200] / 2


def test_one_sentence_and_none_without_a_release() -> None:
    said = Stability(5, 1301, 1420, 1290).in_words(1394)
    assert "1,301 to 1,420 values" in said
    assert "1,290 of these 1,394" in said
    assert Stability(5, 0, 20, 0).in_words(0) == ""
