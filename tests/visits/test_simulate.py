import hashlib
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import polars as pl
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from safeimpute.errors import OptionError
from safeimpute.visits.examples import LABS, PATIENTS_AND_MEAN_VISITS, Shape, Shift, Simulated, simulate

KEY = ["subject_id", "time"]
SHIFTS: tuple[Shift, ...] = ("none", "covariate", "value", "patients")


@pytest.fixture(scope="module")
def mimic4() -> dict[Shift, Simulated]:
    return {shift: simulate("mimic4", np.random.default_rng(6), shift=shift) for shift in SHIFTS}


def consecutive(truth: pl.DataFrame) -> pl.DataFrame:
    """Each visit beside its predecessor of the same patient."""
    previous = pl.col("time", "hba1c").shift().over("subject_id").name.prefix("previous_")
    return truth.with_columns(previous).drop_nulls()


def correlation(table: pl.DataFrame, first: str, second: str) -> float:
    pairs = table.select(first, second).drop_nulls()
    return float(np.corrcoef(pairs[first], pairs[second])[0, 1])


@pytest.mark.parametrize("shape", PATIENTS_AND_MEAN_VISITS)
@pytest.mark.parametrize("seed", [0, 1])
def test_size_is_the_published_one(shape: Shape, seed: int) -> None:
    visits = simulate(shape, np.random.default_rng(seed)).visits
    patients, mean_visits = PATIENTS_AND_MEAN_VISITS[shape]
    assert visits["subject_id"].n_unique() == patients
    assert visits.height / patients == pytest.approx(mean_visits, rel=0.02)


def test_hba1c_is_spread_and_skewed_as_in_diabetics(mimic4: dict[Shift, Simulated]) -> None:
    hba1c = mimic4["none"].truth["hba1c"]
    assert hba1c.std() == pytest.approx(1.7, abs=0.1)
    assert 0.5 < float(hba1c.skew()) < 2.0  # type: ignore[arg-type]
    assert hba1c.is_between(4.0, 16.0).all()
    assert hba1c.is_in([4.0, 16.0]).mean() < 0.001  # type: ignore[operator]


def test_hba1c_follows_its_past_and_glucose(mimic4: dict[Shift, Simulated]) -> None:
    visits, truth = mimic4["none"]
    assert correlation(consecutive(truth), "previous_hba1c", "hba1c") == pytest.approx(0.85, abs=0.03)
    assert correlation(visits, "glucose", "hba1c") == pytest.approx(0.50, abs=0.03)
    assert 0.05 < correlation(visits, "cholesterol", "hba1c") < 0.25


def test_memory_fades_with_the_gap(mimic4: dict[Shift, Simulated]) -> None:
    pairs = consecutive(mimic4["none"].truth).with_columns(gap=pl.col("time") - pl.col("previous_time"))
    near, far = pairs.filter(pl.col("gap") < 60), pairs.filter(pl.col("gap") > 365)
    lag = [correlation(part, "previous_hba1c", "hba1c") for part in (near, far)]
    assert lag[0] > lag[1] + 0.1


def test_gaps_and_visit_counts_are_irregular_and_skewed(mimic4: dict[Shift, Simulated]) -> None:
    truth = mimic4["none"].truth
    gaps = consecutive(truth).select(gap=pl.col("time") - pl.col("previous_time"))["gap"]
    assert gaps.min() >= 1  # type: ignore[operator]
    assert 90 <= gaps.median() <= 120  # type: ignore[operator]
    assert gaps.quantile(0.99) > 6 * gaps.median()  # type: ignore[operator]
    counts = truth.group_by("subject_id").len()["len"]
    assert counts.median() < counts.mean() < counts.quantile(0.8)  # type: ignore[operator]


def test_some_patients_are_stable_and_some_volatile(mimic4: dict[Shift, Simulated]) -> None:
    """A patient's jumps at odd visits tell those at even ones."""
    change = consecutive(mimic4["none"].truth).select(
        "subject_id", jump=(pl.col("hba1c") - pl.col("previous_hba1c")).abs()
    )
    halves = (
        change.with_columns(odd=pl.int_range(pl.len()).over("subject_id") % 2 == 1)
        .group_by("subject_id")
        .agg(
            pl.len(),
            pl.col("jump").filter("odd").mean().alias("odd"),
            pl.col("jump").filter(~pl.col("odd")).mean().alias("even"),
        )
        .filter(pl.col("len") >= 8)
    )
    assert correlation(halves, "odd", "even") > 0.4


def test_missing_rates(mimic4: dict[Shift, Simulated]) -> None:
    for shift in SHIFTS:
        visits = mimic4[shift].visits
        assert visits["hba1c"].is_null().mean() == pytest.approx(0.35, abs=0.005)
        assert 0.05 < visits["glucose"].is_null().mean() < 0.25  # type: ignore[operator]
        assert 0.35 < visits["cholesterol"].is_null().mean() < 0.55  # type: ignore[operator]
        assert not visits.select(pl.all_horizontal(pl.col("glucose", "cholesterol").is_null()).any()).item()


@pytest.mark.parametrize("shift", SHIFTS)
def test_truth_is_complete_and_agrees_with_every_measured_value(mimic4: dict[Shift, Simulated], shift: Shift) -> None:
    visits, truth = mimic4[shift]
    assert truth.columns == [*KEY, "hba1c"]
    assert truth["hba1c"].null_count() == 0
    assert truth.select(KEY).equals(visits.select(KEY))
    assert truth.select(KEY).equals(truth.select(KEY).unique().sort(KEY))
    measured = visits["hba1c"].is_not_null()
    assert visits.filter(measured)["hba1c"].equals(truth.filter(measured)["hba1c"])


def test_no_shift_changes_a_value(mimic4: dict[Shift, Simulated]) -> None:
    visits, truth = mimic4["none"]
    for shift in ("covariate", "value"):
        assert mimic4[shift].truth.equals(truth)
        assert mimic4[shift].visits.drop("hba1c").equals(visits.drop("hba1c"))
        assert not mimic4[shift].visits["hba1c"].equals(visits["hba1c"])
    common = truth.join(mimic4["patients"].truth, on=KEY, suffix="_informative")
    assert common["hba1c"].equals(common["hba1c_informative"].alias("hba1c"))
    assert common["subject_id"].n_unique() == truth["subject_id"].n_unique()


def test_without_a_shift_measuring_goes_with_nothing(mimic4: dict[Shift, Simulated]) -> None:
    for name, value in measuring_correlations(mimic4["none"]).items():
        assert abs(value) < 0.012, name


def test_covariate_shift_works_through_visible_things_only(mimic4: dict[Shift, Simulated]) -> None:
    linked = measuring_correlations(mimic4["covariate"])
    assert linked["glucose"] > 0.2
    assert linked["gap"] > 0.1
    assert linked["number"] < -0.1
    assert linked["age"] < -0.05
    visits, truth = mimic4["covariate"]
    # Among visits alike in everything the measuring looks at, the value itself must not matter.
    alike = (
        with_history(visits)
        .with_columns(truth["hba1c"].alias("value"), measured=pl.col("hba1c").is_not_null())
        .filter(
            pl.col("glucose").is_between(140, 160)
            & (pl.col("number").is_between(1, 2))
            & pl.col("gap").is_between(70, 150)
            & pl.col("age").is_between(58, 66)
        )
    )
    assert alike.height > 300
    taken, skipped = (alike.filter(pl.col("measured") == flag)["value"].to_numpy() for flag in (True, False))
    standard_error = np.sqrt(taken.var() / len(taken) + skipped.var() / len(skipped))
    assert abs(taken.mean() - skipped.mean()) < 3 * standard_error


def test_value_shift_depends_on_the_hidden_value_beyond_what_shows(mimic4: dict[Shift, Simulated]) -> None:
    visits, truth = mimic4["value"]
    table = visits.select("glucose", value=truth["hba1c"], measured=visits["hba1c"].is_not_null())
    alike = table.filter(pl.col("glucose").is_between(140, 160))
    taken, skipped = (alike.filter(pl.col("measured") == flag)["value"].to_numpy() for flag in (True, False))
    assert taken.mean() > skipped.mean() + 0.8


def test_informative_patients_are_the_volatile_ones(mimic4: dict[Shift, Simulated]) -> None:
    """One visit per patient then understates the share of hard visits; without the shift it does not."""
    ratio: dict[str, float] = {}
    for shift in ("none", "patients"):
        hard = consecutive(mimic4[shift].truth).select(
            "subject_id", hard=(pl.col("hba1c") - pl.col("previous_hba1c")).abs() >= 1.0
        )
        per_patient = hard.group_by("subject_id").agg(pl.col("hard").mean())["hard"].to_numpy()
        ratio[shift] = hard["hard"].to_numpy().mean() / per_patient.mean()
        counts = mimic4[shift].truth.group_by("subject_id").len()["len"].sort()
        assert counts.equals(mimic4["none"].truth.group_by("subject_id").len()["len"].sort())
    assert ratio["none"] == pytest.approx(1.0, abs=0.05)
    assert ratio["patients"] > 1.25


@pytest.mark.parametrize(("shift", "breaks"), [("none", False), ("covariate", True), ("value", True)])
def test_unweighted_promise_breaks_under_a_shift_only(shift: Shift, breaks: bool) -> None:
    proportions = [
        unweighted_fdp(simulate("mimic4", np.random.default_rng(s), patients=6_000, shift=shift), s) for s in (1, 2)
    ]
    mean = float(np.mean(proportions))
    assert mean > 0.14 if breaks else 0.02 < mean < 0.13


def test_same_seed_same_cohort_and_another_seed_another() -> None:
    first, again, other = (simulate("mimic3", np.random.default_rng(s), labs=5) for s in (3, 3, 4))
    assert first.visits.equals(again.visits)
    assert first.truth.equals(again.truth)
    assert not first.truth["hba1c"].head(1000).equals(other.truth["hba1c"].head(1000))


def test_patients_do_not_depend_on_how_many_there_are() -> None:
    small, large = (simulate("mimic3", np.random.default_rng(3), patients=n).truth for n in (200, 900))
    shared = small.join(large, on=KEY, suffix="_large")
    assert shared["subject_id"].n_unique() == 200
    assert shared["hba1c"].equals(shared["hba1c_large"].alias("hba1c"))


@settings(max_examples=25, deadline=None)
@given(
    patients=st.integers(1, 40),
    labs=st.integers(2, len(LABS)),
    shift=st.sampled_from(SHIFTS),
    seed=st.integers(0, 2**32),
)
def test_any_size_gives_a_well_formed_table(patients: int, labs: int, shift: Shift, seed: int) -> None:
    visits, truth = simulate("mayo", np.random.default_rng(seed), patients=patients, labs=labs, shift=shift)
    assert visits.columns == [*KEY, "hba1c", *list(LABS)[:labs], "sex", "age"]
    assert visits["subject_id"].unique().to_list() == list(range(1, patients + 1))
    assert truth.height == visits.height
    for name in list(LABS)[:labs]:
        values = visits[name].drop_nulls()
        assert values.is_finite().all()
        assert values.is_between(*LABS[name].limits).all()
        assert (values - values.round(LABS[name].decimals)).abs().sum() == 0


def test_further_labs_hang_together() -> None:
    visits = simulate("mimic3", np.random.default_rng(0), labs=len(LABS)).visits
    assert correlation(visits, "creatinine", "urea_nitrogen") > 0.3
    assert correlation(visits, "creatinine", "hemoglobin") < -0.2
    assert visits["sodium"].is_null().equals(visits["potassium"].is_null().alias("sodium"))  # one panel


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"shape": "mimic5"}, "mimic5"),
        ({"shift": "sideways"}, "sideways"),
        ({"patients": 0}, "patients"),
        ({"labs": 1}, "labs"),
        ({"labs": len(LABS) + 1}, "labs"),
    ],
)
def test_unusable_options_are_refused_by_name(options: dict[str, object], named: str) -> None:
    arguments: dict[str, object] = {"shape": "mayo"} | options
    with pytest.raises(OptionError, match=named):
        simulate(arguments.pop("shape"), np.random.default_rng(0), **arguments)  # type: ignore[arg-type]


# The command line -------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> typer.Typer:
    from safeimpute.cli.cohort import simulate as command

    app = typer.Typer()
    app.command()(command)
    return app


def test_command_writes_visits_and_truth_with_the_same_bytes_each_time(app: typer.Typer, tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        out = tmp_path / f"{name}.parquet"
        result = CliRunner().invoke(app, ["mayo", "-o", str(out), "--seed", "5", "--shift", "value"])
        assert result.exit_code == 0, result.output
        assert f"{name}.truth.parquet" in result.output.replace("\n", "")
        truth = tmp_path / f"{name}.truth.parquet"
        digests.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in (out, truth)])
    assert digests[0] == digests[1]
    expected = simulate("mayo", np.random.default_rng(5), shift="value")
    assert pl.read_parquet(tmp_path / "a.parquet").equals(expected.visits)
    assert pl.read_parquet(tmp_path / "a.truth.parquet").equals(expected.truth)
    assert len(list(tmp_path.iterdir())) == 4


def test_command_writes_csv_that_reads_back(app: typer.Typer, tmp_path: Path) -> None:
    out = tmp_path / "cohort.csv"
    result = CliRunner().invoke(app, ["mimic3", "-o", str(out), "--patients", "50", "--labs", "4", "--quiet"])
    assert (result.exit_code, result.output) == (0, "")
    expected = simulate("mimic3", np.random.default_rng(0), patients=50, labs=4).visits
    assert pl.read_csv(out, schema=expected.schema).equals(expected)


def test_command_overwrites_only_when_forced(app: typer.Typer, tmp_path: Path) -> None:
    out, truth = tmp_path / "cohort.parquet", tmp_path / "cohort.truth.parquet"
    truth.write_text("precious")
    refused = CliRunner().invoke(app, ["mayo", "-o", str(out)])
    assert isinstance(refused.exception, OptionError)
    assert "cohort.truth.parquet" in str(refused.exception)
    assert "--force" in str(refused.exception)
    assert truth.read_text() == "precious"
    assert not out.exists()
    assert CliRunner().invoke(app, ["mayo", "-o", str(out), "--force"]).exit_code == 0
    assert pl.read_parquet(truth).height == pl.read_parquet(out).height


@pytest.mark.parametrize("name", ["cohort.xlsx", "cohort", "nowhere/cohort.csv"])
def test_command_refuses_a_file_it_cannot_write(app: typer.Typer, tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["mayo", "-o", str(tmp_path / name)])
    assert isinstance(result.exception, OptionError)
    assert list(tmp_path.iterdir()) == []


def test_interrupted_command_leaves_nothing(app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: pl.DataFrame, path: Path) -> None:
        Path(path).write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(pl.DataFrame, "write_csv", fail)
    assert CliRunner().invoke(app, ["mayo", "-o", str(tmp_path / "cohort.csv")]).exit_code != 0
    assert list(tmp_path.iterdir()) == []


# What the shift tests look at -------------------------------------------------------------------------------


def with_history(visits: pl.DataFrame) -> pl.DataFrame:
    return visits.with_columns(
        gap=pl.col("time").diff().over("subject_id"), number=pl.int_range(pl.len()).over("subject_id")
    )


def measuring_correlations(cohort: Simulated) -> dict[str, float]:
    """Rank correlation of being measured with what the table shows and with the hidden value."""
    table = with_history(cohort.visits).with_columns(
        cohort.truth["hba1c"].alias("value"), measured=pl.col("hba1c").is_not_null().cast(pl.Float64)
    )
    return {
        name: table.drop_nulls(name).select(pl.corr("measured", name, method="spearman")).item()
        for name in ("glucose", "cholesterol", "gap", "number", "age", "value")
    }


def unweighted_fdp(cohort: Simulated, seed: int, tolerance: float = 0.6, alpha: float = 0.10) -> float:
    """False discovery proportion at the unmeasured visits when calibration visits count alike."""
    rng = np.random.default_rng(seed)
    truth = cohort.truth["hba1c"].to_numpy()
    measured = cohort.visits["hba1c"].is_not_null().to_numpy()
    role = np.where(measured, rng.choice(3, len(truth), p=[0.6, 0.2, 0.2]), 3)
    features = lag_features(cohort, role == 0)
    trees: dict[str, Any] = {"n_estimators": 60, "learning_rate": 0.1, "n_jobs": 1, "verbose": -1}
    model = lgb.LGBMRegressor(**trees, num_leaves=31).fit(features[role == 0], truth[role == 0])
    risky = np.abs(model.predict(features) - truth) >= tolerance
    ranker = lgb.LGBMClassifier(**trees, num_leaves=7).fit(features[role == 1], risky[role == 1])
    risk = np.asarray(ranker.predict_proba(features))[:, 1]
    calibration, candidates = role == 2, role == 3
    risky_risks = np.sort(risk[calibration & risky])
    p_value = (1 + np.searchsorted(risky_risks, risk[candidates])) / (calibration.sum() + 1)
    ordered = np.sort(p_value)
    passing = np.flatnonzero(ordered <= alpha * np.arange(1, len(ordered) + 1) / len(ordered))
    released = p_value <= ordered[passing[-1]]
    return float(risky[candidates][released].mean())


def lag_features(cohort: Simulated, visible: np.ndarray) -> np.ndarray:
    """Nearest visible target before and after each visit, without its own, and the visit's own facts."""
    shown = pl.when(pl.Series(visible)).then(cohort.truth["hba1c"])
    when = pl.when(pl.Series(visible)).then(pl.col("time"))
    table = with_history(cohort.visits).with_columns(shown=shown, when=when)
    before = pl.col("shown", "when").shift(1).forward_fill().over("subject_id").name.suffix("_before")
    after = pl.col("shown", "when").shift(-1).backward_fill().over("subject_id").name.suffix("_after")
    return (
        table.with_columns(before, after)
        .with_columns(pl.col("time") - pl.col("when_before"), later=pl.col("when_after") - pl.col("time"))
        .select("shown_before", "time", "shown_after", "later", "glucose", "cholesterol", "gap", "number", "age")
        .to_numpy()
    )
