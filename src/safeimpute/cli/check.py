"""`safeimpute check`: what a run would meet in a table and may come to, before any fit."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.options import COLUMNS, MACHINE, SEVERAL, flag_with, flags_of, given
from safeimpute.errors import SafeImputeError
from safeimpute.settings import Settings, make_settings

if TYPE_CHECKING:
    from safeimpute.evaluation.check import Check, LabCheck
    from safeimpute.visits.files.proposal import Proposal

_SWITCHES = {each.flag for each in opt.OPTIONS.values() if each.hint is bool}
LEVEL = 0.1  # looked at where none is given


@opt.takes(
    flag_with("target", "every lab that lacks values"),
    flag_with("tolerance", "the catalogue's allowable error, else 20%"),
    flag_with("fdr", f"{LEVEL:g}"),
    flags_of("limits", "cost", "claim", "past_only", "since", *SEVERAL, *COLUMNS, *MACHINE),
    opt.READING,
    opt.QUICK,
)
def check(
    context: typer.Context,
    visits: opt.Visits,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Look at a table before any fit: columns, units, holes, what each claim can promise, a rough forecast."""
    from safeimpute.evaluation.check import check_table
    from safeimpute.machine.files import reserved
    from safeimpute.report.run_folder import save_json

    said = given(context)
    if "limits" in said or "cost" in said:
        said.setdefault("tolerance", None)  # they say it
    if json_file is not None:
        context.with_resource(reserved(json_file, force=force, inputs=(visits,), folder=False))
    proposal = _proposal(context, visits, said)
    command = _command(context, visits, proposal, said)
    try:
        table = _read(visits, proposal, said, quiet=quiet)
        settings, each = _asked(_with_left_out(said, proposal), table)
        found = check_table(table, settings, each, tolerance="tolerance" in said, beside=(visits,))
    except SafeImputeError:
        if not quiet:
            print_findings(proposal, command)
        raise
    found |= {"findings": [asdict(each) for each in proposal.findings], "command": command}
    if json_file is not None:
        save_json(found, json_file)
    if not quiet:
        print_check(found)
        print_findings(proposal, command)
    if "target" in said and any(lab["problem"] for lab in found["labs"].values()):
        raise typer.Exit(2)


def _proposal(context: typer.Context, path: Path, said: Mapping[str, Any]) -> "Proposal":
    """How to read the file and what to leave out, where the flags do not say it."""
    from safeimpute.machine.options import as_names
    from safeimpute.visits.files.proposal import propose

    named = [name for key in ("target", "labs", "attributes", "exclude") for name in as_names(said.get(key) or "")]
    return propose(
        path,
        opt.renames(context.params["columns"]),
        opt.table_format(context),
        subject=said.get("subject", "subject_id"),
        time=said.get("time", "time"),
        named=named,
    )


def _read(path: Path, proposal: "Proposal", said: Mapping[str, Any], *, quiet: bool) -> Any:
    from safeimpute.report.run_folder import Origin

    origin = Origin(path, proposal.columns, proposal.read_as)
    table = origin.read(said.get("time", "time"), said.get("subject", "subject_id"))
    if not quiet:
        opt.say_what_was_read(origin)
    return table


def _with_left_out(said: Mapping[str, Any], proposal: "Proposal") -> dict[str, Any]:
    from safeimpute.machine.options import as_names

    left_out = (*as_names(said.get("exclude") or ""), *proposal.exclude)
    return {**said, **({"exclude": left_out} if left_out else {})}


def _command(context: typer.Context, path: Path, proposal: "Proposal", said: Mapping[str, Any]) -> str:
    """The command line that reads the file as proposed; what only the user knows stands in capitals."""
    written = {"--columns": ",".join(f"{theirs}={ours}" for theirs, ours in proposal.columns.items())}
    for name, option in opt.FORMAT.items():
        value = getattr(proposal.read_as, name)
        if value != option.default:
            typed = "tab" if value == "\t" else value
            written[option.flag] = ",".join(typed) if isinstance(typed, tuple) else str(typed)
    told = {**opt.told(context), **_with_left_out(opt.told(context), proposal)}
    said_by = "limits" in told or "cost" in told  # what is unacceptable
    levels = {"target": "LAB", "tolerance": "" if said_by else "TOLERANCE", "fdr": "0.1"}
    for name, value in {**levels, **told}.items():
        flag = opt.OPTIONS[name]
        if flag.hint is bool:
            written[flag.flag] = ""
        else:
            written[flag.flag] = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    flags = [part for flag, value in written.items() if value or flag in _SWITCHES for part in (flag, value) if part]
    return shlex.join(["safeimpute", "run", str(path), *flags])


def print_findings(proposal: "Proposal", command: str) -> None:
    """What was found in the file, column by column, and the command line that mends it."""
    if not proposal.findings:
        return
    typer.echo("\nFound in the file, to be mended or known")
    for each in proposal.findings:
        column = f"{each.column}: " if each.column else ""
        typer.echo(f"  {column}{each.what}{f'; {each.mend}' if each.mend else ''}")
    typer.echo(f"\nAs checked here:\n  {command}")


def _asked(said: Mapping[str, Any], table: Any) -> "tuple[Settings, dict[str, Settings]]":
    """The settings as a whole, and of every lab to look at."""
    from dataclasses import replace

    from safeimpute.evaluation.check import labs_with_holes
    from safeimpute.visits.lab_settings import asks_for_several, labs_asked, settings_of_labs

    settings = make_settings(**{"target": "all", "tolerance": "20%", "fdr": LEVEL, **said})
    if "target" not in said:
        return settings, {lab: replace(settings, target=lab) for lab in labs_with_holes(table, settings)}
    if not asks_for_several(settings, table.columns):
        return settings, {settings.target: settings}
    labs = labs_asked(settings, table)
    return settings, settings_of_labs(settings, labs)


def print_check(found: "Check") -> None:
    """Columns, then every lab."""
    typer.echo(f"{found['visits']:,} visits of {found['patients']:,} patients in {found['rows']:,} rows")
    if found["merged_rows"]:
        typer.echo(f"{found['merged_rows']:,} rows share a patient and a time with another row: merged")
    wide = max((len(name) for name in found["columns"]), default=0) + 2
    typer.echo(f"\n{'column':<{wide}}{'taken for':<11}{'unit':<10}{'empty':>7}  because; to say otherwise")
    for name, column in found["columns"].items():
        empty = f"{column['missing'] / max(found['rows'], 1):.0%}"
        because = column["reason"] + (f"; {column['otherwise']}" if column["otherwise"] else "")
        role = {"high_cardinality": "measuring", "ignored": "not used"}.get(column["role"], column["role"])
        typer.echo(f"{name:<{wide}}{role:<11}{column['unit'] or '':<10}{empty:>7}  {because}")
    if not found["labs"]:
        typer.echo("\nNo lab lacks values: there is nothing to impute.")
    for name, lab in found["labs"].items():
        _print_lab(name, lab)
    guessed = [lab["forecast"]["how"] for lab in found["labs"].values() if lab["forecast"] is not None]
    if guessed:
        typer.echo(f"\nWhat may be released is {guessed[0]}")


def _print_lab(name: str, lab: "LabCheck") -> None:
    from safeimpute.machine.progress import in_words

    unit = f" ({lab['unit']})" if lab["unit"] else ""
    beyond = f", {lab['beyond_limit']:,} results beyond a limit (<, >)" if lab["beyond_limit"] else ""
    beyond += "".join(f", {rows:,} {kind}" for kind, rows in lab["words"].items())
    typer.echo(
        f"\n{name}{unit}: measured at {lab['measured']:,} visits of {lab['patients']:,} patients, missing at "
        f"{lab['missing']:,}{beyond}"
    )
    if lab["problem"]:
        typer.echo(f"  a run stops at once: {lab['problem']}")
    for claim, each in lab["claims"].items():
        lowest = "none below 0.5" if each["lowest_level"] is None else f"{each['lowest_level']:g}"
        effective_size = f"{each['visits']:,.0f} visits" + (
            f", {each['patients']:,.0f} patients" if each["patients"] else ""
        )
        state = f"refused at {lab['fdr']:g}" if each["refused"] else "possible"
        typer.echo(
            f"  claim {claim:<11}{state:<16}calibrates on {effective_size} of equal weight; lowest level {lowest}"
        )
    forecast = lab["forecast"]
    if forecast is not None:
        typer.echo(f"  the fit takes about {in_words(forecast['seconds'])} on an idle machine")
        if forecast["released"] is not None and forecast["risky"] is not None:
            least, most = forecast["released"]
            typer.echo(
                f"  at a level of {lab['fdr']:g} and a tolerance of {forecast['tolerance']} something like "
                f"{least:.0%} to {most:.0%} of the missing values may be released"
            )
        if forecast["out_of_scope"]:
            typer.echo(f"  about {forecast['out_of_scope']:.0%} of them lie outside what any promise could cover")
    if lab["nearest"]:
        typer.echo(f"  {lab['nearest']}")
