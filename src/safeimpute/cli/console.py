"""What a terminal shows: progress while a command runs, on standard error, and its results in plain words."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from safeimpute.machine.progress import Progress, silent
from safeimpute.settings import Settings

if TYPE_CHECKING:
    from safeimpute.evaluation.audit import AuditReport, LabsAudit
    from safeimpute.evaluation.downstream import Downstream
    from safeimpute.evaluation.drawn_run import DrawsSummary
    from safeimpute.evaluation.evaluate import LabEvaluation, LabsEvaluation, ReleaseSummary
    from safeimpute.evaluation.metrics import MeanSe
    from safeimpute.evaluation.run_summary import BoundSummary, LabsSummary, RunSummary
    from safeimpute.visits.visits import Visits

FIRST_SHARE, FIRST_SECONDS = 0.02, 2.0  # nothing is said about time before


def print_columns(visits: "Visits") -> None:
    """Say which column was taken for what, and how to say otherwise."""
    typer.echo(f"Labs: {', '.join(visits.labs)}")
    typer.echo(f"Attributes: {', '.join(visits.attributes) or 'none'}")
    if visits.arrays.high_cardinality_names:
        typer.echo(f"Only for who gets measured: {', '.join(visits.arrays.high_cardinality_names)}")
    for name, reason in sorted(visits.ignored.items()):
        typer.echo(f"Not used: {name} ({reason})")
    typer.echo("To say otherwise: --labs, --attributes, --exclude")
    for lab, count in visits.censored.items():
        typer.echo(f"Beyond a limit: {count:,} results of {lab} (<, >): measured, used as limits, never imputed")
    for lab, kinds in visits.words.items():
        said = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        typer.echo(f"Words in place of a result of {lab}: {said}")
    if visits.merged_rows:
        typer.echo(f"Merged: {visits.merged_rows:,} rows shared a patient and a time with another row")


def print_plan(visits: "Visits", settings: "Settings") -> None:
    """What there is to impute from, and about how long the fit takes; `check` says more."""
    import numpy as np

    from safeimpute.machine.progress import fit_seconds, in_words

    measured = int(np.sum(~np.isnan(visits.arrays.target_values)))
    limits = int(visits.arrays.target_censored.sum())
    missing = len(visits) - measured - limits
    typer.echo(f"{settings.target}: measured at {measured:,} visits, missing at {missing:,}")
    if settings.preset == "best":
        seconds = fit_seconds(len(visits), settings.best.folds, settings.best.pace)
        typer.echo(f"The fit takes about {in_words(seconds)} on an idle machine")


def print_run(summary: "RunSummary | LabsSummary", drawn: "DrawsSummary | None", folder: Path) -> None:
    """What a run came to: of one lab, with its draws, or of several."""
    if "labs" in summary:
        print_labs(summary, folder)
    else:
        print_summary(summary, folder)
    if drawn is not None:
        print_draws(drawn, folder)


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


def promise_lines(promise: str, assumption: str, limits: str, no_promise: str, **_: object) -> list[str]:
    """What is promised, on what it rests and what it does not say; or why nothing is."""
    if no_promise:
        return [f"No guarantee: {no_promise}"]
    return [f"Promise: {promise}", f"Assumption: {assumption}", f"Limits: {limits}"]


def _in_short(bound: "BoundSummary") -> list[str]:
    """The release in one sentence, and how much worse it may be by bad luck."""
    said = " ".join(filter(None, (bound["headline"], bound["words"])))
    return [f"In short: {said}"] if said else []


def _print_promise(summary: "RunSummary") -> None:
    """What is promised, on what it rests, and what bears on trusting it."""
    said = [*_in_short(summary["bound"]), *promise_lines(**summary)]
    for cutoff in summary["cutoffs"]:
        group = f" ({cutoff['group']}: {cutoff['released']:,} of {cutoff['missing']:,})" if cutoff["group"] else ""
        said.append(f"Cut-off{group}: {cutoff['words']}")
    if summary["measuring"] is not None:
        said.append(f"Who gets measured: {summary['measuring']['words']} {summary['measuring']['effective_size']}")
    if summary["sensitivity"]:
        counts = ", ".join(f"{row['released']:,} at {row['gamma']:g}" for row in summary["sensitivity"])
        said.append(f"Released, had an unseen reason changed the odds of measuring by a factor: {counts}")
    if summary["stability"]["words"]:
        said.append(summary["stability"]["words"])
    if summary["distribution"]["warning"]:
        said.append(f"Note: {summary['distribution']['warning']}")
    typer.echo("\n" + "\n".join(said))


def print_evaluation(result: "LabEvaluation", unit: str | None) -> None:
    """The figures a reader asks for first."""
    suffix = f" {unit}" if unit else ""
    typer.echo(f"\n{result['preset']} on {result['target']}: {result['splits']} splits by {result['split']}")
    if result["effort"]:
        typer.echo(f"  {result['effort']}")
    typer.echo(f"  MAE   {show_mean_se(result['imputation']['mae'])}{suffix}")
    typer.echo(f"  RMSE  {show_mean_se(result['imputation']['rmse'])}{suffix}")
    typer.echo(f"  AUC of the risk at tolerance {result['tolerance']}: {show_mean_se(result['risk_auc'])}\n")
    head = ("power", "released", "precision", "MAE released")
    typer.echo(f"  {'FDR level':<11}{'achieved':<18}{'pooled':<10}{''.join(f'{n:<18}' for n in head)}RMSE released")
    for row in result["release"]:
        shown = (row["power"], row["acceptance"], row["precision"], row["mae"], row["rmse"])
        rest = "".join(f"{show_mean_se(each):<18}" for each in shown).rstrip()
        typer.echo(f"  {row['fdr']:<11g}{show_mean_se(row['fdp']):<18}{_pooled(row):<10}{rest}")
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
        beyond = "NO" if row["fdp"]["se"] is not None else "one split cannot tell"
        typer.echo(f"  {row['fdr']:<8g}{cells}{'yes' if row['holds'] else beyond}")
    middle = report["groups"][len(report["groups"]) // 2]
    typer.echo(f"\nBy group at level {middle['fdr']:g}. {report['note']}")
    for group in middle["rows"]:
        shown = show_mean_se(group["fdp"]) if group["fdp"] else "too few released"
        typer.echo(f"  {group['group']:<34}  {shown}")


def print_draws(drawn: "DrawsSummary", folder: Path) -> None:
    """How many draws, how well they are calibrated, and where conclusions turn."""
    typer.echo(f"\nDraws: {drawn['draws']} of each of {drawn['missing']:,} missing values, {folder / 'draws.parquet'}")
    inside = drawn["coverage"].get("0.9")
    if inside is not None:
        typer.echo(f"  90 % intervals of such draws hold {100 * inside:.0f} % of measured values, weighted alike")
    for each in drawn["tipping"]:
        typer.echo(f"  {each['words']}")


def print_downstream(result: "Downstream", unit: str | None) -> None:
    """What was done, the table, and a sentence of advice per quantity."""
    from safeimpute.report.evaluation_folder import HEADER, downstream_rows, heading

    rows = [list(HEADER), *downstream_rows(result)]
    widths = [max(len(row[place]) for row in rows) + 2 for place in range(len(HEADER))]
    typer.echo(f"\n{heading(result, unit)}\n")
    for row in rows:
        typer.echo("".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo("\n" + "\n".join(each["advice"] for each in result["quantities"]))


def _pooled(row: "ReleaseSummary") -> str:
    """All risky values among all released, over splits."""
    return "-" if row["pooled"] is None else f"{row['pooled']:.4g}"


def show_mean_se(number: "MeanSe") -> str:
    """A mean with its standard error, where there is one."""
    if number["mean"] is None:
        return "-"
    return f"{number['mean']:.4g}" + (f" ± {number['se']:.2g}" if number["se"] is not None else "")


def print_labs(summary: "LabsSummary", folder: Path) -> None:
    """Every lab in a line, the promise, and where to look further."""
    typer.echo(f"\n{summary['visits']:,} visits of {summary['patients']:,} patients")
    for lab, why in summary["left_out"].items():
        typer.echo(f"Left out: {lab} ({why})")
    wide = max(len(lab) for lab in summary["labs"]) + 2
    typer.echo(f"\n{'lab':<{wide}}{'missing':>9}{'released':>10}{'share':>7}  error counts as unacceptable from")
    for lab, line in summary["labs"].items():
        share = line["released"] / max(line["missing"], 1)
        said = line["tolerance_in_words"] + (" (no guarantee)" if line["no_promise"] else "")
        typer.echo(f"{lab:<{wide}}{line['missing']:>9,}{line['released']:>10,}{share:>7.0%}  {said}")
    for lab, line in summary["labs"].items():
        if line["next_step"]:
            typer.echo(f"{lab}: {line['next_step']}")
    share = summary["released"] / max(summary["missing"], 1)
    typer.echo(f"{'all labs':<{wide}}{summary['missing']:>9,}{summary['released']:>10,}{share:>7.0%}")
    typer.echo("\n" + "\n".join([*_in_short(summary["bound"]), *promise_lines(**summary)]))
    if summary["effort"]:
        typer.echo(f'Several labs in one run: {summary["effort"]} (best.effort = "full" spares nothing)')
    typer.echo(f"\nReport: {folder / 'report.html'}")


def print_evaluations(result: "LabsEvaluation") -> None:
    """Every lab, then the release over all of them."""
    for each in result["labs"].values():
        print_evaluation(each, None)
    typer.echo(f"\nAll {len(result['labs'])} labs together (the level holds over {result['over']})")
    _print_levels(result["release"])
    if result["effort"]:
        typer.echo(f"Several labs in one run: {result['effort']}")


def print_audits(report: "LabsAudit") -> None:
    """Every lab's audit, then all labs together."""
    for lab, each in report["labs"].items():
        typer.echo(f"\n{lab}")
        print_audit(each)
    typer.echo(f"\nAll {len(report['labs'])} labs together (the level holds over {report['over']})")
    _print_levels(report["levels"])


def _print_levels(rows: "Sequence[ReleaseSummary]") -> None:
    typer.echo(f"  {'level':<8}{'achieved':<20}{'pooled':<10}{'power':<20}released")
    for row in rows:
        fdp, power, acceptance = (show_mean_se(each) for each in (row["fdp"], row["power"], row["acceptance"]))
        typer.echo(f"  {row['fdr']:<8g}{fdp:<20}{_pooled(row):<10}{power:<20}{acceptance}")


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """A progress function that fits where the output goes."""
    if quiet:
        yield silent
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _PlainLines()


class TimeLeft:
    """How long the rest takes if it goes on as it went; in words, no finer than that can be known."""

    def __init__(self) -> None:
        self.start, self.share = time.monotonic(), 0.0

    def told(self, share: float) -> str:
        """What to say at a share done, which never falls."""
        self.share = min(max(share, self.share), 1.0)
        done, passed = f"{100 * self.share:.0f} %", time.monotonic() - self.start
        if self.share < FIRST_SHARE or passed < FIRST_SECONDS or self.share >= 1.0:
            return done
        from safeimpute.machine.progress import in_words

        return f"{done}, about {in_words(passed * (1.0 - self.share) / self.share)} left"


class _PlainLines:
    """One line per stage."""

    def __init__(self) -> None:
        self.stage, self.left = "", TimeLeft()

    def __call__(self, stage: str, share: float) -> None:
        told = self.left.told(share)
        if stage != self.stage:
            self.stage = stage
            sys.stderr.write(f"{stage} … {told}\n")
            sys.stderr.flush()


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    left = TimeLeft()
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0, told="")

        def show(stage: str, share: float) -> None:
            told = left.told(share)
            bar.update(task, description=stage, completed=left.share, told=told)

        yield show
