"""The page's routes: each reads or appends, says it in JSON, and leaves the rest to the module it calls."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParam
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field, StringConstraints

from safeimpute.errors import OptionError, SafeImputeError
from safeimpute.web.decisions import DecisionLog, Imputation
from safeimpute.web.export import Format, accepted_values, export_bytes, export_note
from safeimpute.web.guard import REPORT_POLICY, Access, Guard
from safeimpute.web.lab_facts import lab_facts
from safeimpute.web.patients import Filters, list_patients
from safeimpute.web.rerun import Rerun
from safeimpute.web.review_state import ACCEPTED, REJECTED, ReviewState
from safeimpute.web.run_data import RunData
from safeimpute.web.trajectory import read_patient

STATIC = Path(__file__).parent / "static"
TOLD = (
    *("target", "unit", "fdr", "tolerance", "tolerance_in_words", "preset", "claim"),
    *("promise", "assumption", "limits", "no_promise", "second_look", "missing", "released", "withheld"),
    *("next_step", "withheld_by_reason", "reason_words", "cutoffs", "risk_is_probability"),
    *("bound", "gathering", "confidence", "promise_kind"),
)
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]
Number = Annotated[int, PathParam(ge=0, le=2**31 - 1)]
Comment = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]


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

    tolerance: Annotated[str, StringConstraints(max_length=40)]
    fdr: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


def create_app(run: RunData, log: DecisionLog, access: Access) -> FastAPI:
    """The whole page over one run."""
    review = Review(run, log)
    app = guarded_app(access, [review])
    add_review(app, review)
    return app


class Review:
    """One lab's run under review: its data, its log, where the review stands, and a new run at other levels."""

    def __init__(self, run: RunData, log: DecisionLog) -> None:
        self.run, self.log = run, log
        self.state, self.rerun = ReviewState(log, len(run.imputations)), Rerun(run)

    def progress(self) -> dict[str, int]:
        """How many values were accepted and rejected, and how many released ones wait."""
        return _progress(self.run, self.state)


def guarded_app(access: Access, reviews: Sequence[Review]) -> FastAPI:
    """An empty page behind the guard; ends the new runs under way when it is closed."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for review in reviews:
            review.rerun.stop()

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(Guard, access=access)
    return app


def add_review(app: FastAPI, review: Review, labs: Callable[[], list[dict[str, Any]]] = list) -> None:
    """The routes of one run's review; `labs` says which other labs the page can turn to."""
    app.add_exception_handler(SafeImputeError, _as_json)
    app.add_exception_handler(RequestValidationError, _unusable)
    _add_reading(app, review.run, review.state, labs)
    _add_deciding(app, review.run, review.log, review.state)
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


def _add_reading(
    app: FastAPI, run: RunData, state: ReviewState, labs: Callable[[], list[dict[str, Any]]]
) -> None:
    @app.get("/api/run")
    def about(request: Request) -> dict[str, Any]:
        values, risks = run.imputations["value"], run.imputations["risk"]
        return {
            **{name: value for name, value in run.summary.items() if name in TOLD},
            "name": (run.whole or run.folder).name,
            "title": lab_facts(run.summary["target"], run.summary["unit"])["title"],
            "guaranteed": run.guaranteed,
            "export_note": export_note(run),
            "value_range": [values.min(), values.max()],
            "risk_range": [risks.min(), risks.max()],
            "interval": run.manifest["config"]["interval"],
            "exploration": run.exploration,
            "progress": _progress(run, state),
            "reviewer": _signed_in(request),
            "labs": labs(),
        }

    @app.get("/api/patients")
    def patients(filters: Annotated[Filters, Query()]) -> dict[str, Any]:
        return list_patients(run, state.marks(), filters)

    @app.get("/api/patients/{patient}")
    def patient(patient: Number) -> dict[str, Any]:
        return read_patient(run, state, patient)

    @app.get("/report")
    def report() -> FileResponse:
        return sandboxed(run.folder / "report.html")

    @app.get("/export/accepted.{kind}")
    def export(kind: Format) -> Response:
        return as_file(accepted_values(run, state), kind)


def as_file(table: pl.DataFrame, kind: Format) -> Response:
    """Accepted values, to be kept as a file."""
    media = "text/csv; charset=utf-8" if kind == "csv" else "application/octet-stream"
    name = f'attachment; filename="accepted.{kind}"'
    return Response(export_bytes(table, kind), media_type=media, headers={"content-disposition": name})


def _progress(run: RunData, state: ReviewState) -> dict[str, int]:
    marks = state.marks()
    released = run.imputations["released"]
    return {
        "accepted": int((marks == ACCEPTED).sum()),
        "rejected": int((marks == REJECTED).sum()),
        "open": int((released & (marks != ACCEPTED) & (marks != REJECTED)).sum()),
    }


def _add_deciding(app: FastAPI, run: RunData, log: DecisionLog, state: ReviewState) -> None:
    @app.post("/api/decisions")
    def decide(decision: NewDecision, request: Request) -> dict[str, Any]:
        row = _imputation(run, decision)
        about = Imputation(decision.imputation, row["subject"], row["time_text"], row["value"])
        log.add(_signed_in(request) or decision.reviewer, about, decision.kind, decision.comment)
        return {"patient": row["patient"], "progress": _progress(run, state)}

    @app.post("/api/undo")
    def undo(given: Undo, request: Request) -> dict[str, Any]:
        reviewer = _signed_in(request) or given.reviewer
        imputation = log.undo(reviewer)
        if imputation is None:
            raise OptionError(f"{reviewer} has no decision left to undo.")
        patient = run.imputations["patient"][imputation]
        return {"patient": patient, "imputation": imputation, "progress": _progress(run, state)}


def _signed_in(request: Request) -> str:
    """The reviewer whose token came with the request; empty where the page asks for a name only."""
    return str(getattr(request.state, "reviewer", ""))


def _imputation(run: RunData, decision: NewDecision) -> dict[str, Any]:
    """The row a decision speaks of; refused where the decision cannot stand."""
    if decision.imputation >= len(run.imputations):
        raise OptionError("there is no such imputation in this run.")
    row = run.imputations.row(decision.imputation, named=True)
    if decision.kind == "accept" and not row["released"]:
        raise OptionError("a withheld value cannot be accepted: nothing is promised about it.")
    if decision.kind == "comment" and not decision.comment:
        raise OptionError("the comment is empty.")
    return row


def _add_rerun(app: FastAPI, rerun: Rerun) -> None:
    @app.post("/api/rerun")
    def start(levels: Levels) -> dict[str, Any]:
        rerun.start(levels.tolerance, levels.fdr)
        return rerun.status()

    @app.get("/api/rerun")
    def status() -> dict[str, Any]:
        return rerun.status()

    @app.get("/rerun/report")
    def report() -> FileResponse:
        return sandboxed(rerun.report())


def sandboxed(path: Path) -> FileResponse:
    """A report as if from nowhere: it can reach nothing of the page."""
    return FileResponse(path, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})
