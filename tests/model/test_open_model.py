"""A saved model is opened with what stands of it, by whichever door: after an alarm nothing is released, and why."""

import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.nights import CUT, before, drifted, fitted, months, saved
from safeimpute import SafeImputer
from safeimpute.cli import app
from safeimpute.errors import GuaranteeRefused, OptionError
from safeimpute.model.night_log import NightLog
from safeimpute.model.open_model import Status
from safeimpute.model.scorer import Scorer
from safeimpute.model.whole_table import calibrate_files
from safeimpute.monitoring.monitor import monitor
from safeimpute.monitoring.recalibrate import recalibrate

WORSE = drifted(months(18), CUT + 30.4 * 6)


def by_mlflow(model: Path) -> Callable[[pl.DataFrame], Any]:
    from safeimpute.model.mlflow_model import ARTIFACT, MlflowImputer

    wrapper = MlflowImputer()
    wrapper.load_context(SimpleNamespace(artifacts={ARTIFACT: str(model)}))
    return lambda visits: wrapper.predict(None, visits)  # type: ignore[no-untyped-call]


# What each way to open a model gives: a function that scores.
OPENED: dict[str, Callable[[Path], Callable[[pl.DataFrame], Any]]] = {
    "imputer": lambda model: SafeImputer.load(model).score,
    "scorer": lambda model: Scorer.load(model).score,
    "scorer of an imputer": lambda model: SafeImputer.load(model).scorer().score,
    "mlflow": by_mlflow,
}


@pytest.fixture(autouse=True)
def _mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in where MLflow, an extra, is not installed: our class alone is asked."""
    try:
        import mlflow.pyfunc  # noqa: F401
    except ModuleNotFoundError:
        stand_in = ModuleType("mlflow.pyfunc")
        vars(stand_in).update(PythonModel=object, save_model=None)
        monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
        monkeypatch.setitem(sys.modules, "mlflow.pyfunc", stand_in)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NightLog]:
    """A watched model, and the night log in which an alarm stands."""
    model = saved(tmp_path_factory.mktemp("watched"))
    log = NightLog(model.parent / "nights.sqlite")
    assert Scorer.load(model).score(WORSE)["released"].any()
    assert monitor(Scorer.load(model), WORSE, log).alarm
    return model, log


def test_what_was_opened_before_an_alarm_hears_it(tmp_path: Path) -> None:
    """Servers keep a model warm for months; `monitor` leaves word in its folder, and every score asks."""
    model, log = saved(tmp_path), NightLog(tmp_path / "nights.sqlite")
    warm = {door: opened(model) for door, opened in OPENED.items()}
    imputer, scorer = SafeImputer.load(model), pickle.loads(pickle.dumps(Scorer.load(model)))
    assert all(score(WORSE)["released"].any() for score in warm.values())
    assert imputer.transform(WORSE)["hba1c_released"].any()
    found = monitor(Scorer.load(model), WORSE, log)
    assert found.alarm
    assert found.heard
    for door, score in warm.items():
        assert not score(WORSE)["released"].any(), door
    assert not imputer.transform(WORSE)["hba1c_released"].any()
    assert "monitor raised an alarm" in scorer.score_whole(WORSE).accounts[0].no_promise


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError

    model = saved(tmp_path)
    monkeypatch.setattr(Path, "write_text", refuse)
    assert not monitor(Scorer.load(model), months(1), NightLog(tmp_path / "nights.sqlite")).heard


@pytest.mark.parametrize("door", OPENED)
def test_after_an_alarm_nothing_is_released(place: tuple[Path, NightLog], door: str) -> None:
    table = OPENED[door](place[0])(WORSE)
    assert len(table)
    assert not table["released"].any()
    assert (table["reason"] != "").all()


def test_after_an_alarm_nothing_is_filled_in_and_the_account_says_why(place: tuple[Path, NightLog]) -> None:
    filled = SafeImputer.load(place[0]).transform(WORSE)
    assert not filled["hba1c_released"].any()
    assert filled["hba1c"].null_count() == WORSE["hba1c"].null_count()
    for scorer in (Scorer.load(place[0]), SafeImputer.load(place[0]).scorer()):
        (account,) = scorer.score_whole(WORSE).accounts
        assert "monitor raised an alarm" in account.no_promise
        assert account.promise == ""


def test_after_an_alarm_the_imputer_says_what_stands(place: tuple[Path, NightLog]) -> None:
    imputer = SafeImputer.load(place[0])
    assert "monitor raised an alarm" in imputer.promised().no_promise
    assert imputer.promised().promise == ""
    assert "monitor raised an alarm" in imputer._repr_html_()
    promise = fitted().promised().promise
    assert promise
    assert promise not in imputer._repr_html_()
    imputer.impute(before())
    assert imputer.results()["hba1c"].promised.promise == promise, "the release of the fitted table is what it was"


def test_after_an_alarm_no_table_gives_a_new_promise(place: tuple[Path, NightLog], tmp_path: Path) -> None:
    """A calibration on a whole table would write a model that no night log watches."""
    before().write_parquet(tmp_path / "whole.parquet")
    with pytest.raises(GuaranteeRefused, match="monitor raised an alarm"):
        calibrate_files(place[0], tmp_path / "whole.parquet", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_copy_inside_an_mlflow_model_hears_the_alarm(
    place: tuple[Path, NightLog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever MLflow copies, the note of the night log comes with it."""
    from safeimpute.model import mlflow_model

    def save_model(path: str, python_model: Any, artifacts: dict[str, str]) -> None:
        assert isinstance(python_model, mlflow_model.MlflowImputer)
        for source in artifacts.values():
            shutil.copytree(source, Path(path, "artifacts", "model"), ignore=shutil.ignore_patterns(".*"))

    monkeypatch.setattr(mlflow_model, "save_model", save_model)
    mlflow_model.save_for_mlflow(place[0], tmp_path / "mlflow")
    assert not by_mlflow(tmp_path / "mlflow" / "artifacts" / "model")(WORSE)["released"].any()


def test_another_night_log_does_not_silence_an_alarm(place: tuple[Path, NightLog], tmp_path: Path) -> None:
    """Scoring, monitoring and recalibrating with a fresh log are refused; the log that watches is named."""
    model, log = place
    other = NightLog(tmp_path / "other.sqlite")
    doors: list[Callable[[], Any]] = [
        lambda: Scorer.load(model).score(WORSE, log=other),
        lambda: monitor(Scorer.load(model), WORSE, other),
        lambda: recalibrate(Scorer.load(model), other),
    ]
    for door in doors:
        with pytest.raises(OptionError, match=r"watched by the night log .*nights\.sqlite.*recalibrate"):
            door()
    assert (model / ".nights").read_text() == f"{log.path.resolve()}\n"
    assert not Scorer.load(model).score(WORSE, log=log)["released"].any()


@pytest.mark.parametrize("command", ["score", "monitor", "recalibrate"])
def test_the_commands_refuse_another_night_log(place: tuple[Path, NightLog], tmp_path: Path, command: str) -> None:
    WORSE.write_parquet(tmp_path / "v.parquet")
    given = [] if command == "recalibrate" else [str(tmp_path / "v.parquet"), "-o", str(tmp_path / "out.parquet")]
    told = [command, str(place[0]), *given, "--log", str(tmp_path / "fresh.sqlite")]
    with pytest.raises(OptionError, match="watched by the night log"):
        CliRunner().invoke(app, told, catch_exceptions=False)
    assert not (tmp_path / "out.parquet").exists()


def test_a_night_log_that_moved_goes_on_by_its_new_place(tmp_path: Path) -> None:
    """It knows the model; a fresh one beside a lost one does not."""
    model, log = saved(tmp_path), NightLog(tmp_path / "nights.sqlite")
    monitor(Scorer.load(model), months(2), log)
    moved = NightLog(log.path.rename(tmp_path / "elsewhere.sqlite"))
    scorer = Scorer.load(model, status=Status())
    with pytest.raises(OptionError, match="watched by the night log"):
        monitor(scorer, months(3), NightLog(tmp_path / "fresh.sqlite"))
    assert monitor(scorer, months(3), moved).new


def test_doctor_hears_the_alarm(place: tuple[Path, NightLog]) -> None:
    def told() -> str:
        return CliRunner().invoke(app, ["doctor", str(place[0])], catch_exceptions=False).output

    assert "nothing is released: monitor raised an alarm" in told()
    moved = place[1].path.rename(place[1].path.with_name("elsewhere.sqlite"))
    assert "an alarm could not be heard" in told()
    moved.rename(place[1].path)


def test_the_fitted_table_keeps_its_own_release(place: tuple[Path, NightLog]) -> None:
    assert SafeImputer.load(place[0]).impute(before()).equals(fitted().impute(before()))


def test_after_a_recalibration_its_cutoff_decides(tmp_path: Path) -> None:
    """An alarm over values as at the fit, so that the new cut-off releases some."""
    model, log = saved(tmp_path), NightLog(tmp_path / "nights.sqlite")
    scorer = Scorer.load(model)
    monitor(scorer, months(36), log)
    log.record(scorer.identity, "alarm", {"found": ["x"], "began": None}, 0)
    found = recalibrate(Scorer.load(model), log).cutoffs[0].risk
    assert found not in (None, scorer.model.cutoffs[0].risk)
    for door, opened in OPENED.items():
        table = opened(model)(WORSE)
        assert table["released"].any(), door
        assert set(table["cutoff"]) == {found}, door
    filled = SafeImputer.load(model).transform(WORSE)
    assert filled["hba1c_released"].sum() == Scorer.load(model).score(WORSE)["released"].sum()
    said = CliRunner().invoke(app, ["doctor", str(model)], catch_exceptions=False).output
    assert f"new cut-off risk {found:.4g}" in said
    moved = log.path.rename(tmp_path / "elsewhere.sqlite")
    for load in (Scorer.load, SafeImputer.load):
        with pytest.raises(OptionError, match="not where it was"):
            load(model)
    moved.rename(log.path)
