"""A saved model as an MLflow model: `mlflow.pyfunc.load_model(...).predict(visits)` gives the imputation table."""

from pathlib import Path
from typing import Any

from safeimpute.errors import MissingExtra
from safeimpute.model.open_model import point_copies
from safeimpute.model.scorer import Scorer

try:
    from mlflow.pyfunc import PythonModel, save_model
except ModuleNotFoundError:
    raise MissingExtra("an MLflow model", "mlflow") from None

ARTIFACT = "model"  # what MLflow calls our folder inside its own


class MlflowImputer(PythonModel):  # type: ignore[misc]  # MLflow's class has no types where it is not installed
    """Scores new visits against a saved model; every table is scored by itself, nothing is learnt."""

    scorer: Scorer

    def load_context(self, context: Any) -> None:
        """Open our folder when MLflow loads its own."""
        self.scorer = Scorer.load(context.artifacts[ARTIFACT])

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """One row per visit and lab where it is missing: value, interval, risk, released or why not."""
        return self.scorer.score(model_input)


def save_for_mlflow(model: str | Path, folder: str | Path) -> None:
    """Write an MLflow model around a folder that `SafeImputer.save` wrote.

    Where a night log watches the model, the copy inside MLflow's hears it too; one that is begun later it cannot know.

    Parameters
    ----------
    model : path
        The saved model, of one lab or several.
    folder : path
        The MLflow model to write; must not exist yet.
    """
    save_model(path=str(folder), python_model=MlflowImputer(), artifacts={ARTIFACT: str(model)})
    point_copies(Path(model), Path(folder))
