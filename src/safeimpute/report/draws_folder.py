"""Draws in a run's folder: draws.parquet, draws.json, the tipping-point table and picture, files for R's mice."""

import json
from pathlib import Path
from typing import Any, cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safeimpute.evaluation.drawn_run import DrawsAsked, DrawsSummary, FittedImputer, summarise_draws
from safeimpute.evaluation.tipping import TippingQuantity
from safeimpute.records.draws_table import draws_table
from safeimpute.records.units import target_unit
from safeimpute.records.writers.guarded_csv import write_csv
from safeimpute.report.figure_style import in_percent
from safeimpute.report.palette import ERROR, INK, MUTED, RELEASED, WITHHELD, with_unit
from safeimpute.report.run_folder import write_json
from safeimpute.runtime.text import plain_text


def write_draws(folder: Path, imputer: FittedImputer, table: Any, asked: DrawsAsked) -> DrawsSummary:
    """Write what was asked for into a run's folder; the figure is drawn with the others."""
    drawn, summary = summarise_draws(imputer, table, asked)
    settings, rows, visits = imputer.settings_, imputer.calibrated_.candidates, imputer.visits_
    long = draws_table(visits.subject[rows], visits.time[rows], settings.target, target_unit(settings), drawn)
    long.write_parquet(folder / "draws.parquet")
    write_json({"target": settings.target, "unit": target_unit(settings), **summary}, folder / "draws.json")
    if summary["tipping"]:
        write_csv(tipping_table(summary["tipping"]), folder / "tipping.csv")
    if asked.mice:
        for form in ("long", "wide"):
            write_csv(imputer.to_mice(table, asked.draws, form=form), folder / f"mice_{form}.csv")
    return summary


def tipping_table(found: list[TippingQuantity]) -> pl.DataFrame:
    """One row per quantity and shift."""
    return pl.DataFrame(
        [{"quantity": each["quantity"], **row} for each in found for row in each["rows"]],
        schema_overrides={"conclusion": pl.String},
    )


def tipping_figure(folder: Path) -> Figure | None:
    """Every quantity over the shifts of unmeasured values, and where its conclusion turns; None without shifts."""
    content = json.loads((folder / "draws.json").read_text(encoding="utf-8"))
    found = cast("list[TippingQuantity]", content["tipping"])
    if not found:
        return None
    figure = Figure(figsize=(4.4 * len(found), 4.2))
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, quantity in zip(panels, found, strict=True):
        _tipping_panel(axes, quantity)
        name = plain_text(quantity["quantity"], 40)
        axes.set_title(f"{name[:1].upper()}{name[1:]}")
        axes.set_xlabel(with_unit("Unmeasured values shifted by", content["unit"]))
        axes.set_ylabel(with_unit(content["target"], content["unit"]) if name == "mean" else "")
        in_percent(axes, y=name.startswith("share"))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _tipping_panel(axes: Axes, quantity: TippingQuantity) -> None:
    rows = quantity["rows"]
    shifts, low, high = ([row[key] for row in rows] for key in ("delta", "lower", "upper"))
    axes.fill_between(shifts, low, high, color=WITHHELD, alpha=0.35, linewidth=0, label="95 % interval")
    axes.plot(shifts, [row["estimate"] for row in rows], "o-", color=RELEASED, label="draws, pooled")
    axes.axvline(0, color=MUTED, linewidth=1, linestyle=":")
    if quantity["reference"] is not None:
        axes.axhline(quantity["reference"], color=INK, linestyle="--", linewidth=1.2, label="held against")
    for place, turn in enumerate((quantity["turns_below"], quantity["turns_above"])):
        if turn is None:
            continue
        axes.axvline(turn, color=ERROR, linewidth=1.8)
        right = turn > (shifts[0] + shifts[-1]) / 2
        axes.annotate(
            f"turns at {turn:+.2g}",
            (turn, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if right else 4, -12 - 14 * place),
            textcoords="offset points",
            ha="right" if right else "left",
            color=ERROR,
        )
