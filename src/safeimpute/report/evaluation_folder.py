"""An evaluation on the terminal and as a folder: result, curves and figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from safeimpute.evaluation.curves import fdr_power_curves, risk_alignment
from safeimpute.evaluation.data_profile import profile_data
from safeimpute.evaluation.evaluate import ScoredSplit
from safeimpute.evaluation.metrics import MeanSe
from safeimpute.records.visits import Visits
from safeimpute.report.figures import draw_figures
from safeimpute.report.run_folder import write_json
from safeimpute.settings import Config


def write_evaluation(
    folder: Path, result: dict[str, Any], scored: Sequence[ScoredSplit], config: Config, visits: Visits
) -> None:
    """Result, curves and data profile as JSON, and the figures made from them."""
    content = {
        **result,
        "unit": config.unit_known,
        "curves": fdr_power_curves(scored, config.allowed_error),
        "alignment": risk_alignment(scored, config.allowed_error),
        "data": profile_data(visits, config.random_state),
    }
    write_json(content, folder / "evaluation.json")
    draw_figures(folder)


def print_evaluation(result: dict[str, Any], unit: str | None) -> None:
    """The figures a reader asks for first."""
    suffix = f" {unit}" if unit else ""
    typer.echo(f"\n{result['preset']} on {result['target']}: {result['splits']} splits by {result['split']}")
    typer.echo(f"  MAE   {show_mean_se(result['imputation']['mae'])}{suffix}")
    typer.echo(f"  RMSE  {show_mean_se(result['imputation']['rmse'])}{suffix}")
    typer.echo(f"  AUC of the risk at tolerance {result['tolerance']}: {show_mean_se(result['risk_auc'])}\n")
    typer.echo(f"  {'FDR level':<11}{'achieved':<18}{'power':<18}{'released':<18}MAE released")
    for row in result["release"]:
        cells = [show_mean_se(row[name]) for name in ("fdp", "power", "acceptance", "mae")]
        typer.echo(f"  {row['fdr']:<11g}" + "".join(f"{cell:<18}" for cell in cells).rstrip())


def show_mean_se(number: MeanSe) -> str:
    if number["mean"] is None:
        return "-"
    return f"{number['mean']:.4g}" + (f" ± {number['se']:.2g}" if number["se"] is not None else "")
