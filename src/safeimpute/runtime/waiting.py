"""How idle threads wait, said to the numerical libraries before they load: asleep, so that others can work."""

import os

PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}


def wait_passively() -> None:
    """Let OpenMP's threads sleep between two loops; what the user set himself stays.

    By default they spin, and two runs on two cores then take five times as long as one.
    """
    for name, value in PASSIVE.items():
        os.environ.setdefault(name, value)
