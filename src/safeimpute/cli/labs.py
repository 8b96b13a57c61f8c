"""What `run` does with several labs: one release, one folder, one summary on the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from safeimpute.estimator import SafeImputer
    from safeimpute.evaluation.several_summary import LabsSummary
    from safeimpute.report.labs_run import Wanted


def release_labs(
    imputer: "SafeImputer",
    table: Any,
    out: Path,
    source: Path | None,
    columns: Mapping[str, str],
    earlier: Path | None,
    wanted: "Wanted",
    *,
    force: bool,
    quiet: bool,
) -> None:
    """Release, and write the run's folder; `earlier` is a run on the same visits that was looked at."""
    import polars as pl

    from safeimpute.cli.looks import look_at
    from safeimpute.records.known_values import record_released
    from safeimpute.records.looks import record_look
    from safeimpute.report.labs_run import write_labs_run
    from safeimpute.runtime.files import finished_folder, sha256_of

    found = {lab: look_at(each, out, earlier) for lab, each in imputer.labs_.imputers.items()}
    second = [lab for lab, (_, seen) in found.items() if seen]
    if second and imputer.labs_.settings.over == "cells":
        second = list(found)
    with finished_folder(out, force=force) as folder:
        summary = write_labs_run(folder, imputer, table, source, columns, wanted=wanted, second_looks=second)
    imputations = pl.read_parquet(out / "imputations.parquet")
    arrays = next(iter(imputer.labs_.imputers.values())).visits_.arrays
    identity = sha256_of(out / "imputations.parquet")
    said = [record_look(out, look) for look, _ in found.values()]
    for warning in filter(None, (*said, record_released(out, identity, imputations, arrays))):
        typer.echo(f"safeimpute: {warning}", err=True)
    if not quiet:
        print_labs(summary, out)


def print_labs(summary: "LabsSummary", folder: Path) -> None:
    """Every lab in a line, the promise, and where to look further."""
    typer.echo(f"\n{summary['visits']:,} visits of {summary['patients']:,} patients")
    for lab, why in summary["left_out"].items():
        typer.echo(f"Left out: {lab} ({why})")
    wide = max(len(lab) for lab in summary["labs"]) + 2
    typer.echo(
        f"\n{'lab':<{wide}}{'missing':>9}{'released':>10}{'share':>7}  error counts as unacceptable from"
    )
    for lab, line in summary["labs"].items():
        share = line["released"] / max(line["missing"], 1)
        said = line["tolerance_in_words"] + (" (no guarantee)" if line["no_promise"] else "")
        typer.echo(f"{lab:<{wide}}{line['missing']:>9,}{line['released']:>10,}{share:>7.0%}  {said}")
    share = summary["released"] / max(summary["missing"], 1)
    typer.echo(f"{'all labs':<{wide}}{summary['missing']:>9,}{summary['released']:>10,}{share:>7.0%}")
    if summary["no_promise"]:
        typer.echo(f"\nNo guarantee: {summary['no_promise']}")
    else:
        typer.echo(
            f"\nPromise: {summary['promise']}\nAssumption: {summary['assumption']}\nLimits: {summary['limits']}"
        )
    if summary["bound"]["words"]:
        typer.echo(f"Bound: {summary['bound']['words']}")
    if summary["effort"]:
        typer.echo(f'Several labs in one run: {summary["effort"]} (best.effort = "full" spares nothing)')
    typer.echo(f"\nReport: {folder / 'report.html'}")


def print_evaluations(result: dict[str, Any]) -> None:
    """Every lab, then the release over all of them."""
    from safeimpute.cli.console import print_evaluation

    for each in result["labs"].values():
        print_evaluation(each, None)
    typer.echo(f"\nAll {len(result['labs'])} labs together (the level holds over {result['over']})")
    _print_levels(result["release"])
    if result["effort"]:
        typer.echo(f"Several labs in one run: {result['effort']}")


def print_audits(report: dict[str, Any]) -> None:
    """Every lab's audit, then all labs together."""
    from safeimpute.cli.console import print_audit

    for lab, each in report["labs"].items():
        typer.echo(f"\n{lab}")
        print_audit(each)
    typer.echo(f"\nAll {len(report['labs'])} labs together (the level holds over {report['over']})")
    _print_levels(report["levels"])


def _print_levels(rows: list[dict[str, Any]]) -> None:
    from safeimpute.cli.console import show_mean_se

    typer.echo(f"  {'level':<8}{'achieved':<20}{'pooled':<10}{'power':<20}released")
    for row in rows:
        pooled = "-" if row["pooled"] is None else f"{row['pooled']:.4g}"
        cells = [show_mean_se(row[name]) for name in ("fdp", "power", "acceptance")]
        typer.echo(f"  {row['fdr']:<8g}{cells[0]:<20}{pooled:<10}{cells[1]:<20}{cells[2]}")
