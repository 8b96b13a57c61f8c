"""Where networks run: the GPU where there is one and it was not declined."""

from safeimpute.errors import OptionError


def resolve_device(device: str) -> str:
    """`cpu` or `cuda`; `auto` is the GPU where there is one."""
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise OptionError("device 'cuda' was asked for, but no GPU was found. Use 'auto' or 'cpu'.")
    return "cpu"
