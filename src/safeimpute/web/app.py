"""The page over a run's folder: routes that read or append and answer in JSON, served on the loopback address alone."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParam
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field, StringConstraints

from safeimpute.errors import OptionError, SafeImputeError
from safeimpute.report.run_folder import holds_several_labs, lab_folders
from safeimpute.tolerance import parse_tolerance
from safeimpute.web.decisions import ACCEPTED, REJECTED, DecisionLog, Imputation, ReviewState, log_beside
from safeimpute.web.export import Format, accepted_values, export_bytes, export_note
from safeimpute.web.guard import REPORT_POLICY, Access, Guard, new_access
from safeimpute.web.patients import Filters, lab_facts, list_patients, read_patient
from safeimpute.web.rerun import Rerun
from safeimpute.web.run_data import RunData, read_run

STATIC = Path(__file__).parent / "static"
TOLD = (
    *("target", "unit", "fdr", "tolerance", "tolerance_in_words", "preset", "claim"),
    *("promise", "assumption", "limits", "no_promise", "second_look", "missing", "released", "withheld"),
    *("next_step", "withheld_by_reason", "reason_words", "cutoffs", "risk_is_probability"),
    *("bound", "gathering", "confidence", "promise_kind"),
)
Answer = dict[str, object]  # as JSON, which only the page reads
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]
Number = Annotated[int, PathParam(ge=0, le=2**31 - 1)]
Comment = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]
LOOPBACK = "127.0.0.1"


class NewDecision(BaseModel):
    """What a reviewer sends about one imputation."""

    imputation: Annotated[int, Field(ge=0, le=2**31 - 1)]
    kind: Literal["accept", "reject", "comment"]
    reviewer: Name
    comment: Comment = ""


class Undo(BaseModel):
    """Whose last decision to take back."""

    reviewer: Name


class Levels(BaseModel):
    """The levels of a new run."""

    tolerance: Annotated[str, StringConstraints(max_length=200)]
    fdr: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Review:
    """One lab's run under review: its data, its log, where the review stands, and a new run at other levels."""

    def __init__(self, run: RunData, log: DecisionLog) -> None:
        self.run, self.log = run, log
        self.state, self.rerun = ReviewState(log, len(run.imputations)), Rerun(run)

    def progress(self) -> dict[str, int]:
        """How many values were accepted and rejected, and how many released ones wait."""
        marks, released = self.state.marks(), self.run.imputations["released"]
        decided = {"accepted": marks == ACCEPTED, "rejected": marks == REJECTED}
        waiting = {"open": released & ~decided["accepted"] & ~decided["rejected"]}
        return {name: int(each.sum()) for name, each in (decided | waiting).items()}

    @property
    def title(self) -> str:
        return lab_facts(self.run.summary["target"], self.run.summary["unit"])["title"]


def open_reviews(folder: Path) -> list[Review]:
    """What is to be reviewed in a run's folder: one run, or each lab's; their decisions stand in one log."""
    whole = folder if holds_several_labs(folder) else None
    runs = [read_run(each, whole) for each in lab_folders(folder)]
    return [Review(run, DecisionLog(log_beside(folder), run.identity)) for run in runs]


def create_app(folder: Path, reviews: Sequence[Review], access: Access) -> FastAPI:
    """The whole page over a run's folder, behind the guard; ends the new runs under way when it is closed."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for review in reviews:
            review.rerun.stop()

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(Guard, access=access)
    if holds_several_labs(folder):
        _add_labs(app, folder, reviews)
    else:
        _add_review(app, reviews[0])
    return app


def _add_labs(app: FastAPI, folder: Path, reviews: Sequence[Review]) -> None:
    """Each lab under its own address, one page that turns from lab to lab; one export, one report."""

    def labs() -> list[Answer]:
        return [
            {
                "lab": review.run.summary["target"],
                "title": review.title,
                "page": number,
                "missing": review.run.summary["missing"],
                "released": review.run.summary["released"],
                **review.progress(),
            }
            for number, review in enumerate(reviews, start=1)
        ]

    @app.get("/")
    def first() -> RedirectResponse:
        return RedirectResponse("/labs/1/")

    @app.get("/report")
    def report() -> FileResponse:
        return _sandboxed(folder / "report.html")

    @app.get("/export/accepted.{kind}")
    def export(kind: Format) -> Response:
        return _as_file(pl.concat([accepted_values(each.run, each.state) for each in reviews]), kind)

    for number, review in enumerate(reviews, start=1):
        page = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        _add_review(page, review, labs)
        app.mount(f"/labs/{number}", page)


def _add_review(app: FastAPI, review: Review, labs: Callable[[], list[Answer]] = list) -> None:
    """The routes of one run's review; `labs` says which other labs the page can turn to."""
    app.add_exception_handler(SafeImputeError, _as_json)
    app.add_exception_handler(RequestValidationError, _unusable)
    _add_reading(app, review, labs)
    _add_deciding(app, review)
    _add_rerun(app, review.rerun)
    app.mount("/", StaticFiles(directory=STATIC, html=True))


def _as_json(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, status_code=409)


def _unusable(_: Request, error: Exception) -> Response:
    """Which part of a request cannot be used; nothing of it is sent back, since it may be no text or no number."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    named = sorted({".".join(str(part)[:40] for part in fault["loc"][1:]) for fault in faults})
    words = f"cannot be used: {', '.join(named[:5])}".encode("ascii", "replace").decode()
    return JSONResponse({"detail": words}, status_code=422)


def _add_reading(app: FastAPI, review: Review, labs: Callable[[], list[Answer]]) -> None:
    run, state = review.run, review.state

    @app.get("/api/run")
    def about(request: Request) -> Answer:
        values, risks = run.imputations["value"], run.imputations["risk"]
        return {
            **{name: value for name, value in run.summary.items() if name in TOLD},
            "fault": parse_tolerance(run.summary["tolerance"]).fault(run.summary["unit"]),
            "name": (run.whole or run.folder).name,
            "title": review.title,
            "guaranteed": run.guaranteed,
            "export_note": export_note(run),
            "value_range": [values.min(), values.max()],
            "risk_range": [risks.min(), risks.max()],
            "interval": run.manifest["config"]["interval"],
            "exploration": run.exploration,
            "progress": review.progress(),
            "reviewer": _signed_in(request),
            "labs": labs(),
        }

    @app.get("/api/patients")
    def patients(filters: Annotated[Filters, Query()]) -> Answer:
        return list_patients(run, state.marks(), filters)

    @app.get("/api/patients/{patient}")
    def patient(patient: Number) -> Answer:
        return read_patient(run, state, patient)

    @app.get("/report")
    def report() -> FileResponse:
        return _sandboxed(run.folder / "report.html")

    @app.get("/export/accepted.{kind}")
    def export(kind: Format) -> Response:
        return _as_file(accepted_values(run, state), kind)


def _as_file(table: pl.DataFrame, kind: Format) -> Response:
    media = "text/csv; charset=utf-8" if kind == "csv" else "application/octet-stream"
    name = f'attachment; filename="accepted.{kind}"'
    return Response(export_bytes(table, kind), media_type=media, headers={"content-disposition": name})


def _add_deciding(app: FastAPI, review: Review) -> None:
    run, log = review.run, review.log

    @app.post("/api/decisions")
    def decide(decision: NewDecision, request: Request) -> Answer:
        about = _imputation(run, decision)
        log.add(_signed_in(request) or decision.reviewer, about, decision.kind, decision.comment)
        return {"patient": run.imputations["patient"][about.number], "progress": review.progress()}

    @app.post("/api/undo")
    def undo(given: Undo, request: Request) -> Answer:
        reviewer = _signed_in(request) or given.reviewer
        imputation = log.undo(reviewer)
        if imputation is None:
            raise OptionError(f"{reviewer} has no decision left to undo.")
        patient = run.imputations["patient"][imputation]
        return {"patient": patient, "imputation": imputation, "progress": review.progress()}


def _signed_in(request: Request) -> str:
    """The reviewer whose token came with the request; empty where the page asks for a name only."""
    return str(getattr(request.state, "reviewer", ""))


def _imputation(run: RunData, decision: NewDecision) -> Imputation:
    """The value a decision speaks of; refused where the decision cannot stand."""
    if decision.imputation >= len(run.imputations):
        raise OptionError("there is no such imputation in this run.")
    row = run.imputations.row(decision.imputation, named=True)
    if decision.kind == "accept" and not row["released"]:
        raise OptionError("a withheld value cannot be accepted: nothing is promised about it.")
    if decision.kind == "comment" and not decision.comment:
        raise OptionError("the comment is empty.")
    return Imputation(decision.imputation, row["subject"], row["time_text"], row["value"])


def _add_rerun(app: FastAPI, rerun: Rerun) -> None:
    @app.post("/api/rerun")
    def start(levels: Levels) -> Answer:
        rerun.start(levels.tolerance, levels.fdr)
        return rerun.status()

    @app.get("/api/rerun")
    def status() -> Answer:
        return rerun.status()

    @app.get("/rerun/report")
    def report() -> FileResponse:
        return _sandboxed(rerun.report())


def _sandboxed(path: Path) -> FileResponse:
    """A report as if from nowhere: it can reach nothing of the page."""
    return FileResponse(path, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})


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
        app = create_app(folder, reviews, access)
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
