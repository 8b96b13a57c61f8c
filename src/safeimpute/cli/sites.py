"""`safeimpute site` and `join`: a site's sums for a promise that several sites make together."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.score import Model


@opt.takes(opt.MEMORY)
def site(
    model: Model,
    visits: Annotated[Path, typer.Argument(help="The site's visits, each patient's record whole.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="File of sums (.json).", show_default=False)],
    name: Annotated[str, typer.Option("--site", help="Name of the site.", show_default=False)],
    least: Annotated[int, typer.Option(help="Patients that every sum must rest on; 1 withholds nothing.")] = 10,
    epsilon: Annotated[
        float | None, typer.Option(help="Add noise with this privacy budget.", show_default="none")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(help="Private key (PEM, Ed25519) to sign the file with.", show_default=False)
    ] = None,
    columns: opt.Rename = "",
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write this site's sums for a promise over several sites: no row, no identifier."""
    from safeimpute.model.network import transport
    from safeimpute.model.site_file import open_site, write_site

    at = open_site(model, visits, opt.renames(columns))
    if not quiet:
        typer.echo("\n".join(transport(at)))
    warning = write_site(at, out, site=name, least=least, epsilon=epsilon, key_file=sign, force=force)
    if warning:
        typer.echo(f"safeimpute: {warning}", err=True)
    if not quiet:
        typer.echo(f"Sums: {out}")


@opt.takes(opt.MEMORY)
def join(
    model: Model,
    sums: Annotated[list[Path], typer.Argument(help="One file of sums per site.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the joined model and what was found.", show_default=False)
    ],
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder with SITE.pub for each site, by which its file must be signed.", show_default=False),
    ] = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Join the sums of several sites into one promise, and say where sites differ."""
    from safeimpute.model.network import join_files
    from safeimpute.report.sites_figure import draw_sites

    found = join_files(model, sums, out, keys=keys, force=force)
    drawn = f"; picture: {out / 'sites.png'}" if draw_sites(out) else ""
    if not quiet:
        typer.echo("\n".join([*found.words, f"Model: {out / 'model'}{drawn}"]))
