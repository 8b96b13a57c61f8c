"""Exploring other levels: validation errors alone, the same numbers in report and sliders, nothing of calibration."""

import numpy as np
import polars as pl
import pytest

from safeimpute.estimator import SafeImputer
from safeimpute.evaluation.exploration import (
    TOLERANCE_FACTORS,
    ExplorationGround,
    exploration_ground,
    explore,
    slider_grid,
)
from safeimpute.report.review_folder import review_visits
from safeimpute.selection.p_values import Scores
from safeimpute.splits.roles import Role
from safeimpute.tolerance import Tolerance, parse_tolerance


def _ground(n: int = 400, m: int = 300, seed: int = 0) -> ExplorationGround:
    """Errors grow with risk, so that a level decides how far up the risk a release reaches."""
    rng = np.random.default_rng(seed)
    risk, candidate = rng.random(n), rng.random(m)
    error = rng.random(n) * risk * 2
    ones = np.ones
    return ExplorationGround(
        Scores(candidate, rng.random(m)), ones(m), Scores(risk, rng.random(n)), ones(n), error, np.zeros(n)
    )


def test_a_higher_level_or_tolerance_never_releases_less() -> None:
    ground = _ground()
    counts = np.array(
        [
            [point["released"] for point in explore(ground, Tolerance(absolute=size), (0.05, 0.1, 0.2, 0.4))]
            for size in (0.3, 0.5, 0.8)
        ]
    )
    assert (np.diff(counts, axis=0) >= 0).all()
    assert (np.diff(counts, axis=1) >= 0).all()
    assert 0 < counts[1, 2] < 300


def test_what_is_let_through_keeps_near_the_level() -> None:
    shares = [explore(_ground(seed=s), Tolerance(absolute=0.5), (0.2,))[0]["fdp"] for s in range(30)]
    assert 0.1 < np.mean(shares) < 0.22


def test_weights_count_as_repeated_visits_would() -> None:
    ground = _ground()
    weight = np.where(np.arange(400) < 200, 2.0, 1.0)
    twice = np.concatenate([np.arange(400), np.arange(200)])
    weighted = ExplorationGround(
        ground.candidate, np.ones(300), ground.validation, weight, ground.value, ground.truth
    )
    repeated = ExplorationGround(
        ground.candidate,
        np.ones(300),
        Scores(ground.validation.risk[twice], ground.validation.tie[twice]),
        np.ones(600),
        ground.value[twice],
        ground.truth[twice],
    )
    levels = (0.1, 0.2, 0.3)
    one, other = (explore(each, Tolerance(absolute=0.5), levels) for each in (weighted, repeated))
    for first, second in zip(one, other, strict=True):
        assert first == pytest.approx(second)


@pytest.fixture(scope="module")
def imputer() -> tuple[SafeImputer, pl.DataFrame]:
    from safeimpute.records.simulate import simulate

    visits = simulate("mimic4", np.random.default_rng(11), patients=150).visits
    quick = {"gcn": {"epochs": 10}}
    return SafeImputer(
        target="hba1c", tolerance="10% or 0.5", fdr=0.3, preset="paper", claim="visits", paper=quick
    ).fit(visits), visits


def test_calibration_errors_play_no_part(imputer: tuple[SafeImputer, pl.DataFrame]) -> None:
    fitted, _ = imputer
    truth = fitted.visits_.arrays.target_values
    changed = np.where(fitted.roles_ == Role.CALIBRATION, 1e6, truth)
    assert slider_grid(fitted.scored_, truth, 0.3, "%") == slider_grid(fitted.scored_, changed, 0.3, "%")
    moved = np.where(fitted.roles_ == Role.VALIDATION, 1e6, truth)
    assert slider_grid(fitted.scored_, truth, 0.3, "%") != slider_grid(fitted.scored_, moved, 0.3, "%")


def test_the_sliders_start_where_the_report_marks_the_run(imputer: tuple[SafeImputer, pl.DataFrame]) -> None:
    fitted, _ = imputer
    truth = fitted.visits_.arrays.target_values
    grid = slider_grid(fitted.scored_, truth, 0.3, "%")
    (point,) = explore(
        exploration_ground(fitted.scored_, truth), fitted.current_config().allowed_error, (0.3,)
    )
    own = grid["tolerances"][grid["chosen_tolerance"]]
    assert grid["levels"][grid["chosen_level"]] == 0.3
    assert own["released"][grid["chosen_level"]] == point["released"]
    for factor, setting in zip(TOLERANCE_FACTORS, grid["tolerances"], strict=True):
        allowed = parse_tolerance(setting["tolerance"])
        assert (allowed.share, allowed.absolute) == pytest.approx((0.1 * factor, 0.5 * factor), rel=1e-3)


def test_the_review_table_holds_every_imputed_patient_in_order(
    imputer: tuple[SafeImputer, pl.DataFrame],
) -> None:
    fitted, visits = imputer
    table = review_visits(fitted)
    imputed = fitted.impute(visits)
    rows = table.filter(pl.col("imputation") >= 0).sort("imputation")
    assert rows.select("subject_id", "time").equals(imputed.select("subject_id", "time"))
    assert rows["lab.hba1c"].null_count() == len(rows)
    assert set(table["subject_id"]) == set(imputed["subject_id"])
    assert table["patient"].n_unique() == imputed["subject_id"].n_unique()
