"""The bound of a release: exact where visits were divided at random, true for any threshold picked elsewhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from safeimpute.selection.bounds import Bound, chance_of_so_few, held_out_bound, largest_sum, ledger_bound, most_risky
from safeimpute.selection.claims import bound_in_words, headline_in_words
from safeimpute.selection.ledger import Entries
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray


def world(rng: np.random.Generator, patients: int = 300) -> tuple[Entries, FloatArray, IntArray, BoolArray]:
    """Measured visits and candidates; patients differ in how often their values are risky."""
    patient = np.repeat(np.arange(patients), rng.integers(1, 9, patients))
    risk = rng.uniform(0.02, 0.6, len(patient))
    shift = rng.normal(0.0, 0.12, patients)[patient]
    risky = rng.random(len(patient)) < np.clip(risk + shift, 0.0, 1.0)
    chance = 0.3 + 0.5 * (risk < 0.3)
    measured = rng.random(len(patient)) < chance
    weight = (1.0 - chance) / chance
    entries = Entries(patient[measured], risk[measured], weight[measured], risky[measured])
    return entries, risk[~measured], patient[~measured], risky[~measured]


def test_holds_for_the_worst_threshold() -> None:
    broken = 0
    for seed in range(60):
        entries, risk, patient, risky = world(np.random.default_rng(seed))
        for cutoff in np.quantile(risk, np.arange(1, 21) / 20):
            found = ledger_bound(entries, float(cutoff), risk, patient, 0.9)
            if int(risky[risk <= cutoff].sum()) > found.risky:
                broken += 1
                break
    assert broken <= 6 + 3 * 2.4  # 10 % and three standard errors


def test_says_something() -> None:
    entries, risk, patient, risky = world(np.random.default_rng(1), patients=2000)
    cutoff = float(np.quantile(risk, 0.5))
    found = ledger_bound(entries, cutoff, risk, patient, 0.9)
    true = int(risky[risk <= cutoff].sum())
    assert true <= found.risky <= 1.5 * true
    assert found.share is not None
    assert found.share < 1.5 * true / found.values


def test_knows_nothing_without_measured_visits() -> None:
    entries, risk, patient, _ = world(np.random.default_rng(2))
    found = ledger_bound(entries, 0.001, np.append(risk, 0.0005), np.append(patient, 0), 0.9)
    assert (found.values, found.risky, found.share) == (1, 1, 1.0)


@given(st.integers(1, 60), st.integers(0, 20), st.integers(1, 60), st.sampled_from([0.01, 0.1]))
def test_most_risky_is_the_last_count_not_ruled_out(judged: int, risky: int, asked: int, doubt: float) -> None:
    risky = min(risky, judged)
    most = most_risky(judged, risky, asked, doubt)
    assert most == asked or chance_of_so_few(judged, risky, asked, most + 1) <= doubt
    assert most == 0 or chance_of_so_few(judged, risky, asked, most) > doubt


def test_chance_is_hypergeometric() -> None:
    assert chance_of_so_few(30, 2, 20, 5) == pytest.approx(hypergeom(50, 7, 30).cdf(2))


def test_held_out_bound_holds_exactly() -> None:
    """Fixed visits, divided at random many times: the bound fails in at most a tenth of the divisions."""
    rng = np.random.default_rng(3)
    risk = rng.uniform(0, 1, 400)
    risky = rng.random(400) < risk
    broken = 0
    for _ in range(40):
        judged = rng.permutation(400) < 200
        asked = ~judged
        for cutoff in (0.1, 0.3, 0.8):
            found = held_out_bound(risk[judged], risky[judged], risk[asked], cutoff, 0.9)
            if np.sum(risky & asked & (risk <= cutoff)) > found.risky:
                broken += 1
                break
    assert broken <= 4 + 3 * 1.9  # a tenth of the divisions and three standard errors


def test_gamma_limit_of_equal_amounts_is_poisson() -> None:
    """With equal amounts the limit is the exact one for a Poisson count: 3.89 for none seen at 97.96 %."""
    assert largest_sum(np.zeros(5), 1.0, np.exp(-3.0)) == pytest.approx(3.0)
    assert largest_sum(2.0 * np.ones(4), 2.0, 0.05) == pytest.approx(2.0 * 9.1535, rel=1e-4)


def test_groups_add_up() -> None:
    together = Bound(10, 0.95, 0.2, 3) + Bound(30, 0.95, 0.3, 5) + Bound(0, 0.95, 1.0, 0)
    assert (together.values, together.risky, together.share) == (40, 8, 0.3)
    assert (Bound(1, 0.9, None, 1) + Bound(1, 0.9, None, 0)).share is None


def told(fdr: float, promise: str = "average") -> Settings:
    return make_settings(target="ldl", tolerance=10.0, fdr=fdr, promise=promise)


def test_the_headline_has_one_number_and_the_bound_never_contradicts_it() -> None:
    assert headline_in_words(200, "off by 10 mg/dL or more", told(0.1)) == (
        "Expect up to 20 of these 200 released values (10 %) to be off by 10 mg/dL or more."
    )
    assert "10 %, with 90 % confidence" in headline_in_words(200, "off by 10 mg/dL or more", told(0.1, "confident"))
    assert headline_in_words(0, "off by 10 mg/dL or more", told(0.1)) == ""
    more, far = (bound_in_words(Bound(200, 0.9, None, most), "off by 10 mg/dL or more", 0.1) for most in (30, 45))
    assert more == "By bad luck it may be more; with 90 % confidence it is no more than 30 of them (15 %)."
    assert far.startswith("By bad luck it may be more; with 90 % confidence it is no more than 45 of them (22 %).")
    assert "cannot vouch for this very release" in far
    assert "--promise confident" in far
    fewer = bound_in_words(Bound(200, 0.9, None, 12), "off by 10 mg/dL or more", 0.1)
    assert (
        fewer == "With 90 % confidence no more than 12 of these 200 released values (6 %) are off by 10 mg/dL or more."
    )
    assert bound_in_words(Bound(200, 0.9, None, 45), "off by 10 mg/dL or more").startswith(
        "With 90 % confidence no more than 45"
    )
    assert bound_in_words(Bound(0, 0.9, None, 0), "off by 10 mg/dL or more", 0.1) == ""
