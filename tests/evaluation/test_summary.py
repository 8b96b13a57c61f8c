"""A run's summary: says what the run did, in figures that can be written as JSON, and names every gap."""

import copy
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from safeimpute import SafeImputer
from safeimpute.evaluation.data_profile import how_well
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.evaluation.summary import as_second_look, summarise_run
from safeimpute.model.labs import decided, lab_result
from safeimpute.settings import ClaimName

BEST = {"folds": 3, "analogues": 4}
Run = tuple[SafeImputer, pl.DataFrame, RunSummary]


def _run(cohort: pl.DataFrame, claim: ClaimName) -> Run:
    imputer = SafeImputer(target="hba1c", tolerance=1.0, fdr=0.3, claim=claim, best=BEST, exclude=("remark",))
    table = cohort.with_columns(pl.lit("seen").alias("remark"))
    imputations = imputer.fit(table).impute(table)
    return imputer, imputations, summarise_run(imputer.results()["hba1c"], imputer.labs_["hba1c"].visits, imputations)


@pytest.fixture(scope="module", params=["unmeasured", "visits"])
def run(request: pytest.FixtureRequest, cohort: pl.DataFrame) -> Run:
    return _run(cohort, request.param)


def test_the_summary_is_plain_finite_and_complete(run: Run) -> None:
    _, _, summary = run
    again = json.loads(json.dumps(summary, allow_nan=False))
    assert again == summary
    assert RunSummary.__required_keys__ == summary.keys()


def test_counts_are_those_of_the_table(run: Run, cohort: pl.DataFrame) -> None:
    imputer, imputations, summary = run
    assert summary["missing"] == len(imputations) == cohort["hba1c"].null_count()
    assert summary["measured"] == cohort["hba1c"].count()
    assert summary["released"] == imputations["released"].sum() > 0
    assert summary["released"] + summary["withheld"] == summary["missing"]
    assert sum(summary["withheld_by_reason"].values()) == summary["withheld"]
    assert summary["reason_words"].keys() == summary["withheld_by_reason"].keys()
    assert summary["judged"] == imputer.labs_["hba1c"].calibrated.question.judged.sum()
    for histogram in (summary["by_risk"], summary["by_value"]):
        assert sum(histogram["released"]) == summary["released"]
        assert sum(histogram["withheld"]) == summary["withheld"]
    gap = summary["by_gap"]
    assert sum(gap["released"]) + gap["no_earlier_value"]["released"] == summary["released"]


def test_the_cutoff_parts_released_from_withheld(run: Run) -> None:
    _, imputations, summary = run
    (cutoff,) = summary["cutoffs"]
    assert cutoff["risk"] is not None
    assert f"{cutoff['risk']:.3g}" in cutoff["words"]
    assert imputations.filter("released")["risk"].to_numpy().max() <= cutoff["risk"]
    withheld = imputations.filter(pl.col("reason") == "risk above cut-off")
    assert withheld.is_empty() or withheld["risk"].to_numpy().min() >= cutoff["risk"]
    chosen = [point for point in summary["curve"] if point["fdr"] == summary["fdr"]]
    assert [point["released"] for point in chosen] == [summary["released"]]


def test_accuracy_is_judged_without_the_visits_own_value(run: Run) -> None:
    imputer, _, summary = run
    calibrated = imputer.labs_["hba1c"].calibrated
    judged = calibrated.question.judged
    error = np.abs(calibrated.estimates.value - calibrated.truth)[judged]
    accuracy = summary["accuracy"]
    assert accuracy["mae"]["best"] == pytest.approx(error.mean())
    assert accuracy["visits"] == judged.sum()
    assert list(accuracy["mae"]) == ["best", "overall mean", "last value carried forward", "patient's own other values"]
    assert accuracy["mae"]["best"] < accuracy["mae"]["overall mean"]
    assert sum(group["visits"] for group in summary["alignment"]) == accuracy["visits"]
    assert summary["alignment"][0]["mae"] < summary["alignment"][-1]["mae"]


def test_who_gets_measured_is_told_with_its_gaps(run: Run) -> None:
    imputer, _, summary = run
    measuring = summary["measuring"]
    if summary["claim"] == "visits":
        assert measuring is None
        assert summary["sensitivity"] == []
        return
    assert measuring is not None
    diagnosis = imputer.labs_["hba1c"].calibrated.diagnosis
    assert diagnosis is not None
    assert measuring["auc"] == diagnosis.auc
    assert measuring["columns"] == list(diagnosis.columns)
    assert measuring["not_used"] == {"remark": "excluded by name"}
    assert 0 <= measuring["miscalibration"] <= 1
    assert [row["gamma"] for row in summary["sensitivity"]] == list(imputer.settings_.gammas)
    assert summary["sensitivity"][0]["released"] == summary["released"]


def test_how_much_hangs_on_the_draw_of_patients_is_told(run: Run) -> None:
    imputer, _, summary = run
    found = summary["stability"]
    assert 2 <= found["parts"] <= imputer.settings_.best.folds
    assert 0 <= found["always"] <= min(summary["released"], found["fewest"])
    assert found["fewest"] <= found["most"]
    assert f"{found['always']:,} of these {summary['released']:,} each time" in found["words"]


def test_a_second_look_promises_nothing_and_changes_no_figure(run: Run) -> None:
    _, _, summary = run
    again = as_second_look(summary)
    assert summary["promise"]
    assert not summary["no_promise"]
    assert (again["promise"], again["assumption"], again["limits"]) == ("", "", "")
    assert again["second_look"]
    assert again["no_promise"].startswith("Second look at the same visits: no guarantee.")
    told = {"promise", "assumption", "limits", "no_promise", "second_look", "bound"}
    assert again["bound"]["headline"] == ""
    assert "these" in again["bound"]["words"], "the bound stands alone"
    said = {"headline", "words"}
    before, after = ({k: v for k, v in each["bound"].items() if k not in said} for each in (summary, again))
    assert before == after
    assert {k: v for k, v in again.items() if k not in told} == {k: v for k, v in summary.items() if k not in told}


def test_a_refused_release_is_told_with_its_reason(run: Run) -> None:
    imputer, imputations, _ = run
    refused = copy.copy(imputer.labs_["hba1c"])
    refused.decision = replace(decided(imputer.labs_["hba1c"]), refused="too few patients. Give more")
    nothing = imputations.with_columns(released=pl.lit(False), reason=pl.lit("no promise possible"))
    summary = summarise_run(lab_result(refused), refused.visits, nothing)
    assert summary["no_promise"] == "too few patients. Give more"
    assert summary["promise"] == ""
    assert summary["distribution"]["released"] == {"values": 0, "mean": None, "median": None}
    groups = [group for entry in summary["subgroups"] for group in entry["groups"]]
    assert all(group["risky_passing"] is None for group in groups)
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("auc", "words"), [(0.5, "Hardly"), (0.7, "Somewhat"), (0.85, "Well"), (0.99, "Very well"), (None, "cannot")]
)
def test_how_well_measuring_can_be_told_is_put_in_words(auc: float | None, words: str) -> None:
    assert words in how_well(auc)
