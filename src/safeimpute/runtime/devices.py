"""Where networks run: the GPU where there is one and it was not declined."""

import sys
from pathlib import Path

from safeimpute.errors import OptionError

# What a driver for NVIDIA's or AMD's processors, or Windows' own below Linux, puts there.
DRIVERS = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))


def resolve_device(device: str) -> str:
    """`cpu` or `cuda`; `auto` is the GPU where there is one."""
    if device == "cpu" or (device == "auto" and not driver_there()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise OptionError("device 'cuda' was asked for, but no GPU was found. Use 'auto' or 'cpu'.")
    return "cpu"


def driver_there() -> bool:
    """Whether a GPU is possible at all: asking torch takes seconds to import it."""
    return not sys.platform.startswith("linux") or any(path.exists() for path in DRIVERS)
