"""The page over a run of several labs: each lab under its own address, one log, one export, one report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from fastapi import FastAPI
from fastapi.responses import FileResponse, RedirectResponse, Response

from safeimpute.web.app import Review, add_review, as_file, guarded_app, sandboxed
from safeimpute.web.export import Format, accepted_values
from safeimpute.web.guard import Access
from safeimpute.web.lab_facts import lab_facts


def create_labs_app(folder: Path, reviews: Sequence[Review], access: Access) -> FastAPI:
    """One page that turns from lab to lab; decisions are kept lab by lab in one log."""
    app = guarded_app(access, reviews)

    def labs() -> list[dict[str, Any]]:
        return [
            {
                "lab": review.run.summary["target"],
                "title": lab_facts(review.run.summary["target"], review.run.summary["unit"])["title"],
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
        return sandboxed(folder / "report.html")

    @app.get("/export/accepted.{kind}")
    def export(kind: Format) -> Response:
        return as_file(pl.concat([accepted_values(each.run, each.state) for each in reviews]), kind)

    for number, review in enumerate(reviews, start=1):
        page = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        add_review(page, review, labs)
        app.mount(f"/labs/{number}", page)
    return app
