"""A saved model inside MLflow's, where MLflow is installed."""

from pathlib import Path

import pytest

from helpers.scored_cohorts import fitted_cohort, new_visits, saved_model

mlflow = pytest.importorskip("mlflow.pyfunc", reason="MLflow is an extra: pip install 'safeimpute[mlflow]'")


@pytest.mark.full
def test_mlflow_scores_as_we_do(tmp_path: Path) -> None:
    from safeimpute.model.mlflow_model import save_for_mlflow

    visits = new_visits(40, 77).to_pandas()
    save_for_mlflow(saved_model(tmp_path), tmp_path / "mlflow")
    found = mlflow.load_model(str(tmp_path / "mlflow")).predict(visits)
    assert found.equals(fitted_cohort()[0].score(visits))
