"""`safeimpute methods` and `safeimpute doctor`: what there is and whether it can run here."""

import typer


def methods() -> None:
    """List the imputation methods and whether each can run here."""
    from safeimpute.imputers.registry import METHODS

    for name, method in METHODS.items():
        missing = method.missing()
        state = f"needs {', '.join(missing)}" if missing else "ready"
        typer.echo(f"{name:<14}{state:<20}{method.summary}")


def doctor() -> None:
    """Say what is installed, which devices there are, and which optional parts are missing."""
    import os
    import platform
    from importlib import metadata, util

    import torch

    from safeimpute import __version__
    from safeimpute.report.run_folder import PACKAGES

    typer.echo(f"safeimpute  {__version__}")
    typer.echo(f"python      {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in PACKAGES:
        typer.echo(f"{name:<12}{metadata.version(name)}")
    typer.echo(f"cpu threads {torch.get_num_threads()} of {os.cpu_count()}")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none found; the CPU is used"
    typer.echo(f"gpu         {gpu}")
    for extra, module in (("ehr", "ibis"), ("postgres", "psycopg")):
        state = "installed" if util.find_spec(module) else f"missing: pip install 'safeimpute[{extra}]'"
        typer.echo(f"[{extra}]".ljust(12) + state)
