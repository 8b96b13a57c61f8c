"""Start the page: one run, one log beside it, one token, the loopback address."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from safeimpute.errors import OptionError
from safeimpute.web.app import create_app
from safeimpute.web.decisions import DecisionLog, log_beside
from safeimpute.web.guard import new_access
from safeimpute.web.run_data import read_run

__all__ = ["log_beside", "serve_run"]

LOOPBACK = "127.0.0.1"


def serve_run(
    folder: Path, port: int, started: Callable[[dict[str, str]], None], reviewers: Sequence[str] = ()
) -> None:
    """Serve until interrupted; `started` is told the addresses by reviewer once requests are taken.

    Without reviewers there is one address, under no name, and whoever opens it says who they are.
    """
    folder = folder.resolve()
    run = read_run(folder)
    log = DecisionLog(log_beside(folder), run.identity)
    with _listen(port) as listening:
        access = new_access(listening.getsockname()[1], reviewers)
        app = create_app(run, log, access)
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none")
        started(access.addresses or {"": access.address})
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise OptionError(
            f"port {port} cannot be used ({error.strerror}). Give another, or leave --port out."
        ) from None
    return listening
