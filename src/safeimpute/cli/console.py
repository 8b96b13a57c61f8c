"""The result in plain words on the terminal."""

from pathlib import Path
from typing import Any

import typer

from safeimpute.records.visits import Visits


def print_columns(visits: Visits) -> None:
    """Say which column was taken for what."""
    typer.echo(f"Labs: {', '.join(visits.labs)}")
    typer.echo(f"Attributes: {', '.join(visits.attributes) or 'none'}")
    for name, reason in sorted(visits.ignored.items()):
        typer.echo(f"Not used: {name} ({reason})")
    if visits.merged_rows:
        typer.echo(f"Merged: {visits.merged_rows:,} rows shared a patient and a time with another row")


def print_summary(summary: dict[str, Any], folder: Path) -> None:
    """The answer, the promise, and where to look further."""
    data, unit = summary["data"], f" {summary['unit']}" if summary["unit"] else ""
    typer.echo("")
    typer.echo(f"{data['visits']:,} visits of {data['patients']:,} patients")
    typer.echo(f"{summary['target']} missing at {summary['missing']:,} visits")
    share = summary["released"] / max(summary["missing"], 1)
    typer.echo(f"  released  {summary['released']:>7,}  ({share:.0%})")
    typer.echo(f"  withheld  {summary['withheld']:>7,}")
    for reason, count in summary["withheld_by_reason"].items():
        typer.echo(f"            {count:>7,}  {reason}")
    typer.echo("")
    for label, key in (("Promise", "promise"), ("Assumption", "assumption"), ("Limits", "limits")):
        typer.echo(f"{label}: {summary[key]}")
    if summary["sensitivity"]:
        counts = ", ".join(f"{row['released']:,} at {row['gamma']:g}" for row in summary["sensitivity"])
        typer.echo(
            f"Had an unseen reason changed the odds of measuring by a factor, plain BH would still release: {counts}"
        )
    if summary["cutoff"]:
        typer.echo(f"Stored cut-off: {summary['cutoff']['words']}")
    typer.echo("")
    typer.echo(f"Mean absolute error on {summary['validation']['visits']:,} validation visits:")
    for name, error in summary["validation"]["mae"].items():
        typer.echo(f"  {name:<28}{error:.3g}{unit}")
    typer.echo(f"\nReport: {folder / 'report.html'}")
