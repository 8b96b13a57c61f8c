"""The paper's hold-out for any method: its risk learns from validation errors alone, ranks, and keeps the level."""

from dataclasses import replace

import numpy as np
import pytest

from safeimpute.evaluation.evaluate import outcome, release_at
from safeimpute.evaluation.metrics import auc
from safeimpute.evaluation.trials import Trial
from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Role, Roles
from safeimpute.selection.questions import draw_roles
from safeimpute.settings import Settings
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits
from safeimpute_lab.benchmark.hold_out import hold_out_trial, impute_held_out
from safeimpute_lab.registry import make_imputer

SETTINGS = Settings(target="hba1c", tolerance=0.8, fdr=0.3, claim="visits", random_state=5)


@pytest.fixture(scope="module")
def visits() -> VisitArrays:
    table = simulate("mimic4", np.random.default_rng(2), patients=700).visits
    return prepare_visits(table, ColumnChoice("hba1c")).arrays


@pytest.fixture(scope="module")
def roles(visits: VisitArrays) -> Roles:
    return draw_roles(visits, 5, 0.2)


@pytest.fixture(scope="module")
def imputation(visits: VisitArrays, roles: Roles) -> Imputation:
    return impute_held_out(make_imputer("patient_mean"), visits, roles, seed=5, stops=False)


@pytest.fixture(scope="module")
def trial(visits: VisitArrays, roles: Roles, imputation: Imputation) -> Trial:
    return hold_out_trial(visits, imputation, roles, SETTINGS)


def test_the_risk_tells_risky_values_from_others(trial: Trial) -> None:
    tolerance = SETTINGS.allowed_error
    area = auc(trial.estimates.risk[trial.tested], trial.risky(tolerance))
    assert area is not None
    assert area > 0.6
    assert outcome(trial, tolerance, 0.3).released > 20


def test_the_level_holds_over_re_partitions(trial: Trial) -> None:
    row = release_at([trial], SETTINGS.allowed_error, 0.3, repartitions=60)
    assert row["fdp"]["mean"] is not None
    assert row["fdp"]["mean"] < 0.3 + 0.02
    assert row["pooled"] is not None


def test_the_risk_learns_from_validation_errors_alone(
    visits: VisitArrays, roles: Roles, imputation: Imputation, trial: Trial
) -> None:
    hidden = np.isin(roles, (Role.CALIBRATION, Role.TEST))
    elsewhere = visits.with_target(np.where(hidden, visits.target_values + 9.0, visits.target_values))
    assert hold_out_trial(elsewhere, imputation, roles, SETTINGS).estimates.risk.tobytes() == (
        trial.estimates.risk.tobytes()
    )
    recalled = np.where(roles == Role.TRAINING, visits.target_values, imputation.value)
    in_sample = hold_out_trial(visits, replace(imputation, value=recalled), roles, SETTINGS)
    assert in_sample.estimates.risk.tobytes() == trial.estimates.risk.tobytes()
    off = np.where(roles == Role.VALIDATION, imputation.value + 1.0, imputation.value)
    other = hold_out_trial(visits, replace(imputation, value=off), roles, SETTINGS)
    assert other.estimates.risk.tobytes() != trial.estimates.risk.tobytes()
