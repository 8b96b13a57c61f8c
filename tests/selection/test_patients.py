import itertools
import math

import numpy as np
import pytest

from safeimpute.selection.patients import (
    RESERVE,
    release_new_patients,
    release_unmeasured_of_new_patients,
)
from safeimpute.selection.thresholds import (
    LabelledVisits,
    ScoredVisits,
    counts_at_thresholds,
    risk_thresholds,
)
from safeimpute.selection.weighted import prune

XIS = (np.arange(64) + 0.5) / 64


def records(rng, n, most=3):
    """A few patients; how bad and how many visits go together."""
    found = []
    for _ in range(n):
        sick = rng.random()
        k = 1 + rng.integers(0, 1 + round(sick * most))
        found.append(
            (rng.integers(0, 6, k) / 6, rng.random(k) < 0.2 + 0.7 * sick, rng.choice([0.5, 1.0, 2.0], k))
        )
    return found


def gather(patients, keep=None):
    keep = [np.ones(len(p[0]), bool) for p in patients] if keep is None else keep
    number = np.concatenate([np.full(k.sum(), q) for q, k in enumerate(keep)]).astype(int)
    risk, bad, weight = (
        np.concatenate([p[i][k] for p, k in zip(patients, keep, strict=True)]) for i in range(3)
    )
    return number, risk, weight, len(patients), bad


def literal_release(candidates, calibration, thresholds, alpha, xi):
    """Every labelling of every new patient's candidates, one by one."""
    q_total, peers = candidates.n_patients, calibration.n_patients + 1
    level = RESERVE * alpha * peers / q_total
    bad = [(calibration.risk[calibration.bad] <= t).sum() for t in thresholds]
    seen = [(calibration.risk <= t).sum() for t in thresholds]
    sizes, selected = np.zeros(len(candidates.risk)), np.zeros(len(candidates.risk), bool)
    for q in range(q_total):
        mine = np.flatnonzero(candidates.patient == q)
        own = [(candidates.risk[mine] <= t).sum() for t in thresholds]
        others = [(candidates.risk <= t).sum() - c for t, c in zip(thresholds, own, strict=True)]
        found = {}
        for labels in itertools.product([False, True], repeat=len(mine)):
            d = [(candidates.risk[mine][np.array(labels, bool)] <= t).sum() for t in thresholds]
            ok = [
                g
                for g in range(len(thresholds))
                if bad[g] + d[g] <= level * (others[g] + (seen[g] + own[g]) / peers) + 1e-9
            ]
            found[labels] = (ok[-1], (bad[ok[-1]] + d[ok[-1]]) / level) if ok else (-1, 0.0)
        last = found[(True,) * len(mine)][0]
        if last < 0:
            continue
        below = candidates.risk[mine] <= thresholds[last]
        selected[mine] = below
        relevant = [size for labels, (_, size) in found.items() if (np.array(labels, bool) & below).any()]
        sizes[mine] = max(relevant, default=0.0)
    return sizes, selected


def test_thresholds_never_exceed_what_any_labelling_allows():
    rng = np.random.default_rng(0)
    released = 0
    for _ in range(150):
        new, cal = records(rng, 4), records(rng, 8)
        n, c = gather(new), gather(cal)
        candidates, calibration = ScoredVisits(*n[:4]), LabelledVisits(*c)
        thresholds = np.arange(6) / 6
        sizes, selected = literal_release(candidates, calibration, thresholds, 0.5, 0.5)
        for xi in (0.05, 0.4, 0.8):
            fast = release_new_patients(candidates, calibration, thresholds, 0.5, xi)
            assert not (fast & ~selected).any()
            # The fast size bounds the literal one from above, so it can only release fewer.
            assert fast.sum() <= prune(sizes, selected, RESERVE * xi).sum()
            released += fast.sum()
    assert released > 300


def exact_fdr(rule, patients, n_new, alpha):
    """Average over every choice of the new patients and a grid of pruning numbers."""
    fdp, power = [], []
    for chosen in itertools.combinations(range(len(patients)), n_new):
        new = [patients[i] for i in chosen]
        cal = [p for i, p in enumerate(patients) if i not in chosen]
        for xi in XIS:
            released, bad = rule(new, cal, alpha, xi)
            fdp.append((released & bad).sum() / max(released.sum(), 1))
            power.append(released.any())
    return np.mean(fdp), np.mean(power)


def ours(new, cal, alpha, xi):
    n, c = gather(new), gather(cal)
    thresholds = np.arange(6) / 6
    return release_new_patients(ScoredVisits(*n[:4]), LabelledVisits(*c), thresholds, alpha, xi), n[4]


def pooled_maximum(new, cal, alpha, xi):
    """Release risk <= T, T the largest t with Q / (K + 1) (sum_k B_k + max_q C_q) / R <= alpha."""
    n, c = gather(new), gather(cal)
    thresholds = np.unique(np.concatenate([n[1], c[1]]))
    own = counts_at_thresholds(ScoredVisits(*n[:4]), np.ones(len(n[1])), thresholds)
    bad = counts_at_thresholds(ScoredVisits(*c[:4]), c[4].astype(float), thresholds).sum(axis=0)
    ok = np.flatnonzero(len(new) / (len(cal) + 1) * (bad + own.max(axis=0)) <= alpha * own.sum(axis=0) + 1e-9)
    ok = ok[own.sum(axis=0)[ok] > 0]
    return n[1] <= (thresholds[ok[-1]] if len(ok) else -np.inf), n[4]


@pytest.mark.parametrize("seed", range(6))
def test_false_discovery_rate_is_below_alpha_exactly_over_every_choice_of_new_patients(seed):
    patients = records(np.random.default_rng(seed), 7)
    fdr, released = exact_fdr(ours, patients, 3, 0.5)
    assert fdr <= 0.5 + 1e-9
    assert released > 0.05


def test_a_pooled_threshold_fails_where_visits_grow_with_risk_and_ours_does_not():
    patients = [(np.full(2**k, k / 10), np.ones(2**k, bool), np.ones(2**k)) for k in range(9)]
    wrong, _ = exact_fdr(pooled_maximum, patients, 1, 0.3)
    assert wrong > 0.8
    fdr, _ = exact_fdr(ours_on_own_risks, patients, 1, 0.3)
    assert fdr <= 0.3 + 1e-9


def ours_on_own_risks(new, cal, alpha, xi):
    n, c = gather(new), gather(cal)
    thresholds = np.arange(9) / 10
    return release_new_patients(ScoredVisits(*n[:4]), LabelledVisits(*c), thresholds, alpha, xi), n[4]


def test_unmeasured_visits_of_new_patients_exactly_over_measuring_and_choice_of_patients():
    """Four patients, up to three visits each: every measuring outcome, every choice of the new patient."""
    alpha, thresholds, xis = 0.6, np.arange(6) / 6, XIS[::8]
    for seed in range(2):
        patients = [p for p in records(np.random.default_rng(seed), 12) if len(p[0]) <= 3][:4]
        odds = np.concatenate([p[2] for p in patients])
        ends = np.cumsum([len(p[0]) for p in patients])[:-1]
        fdr = released_some = 0.0
        for pattern in itertools.product([False, True], repeat=len(odds)):
            measured = np.array(pattern)
            chance = np.prod(np.where(measured, 1, odds) / (1 + odds))
            by_patient = np.split(measured, ends)
            for new in range(4):
                others = [i for i in range(4) if i != new]
                calibration = LabelledVisits(
                    *gather([patients[i] for i in others], [by_patient[i] for i in others])
                )
                own = LabelledVisits(*gather([patients[new]], [by_patient[new]]))
                target = gather([patients[new]], [~by_patient[new]])
                for xi in xis:
                    got = release_unmeasured_of_new_patients(
                        ScoredVisits(*target[:4]), own, calibration, thresholds, alpha, xi
                    )
                    fdr += chance / 4 / len(xis) * (got & target[4]).sum() / max(got.sum(), 1)
                    released_some += chance / 4 / len(xis) * got.any()
        assert fdr <= alpha + 1e-9
        assert released_some > 0.02


def literal_unmeasured(candidates, own, calibration, thresholds, alpha):
    """Sizes and selection as the formula reads, one candidate and one threshold at a time."""
    peers, q_total = calibration.n_patients + 1, candidates.n_patients
    level = RESERVE * alpha * peers / q_total
    sizes, selected = np.zeros(len(candidates.risk)), np.zeros(len(candidates.risk), bool)
    for i, (q, risk, w) in enumerate(
        zip(candidates.patient, candidates.risk, candidates.weight, strict=True)
    ):
        for t in thresholds[thresholds >= risk]:
            low, own_low = calibration.risk <= t, (own.risk <= t) & (own.patient == q)
            count = (
                (calibration.weight * calibration.bad)[low].sum() + (own.weight * own.bad)[own_low].sum() + w
            )
            mean = (calibration.weight[low].sum() + own.weight[own_low].sum() + w) / peers
            others = ((candidates.risk <= t) & (candidates.patient != q)).sum()
            if count <= level * (others + mean) + 1e-9:
                sizes[i], selected[i] = count / level, True
    return sizes, selected


def test_unmeasured_rule_equals_the_written_formula():
    rng, thresholds, released = np.random.default_rng(6), np.arange(6) / 6, 0
    for _ in range(150):
        new, cal = records(rng, 5), records(rng, 9)
        measured, old = ([rng.random(len(p[0])) < 0.5 for p in group] for group in (new, cal))
        candidates = ScoredVisits(*gather(new, [~k for k in measured])[:4])
        own, calibration = LabelledVisits(*gather(new, measured)), LabelledVisits(*gather(cal, old))
        sizes, selected = literal_unmeasured(candidates, own, calibration, thresholds, 0.5)
        for xi in (0.05, 0.5, 0.9):
            got = release_unmeasured_of_new_patients(candidates, own, calibration, thresholds, 0.5, xi)
            np.testing.assert_array_equal(got, prune(sizes, selected, RESERVE * xi))
            released += got.sum()
    assert released > 200


def test_one_visit_per_patient_is_close_to_plain_bh():
    rng = np.random.default_rng(3)
    risk, bad = rng.random(800), rng.random(800) < 0.5 * np.linspace(0, 1, 800)
    risk = np.where(bad, 0.4 + 0.6 * risk, 0.8 * risk)
    one = np.arange(400)
    candidates = ScoredVisits(one, risk[:400], np.ones(400), 400)
    calibration = LabelledVisits(one, risk[400:], np.ones(400), 400, bad[400:])
    thresholds = risk_thresholds(risk, 100)
    released = release_new_patients(candidates, calibration, thresholds, 0.2, 0.5)
    ratio = [
        (1 + (bad[400:] & (risk[400:] <= t)).sum()) / max((risk[:400] <= t).sum(), 1) * 400 / 401
        for t in thresholds
    ]
    best = thresholds[np.flatnonzero(np.array(ratio) <= 0.2)[-1]]
    assert released.sum() >= 0.9 * (risk[:400] <= best).sum() > 50


def test_nothing_is_released_without_calibration_or_candidates():
    rng = np.random.default_rng(4)
    thresholds = np.arange(6) / 6
    nobody = LabelledVisits(np.zeros(0, int), np.zeros(0), np.zeros(0), 0, np.zeros(0, bool))
    n = gather(records(rng, 5))
    candidates = ScoredVisits(*n[:4])
    assert not release_new_patients(candidates, nobody, thresholds, 0.2, 0.5).any()
    empty = ScoredVisits(np.zeros(0, int), np.zeros(0), np.zeros(0), 0)
    assert release_new_patients(empty, LabelledVisits(*n), thresholds, 0.2, 0.5).shape == (0,)


def test_counts_include_patients_without_visits_and_exclude_risks_above_every_threshold():
    visits = ScoredVisits(np.array([0, 2, 2]), np.array([0.1, 0.1, 0.9]), np.ones(3), 4)
    counts = counts_at_thresholds(visits, np.array([1.0, 2.0, 4.0]), np.array([0.0, 0.1, 0.5]))
    np.testing.assert_array_equal(counts, [[0, 1, 1], [0, 0, 0], [0, 2, 2], [0, 0, 0]])
    assert math.isclose(risk_thresholds(np.array([3.0, 3.0, 3.0]), 10)[0], 3.0)
