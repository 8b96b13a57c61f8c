"""Published numbers of training rounds at a share of the effort, for quick runs."""


def scaled(rounds: int, effort: float, least: int = 1) -> int:
    """So many of the published rounds, at least `least`."""
    return max(least, round(rounds * effort))
