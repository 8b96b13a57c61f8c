"""An evaluation as a folder: its result, curves and data profile as JSON, and the figures made from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from safeimpute.evaluation.curves import (
    ALPHAS,
    RISK_GROUPS,
    fdr_power_curves,
    risk_alignment,
    tolerances_around,
)
from safeimpute.evaluation.data_profile import profile_data
from safeimpute.evaluation.trials import Trial
from safeimpute.records.units import target_unit
from safeimpute.records.visits import Visits
from safeimpute.report.figures import draw_figures
from safeimpute.report.run_folder import write_json
from safeimpute.runtime.text import folder_names
from safeimpute.settings import Settings
from safeimpute.tolerance import Tolerance


def write_evaluations(
    folder: Path,
    result: Mapping[str, object],
    trials: Mapping[str, Sequence[Trial]],
    asked: Mapping[str, tuple[Settings, Visits]],
    tolerances: Sequence[Tolerance] = (),
    levels: Sequence[float] = ALPHAS,
    groups: int = RISK_GROUPS,
) -> None:
    """Of several labs: evaluation.json of the whole, and the folder of each lab inside `labs/`."""
    labs = cast("Mapping[str, Mapping[str, object]]", result["labs"])
    for lab, name in folder_names(tuple(labs)).items():
        own = folder / "labs" / name
        own.mkdir(parents=True)
        settings, visits = asked[lab]
        write_evaluation(own, labs[lab], trials[lab], settings, visits, tolerances, levels, groups)
    write_json(result, folder / "evaluation.json")


def write_evaluation(
    folder: Path,
    result: Mapping[str, object],
    trials: Sequence[Trial],
    settings: Settings,
    visits: Visits,
    tolerances: Sequence[Tolerance] = (),
    levels: Sequence[float] = ALPHAS,
    groups: int = RISK_GROUPS,
) -> None:
    """Write evaluation.json, which is the result with its curves at these tolerances and levels, and figures/."""
    wanted = tolerances or tolerances_around(settings.allowed_error)
    content = {
        **result,
        "unit": target_unit(settings),
        "curves": fdr_power_curves(trials, wanted, levels),
        "alignment": risk_alignment(trials, settings.allowed_error, groups),
        "data": profile_data(visits, settings.random_state),
    }
    write_json(content, folder / "evaluation.json")
    draw_figures(folder)
