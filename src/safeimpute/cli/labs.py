"""What `run` does with several labs: one release, one folder, one summary on the terminal."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from safeimpute.cli.going_on import going_on
from safeimpute.cli.outcome import Origin, Wanted, write_outcome
from safeimpute.cli.progress import shown_progress

if TYPE_CHECKING:
    import polars as pl

    from safeimpute.estimator import SeveralLabs
    from safeimpute.evaluation.evaluate import ReleaseSummary
    from safeimpute.evaluation.run_summary import RunSummary
    from safeimpute.evaluation.several import LabsAudit
    from safeimpute.evaluation.several_summary import LabsSummary
    from safeimpute.settings import Settings


def run_labs(
    table: Any, settings: "Settings", out: Path, origin: Origin, wanted: Wanted, *, force: bool, quiet: bool
) -> None:
    """Fit, release, and write the folder of a run of several labs."""
    from safeimpute.cli.console import print_columns
    from safeimpute.cli.looks import look_at
    from safeimpute.estimator import SafeImputer
    from safeimpute.estimator.several import check_labs
    from safeimpute.records.known_values import refuse_known_values
    from safeimpute.records.writers.released_ledger import record_released
    from safeimpute.runtime.files import finished_folder, sha256_of
    from safeimpute.runtime.looks import record_look
    from safeimpute.runtime.progress import part_of

    checked = check_labs(settings, table)
    first = next(iter(checked.values()))
    refuse_known_values(first.arrays, out, origin.source or out)
    if not quiet:
        print_columns(first)
    imputer = SafeImputer(**vars(settings))
    with going_on(out, quiet) as kept, shown_progress(quiet) as progress:
        imputer.fit(checked, progress=part_of(progress, 0.0, 0.8), kept=kept)
        labs = imputer.labs_.imputers
        looks = {lab: look_at(checked[lab], labs[lab].settings_, out, origin.earlier) for lab in labs}
        second = [lab for lab, (_, seen) in looks.items() if seen]
        if second and settings.over == "cells":
            second = list(labs)
        progress("deciding the release", 0.8)
        imputations = imputer.labs_.impute()
        progress("writing tables, figures and reports", 0.85)
        with finished_folder(out, force=force) as folder:
            summary = _write(folder, imputer.labs_, table, imputations, origin, wanted, second)
    said = [record_look(out, look) for look, _ in looks.values()]
    said.append(record_released(out, sha256_of(out / "imputations.parquet"), imputations, first.arrays))
    for warning in filter(None, said):
        typer.echo(f"safeimpute: {warning}", err=True)
    if not quiet:
        print_labs(summary, out)


def _write(
    folder: Path,
    several: "SeveralLabs",
    table: Any,
    imputations: "pl.DataFrame",
    origin: Origin,
    wanted: Wanted,
    second_looks: Collection[str],
) -> "LabsSummary":
    """Models, each lab's own folder, the tables of all labs and one report."""
    from safeimpute.evaluation.several_summary import summarise_labs
    from safeimpute.records.tables import to_polars
    from safeimpute.report.draws_folder import write_draws
    from safeimpute.report.labs_run import places_of_labs, write_labs_run
    from safeimpute.report.manifest import make_manifest

    several.save(folder / "model", second_looks=second_looks, sign=wanted.sign)
    places, results = places_of_labs(tuple(several.imputers)), several.results()
    each: dict[str, RunSummary] = {}
    for (name,), part in imputations.partition_by("lab", as_dict=True).items():
        lab = str(name)
        own, one = folder / places[lab], several.imputers[lab]
        own.mkdir(parents=True)
        if wanted.why:
            one.explain(one.visits_).write_parquet(own / "why.parquet")
        if wanted.draws is not None:
            write_draws(own, one, table, wanted.draws)
        each[lab] = write_outcome(
            own, results[lab], one.visits_, part, origin, second_look=lab in second_looks
        )
    summary = summarise_labs(several, each, places)
    visits = next(iter(several.imputers.values())).visits_
    second = bool(second_looks)
    manifest = make_manifest(
        several.settings, visits, origin.source, origin.columns, second_look=second, read_as=origin.read_as
    )
    write_labs_run(folder, imputations, several.filled(to_polars(table)), summary, manifest)
    return summary


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
    for lab, line in summary["labs"].items():
        if line["next_step"]:
            typer.echo(f"{lab}: {line['next_step']}")
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


def print_audits(report: "LabsAudit") -> None:
    """Every lab's audit, then all labs together."""
    from safeimpute.cli.console import print_audit

    for lab, each in report["labs"].items():
        typer.echo(f"\n{lab}")
        print_audit(each)
    typer.echo(f"\nAll {len(report['labs'])} labs together (the level holds over {report['over']})")
    _print_levels(report["levels"])


def _print_levels(rows: "Sequence[ReleaseSummary]") -> None:
    from safeimpute.cli.console import show_mean_se

    typer.echo(f"  {'level':<8}{'achieved':<20}{'pooled':<10}{'power':<20}released")
    for row in rows:
        pooled = "-" if row["pooled"] is None else f"{row['pooled']:.4g}"
        cells = [show_mean_se(row[name]) for name in ("fdp", "power", "acceptance")]
        typer.echo(f"  {row['fdr']:<8g}{cells[0]:<20}{pooled:<10}{cells[1]:<20}{cells[2]}")
