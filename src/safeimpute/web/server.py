"""Start the page: one run, one log beside it, one token, the loopback address."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from safeimpute.errors import OptionError
from safeimpute.report.run_folder import holds_several_labs, lab_folders
from safeimpute.web.app import Review, add_review, guarded_app
from safeimpute.web.decisions import DecisionLog, log_beside
from safeimpute.web.guard import Access, new_access
from safeimpute.web.labs_app import create_labs_app
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
    reviews = open_reviews(folder)
    with _listen(port) as listening:
        access = new_access(listening.getsockname()[1], reviewers)
        app = app_over(folder, reviews, access)
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none")
        started(access.addresses or {"": access.address})
        uvicorn.Server(config).run(sockets=[listening])


def open_reviews(folder: Path) -> list[Review]:
    """What is to be reviewed in a run's folder: one run, or each lab's; their decisions stand in one log."""
    several = holds_several_labs(folder)
    runs = [read_run(each, whole=folder) for each in lab_folders(folder)] if several else [read_run(folder)]
    return [Review(run, DecisionLog(log_beside(folder), run.identity)) for run in runs]


def app_over(folder: Path, reviews: Sequence[Review], access: Access) -> FastAPI:
    """The page over one run, or over each lab's."""
    if holds_several_labs(folder):
        return create_labs_app(folder, reviews, access)
    app = guarded_app(access, reviews)
    add_review(app, reviews[0])
    return app


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
