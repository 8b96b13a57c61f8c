"""What `evaluate`, `audit` and `downstream` leave behind: results as JSON, tables, and the figures made from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safeimpute.evaluation.audit import Audit
from safeimpute.evaluation.completions import DRAWN, NOTHING_MISSING, RELEASED
from safeimpute.evaluation.data_profile import profile_data
from safeimpute.evaluation.downstream import Downstream, QuantityOutcome, WayOutcome
from safeimpute.evaluation.evaluate import (
    ALPHAS,
    RISK_GROUPS,
    LabEvaluation,
    LabsEvaluation,
    fdr_power_curves,
    risk_alignment,
    tolerances_around,
)
from safeimpute.evaluation.trials import Trial
from safeimpute.machine.files import folder_names, plain_text
from safeimpute.report import palette
from safeimpute.report.figure_style import in_percent, one_panel, save, styled
from safeimpute.report.figures import draw_figures, level_panel
from safeimpute.report.run_folder import write_json
from safeimpute.settings import Settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.units import target_unit
from safeimpute.visits.visits import Visits

HEADER = ("Quantity", "Way", "Estimate", "Off by (± SE)", "Interval holds it", "Interval width", "Visits with a value")
COLUMNS = 3
CAPTION = (
    "Dots: the estimate by each way, mean over splits; bars: its 95 % interval. Dashed line: what the same analysis "
    "says with nothing missing."
)
READING = (
    "*Interval holds it*: share of splits whose 95 % interval holds the figure with nothing missing. That is easier "
    "than holding the population's, so a good way comes near 100 %. *Interval width*: times that with nothing missing; "
    "below 1 it is too sure, since values are missing. A visit without a value counts as not found above a limit, and "
    "a patient without any is ranked in the middle. *Patients found* at or above a limit: of those who reach "
    "it at some visit; the others are missed. *Patients falsely alarmed*: of those who never do. Intervals in "
    "brackets are from resampled patients."
)


def write_evaluations(
    folder: Path,
    result: LabsEvaluation,
    trials: Mapping[str, Sequence[Trial]],
    asked: Mapping[str, tuple[Settings, Visits]],
    tolerances: Sequence[Tolerance] = (),
    levels: Sequence[float] = (),
    groups: int = RISK_GROUPS,
) -> None:
    """Of several labs: evaluation.json of the whole, and the folder of each lab inside `labs/`."""
    labs = result["labs"]
    for lab, name in folder_names(tuple(labs)).items():
        own = folder / "labs" / name
        own.mkdir(parents=True)
        settings, visits = asked[lab]
        write_evaluation(own, labs[lab], trials[lab], settings, visits, tolerances, levels, groups)
    write_json(result, folder / "evaluation.json")


def write_evaluation(
    folder: Path,
    result: LabEvaluation,
    trials: Sequence[Trial],
    settings: Settings,
    visits: Visits,
    tolerances: Sequence[Tolerance] = (),
    levels: Sequence[float] = (),
    groups: int = RISK_GROUPS,
) -> None:
    """Write evaluation.json, which is the result with its curves at these tolerances and levels, and figures/."""
    wanted = tolerances or tolerances_around(settings.allowed_error)
    content = {
        **result,
        "unit": target_unit(settings),
        "curves": fdr_power_curves(trials, wanted, levels or ALPHAS),
        "alignment": risk_alignment(trials, settings.allowed_error, groups),
        "data": profile_data(visits, settings.random_state),
    }
    write_json(content, folder / "evaluation.json")
    draw_figures(folder)


def write_downstream(folder: Path, result: Downstream, target: str, unit: str | None) -> None:
    """Write downstream.json, downstream.md and figures/downstream."""
    write_json(result, folder / "downstream.json")
    (folder / "downstream.md").write_text(downstream_page(result, target, unit), encoding="utf-8")
    with styled():
        figure = draw_downstream(result, target, unit)
    save(figure, folder / "figures", "downstream")


def downstream_page(result: Downstream, target: str, unit: str | None) -> str:
    lines = [
        f"# What to do with missing {plain_text(target, 60)}",
        "",
        heading(result, unit),
        "",
        "## Advice",
        "",
        *(f"- {each['advice']}" for each in result["quantities"]),
        "",
        "## Table",
        "",
        f"| {' | '.join(HEADER)} |",
        "|" + "---|" * len(HEADER),
        *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in downstream_rows(result)),
        "",
        "![Each quantity by each way](figures/downstream.png)",
        "",
        CAPTION,
        "",
        READING,
    ]
    return "\n".join(lines) + "\n"


def heading(result: Downstream, unit: str | None) -> str:
    splits = "one fit" if result["splits"] == 1 else f"{result['splits']} fits"
    return (
        f"{result['visits']:,} visits with a known value, {palette.percent(result['hidden'])} of them treated as "
        f"missing; {palette.percent(result['released'])} of those were released; {splits}. Values in "
        f"{plain_text(unit, 16) if unit else 'the table’s unit'}."
    )


def downstream_rows(result: Downstream) -> list[list[str]]:
    """One row per quantity and way; a quantity is named once."""
    rows = []
    for quantity in result["quantities"]:
        for place, (way, told) in enumerate(quantity["ways"].items()):
            rows.append([quantity["quantity"] if place == 0 else "", way, *_cells(told, way)])
    return rows


def _cells(told: WayOutcome, way: str) -> list[str]:
    off = "–" if way == NOTHING_MISSING else f"{told['off']['mean']:+.3g}"
    if way != NOTHING_MISSING and told["off"]["se"] is not None:
        off += f" ± {told['off']['se']:.2g}"
    covers = "–" if told["covers"] is None or way == NOTHING_MISSING else palette.percent(told["covers"])
    width = "–" if told["width"] is None else f"{told['width']:.2f}"
    estimate = f"{told['estimate']['mean']:.4g}"
    if told["covers"] is None and told["lower"] is not None:
        estimate += f" ({told['lower']:.3g} to {told['upper']:.3g})"
    return [estimate, off, covers, width, palette.percent(told["spoken_for"])]


def draw_downstream(result: Downstream, target: str, unit: str | None) -> Figure:
    """One small forest plot per quantity, the ways from top to bottom."""
    shown = [each for each in result["quantities"] if NOTHING_MISSING in each["ways"]]
    rows = -(-len(shown) // COLUMNS)
    figure = Figure(figsize=(3.2 * COLUMNS + 2.4, 2.15 * rows + 0.9))
    panels = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False)
    names = list(dict.fromkeys(way for each in shown for way in each["ways"] if way != NOTHING_MISSING))
    for axes in panels.ravel()[len(shown) :]:
        axes.set_visible(False)
    for axes, quantity in zip(panels.ravel(), shown, strict=False):
        _forest(axes, quantity, names)
    for row in panels:
        row[0].set_yticks(range(len(names)), names)
    panels[0, 0].set_ylim(len(names) - 0.5, -0.5)
    title = f"{palette.with_unit(target, unit)}: what each way makes of it"
    figure.suptitle(f"{title}\ndashed: nothing missing; bars: 95 % intervals", fontsize=11)
    return figure


def _forest(axes: Axes, quantity: QuantityOutcome, names: Sequence[str]) -> None:
    whole = quantity["ways"][NOTHING_MISSING]
    for place, way in enumerate(names):
        told = quantity["ways"].get(way)
        if told is None or told["estimate"]["mean"] is None:
            continue
        colour = {DRAWN: palette.RELEASED, RELEASED: palette.ERROR}.get(way, palette.MUTED)
        if told["lower"] is not None and told["upper"] is not None:
            axes.plot([told["lower"], told["upper"]], [place, place], color=colour, linewidth=2.4)
        axes.plot(told["estimate"]["mean"], place, "o", color=colour, markersize=6)
    axes.axvline(whole["estimate"]["mean"] or 0.0, color=palette.INK, linestyle="--", linewidth=1.2)
    axes.grid(visible=False)
    axes.locator_params(axis="x", nbins=4)
    axes.margins(x=0.12)
    better = {"performance": " (more is better)", "error": " (less is better)"}.get(quantity["kind"], "")
    name = plain_text(quantity["quantity"], 34)
    in_percent(axes, x=name.startswith(("share", "found", "false alarms", "patients")))
    axes.set_title(f"{name[:1].upper()}{name[1:]}{better}", fontsize=9)


def draw_audit(report: Audit, folder: Path) -> list[Path]:
    """The achieved FDR should lie on or below the dashed line."""
    with styled():
        figure, axes = one_panel()
        level_panel(axes, report["levels"])
        axes.set(xlabel="FDR level asked for", ylabel="Share of test values")
        axes.legend(loc="upper left")
        return save(figure, folder / "figures", "audit")
