"""Other ways to doubt a value: each ranks, releases by the same rule, and is gathered beside the proxy."""

from pathlib import Path

import numpy as np
import pytest

from safeimpute.learning.roles import hide, split_visits
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays
from safeimpute_lab.benchmark.cells import CellName, Study, open_study, read_cell, save_cell
from safeimpute_lab.benchmark.risks import EVERY_RISK, RISKS, gather_risks, run_risks
from safeimpute_lab.methods.chained import Mice
from safeimpute_lab.methods.miwae import Miwae, MiwaeSettings


@pytest.fixture(scope="module")
def study() -> Study:
    return Study("f" * 64, Tolerance(1.2), (0.35,), 0.3, effort=0.08, repartitions=5)


@pytest.mark.full
def test_every_risk_ranks_and_releases(study: Study, cohort_arrays: VisitArrays, tmp_path: Path) -> None:
    folder = open_study(tmp_path, study, cohort_arrays)
    content, arrays = run_risks(study, cohort_arrays, 0, "cpu")
    save_cell(folder, CellName(0, RISKS), {**content, "wall": 1.0}, arrays)
    cell = read_cell(folder, CellName(0, RISKS))
    assert cell is not None
    found = gather_risks([cell], study)
    assert list(found) == list(EVERY_RISK)
    for row in found.values():
        assert row["mae"]["mean"] is not None
        assert row["auc"]["mean"] is not None
    ranked = [name for name, row in found.items() if (row["auc"]["mean"] or 0.0) > 0.5]
    assert len(ranked) >= 4
    assert "conformal width" in ranked
    assert found["proxy risk"]["mae"] == found["learned risk"]["mae"] == found["conformal width"]["mae"]
    assert found["deep ensemble"]["mae"] != found["proxy risk"]["mae"]


def test_draws_differ_and_means_do_not(cohort_arrays: VisitArrays) -> None:
    roles = split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(0), test_fraction=0.2)
    task = hide(cohort_arrays, roles)
    rng = np.random.default_rng(1)
    drawn = np.stack([Mice(draw=True).fit(task, rng).impute(task).value for _ in range(6)])
    mean = Mice().fit(task, np.random.default_rng(1)).impute(task).value
    assert drawn.std(axis=0).mean() > 0.2
    assert np.corrcoef(drawn.mean(axis=0), mean)[0, 1] > 0.6


def test_the_latent_models_spread_is_that_of_its_draws(cohort_arrays: VisitArrays) -> None:
    roles = split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(0), test_fraction=0.2)
    task = hide(cohort_arrays, roles)
    quick = MiwaeSettings(imputing_samples=40)
    spread = Miwae(0.02, quick).spreads(task, np.random.default_rng(1))
    assert spread.shape == (len(cohort_arrays),)
    assert (spread > 0).all()
    assert 0.2 < spread.mean() < 3  # standard units
