"""Results in plain words on the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from safeimpute.benchmark.result import BenchmarkResult
    from safeimpute.evaluation.audit import AuditReport
    from safeimpute.evaluation.downstream_result import Downstream
    from safeimpute.evaluation.drawn_run import DrawsSummary
    from safeimpute.evaluation.evaluate import ReleaseSummary
    from safeimpute.evaluation.metrics import MeanSe
    from safeimpute.evaluation.run_summary import RunSummary
    from safeimpute.records.visits import Visits
    from safeimpute.settings import Settings


def print_columns(visits: "Visits") -> None:
    """Say which column was taken for what, and how to say otherwise."""
    typer.echo(f"Labs: {', '.join(visits.labs)}")
    typer.echo(f"Attributes: {', '.join(visits.attributes) or 'none'}")
    if visits.arrays.fine_names:
        typer.echo(f"Only for who gets measured: {', '.join(visits.arrays.fine_names)}")
    for name, reason in sorted(visits.ignored.items()):
        typer.echo(f"Not used: {name} ({reason})")
    typer.echo("To say otherwise: --labs, --attributes, --exclude")
    if visits.merged_rows:
        typer.echo(f"Merged: {visits.merged_rows:,} rows shared a patient and a time with another row")


def print_plan(visits: "Visits", settings: "Settings") -> None:
    """What there is to impute from, and about how long the fit takes; `check` says more."""
    import numpy as np

    from safeimpute.runtime.forecast import fit_seconds, in_words

    measured = int(np.sum(~np.isnan(visits.arrays.target_values)))
    typer.echo(f"{settings.target}: measured at {measured:,} visits, missing at {len(visits) - measured:,}")
    if settings.preset == "best":
        seconds = fit_seconds(len(visits), settings.best.folds, settings.best.pace)
        typer.echo(f"The fit takes about {in_words(seconds)} on an idle machine")


def print_summary(summary: "RunSummary", folder: Path) -> None:
    """The answer, the promise, and where to look further."""
    data, unit = summary["data"], f" {summary['unit']}" if summary["unit"] else ""
    typer.echo(f"\n{data['visits']:,} visits of {data['patients']:,} patients")
    typer.echo(f"{summary['target']} missing at {summary['missing']:,} visits")
    share = summary["released"] / max(summary["missing"], 1)
    typer.echo(f"  released  {summary['released']:>7,}  ({share:.0%})")
    typer.echo(f"  withheld  {summary['withheld']:>7,}")
    for reason, count in summary["withheld_by_reason"].items():
        typer.echo(f"            {count:>7,}  {reason}")
    if summary["next_step"]:
        typer.echo(f"\n{summary['next_step']}")
    _print_promise(summary)
    if summary["effort"]:
        typer.echo(f"A {summary['effort']} (without --quick nothing is spared)")
    accuracy = summary["accuracy"]
    typer.echo(f"\nMean absolute error at {accuracy['visits']:,} measured visits ({accuracy['how']}):")
    for name, error in accuracy["mae"].items():
        typer.echo(f"  {name:<28}{error:.3g}{unit}")
    typer.echo(f"\nReport: {folder / 'report.html'}")


def _print_promise(summary: "RunSummary") -> None:
    """What is promised, on what it rests, and what bears on trusting it."""
    if summary["no_promise"]:
        said = [f"No guarantee: {summary['no_promise']}"]
    else:
        said = [f"Promise: {summary['promise']}", f"Assumption: {summary['assumption']}"]
        said += [f"Limits: {summary['limits']}"]
    if summary["bound"]["words"]:
        said.append(f"Bound: {summary['bound']['words']}")
    for cutoff in summary["cutoffs"]:
        group = (
            f" ({cutoff['group']}: {cutoff['released']:,} of {cutoff['missing']:,})"
            if cutoff["group"]
            else ""
        )
        said.append(f"Cut-off{group}: {cutoff['words']}")
    if summary["measuring"] is not None:
        said.append(f"Who gets measured: {summary['measuring']['words']} {summary['measuring']['worth']}")
    if summary["sensitivity"]:
        counts = ", ".join(f"{row['released']:,} at {row['gamma']:g}" for row in summary["sensitivity"])
        said.append(f"Released, had an unseen reason changed the odds of measuring by a factor: {counts}")
    if summary["distribution"]["warning"]:
        said.append(f"Note: {summary['distribution']['warning']}")
    typer.echo("\n" + "\n".join(said))


def print_evaluation(result: dict[str, Any], unit: str | None) -> None:
    """The figures a reader asks for first."""
    suffix = f" {unit}" if unit else ""
    typer.echo(f"\n{result['preset']} on {result['target']}: {result['splits']} splits by {result['split']}")
    if result["effort"]:
        typer.echo(f"  {result['effort']}")
    typer.echo(f"  MAE   {show_mean_se(result['imputation']['mae'])}{suffix}")
    typer.echo(f"  RMSE  {show_mean_se(result['imputation']['rmse'])}{suffix}")
    typer.echo(f"  AUC of the risk at tolerance {result['tolerance']}: {show_mean_se(result['risk_auc'])}\n")
    head = ("power", "released", "precision", "MAE released")
    typer.echo(
        f"  {'FDR level':<11}{'achieved':<18}{'pooled':<10}{''.join(f'{n:<18}' for n in head)}RMSE released"
    )
    shown = ("fdp", "power", "acceptance", "precision", "mae", "rmse")
    for row in result["release"]:
        fdp, *cells = [show_mean_se(row[name]) for name in shown]
        rest = "".join(f"{cell:<18}" for cell in cells).rstrip()
        typer.echo(f"  {row['fdr']:<11g}{fdp:<18}{_pooled(row):<10}{rest}")
    if any(row["splits_released"] < result["splits"] for row in result["release"]):
        typer.echo("  Precision counts a split that releases nothing as 0; MAE and RMSE leave it out.")


def print_audit(report: "AuditReport") -> None:
    """Achieved against asked for, over all and by group."""
    typer.echo(
        f"\nAchieved share of unacceptable values among the released, {report['splits']} splits by {report['split']}"
    )
    typer.echo(f"  {'level':<8}{'achieved':<20}{'pooled':<10}{'power':<20}within level + 3 SE")
    for row in report["levels"]:
        cells = f"{show_mean_se(row['fdp']):<20}{_pooled(row):<10}{show_mean_se(row['power']):<20}"
        typer.echo(f"  {row['fdr']:<8g}{cells}{'yes' if row['holds'] else 'NO'}")
    middle = report["groups"][len(report["groups"]) // 2]
    typer.echo(f"\nBy group at level {middle['fdr']:g}. {report['note']}")
    for group in middle["rows"]:
        shown = show_mean_se(group["fdp"]) if group["fdp"] else "too few released"
        typer.echo(f"  {group['group']:<34}  {shown}")


def print_draws(drawn: "DrawsSummary", folder: Path) -> None:
    """How many draws, how well they are calibrated, and where conclusions turn."""
    typer.echo(
        f"\nDraws: {drawn['draws']} of each of {drawn['missing']:,} missing values, {folder / 'draws.parquet'}"
    )
    inside = drawn["coverage"].get("0.9")
    if inside is not None:
        typer.echo(
            f"  90 % intervals of such draws hold {100 * inside:.0f} % of measured values, weighted alike"
        )
    for each in drawn["tipping"]:
        typer.echo(f"  {each['words']}")


def print_downstream(result: "Downstream", unit: str | None) -> None:
    """What was done, the table, and a sentence of advice per quantity."""
    from safeimpute.report.downstream_folder import HEADER, downstream_rows, heading

    rows = [list(HEADER), *downstream_rows(result)]
    widths = [max(len(row[place]) for row in rows) + 2 for place in range(len(HEADER))]
    typer.echo(f"\n{heading(result, unit)}\n")
    for row in rows:
        typer.echo("".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo("\n" + "\n".join(each["advice"] for each in result["quantities"]))


def print_benchmark(result: "BenchmarkResult", folder: Path) -> None:
    """The answer first, then the tables it rests on."""
    from safeimpute.benchmark.tables import (
        accuracy_table,
        as_text,
        failure_table,
        heading,
        reading,
        release_table,
    )

    typer.echo(f"\n{heading(result)}\n")
    for sentence in reading(result):
        typer.echo(f"  {sentence}")
    failed = failure_table(result)
    for table in (
        accuracy_table(result),
        release_table(result, brief=True),
        *([failed] if failed.rows else []),
    ):
        typer.echo(f"\n{as_text(table)}")
    typer.echo(f"\nPublished: {result['published']['source']}.")
    typer.echo(f"What each column means, and all methods on our releases: {folder / 'benchmark.md'}")


def _pooled(row: "ReleaseSummary") -> str:
    """All risky values among all released, over splits."""
    return "-" if row["pooled"] is None else f"{row['pooled']:.4g}"


def show_mean_se(number: "MeanSe") -> str:
    """A mean with its standard error, where there is one."""
    if number["mean"] is None:
        return "-"
    return f"{number['mean']:.4g}" + (f" ± {number['se']:.2g}" if number["se"] is not None else "")
