"""What the page asks for and sends: lists, courses, decisions, exports, a new run."""

import io
import json
import time
from typing import Any

import polars as pl
import pytest

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")

from helpers.review_client import TestClient, reviewing
from helpers.review_run import FORMULA_ID, HTML_ID
from safeimpute.errors import OptionError
from safeimpute.web.decisions import DecisionLog, log_beside
from safeimpute.web.patients import NEAR_DAYS, PAGE_SIZE
from safeimpute.web.run_data import RunData, read_run


def _rows(client: TestClient, **filters: object) -> list[dict[str, Any]]:
    """Every page of the list."""
    first = client.get("/api/patients", params=filters).json()
    pages = [client.get("/api/patients", params=filters | {"page": n}).json() for n in range(first["pages"])]
    return [row for page in pages for row in page["rows"]]


def _decide(client: TestClient, imputation: int, kind: str, reviewer: str = "Ada", comment: str = "") -> int:
    body = {"imputation": imputation, "kind": kind, "reviewer": reviewer, "comment": comment}
    return int(client.post("/api/decisions", json=body).status_code)


def _first(run: RunData, *, released: bool) -> int:
    return int(run.imputations.filter(pl.col("released") == released)["imputation"][0])


def test_the_run_is_told_with_its_promise(client: TestClient, run: RunData) -> None:
    told = client.get("/api/run").json()
    assert told["released"] + told["withheld"] == told["missing"] == len(run.imputations)
    assert told["promise"] == run.summary["promise"]
    assert told["guaranteed"]
    assert told["cutoffs"] == run.summary["cutoffs"]
    assert told["reason_words"].keys() == told["withheld_by_reason"].keys()
    assert told["released"] > 0
    assert told["withheld"] > 0


def test_the_list_holds_every_patient_once_near_and_riskiest_first(client: TestClient, run: RunData) -> None:
    """First values that can be compared with a measured one nearby; among those, and after them, the riskiest."""
    rows = _rows(client)
    assert sorted(row["patient"] for row in rows) == sorted(run.imputations["patient"].unique())
    assert sum(row["imputations"] for row in rows) == len(run.imputations)
    near = [row["comparable"] for row in rows]
    assert near == sorted(near, reverse=True)
    assert any(near)
    for kind in (True, False):
        needs = [row["need"] for row in rows if row["comparable"] == kind and row["need"] is not None]
        assert needs == sorted(needs, reverse=True)
    within = pl.col("released") & (pl.col("nearest") <= NEAR_DAYS)
    assert {row["patient"] for row in rows if row["comparable"]} == set(run.imputations.filter(within)["patient"])
    first = client.get(f"/api/patients/{rows[0]['patient']}").json()["imputations"]
    led = next(each for each in first if each["value"] == rows[0]["open_value"])
    assert led["released"]
    assert led["nearest"] <= NEAR_DAYS
    assert len(client.get("/api/patients").json()["rows"]) == PAGE_SIZE


@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ({"release": "released"}, pl.col("released")),
        ({"release": "withheld"}, ~pl.col("released")),
        ({"risk_from": 0.2, "risk_to": 0.3}, pl.col("risk").is_between(0.2, 0.3)),
        ({"value_from": 400}, pl.col("value") >= 400),
        ({"search": "HYPER"}, pl.col("subject") == FORMULA_ID),
        ({"release": "released", "value_to": 250}, pl.col("released") & (pl.col("value") <= 250)),
    ],
)
def test_filters_agree_with_the_table(
    client: TestClient, run: RunData, filters: dict[str, object], condition: pl.Expr
) -> None:
    expected = run.imputations.filter(condition)
    assert len(expected)
    answer = client.get("/api/patients", params=filters).json()
    assert answer["imputations"] == len(expected)
    assert {row["patient"] for row in _rows(client, **filters)} == set(expected["patient"])


@pytest.mark.parametrize("filters", [{"release": "some"}, {"risk_from": "x"}, {"page": -1}, {"unknown": 1}])
def test_an_unknown_filter_is_refused(client: TestClient, filters: dict[str, object]) -> None:
    assert client.get("/api/patients", params=filters).status_code == 422


def test_a_course_shows_what_was_measured_and_why(client: TestClient, run: RunData) -> None:
    row = run.imputations.filter(pl.col("subject") == HTML_ID).row(0, named=True)
    course = client.get(f"/api/patients/{row['patient']}").json()
    assert course["subject"] == HTML_ID
    assert course["days"][0] == 0
    assert course["labs"][0]["name"] == "cholesterol"
    assert course["labs"][0]["unit"] == "mg/dL"
    measured = [value is not None for value in course["labs"][0]["values"]]
    assert measured.count(False) == len(course["imputations"])
    imputed = {each["imputation"]: each for each in course["imputations"]}[row["imputation"]]
    assert imputed["value"] == row["value"]
    assert imputed["cutoff"] == run.summary["cutoffs"][0]["risk"]
    assert not measured[course["days"].index(imputed["day"])]
    carried = [each["why"] for each in course["imputations"] if each["why"]]
    assert carried
    for why in carried:
        assert 0 < why["own_weight"] + why["others_weight"] <= 1 + 1e-6
        assert all(own["gap_days"] != 0 for own in why["own"])
        used = {round(own["value"], 3) for own in why["own"]}
        assert used <= {round(value, 3) for value in course["labs"][0]["values"] if value is not None}
    assert client.get("/api/patients/99999").status_code == 409


def test_the_nearest_measured_value_is_one_that_was_used(run: RunData) -> None:
    """By hand, patient by patient; a value set aside does not count."""
    path = run.folder / "review" / "visits.parquet"
    visits, target = pl.read_parquet(path), "lab.cholesterol"
    aside = pl.when(pl.col(target).is_not_null() & (pl.col("patient") % 2 == 0)).then(pl.lit("to check the promise"))
    visits = visits.with_columns(aside.alias("set_aside"))
    visits.write_parquet(path)
    again = read_run(run.folder).imputations
    days = dict(visits.filter(pl.col("imputation") >= 0).select("imputation", "day").iter_rows())
    for row in again.iter_rows(named=True):
        own = visits.filter(
            (pl.col("patient") == row["patient"]) & pl.col(target).is_not_null() & pl.col("set_aside").is_null()
        )
        gaps = (own["day"] - days[row["imputation"]]).abs()
        assert row["nearest"] == gaps.min()


def test_a_course_tells_facts_limits_and_what_was_set_aside(client: TestClient, run: RunData) -> None:
    path = run.folder / "review" / "visits.parquet"
    visits = pl.read_parquet(path)
    one = (pl.col("patient") == 0) & pl.col("lab.cholesterol").is_not_null()
    visits.with_columns(pl.when(one).then(pl.lit("to check the promise")).alias("set_aside")).write_parquet(path)
    course = client.get("/api/patients/0").json()
    measured = [value is not None for value in course["labs"][0]["values"]]
    assert [why == "to check the promise" for why in course["set_aside"]] == measured
    assert course["labs"][0]["title"] == "Total cholesterol"
    assert [limit["value"] for limit in course["labs"][0]["limits"]] == [200, 240]
    for each in course["imputations"]:
        assert each["acceptable"] == pytest.approx([each["value"] / 1.2, each["value"] / 0.8])
    older = visits.drop("set_aside")
    older.write_parquet(path)
    assert set(client.get("/api/patients/0").json()["set_aside"]) == {None}
    assert len(read_run(run.folder).imputations) == len(run.imputations)


def test_an_empty_release_is_told_with_its_next_step(run: RunData) -> None:
    path = run.folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"next_step": "A level of 0.3 would have."}))
    with reviewing(read_run(run.folder)) as client:
        assert client.get("/api/run").json()["next_step"] == "A level of 0.3 would have."


def test_a_decision_is_kept_and_undone_by_a_further_row(client: TestClient, run: RunData) -> None:
    number = _first(run, released=True)
    patient = run.imputations["patient"][number]

    def seen() -> dict[str, Any]:
        course: dict[str, Any] = client.get(f"/api/patients/{patient}").json()
        return next(each for each in course["imputations"] if each["imputation"] == number)

    assert _decide(client, number, "accept") == 200
    assert _decide(client, number, "comment", "Ben", "looks <b>right</b>") == 200
    assert seen()["review"] == "accepted"
    assert [(h["reviewer"], h["kind"]) for h in seen()["history"]] == [("Ada", "accept"), ("Ben", "comment")]
    assert client.get("/api/run").json()["progress"]["accepted"] == 1
    assert client.get("/api/patients", params={"review": "accepted"}).json()["imputations"] == 1
    assert client.post("/api/undo", json={"reviewer": "Ada"}).json()["imputation"] == number
    assert seen()["review"] == "undecided"
    assert [h["reviewer"] for h in seen()["history"]] == ["Ben"]
    assert client.post("/api/undo", json={"reviewer": "Ada"}).status_code == 409


def test_a_decision_that_cannot_stand_is_refused(client: TestClient, run: RunData) -> None:
    withheld = _first(run, released=False)
    assert _decide(client, withheld, "accept") == 409
    assert _decide(client, withheld, "reject") == 200
    assert _decide(client, withheld, "comment") == 409
    assert _decide(client, len(run.imputations), "reject") == 409
    assert _decide(client, -1, "reject") == 422
    assert _decide(client, withheld, "delete") == 422
    assert _decide(client, withheld, "reject", reviewer="  ") == 422
    assert _decide(client, withheld, "comment", comment="x" * 3000) == 422


def test_the_export_holds_the_accepted_values_and_the_note(client: TestClient, run: RunData) -> None:
    released = run.imputations.filter(pl.col("released"))
    formula = int(released.filter(pl.col("subject") == FORMULA_ID)["imputation"][0])
    other = int(released.filter(pl.col("subject") == HTML_ID)["imputation"][0])
    for number in (formula, other):
        assert _decide(client, number, "accept", reviewer="=cmd()") == 200
    assert _decide(client, other, "comment", comment="@SUM(A1)") == 200
    csv = pl.read_csv(client.get("/export/accepted.csv").content)
    assert sorted(csv["subject_id"]) == sorted(["'" + FORMULA_ID, HTML_ID])
    assert set(csv["accepted_by"]) == {"'=cmd()"}
    assert csv["note"].str.contains("covers all released values").all()
    exact = pl.read_parquet(io.BytesIO(client.get("/export/accepted.parquet").content))
    assert sorted(exact["subject_id"]) == sorted([FORMULA_ID, HTML_ID])
    expected = run.imputations.filter(pl.col("imputation").is_in([formula, other]))
    assert exact["value"].to_list() == expected["value"].to_list()
    assert client.get("/export/accepted.exe").status_code == 422


def test_the_log_survives_a_run_written_anew(client: TestClient, run: RunData) -> None:
    """Decisions about other imputations are kept, but do not count for these."""
    assert _decide(client, _first(run, released=True), "accept") == 200
    path = run.folder / "imputations.parquet"
    pl.read_parquet(path).with_columns(pl.col("value") + 1).write_parquet(path)
    with reviewing(read_run(run.folder)) as second:
        assert second.get("/api/run").json()["progress"]["accepted"] == 0
    assert len(DecisionLog(log_beside(run.folder), run.identity).since(0)) == 1


def test_an_interval_without_bounds_is_told_as_none(client: TestClient, run: RunData) -> None:
    path = run.folder / "imputations.parquet"
    endless = pl.read_parquet(path).with_columns(lower=pl.lit(-float("inf")), upper=pl.lit(float("inf")))
    endless.write_parquet(path)
    again = read_run(run.folder)
    assert again.imputations["lower"].null_count() == len(again.imputations)
    with reviewing(again) as second:
        course = second.get("/api/patients/0").json()
    assert course["imputations"][0]["upper"] is None


def test_a_folder_that_is_no_run_is_refused(run: RunData) -> None:
    (run.folder / "review" / "exploration.json").unlink()
    with pytest.raises(OptionError, match="cannot be reviewed"):
        read_run(run.folder)


@pytest.mark.full
def test_a_new_run_is_labelled_as_chosen_after_looking(client: TestClient, run: RunData) -> None:
    config = run.manifest["config"]
    for tolerance in (config["tolerance"], "20.0 %"):
        same = {"tolerance": tolerance, "fdr": config["fdr"]}
        assert client.post("/api/rerun", json=same).status_code == 409
    assert client.post("/api/rerun", json={"tolerance": "-3", "fdr": 0.2}).status_code == 409
    assert client.post("/api/rerun", json={"tolerance": "20%", "fdr": 1.5}).status_code == 422
    assert client.get("/rerun/report").status_code == 409
    started = client.post("/api/rerun", json={"tolerance": "25%", "fdr": 0.3}).json()
    assert started["state"] == "running"
    assert client.post("/api/rerun", json={"tolerance": "25%", "fdr": 0.35}).status_code == 409
    status = started
    deadline = time.monotonic() + 300
    while status["state"] == "running":
        assert time.monotonic() < deadline, "the new run does not end"
        time.sleep(0.3)
        status = client.get("/api/rerun").json()
    assert status["state"] == "finished", status["lines"]
    assert status["label"] == "level chosen after looking: no guarantee"
    assert status["promise"].startswith("Second look at the same visits: no guarantee.")
    folder = run.folder.with_name(status["folder"])
    written = json.loads((folder / "run.json").read_text())
    assert written["second_look"]
    assert (written["config"]["tolerance"], written["config"]["fdr"]) == ("25%", 0.3)
    assert written["config"]["best"] == config["best"]
    page = client.get("/rerun/report").text
    assert "No guarantee" in page
    assert "Promised" not in page
    assert not read_run(folder).guaranteed
