"""`safeimpute methods` and `safeimpute doctor`: what there is and whether it can run here."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.errors import OptionError

INSTALL = "pip install -e lab"  # the laboratory, a package of its own


@cache
def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """What other packages register in a group, by name: their metadata only, nothing is imported."""
    named = {each.name: each for each in entry_points(group=group)}
    return {name: each for name, each in named.items() if find_spec(each.module.partition(".")[0]) is not None}


if TYPE_CHECKING:
    from safeimpute.model.manifest import Manifest, ScoringFacts


def methods(quiet: opt.Quiet = False) -> None:
    """List the imputation methods and whether each can run here."""
    from safeimpute.learning import SYSTEMS

    found = [each.load() for each in entry_points_of("safeimpute.methods").values()]
    others = {name: each for some in found for name, each in some.items() if name not in SYSTEMS}
    lines = [_method_line(name, summary, []) for name, summary in SYSTEMS.items()]
    lines += [_method_line(name, each.summary, each.missing()) for name, each in others.items()]
    if not others:
        lines.append(f"Other methods come with the laboratory. In a checkout: {INSTALL}")
    if not quiet:
        typer.echo("\n".join(lines))


def _method_line(name: str, summary: str, missing: list[str]) -> str:
    state = f"needs {', '.join(missing)}" if missing else "ready"
    return f"{name:<14}{summary:<93}{state}"


def doctor(
    model: Annotated[
        Path | None,
        typer.Argument(help="A model folder to verify and describe; with --clean where to look.", show_default=False),
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Find and remove what killed runs left, here and below.")
    ] = False,
    require_signature: Annotated[
        Path | None,
        typer.Option(help="Public key (PEM, Ed25519) by which the model must be signed.", show_default=False),
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Say what is installed, which devices there are and which optional parts are missing; or describe a model."""
    if clean:
        lines = _clean(model or Path())
    elif model is None:
        lines = _describe_installation()
    else:
        from safeimpute.errors import ModelFolderError
        from safeimpute.model.manifest import verified_manifest

        manifest = verified_manifest(model, require_signature)
        try:
            words = _model_in_words(manifest)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise ModelFolderError(
                f"the manifest of {model.name!r} says something else than ours. Fit again."
            ) from None
        words |= _status_in_words(model, manifest["checksum"])
        if require_signature is not None:
            words["signature"] = f"by the owner of {require_signature.name}"
        lines = [f"{label:<12}{text}" for label, text in words.items()]
    if not quiet:
        typer.echo("\n".join(lines))


def _clean(place: Path) -> list[str]:
    """Clear away what killed runs left in a folder, below it, and in the system's place for passing files."""
    import tempfile

    from safeimpute.machine.places import clear, leftovers_below, leftovers_in

    if not place.is_dir():
        raise OptionError(f"{place} is no folder. Give the folder in which runs were killed.")
    found = {each.path.resolve(): each for each in leftovers_below(place)}
    found |= {each.path.resolve(): each for each in leftovers_in(Path(tempfile.gettempdir()))}
    return [clear(each) for each in found.values()] or [f"nothing was left by killed runs in {place} or below"]


def _model_in_words(manifest: "Manifest") -> dict[str, str]:
    """What a verified model is, what it was fitted on and what it promises to new patients."""
    settings, fitted_on = manifest["settings"], manifest["fitted_on"]
    versions = ", ".join(f"{name} {version}" for name, version in manifest["packages"].items())
    sure = f", {100 * settings['confidence']:g} % confidence" if settings["promise"] == "confident" else ""
    return {
        "target": settings["target"] + (f" ({manifest['unit']})" if manifest["unit"] else ""),
        "claim": f"{settings['claim']}, tolerance {settings['tolerance']}, FDR {settings['fdr']:g}",
        "promise": settings["promise"] + sure,
        "preset": settings["preset"] + (", past only" if settings["past_only"] else ""),
        "fitted": f"{manifest['written']} on {fitted_on['visits']:,} visits of {fitted_on['patients']:,} patients",
        "labs": ", ".join(manifest["reading"]["labs"]),
        "attributes": ", ".join([*manifest["reading"]["attributes"], *manifest["reading"]["categories"]]) or "none",
        **_scoring_in_words(manifest["scoring"]),
        "written by": f"safeimpute {manifest['safeimpute']} (model format {manifest['format']}); {versions}",
        "checksums": f"ok ({len(manifest['files']) + 1} files)",
    }


def _scoring_in_words(scoring: "ScoringFacts | None") -> dict[str, str]:
    if scoring is None:
        return {"new visits": "cannot be scored: fit the preset 'best'"}
    panel = f"{scoring['panel_visits']:,} measured visits to find analogues among, in {scoring['folds']} folds"
    if scoring["no_promise"]:
        helped = {"would help": scoring["help"]} if scoring["help"] else {}
        return {"panel": panel, "new visits": f"no guarantee: {scoring['no_promise']}"} | helped
    cutoffs = [_cutoff_in_words(each) for each in scoring["cutoffs"].values()]
    helped = {"would help": scoring["help"]} if scoring["help"] else {}
    return {"panel": panel, "cut-off": "; ".join(cutoffs) or "none"} | helped


def _status_in_words(model: Path, identity: str) -> dict[str, str]:
    """What an alarm or a recalibration left of a watched model."""
    from dataclasses import asdict

    from safeimpute.errors import OptionError
    from safeimpute.model.open_model import status_in

    try:
        status = status_in(model, identity)
    except OptionError as error:  # its night log is gone: say so beside the rest
        return {"alarm": str(error)}
    words = {"alarm": f"nothing is released: {status.no_promise}"} if status.no_promise else {}
    if status.recalibration is not None:
        cutoffs = [_cutoff_in_words(asdict(each)) for each in status.recalibration.cutoffs.values()]
        words["new cut-off"] = f"{'; '.join(cutoffs)}, by a recalibration"
    return words


def _cutoff_in_words(cutoff: Mapping[str, Any]) -> str:
    visits, patients = cutoff["visits"], cutoff["patients"]
    data = f"measured visits worth {visits:,.0f} of equal weight, of patients worth {patients:,.0f}"
    if cutoff["risk"] is None:
        return f"none keeps the level ({data})"
    return f"risk {cutoff['risk']:.4g} ({data})"


def _log_of_looks() -> str:
    from safeimpute.machine.looks_log import LOG, VARIABLE, state_folder

    folder = state_folder()
    return f"not kept ({VARIABLE}=off)" if folder is None else f"kept in {folder / LOG} ({VARIABLE} moves it)"


def _describe_installation() -> list[str]:
    import os
    import platform
    from importlib import metadata, util

    import torch

    from safeimpute import __version__
    from safeimpute.report.run_folder import PACKAGES

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none found; the CPU is used"
    extras = {
        "ehr": "ibis",
        "mlflow": "mlflow",
        "postgres": "psycopg",
        "sign": "cryptography",
        "spark": "pyspark",
        "web": "fastapi",
    }
    states = {
        extra: "installed" if util.find_spec(module) else f"missing: pip install 'safeimpute[{extra}]'"
        for extra, module in extras.items()
    }
    lab = "installed" if util.find_spec("safeimpute_lab") else f"missing: {INSTALL}"
    return [
        f"safeimpute  {__version__}",
        f"python      {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(f"{name:<12}{metadata.version(name)}" for name in PACKAGES),
        f"cpu threads {torch.get_num_threads()} of {os.cpu_count()}",
        f"gpu         {gpu}",
        f"looks       {_log_of_looks()}",
        *(f"[{extra}]".ljust(12) + state for extra, state in states.items()),
        f"lab         {lab}",
        *_leftovers_here(),
    ]


def _leftovers_here() -> list[str]:
    """What killed runs left where the user stands, to be cleared by --clean."""
    from safeimpute.machine.places import leftovers_below

    found = [f"leftover    {each.in_words}" for each in leftovers_below(Path())]
    return [*found, "            safeimpute doctor --clean removes them"] if found else []
