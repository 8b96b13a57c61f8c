"""`safeimpute methods` and `safeimpute doctor`: what there is and whether it can run here."""

from pathlib import Path
from typing import Annotated, Any

import typer

from safeimpute.cli import options as opt


def methods(quiet: opt.Quiet = False) -> None:
    """List the imputation methods and whether each can run here."""
    from safeimpute.benchmark.registry import METHODS

    for name, method in METHODS.items():
        missing = method.missing()
        state = f"needs {', '.join(missing)}" if missing else "ready"
        if not quiet:
            typer.echo(f"{name:<14}{method.summary:<82}{state}")


def doctor(
    model: Annotated[
        Path | None, typer.Argument(help="A model folder to verify and describe.", show_default=False)
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Say what is installed, which devices there are and which optional parts are missing; or describe a model."""
    if model is None:
        lines = _describe_installation()
    else:
        from safeimpute.scoring.folder import verified_manifest

        words = _model_in_words(verified_manifest(model))
        lines = [f"{label:<12}{text}" for label, text in words.items()]
    if not quiet:
        typer.echo("\n".join(lines))


def _model_in_words(manifest: dict[str, Any]) -> dict[str, str]:
    """What a verified model is, what it was fitted on and what it promises to new patients."""
    settings, fitted_on = manifest["settings"], manifest["fitted_on"]
    versions = ", ".join(f"{name} {version}" for name, version in manifest["packages"].items())
    return {
        "target": settings["target"] + (f" ({manifest['unit']})" if manifest["unit"] else ""),
        "claim": f"{settings['claim']}, tolerance {settings['tolerance']}, FDR {settings['fdr']:g}",
        "promise": settings["promise"] + _confidence(settings),
        "preset": settings["preset"] + (", past only" if settings["past_only"] else ""),
        "fitted": f"{manifest['written']} on {fitted_on['visits']:,} visits of {fitted_on['patients']:,} patients",
        "labs": ", ".join(manifest["reading"]["labs"]),
        "attributes": ", ".join([*manifest["reading"]["attributes"], *manifest["reading"]["categories"]])
        or "none",
        **_scoring_in_words(manifest["scoring"]),
        "written by": f"safeimpute {manifest['safeimpute']} (model format {manifest['format']}); {versions}",
        "checksums": f"ok ({len(manifest['files']) + 1} files)",
    }


def _confidence(settings: dict[str, Any]) -> str:
    return f", {100 * settings['confidence']:g} % confidence" if settings["promise"] == "confident" else ""


def _scoring_in_words(scoring: dict[str, Any] | None) -> dict[str, str]:
    if scoring is None:
        return {"new visits": "cannot be scored: fit the preset 'best'"}
    panel = (
        f"{scoring['panel_visits']:,} measured visits to find analogues among, in {scoring['folds']} folds"
    )
    if scoring["no_promise"]:
        helped = {"would help": scoring["help"]} if scoring["help"] else {}
        return {"panel": panel, "new visits": f"no guarantee: {scoring['no_promise']}"} | helped
    cutoffs = [_cutoff_in_words(each) for each in scoring["cutoffs"].values()]
    helped = {"would help": scoring["help"]} if scoring["help"] else {}
    return {"panel": panel, "cut-off": "; ".join(cutoffs) or "none"} | helped


def _cutoff_in_words(cutoff: dict[str, Any]) -> str:
    visits, patients = cutoff["visits"], cutoff["patients"]
    ground = f"measured visits worth {visits:,.0f} of equal weight, of patients worth {patients:,.0f}"
    if cutoff["risk"] is None:
        return f"none keeps the level ({ground})"
    return f"risk {cutoff['risk']:.4g} ({ground})"


def _describe_installation() -> list[str]:
    import os
    import platform
    from importlib import metadata, util

    import torch

    from safeimpute import __version__
    from safeimpute.report.run_folder import PACKAGES

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none found; the CPU is used"
    extras = {"baselines": "ot", "ehr": "ibis", "postgres": "psycopg", "spark": "pyspark", "web": "fastapi"}
    states = {
        extra: "installed" if util.find_spec(module) else f"missing: pip install 'safeimpute[{extra}]'"
        for extra, module in extras.items()
    }
    return [
        f"safeimpute  {__version__}",
        f"python      {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(f"{name:<12}{metadata.version(name)}" for name in PACKAGES),
        f"cpu threads {torch.get_num_threads()} of {os.cpu_count()}",
        f"gpu         {gpu}",
        *(f"[{extra}]".ljust(12) + state for extra, state in states.items()),
    ]
