"""Exploring other levels: the run's own errors and rule, the same numbers in report and sliders, nothing promised."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from safeimpute import SafeImputer
from safeimpute.evaluation.release_profile import LevelOutcome, judge, slider_grid, trade_off
from safeimpute.learning.protocol import Estimates
from safeimpute.report.run_folder import review_visits
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.groups import Grouping
from safeimpute.selection.questions import Question
from safeimpute.selection.what_if import TOLERANCE_FACTORS, reaches
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute.visits.arrays import VisitArrays

UNMEASURED, PAPER = Rule("unmeasured", 0.2), Rule("visits", 0.2)


def _calibrated(seed: int = 0, patients: int = 300, per: int = 6) -> Calibrated:
    """Errors grow with risk, so that a level decides how far up the risk a release reaches."""
    rng = np.random.default_rng(seed)
    n = patients * per
    judged = rng.random(n) < 0.6
    risk = rng.random(n)
    truth = np.where(judged, rng.normal(size=n), np.nan)
    value = np.where(judged, np.nan_to_num(truth) + 2 * risk * rng.random(n), rng.normal(size=n))
    key = np.arange(n, dtype=np.uint64)
    visits = VisitArrays(
        patient=np.repeat(np.arange(patients), per),
        time=np.tile(np.arange(per, dtype=np.float64), patients),
        labs=truth[:, None],
        lab_names=("lab",),
        target=0,
        attributes=np.empty((n, 0)),
        attribute_names=(),
        patient_key=key // np.uint64(per),
        visit_key=key,
    )
    estimates = Estimates(value, risk, np.ones(n), np.zeros(n, dtype=bool))
    fold, tie = np.zeros(n, dtype=np.int64), np.random.default_rng(seed + 1).random(n)
    question = Question(visits, judged, ~judged, np.full(n, np.nan), fold, tie, np.ones(n, dtype=bool))
    weight = rng.gamma(2.0, 1.0, n)
    return Calibrated(question, truth, estimates, weight, {}, Grouping((), False))


def explore(calibrated: Calibrated, tolerance: Tolerance, rule: Rule, levels: tuple[float, ...]) -> list[LevelOutcome]:
    return judge(calibrated, tolerance, rule, reaches(calibrated.selection_data(tolerance), rule, levels))


@pytest.mark.parametrize("rule", [UNMEASURED, PAPER])
def test_a_higher_level_or_tolerance_never_releases_less(rule: Rule) -> None:
    calibrated = _calibrated()
    counts = np.array(
        [
            [point["released"] for point in explore(calibrated, Tolerance(size), rule, (0.05, 0.1, 0.2, 0.4))]
            for size in (0.3, 0.5, 0.8)
        ]
    )
    assert (np.diff(counts, axis=0) >= 0).all()
    assert (np.diff(counts, axis=1) >= 0).all()
    assert 0 < counts[1, 2] < calibrated.question.candidate.sum()


@pytest.mark.parametrize("rule", [UNMEASURED, PAPER, replace(PAPER, published=True)])
def test_every_level_is_what_a_release_at_it_would_do(rule: Rule) -> None:
    calibrated, tolerance = _calibrated(1), Tolerance(0.5)
    for point in explore(calibrated, tolerance, rule, (0.02, 0.1, 0.2, 0.35)):
        decision = calibrated.release(tolerance, replace(rule, alpha=point["fdr"]))
        assert point["released"] == decision.released.sum()
        cutoff = decision.cutoffs[0]
        assert point["cutoff"] == cutoff.risk
        if cutoff.share is not None and rule.claim == "unmeasured":
            assert point["risky"] == pytest.approx(cutoff.share)


def test_nothing_judged_releases_nothing() -> None:
    calibrated = _calibrated()
    nobody = replace(calibrated.question, judged=np.zeros(len(calibrated.truth), dtype=bool))
    for rule in (UNMEASURED, PAPER):
        (point,) = explore(replace(calibrated, question=nobody), Tolerance(0.5), rule, (0.2,))
        assert (point["released"], point["cutoff"], point["mae"]) == (0, None, None)


@pytest.fixture(scope="module")
def imputer(cohort: pl.DataFrame) -> tuple[SafeImputer, pl.DataFrame]:
    best = {"folds": 3, "analogues": 4}
    fitted = SafeImputer(target="hba1c", tolerance="10% or 0.5", fdr=0.3, claim="unmeasured", best=best)
    return fitted.fit(cohort), cohort


def test_the_sliders_start_at_the_run(imputer: tuple[SafeImputer, pl.DataFrame]) -> None:
    fitted, visits = imputer
    released = fitted.impute(visits)["released"].sum()
    grid = slider_grid(fitted.results()["hba1c"])
    own = grid["tolerances"][grid["chosen_tolerance"]]
    assert grid["levels"][grid["chosen_level"]] == 0.3
    assert own["released"][grid["chosen_level"]] == released
    for factor, setting in zip(TOLERANCE_FACTORS, grid["tolerances"], strict=True):
        allowed = parse_tolerance(setting["tolerance"])
        assert (allowed.share, allowed.absolute) == pytest.approx((0.1 * factor, 0.5 * factor), rel=1e-3)


def test_report_and_sliders_say_the_same(imputer: tuple[SafeImputer, pl.DataFrame]) -> None:
    result = imputer[0].results()["hba1c"]
    grid, curve = slider_grid(result), trade_off(result)
    own = grid["tolerances"][grid["chosen_tolerance"]]
    assert [point["fdr"] for point in curve] == [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5]
    for point in curve:
        place = grid["levels"].index(point["fdr"])
        alone = explore(result.calibrated, result.settings.allowed_error, result.rule, (point["fdr"],))
        assert alone == [point]
        assert own["released"][place] == point["released"]
        assert own["risky"][place] == pytest.approx(point["risky"], rel=1e-3)


def test_the_review_table_holds_every_imputed_patient_in_order(imputer: tuple[SafeImputer, pl.DataFrame]) -> None:
    fitted, visits = imputer
    lab = fitted.labs_["hba1c"]
    table = review_visits(lab.visits, lab.calibrated.candidates, lab.calibrated.question.set_aside)
    imputed = fitted.impute(visits)
    rows = table.filter(pl.col("imputation") >= 0).sort("imputation")
    assert rows.select("subject_id", "time").equals(imputed.select("subject_id", "time"))
    assert rows["lab.hba1c"].null_count() == len(rows)
    assert set(table["subject_id"]) == set(imputed["subject_id"])
    assert table["patient"].n_unique() == imputed["subject_id"].n_unique()
