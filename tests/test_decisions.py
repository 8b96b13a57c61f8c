"""Limits as what is risky: bands and their chances through fit, save, load, score, release of another tool, report."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest

import safeimpute as si
from helpers.command_line import invoke
from safeimpute import SafeImputer
from safeimpute.errors import ModelFolderError, OptionError, VisitsError
from safeimpute.model.folder import load_model
from safeimpute.model.labs import decided
from safeimpute.model.scorer import Scorer
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.release import SelectionData, bound_of, decide
from safeimpute.settings import make_settings
from safeimpute.tolerance import parse_tolerance
from safeimpute.visits.lab_settings import settings_of_one

LIMITS = (9.0, 11.0)


def visits_table(patients: int = 90, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), 5)
    level = 10.0 + 1.5 * rng.normal(size=patients)[patient]
    value = level + 0.6 * rng.normal(size=len(patient))
    frame = {"subject_id": patient, "time": np.tile(np.arange(5.0) * 30, patients)}
    other = level + rng.normal(size=len(patient))
    return pl.DataFrame({**frame, "lab": np.where(rng.random(len(patient)) < 0.65, value, np.nan), "other": other})


def imputer_of(**told: object) -> SafeImputer:
    given: dict[str, object] = {"target": "lab", "tolerance": "limits", "limits": LIMITS, "fdr": 0.2}
    return SafeImputer(**given | {"best": {"folds": 3, "effort": "light"}} | told)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return visits_table().with_columns(pl.col("lab").fill_nan(None))


@pytest.fixture(scope="module")
def fitted(table: pl.DataFrame) -> SafeImputer:
    return imputer_of().fit(table)


@pytest.fixture(scope="module")
def imputed(fitted: SafeImputer, table: pl.DataFrame) -> pl.DataFrame:
    found: pl.DataFrame = fitted.impute(table)
    return found


CHANCES = ["p_band_1", "p_band_2", "p_band_3"]


def test_the_table_says_band_and_chances(imputed: pl.DataFrame) -> None:
    chances = imputed.select(CHANCES).to_numpy()
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert (chances >= 0).all()
    tolerance = parse_tolerance("limits 9 11")
    assert imputed["band"].to_list() == [tolerance.bands[k] for k in tolerance.band(imputed["value"].to_numpy())]
    own = chances[np.arange(len(chances)), tolerance.band(imputed["value"].to_numpy())]
    assert np.allclose(imputed["risk"].to_numpy(), 1.0 - own), "where limits alone count, the risk is another band"
    assert imputed["released"].any()


def test_chances_are_those_of_the_truth(fitted: SafeImputer) -> None:
    """Judged visits were never seen by the model that says their chances: these have to come true."""
    calibrated = fitted.labs_["lab"].calibrated
    rows = calibrated.question.judged
    above = calibrated.estimates.above
    assert above is not None
    for place, limit in enumerate(LIMITS):
        beyond = calibrated.truth[rows] >= limit
        chance = above[rows, place]
        assert abs(chance.mean() - beyond.mean()) < 0.06
        assert np.mean((chance - beyond) ** 2) < 0.75 * np.mean((beyond.mean() - beyond) ** 2)


def test_the_promise_is_in_these_words(fitted: SafeImputer) -> None:
    assert "that lies on the wrong side of a limit (9, 11) is at most 20 %" in fitted.promised().promise


def test_saved_and_loaded_it_says_the_same(
    fitted: SafeImputer, imputed: pl.DataFrame, table: pl.DataFrame, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    assert SafeImputer.load(tmp_path / "model").impute(table).equals(imputed)
    scored = Scorer.load(tmp_path / "model").score(table)
    columns = ["value", "band", *CHANCES]
    assert scored.sort("subject_id", "time")[columns].equals(imputed.sort("subject_id", "time")[columns])


def test_a_folder_with_limits_out_of_order_is_refused(fitted: SafeImputer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    saved = load_model(tmp_path / "model")
    for each in saved.plain["system"]["models"]:
        each["tolerance"]["limits"] = [11.0, 9.0]
    with pytest.raises(ModelFolderError, match="limits"):
        saved.frozen()


@pytest.mark.parametrize("limits", [(0.5,), (9.0, 400.0)])
def test_limits_outside_what_was_measured_are_refused_before_the_work(
    table: pl.DataFrame, limits: tuple[float, ...]
) -> None:
    with pytest.raises(VisitsError, match=r"no measured value of 'lab' lies (below|above) it"):
        imputer_of(limits=limits).fit(table)


def test_an_error_and_limits_release_no_more_than_either(table: pl.DataFrame) -> None:
    both = imputer_of(tolerance="1 and limits").fit(table)
    found = both.impute(table)
    chances = found.select(CHANCES).to_numpy()
    own = chances[np.arange(len(found)), parse_tolerance("limits 9 11").band(found["value"].to_numpy())]
    assert (found["risk"].to_numpy() >= 1.0 - own - 1e-12).all()
    assert "off by 1 or more or on the wrong side of a limit (9, 11)" in both.promised().promise


def test_several_labs_each_with_its_own_bands(table: pl.DataFrame) -> None:
    holes = table.with_columns(pl.when(pl.int_range(len(table)) % 3 > 0).then("other").alias("other"))
    told = {"lab": "limits 9 11", "other": "2"}
    found = imputer_of(target=("lab", "other"), tolerance=told, limits=()).fit(holes).impute(holes)
    assert found.filter(lab="lab")["band"].null_count() == 0
    assert (
        found.filter(lab="other").select("band", *CHANCES).null_count().sum_horizontal()[0]
        == 4 * found.filter(lab="other").height
    )


def test_another_tools_values_are_released_by_limits(table: pl.DataFrame) -> None:
    hidden = si.hide(table, target="lab")
    filled = hidden.visits.with_columns(pl.coalesce("lab", "other"))
    result = si.release(hidden, filled, tolerance="limits 9 11", fdr=0.3)
    assert set(CHANCES) <= set(result.table.columns)
    assert "on the wrong side of a limit" in result.promised.promise


GRADES = (1.0, 2.0, 3.0)


@pytest.fixture(scope="module")
def graded() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Visits with a grade of three, missing at a third of them, and the same with every grade."""
    rng = np.random.default_rng(5)
    patient = np.repeat(np.arange(120), 5)
    level = 1.4 * rng.normal(size=120)[patient]
    whole = pl.DataFrame(
        {
            "subject_id": patient,
            "time": np.tile(np.arange(5.0) * 30, 120),
            "grade": 1.0 + np.digitize(level + 0.5 * rng.normal(size=len(patient)), [-0.7, 0.9]),
            "other": level + 0.7 * rng.normal(size=len(patient)),
        }
    )
    missing = pl.Series(rng.random(len(patient)) < 0.35)
    return whole.with_columns(grade=pl.when(~missing).then("grade")), whole


@pytest.fixture(scope="module")
def classes(graded: tuple[pl.DataFrame, pl.DataFrame]) -> SafeImputer:
    return imputer_of(target="grade", tolerance="class 1<2<3", limits=()).fit(graded[0])


def test_a_grade_is_imputed_as_a_class(classes: SafeImputer, graded: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    holes, whole = graded
    found = classes.impute(holes)
    chances = found.select(CHANCES).to_numpy()
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert found["value"].to_list() == [GRADES[k] for k in chances.argmax(axis=1)], "the likeliest class"
    assert np.allclose(found["risk"].to_numpy(), 1.0 - chances.max(axis=1))
    assert found["band"].to_list() == [f"{value:g}" for value in found["value"]]
    assert set(found["lower"].drop_nulls()) | set(found["upper"].drop_nulls()) <= set(GRADES)
    truth = found.join(whole, on=["subject_id", "time"], how="left", maintain_order="left")["grade"].to_numpy()
    wrong = found["value"].to_numpy() != truth
    released = found["released"].to_numpy()
    assert released.sum() > 20
    assert wrong[released].mean() < 0.3
    happened = (truth[:, None] == np.array(GRADES)).astype(float)
    brier = np.mean((chances - happened) ** 2)
    assert brier < 0.8 * np.mean((happened.mean(axis=0) - happened) ** 2)
    assert "of another class than the true one (1 < 2 < 3) is at most 20 %" in classes.promised().promise


def test_draws_are_classes_as_frequent_as_the_truth(
    classes: SafeImputer, graded: tuple[pl.DataFrame, pl.DataFrame]
) -> None:
    holes, whole = graded
    drawn = classes.draws(holes, 30)
    assert set(drawn["value"]) <= set(GRADES)
    truth = holes.filter(pl.col("grade").is_null()).drop("grade").join(whole, on=["subject_id", "time", "other"])
    shares = [(drawn["value"] == grade).mean() for grade in GRADES]
    for share, grade in zip(shares, GRADES, strict=True):
        assert abs(share - (truth["grade"] == grade).mean()) < 0.1
    assert drawn.equals(classes.draws(holes, 30))


def test_a_saved_class_scores_the_same(
    classes: SafeImputer, graded: tuple[pl.DataFrame, pl.DataFrame], tmp_path: Path
) -> None:
    classes.save(tmp_path / "model")
    columns = ["value", "band", *CHANCES]
    scored = Scorer.load(tmp_path / "model").score(graded[0]).sort("subject_id", "time")
    assert scored[columns].equals(classes.impute(graded[0]).sort("subject_id", "time")[columns])


@pytest.mark.parametrize(
    ("tolerance", "rule"),
    [("class 1<2", "another number than its classes"), ("class 1<2<3<4", "class 4 of 'grade' was never measured")],
)
def test_classes_that_are_not_those_of_the_column_are_refused(
    graded: tuple[pl.DataFrame, pl.DataFrame], tolerance: str, rule: str
) -> None:
    with pytest.raises(VisitsError, match=rule):
        imputer_of(target="grade", tolerance=tolerance, limits=()).fit(graded[0])


def test_a_class_of_one_patient_that_nothing_tells_of_is_unlikely_everywhere(
    graded: tuple[pl.DataFrame, pl.DataFrame],
) -> None:
    """Folds without it learn what they can, and no other visit is taken for one."""
    one = pl.col("subject_id") == 3
    empty = pl.when(one).then(None)
    rare = graded[0].with_columns(grade=pl.when(one).then(4).otherwise("grade"), other=empty.otherwise("other"))
    imputer = imputer_of(target="grade", tolerance="class 1<2<3<4", limits=())
    found = imputer.fit(rare).impute(rare)
    chances = found.select(*CHANCES, "p_band_4").to_numpy()
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert chances[:, 3].max() < 0.2
    assert (found["value"] < 4).all()
    assert set(imputer.draws(rare, 2)["value"]) <= {*GRADES, 4.0}


def test_a_class_cannot_be_shifted(classes: SafeImputer, graded: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    with pytest.raises(OptionError, match="delta shifts amounts"):
        classes.draws(graded[0], 2, delta=0.5)


def test_another_tools_numbers_become_classes(graded: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    hidden = si.hide(graded[0], target="grade")
    between = 2.0 + 0.9 * pl.col("other")
    result = si.release(
        hidden, hidden.visits.with_columns(pl.coalesce("grade", between)), tolerance="class 1<2<3", fdr=0.4
    )
    assert set(result.table["value"]) <= set(GRADES)
    assert "of another class" in result.promised.promise


WORDS = ("none", "mild", "severe")
IN_WORDS = "class none<mild<severe"


@pytest.fixture(scope="module")
def worded(graded: tuple[pl.DataFrame, pl.DataFrame]) -> tuple[pl.DataFrame, SafeImputer]:
    """The same grades as words, and an imputer fitted to them."""
    grade = pl.col("grade").replace_strict(dict(zip(GRADES, WORDS, strict=True)), return_dtype=pl.String)
    holes = graded[0].with_columns(grade.fill_null(" "))
    return holes, imputer_of(target="grade", tolerance=IN_WORDS, limits=()).fit(holes)


def test_words_are_imputed_as_their_places(
    worded: tuple[pl.DataFrame, SafeImputer],
    classes: SafeImputer,
    graded: tuple[pl.DataFrame, pl.DataFrame],
    tmp_path: Path,
) -> None:
    holes, fitted = worded
    found, plain = fitted.impute(holes), classes.impute(graded[0])
    assert found["band"].to_list() == [WORDS[int(place)] for place in found["value"]]
    assert found["value"].to_list() == (plain["value"] - 1).to_list()
    assert found["released"].equals(plain["released"])
    assert "(none < mild < severe)" in fitted.promised().promise
    fitted.save(tmp_path / "model")
    loaded = Scorer.load(tmp_path / "model")
    columns = ["value", "band", *CHANCES]
    assert loaded.score(holes).sort("subject_id", "time")[columns].equals(found.sort("subject_id", "time")[columns])


def test_filled_in_and_drawn_they_are_words_again(worded: tuple[pl.DataFrame, SafeImputer]) -> None:
    holes, fitted = worded
    measured = holes["grade"].str.strip_chars() != ""
    filled = fitted.transform(holes)
    assert filled["grade"].filter(measured).equals(holes["grade"].filter(measured))
    assert set(filled["grade"].filter(filled["grade_released"])) <= set(WORDS)
    assert filled["grade"].null_count() == int((~measured).sum()) - int(filled["grade_released"].sum())
    new = holes.with_columns(pl.col("subject_id") + 1000)
    assert set(fitted.transform(new)["grade"].drop_nulls()) <= set(WORDS)
    drawn = fitted.draws(holes, 3)
    assert drawn["band"].to_list() == [WORDS[int(place)] for place in drawn["value"]]
    long, wide = fitted.to_mice(holes, 2), fitted.to_mice(holes, 2, form="wide")
    for column in (long["grade"], wide["grade"], wide["grade_1"], wide["grade_2"]):
        assert set(column.drop_nulls()) == set(WORDS)


@pytest.mark.parametrize(
    ("told", "rule"),
    [
        ("class none<2", "all as numbers or all as words"),
        ("class none<none", "each once"),
        ("class none<", "all as words"),
        ("class none<a;b", "no comma"),
    ],
)
def test_what_are_no_words(told: str, rule: str) -> None:
    with pytest.raises(OptionError, match=rule):
        parse_tolerance(told)


def test_words_that_are_not_the_columns_are_refused(worded: tuple[pl.DataFrame, SafeImputer]) -> None:
    holes, fitted = worded
    strange = f"something else than its classes \\(none < mild\\) in {(holes['grade'] == 'severe').sum()} of 600 rows"
    with pytest.raises(VisitsError, match=strange):
        imputer_of(target="grade", tolerance="class none<mild", limits=()).fit(holes)
    with pytest.raises(VisitsError, match="something else"):
        fitted.score(holes.with_columns(pl.col("grade").str.to_uppercase()))
    with pytest.raises(VisitsError, match="class awful of 'grade' was never measured"):
        imputer_of(target="grade", tolerance=f"{IN_WORDS}<awful", limits=()).fit(holes)
    several = {"grade": IN_WORDS, "other": "2"}
    gaps = holes.with_columns(pl.when(pl.int_range(len(holes)) % 3 > 0).then("other").alias("other"))
    with pytest.raises((OptionError, VisitsError), match="grade"):
        imputer_of(target=("grade", "other"), tolerance=several, limits=()).fit(gaps)


def test_another_tools_classes_are_numbers(
    worded: tuple[pl.DataFrame, SafeImputer], graded: tuple[pl.DataFrame, pl.DataFrame]
) -> None:
    with pytest.raises(VisitsError, match=r"'grade' .* holds text"):
        si.hide(worded[0], target="grade")
    hidden = si.hide(graded[0], target="grade")
    with pytest.raises(OptionError, match="another tool's classes are numbers"):
        si.release(hidden, hidden.visits, tolerance=IN_WORDS, fdr=0.4)


def test_a_run_of_words_from_the_command_line(worded: tuple[pl.DataFrame, SafeImputer], tmp_path: Path) -> None:
    holes = worded[0].with_columns(pl.col("time").cast(pl.Int64))
    holes.write_csv(tmp_path / "visits.csv")
    invoke(
        *("run", str(tmp_path / "visits.csv"), "--target", "grade", "--tolerance", IN_WORDS, "--fdr", "0.2"),
        *("--quick", "--out", str(tmp_path / "run"), "--filled", "all"),
    )
    table = pl.read_csv(tmp_path / "run" / "imputations.csv")
    assert set(table["band"]) <= set(WORDS)
    assert set(pl.read_csv(tmp_path / "run" / "filled.csv")["grade"]) == set(WORDS)
    assert "none &lt; mild &lt; severe" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    invoke("check", str(tmp_path / "visits.csv"), "--target", "grade", "--tolerance", IN_WORDS, "--fdr", "0.2")


COST = "0 1; 5 0"


def test_a_cost_is_a_share_of_the_largest() -> None:
    tolerance = parse_tolerance(f"limits 10 cost {COST}")
    loss = tolerance.loss(np.array([9.0, 11.0, 9.0, 11.0, np.nan]), np.array([9.5, 9.5, 12.0, 12.0, 9.0]))
    assert loss.tolist() == [0.0, 0.2, 1.0, 0.0, 0.0]
    assert parse_tolerance(tolerance.typed()) == tolerance
    assert type(tolerance).from_state(tolerance.state()) == tolerance


@pytest.mark.parametrize(
    ("cost", "rule"),
    [
        ("0 1; -5 0", "not negative"),
        ("0 1; inf 0", "finite"),
        ("0 1; nan 0", "finite"),
        ("0 1", "missing"),
        ("0 1; 5", "missing"),
        ("0 0; 0 0", "some other band"),
        ("1 1; 5 0", "right band costs 0"),
        ("a b", "not understood"),
    ],
)
def test_what_are_no_costs(cost: str, rule: str) -> None:
    with pytest.raises(OptionError, match=rule):
        make_settings(target="lab", fdr=0.1, limits=(10.0,), cost=cost)


def test_costs_need_bands_and_a_claim_that_counts_them() -> None:
    with pytest.raises(OptionError, match="cost is of bands"):
        make_settings(target="lab", fdr=0.1, tolerance=0.5, cost=COST)
    with pytest.raises(OptionError, match="without an error"):
        make_settings(target="lab", fdr=0.1, tolerance="0.5 and limits", limits=(10.0,), cost=COST)
    with pytest.raises(OptionError, match="another claim"):
        make_settings(target="lab", fdr=0.1, limits=(10.0,), cost=COST, claim="visits")
    told = make_settings(target="hba1c", fdr=0.1, cost=[[0, 1, 1, 1], [2, 0, 1, 1], [3, 1, 0, 1], [4, 2, 1, 0]])
    assert settings_of_one(told).allowed_error.limits == (5.7, 6.5, 8.0)
    assert make_settings(**{**vars(told), "best": None, "paper": None}).tolerance == told.tolerance


def test_costs_of_zero_and_one_decide_as_false_and_true() -> None:
    """The same ledger, whether what it counts is an indicator or a number."""
    rng = np.random.default_rng(1)
    visits, patients = 600, 120
    risk = rng.random(visits)
    data = SelectionData(
        risk=risk,
        tie=rng.random(visits),
        patient=rng.integers(0, patients, visits),
        weight=rng.uniform(0.5, 2.0, visits),
        outside={},
        judged=np.arange(visits) < 400,
        risky=rng.random(visits) < risk,
        candidate=np.arange(visits) >= 400,
    )
    for promise in ("average", "confident"):
        rule = Rule("unmeasured", 0.2, promise=promise)
        one, other = (decide(replace(data, risky=each), rule) for each in (data.risky, data.risky.astype(float)))
        assert one.cutoffs == other.cutoffs
        assert one.released.tolist() == other.released.tolist()


@pytest.mark.parametrize("promise", ["average", "confident"])
def test_the_mean_cost_of_what_is_released_keeps_the_level(promise: Literal["average", "confident"]) -> None:
    rng = np.random.default_rng(2)
    rule, found = Rule("unmeasured", 0.1, promise=promise), []
    for _ in range(60):
        visits = 900
        patient = rng.integers(0, 180, visits)
        chance = np.clip(0.5 * rng.random(visits) + 0.1 * rng.standard_normal(180)[patient], 0.01, 0.99)
        loss = np.where(rng.random(visits) < chance, rng.choice([0.2, 1.0], visits), 0.0)
        data = SelectionData(
            risk=0.6 * chance,
            tie=rng.random(visits),
            patient=patient,
            weight=np.ones(visits),
            outside={},
            judged=np.arange(visits) < 600,
            risky=loss,
            candidate=np.arange(visits) >= 600,
        )
        decision = decide(data, rule)
        out = decision.released
        found.append(loss[600:][out].mean() if out.any() else 0.0)
        if out.any():
            bound = bound_of(data, rule, decision)
            assert 0 <= bound.risky <= bound.values
    assert np.mean(found) < 0.1 + 2 * np.std(found) / np.sqrt(len(found))
    assert promise == "confident" or np.mean(found) > 0.06


def test_dear_misses_move_what_is_released(table: pl.DataFrame) -> None:
    """Where missing a high value costs five times a false alarm, values imputed low are released less readily."""
    fitted = imputer_of(limits=(10.0,), cost=COST, fdr=0.05).fit(table)
    found = fitted.impute(table)
    low, high = found.filter(band="below 10"), found.filter(band="10 or more")
    assert np.allclose(low["risk"], low["p_band_2"])
    assert np.allclose(high["risk"], 0.2 * high["p_band_1"])
    assert high["released"].mean() > low["released"].mean()
    assert "lost to errors, each counted by its cost as a share of the largest (5" in fitted.promised().promise
    calibrated, decision = fitted.labs_["lab"].calibrated, decided(fitted.labs_["lab"])
    assert decision.cutoffs[0].share is None or decision.cutoffs[0].share <= 0.05 + 1e-9
    assert set(np.unique(calibrated.selection_data(fitted.settings_.allowed_error).risky)) <= {0.0, 0.2, 1.0}


def test_a_class_is_imputed_where_it_costs_least(graded: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    dear = imputer_of(target="grade", tolerance="class 1<2<3", limits=(), cost="0 1 1; 1 0 1; 9 9 0").fit(graded[0])
    found = dear.impute(graded[0])
    chances = found.select(CHANCES).to_numpy()
    costs = np.array([[0, 1, 1], [1, 0, 1], [9, 9, 0]]) / 9
    assert found["value"].to_list() == [GRADES[k] for k in (chances @ costs).argmin(axis=1)]
    assert (found["value"] == 3).mean() > (chances.argmax(axis=1) == 2).mean()


def test_the_size_of_an_error_is_a_cost_up_to_a_largest(table: pl.DataFrame, tmp_path: Path) -> None:
    tolerance = parse_tolerance("error up to 2")
    assert tolerance.loss(np.array([1.0, 4.0, 9.0, np.nan]), np.array([1.0, 3.0, 1.0, 2.0])).tolist() == [0, 0.5, 1, 0]
    assert parse_tolerance(tolerance.typed()) == tolerance
    assert type(tolerance).from_state(tolerance.state()) == tolerance
    fitted = SafeImputer(target="lab", tolerance="error up to 3", fdr=0.3, best={"folds": 3, "effort": "light"})
    found = fitted.fit(table).impute(table)
    assert found["released"].any()
    fitted.save(tmp_path / "model")
    assert Scorer.load(tmp_path / "model").score(table)["risk"].sort().equals(found["risk"].sort())
    calibrated = fitted.labs_["lab"].calibrated
    rows = calibrated.question.judged
    loss = fitted.settings_.allowed_error.loss(calibrated.estimates.value, calibrated.truth)[rows]
    assert abs(calibrated.estimates.risk[rows].mean() - loss.mean()) < 0.08, "the risk is the cost to expect"
    assert "each counted by its size up to 3 is at most 30 %" in fitted.promised().promise
    assert make_settings(target="lab", fdr=0.1, cost="error up to 2").tolerance == "error up to 2"
    with pytest.raises(OptionError, match="another claim"):
        make_settings(target="lab", fdr=0.1, tolerance="error up to 2", claim="visits")
    with pytest.raises(OptionError, match="Give only one"):
        make_settings(target="lab", fdr=0.1, tolerance=0.5, cost="error up to 2")


@pytest.mark.parametrize(
    "told", [("--limits", "9,11"), ("--limits", "10", "--cost", COST), ("--cost", "error up to 3")], ids=str
)
def test_a_check_knows_limits_and_costs(table: pl.DataFrame, tmp_path: Path, told: tuple[str, ...]) -> None:
    table.write_parquet(tmp_path / "visits.parquet")
    said = invoke("check", str(tmp_path / "visits.parquet"), "--target", "lab", "--fdr", "0.3", *told)
    assert ("claim visits" in said) == ("--cost" not in told), "ranks know no costs"
    assert "TOLERANCE" not in said
