"""Monitoring: what is entered, what is found, what an alarm does to scoring, and what recalibration does about it."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.nights import CUT, before, below_a_limit, drifted, elsewhere, fitted, hospital, months, saved
from helpers.scored_cohorts import fit_visits, fitted_cohort
from safeimpute.cli import app
from safeimpute.errors import GuaranteeRefused, OptionError, VisitsError
from safeimpute.model.frozen import shifted
from safeimpute.model.night_log import Event, NightLog
from safeimpute.model.open_model import Recalibration, Status, in_force
from safeimpute.model.scorer import Scorer
from safeimpute.model.whole_table import calibrate_files
from safeimpute.monitoring.monitor import monitor, month_labels
from safeimpute.monitoring.recalibrate import recalibrate, recalibration
from safeimpute.monitoring.watch import hardly_chance
from safeimpute.selection.cutoff import rule_of
from safeimpute.visits.imputations import REGISTER, record_released
from safeimpute.visits.new_visits import read_new_visits

# Monitors month by month and recalibrates after an alarm, as a nightly job would; killed and started again.
JOB = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from helpers.nights import CUT, drifted, months
from safeimpute.errors import GuaranteeRefused
from safeimpute.monitoring.monitor import monitor
from safeimpute.model.night_log import NightLog
from safeimpute.monitoring.recalibrate import recalibrate
from safeimpute.model.scorer import Scorer
scorer, log = Scorer.load(Path(sys.argv[1])), NightLog(Path(sys.argv[2]))
print("ready", flush=True)
for month in range(1, 19):
    found = monitor(scorer, drifted(months(month), CUT + 30.4 * 6), log)
    scorer.score(months(month).filter(month <= 3), log=log) if month <= 3 else None
    if found.alarm and month % 6 == 0:
        recalibrate(scorer, log)
print("done", flush=True)
"""


@pytest.fixture
def place(tmp_path: Path) -> tuple[Scorer, NightLog]:
    return Scorer.load(saved(tmp_path)), NightLog(tmp_path / "nights.sqlite")


def test_entries_are_the_measured_visits_imputed_as_if_missing(place: tuple[Scorer, NightLog]) -> None:
    """Hide one measured value and score its visit: the entry says the same, to the last bit."""
    scorer, log = place
    table = months(6)
    found = monitor(scorer, table, log)
    since = table.filter(pl.col("time") > CUT)
    assert found.new == len(found.entered) == len(since)
    assert found.entered.measured.sum() == since["hba1c"].is_not_null().sum()
    assert not found.alarm
    new = read_new_visits(table, scorer.reading)
    place_of = {key: row for row, key in enumerate(new.arrays.visit_key.tolist())}
    entered = found.entered.at(found.entered.measured)
    for row in range(0, len(entered), max(1, len(entered) // 8)):
        where = place_of[int(entered.visit[row])]
        subject, when = new.subject[where], new.time[where]
        here = (pl.col("subject_id") == subject) & (pl.col("time") == when)
        hidden = table.with_columns(hba1c=pl.when(here).then(None).otherwise("hba1c"))
        scored = scorer.score(hidden.filter(pl.col("subject_id") == subject)).filter(here)
        assert scored["risk"].item() == entered.risk[row]
        truth = table.filter(here)["hba1c"].item()
        assert bool(abs(scored["value"].item() - truth) >= 0.8 - 1e-9) == entered.risky[row]
    assert monitor(scorer, table, log).new == 0, "each visit is entered once"
    assert monitor(scorer, months(8), log).new == len(months(8)) - len(table)


def test_drift_raises_an_alarm_and_stops_the_promise_until_recalibrated(place: tuple[Scorer, NightLog]) -> None:
    scorer, log = place
    calm = monitor(scorer, months(6), log)
    assert not calm.alarm
    assert scorer.score_whole(months(6), log=log).accounts[0].released > 0
    with pytest.raises(GuaranteeRefused, match="no alarm stands"):
        recalibrate(scorer, log)
    worse = drifted(months(18), CUT + 30.4 * 6)
    found = monitor(scorer, worse, log)
    assert found.alarm
    assert "off by the tolerance" in found.watched.found[0]
    began = found.status.alarm.told["began"]  # type: ignore[union-attr]
    assert CUT + 30.4 * 4 < began < CUT + 30.4 * 10
    table, (account,) = scorer.score_whole(worse, log=log)
    assert "alarm" in account.no_promise
    assert account.earlier > 0
    new = table["time"] > CUT + 30.4 * 6
    assert not table.filter(new)["released"].any()
    assert table.filter(~new)["released"].any(), "what was decided stays decided"
    anew = recalibrate(scorer, log)
    assert anew.since >= began
    old = scorer.model.cutoffs[0].risk
    assert anew.cutoffs[0].risk is None or anew.cutoffs[0].risk < (old or 0)
    assert scorer.score_whole(worse, log=log).accounts[0].no_promise == ""
    assert not monitor(scorer, worse, log).alarm
    assert [event.kind for event in log.events(scorer.identity)] == ["alarm", "recalibrated"]


def second_half(
    scorer: Scorer, visits: pl.DataFrame, log: NightLog
) -> tuple[tuple[float, float], tuple[float, float], Recalibration]:
    """Risky and released weight by the old cut-off and by one recalibrated on the first half; what it was."""
    entered = monitor(scorer, visits, log).entered
    alarm = Event(1, "2026-01-01", "alarm", {"found": ["x"], "began": None})
    half = entered.at(entered.day <= np.median(entered.day))
    anew = recalibration(half, Status(alarm, None, 1), rule_of(scorer.settings))
    rest = entered.at(entered.day > np.median(entered.day))

    def released(cutoff: float | None) -> tuple[float, float]:
        out = rest.measured & rest.inside & (rest.risk <= (-np.inf if cutoff is None else cutoff))
        return float(rest.odds[out] @ rest.risky[out]), float(rest.odds[out].sum())

    return released(scorer.model.cutoffs[0].risk), released(anew.cutoffs[0].risk), anew


@pytest.mark.parametrize("scatter", [0.0, 0.5])
def test_a_recalibrated_cutoff_keeps_the_level_where_the_old_one_does_not(
    place: tuple[Scorer, NightLog], tmp_path: Path, scatter: float
) -> None:
    """Twelve hospitals of new patients. Where targets scatter more, little can be released, and of that a little more
    than the level is unacceptable (docs/scoring.md has the figures of 120 hospitals).
    """
    scorer = Scorer({"hba1c": replace(place[0].one, folder=None)})  # a folder has one night log; here each has its own
    found = [
        second_half(scorer, drifted(elsewhere(k), CUT, scatter), NightLog(tmp_path / f"{k}.sqlite")) for k in range(12)
    ]
    old, new = (np.array(each) for each in list(zip(*found, strict=True))[:2])
    balance = new[:, 0] - 0.25 * new[:, 1]
    assert np.sum(new[:, 1] > 0) >= (12 if scatter == 0.0 else 4)
    assert balance.mean() <= 3 * balance.std(ddof=1) / np.sqrt(12)
    share_old, share_new = (each[:, 0].sum() / each[:, 1].sum() for each in (old, new))
    assert share_new <= (0.25 + 0.02 if scatter == 0.0 else 0.25 + 0.09)
    assert scatter == 0.0 or share_new < share_old - 0.04


def test_a_recalibrated_cutoff_comes_into_force(place: tuple[Scorer, NightLog]) -> None:
    scorer, log = place
    *_, anew = second_half(scorer, months(36), log)
    assert anew.cutoffs[0].risk is not None
    model = in_force(scorer.model, Status(None, anew, 2))
    assert model.cutoffs[0].risk == anew.cutoffs[0].risk
    assert len(model.intervals.ratio) == anew.values


def test_halved_measuring_is_an_alarm_and_recalibration_corrects_the_odds(place: tuple[Scorer, NightLog]) -> None:
    scorer, log = place
    rng = np.random.default_rng(0)
    visits = months(14)
    lost = pl.Series(rng.random(len(visits)) < 0.6) & (pl.col("time") > CUT)
    fewer = visits.with_columns(hba1c=pl.when(lost).then(None).otherwise("hba1c"))
    found = monitor(scorer, fewer, log)
    assert found.alarm
    assert any("measured more or less often" in each for each in found.watched.found)
    anew = recalibrate(scorer, log)
    unmeasured = ~found.entered.measured[found.entered.inside]
    odds = np.exp(anew.shift[0] + anew.shift[1] * np.log(found.entered.odds[found.entered.inside]))
    assert np.mean(odds / (1 + odds)) == pytest.approx(unmeasured.mean(), abs=0.04)
    before_, after = (scorer.model, scorer.score_whole(fewer, log=log))
    assert before_.shift == (0.0, 1.0)
    assert after.accounts[0].no_promise == ""


def test_results_beyond_a_limit_were_measured_and_judge_by_what_they_may_hide(place: tuple[Scorer, NightLog]) -> None:
    """A third of the results is "<6": no visit is measured less often for that; any of them may hide an error."""
    scorer, log = place
    table = below_a_limit(months(24))
    limits = table.filter((pl.col("time") > CUT) & pl.col("hba1c").str.starts_with("<")).height
    assert limits > 100
    found = monitor(scorer, table, log)
    entered = found.entered
    assert not found.watched.measuring.found
    below = entered.judged & np.isnan(entered.ratio)
    assert below.sum() == limits
    assert entered.risky[below].all()
    assert entered.measured.sum() == table.filter(pl.col("time") > CUT)["hba1c"].is_not_null().sum()
    assert not (entered.censored | (below & entered.strange)).any()
    alarm = Status(Event(1, "2026-01-01", "alarm", {"found": ["x"], "began": None}), None, 1)
    anew = recalibration(entered, alarm, rule_of(scorer.settings))
    assert anew.values == (entered.judged & entered.inside & ~entered.strange).sum()
    some = entered.at(entered.inside & ~entered.strange)
    odds = shifted(some.odds, anew.shift)
    assert abs(np.mean(odds / (1 + odds)) - np.mean(~some.measured)) < 0.02, "the odds are of who was measured"


def test_a_change_of_unit_is_found_the_same_night(place: tuple[Scorer, NightLog]) -> None:
    """HbA1c in mmol/mol from one night on: an alarm, the unit named, and the night's values not entered."""
    scorer, log = place
    monitor(scorer, months(6), log)
    day = float(months(6)["time"].to_numpy().max())
    later = hospital()[0].filter(pl.col("time") > day).sort("time")
    night = later.filter(pl.col("hba1c").is_not_null())["time"][3]  # the fourth value since
    table = hospital()[0].filter(pl.col("time") <= night)
    mixed = table.with_columns(
        hba1c=pl.when(pl.col("time") > day).then((pl.col("hba1c") - 2.15) / 0.0915).otherwise("hba1c")
    )
    found = monitor(scorer, mixed, log)
    assert found.alarm
    assert found.new == 0
    assert "mmol/mol" in found.watched.found[0]
    assert found.set_aside
    fixed = monitor(scorer, table, log)
    assert fixed.new > 0
    assert fixed.alarm, "an alarm stands until somebody answers it"
    recalibrate(scorer, log, since=CUT)
    assert not monitor(scorer, table, log).alarm


@pytest.mark.full
def test_groups_are_recalibrated_each(tmp_path: Path) -> None:
    imputer = fit_visits(before(), "later", fdr=0.25, tolerance=0.8, groups=("sex",))
    imputer.save(tmp_path / "model")
    scorer, log = Scorer.load(tmp_path / "model"), NightLog(tmp_path / "l.sqlite")
    assert set(scorer.model.cutoffs) == {0, 1}
    found = monitor(scorer, drifted(months(18), CUT + 30.4 * 6), log)
    assert found.alarm
    assert set(found.entered.part.tolist()) == {0, 1}
    for part in (0, 1):
        cutoff = found.entered.cutoff[(found.entered.part == part) & found.entered.inside]
        assert set(cutoff.tolist()) == {scorer.model.cutoffs[part].risk}
    anew = recalibrate(scorer, log)
    assert set(anew.cutoffs) == {0, 1}
    assert scorer.score_whole(months(18), log=log).accounts[0].no_promise == ""


def test_one_odd_value_is_no_change_of_unit() -> None:
    assert not hardly_chance(1, 1)
    assert not hardly_chance(2, 3)
    assert not hardly_chance(6, 40), "values that scatter more are no change of unit"
    assert hardly_chance(3, 3)
    assert hardly_chance(6, 12)


def test_released_values_are_never_entered_or_calibrated_on(tmp_path: Path) -> None:
    """Filled in without their marks, they would look like measured values without an error."""
    (tmp_path / "logs").mkdir()
    model, log, night = saved(tmp_path / "run"), NightLog(tmp_path / "logs" / "nights.sqlite"), months(6)
    scorer = Scorer.load(model)
    scored = scorer.score(night)
    values = scored.filter("released").select("subject_id", "time", "value")
    joined = night.join(values, on=["subject_id", "time"], how="left")
    filled = joined.with_columns(hba1c=pl.coalesce("hba1c", "value")).drop("value")
    for beside in (tmp_path / "run" / "scored.parquet", tmp_path / "tables" / "scored.parquet"):
        beside.parent.mkdir(exist_ok=True)
        assert record_released(beside, "ab" * 32, scored) == ""
        table = beside.with_name("filled.parquet")
        filled.write_parquet(table)
        command = ["monitor", model, table, "--log", log.path, "-o", tmp_path / "report"]
        with pytest.raises(VisitsError, match="that an earlier run released"):
            CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)
        with pytest.raises(VisitsError, match="that an earlier run released"):
            calibrate_files(model, table, tmp_path / "new")
        if beside.parent == model.parent:
            with pytest.raises(VisitsError, match="that an earlier run released"):
                monitor(scorer, filled, log)
            shutil.rmtree(beside.parent / REGISTER)
    assert len(log.entries(scorer.identity, "hba1c")) == 0
    assert monitor(scorer, night, log).new


def test_only_the_claim_later_is_monitored(tmp_path: Path) -> None:
    fitted_cohort()[0].save(tmp_path / "model")
    with pytest.raises(GuaranteeRefused, match="--claim later"):
        monitor(Scorer.load(tmp_path / "model"), before(), NightLog(tmp_path / "l"))


def test_months() -> None:
    from datetime import date

    dates = pl.Series([date(2026, 1, 31), date(2026, 2, 1)])
    assert month_labels(dates, np.array([0.0, 1.0]), 0.0).tolist() == ["2026-01", "2026-02"]
    assert month_labels(dates.cast(pl.String), np.array([0.0, 1.0]), 0.0).tolist() == ["2026-01", "2026-02"]
    assert month_labels(pl.Series([10.0, 50.0]), np.array([10.0, 50.0]), 9.0).tolist() == ["month 1", "month 2"]


@pytest.mark.full
def test_the_commands(tmp_path: Path) -> None:
    """monitor, its report and exit code; score after an alarm; recalibrate."""
    model, table, log = saved(tmp_path), tmp_path / "v.parquet", tmp_path / "l.sqlite"

    def run(*told: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(each) for each in told], catch_exceptions=False)
        return done.exit_code, done.output

    months(6).write_parquet(table)
    code, said = run("monitor", model, table, "--log", log, "-o", tmp_path / "report")
    assert code == 0
    assert "The promise stands" in said
    drifted(months(18), CUT + 30.4 * 6).write_parquet(table)
    code, said = run("monitor", model, table, "--log", log, "-o", tmp_path / "report")
    assert code == 3
    assert "ALARM: more than 25 %" in said
    told = json.loads((tmp_path / "report" / "monitor.json").read_text())
    assert told["alarm"]
    assert len(told["months"]) == 18
    assert set(told["groups"]) == {"history", "value", "sex", "age"}
    assert sum(row["values"] for row in told["groups"]["sex"]) == told["below"]
    page = (tmp_path / "report" / "monitor.html").read_text()
    assert "<script" not in page
    assert "ALARM" in page
    assert "## By month" in (tmp_path / "report" / "monitor.md").read_text()
    assert (tmp_path / "report" / "monitor.png").stat().st_size > 10_000
    code, said = run("score", model, table, "-o", tmp_path / "s.parquet", "--log", log)
    assert "No guarantee: monitor raised an alarm" in said
    code, said = run("score", model, table, "-o", tmp_path / "t.parquet")
    assert "No guarantee: monitor raised an alarm" in said, "heard without naming the night log, too"
    assert not pl.read_parquet(tmp_path / "t.parquet")["released"].any()
    code, said = run("recalibrate", model, "--log", log)
    assert code == 0
    assert Scorer.load(model).model.no_promise == ""
    moved = log.rename(tmp_path / "elsewhere.sqlite")
    with pytest.raises(OptionError, match="not where it was"):
        Scorer.load(model)
    moved.rename(log)
    assert "Calibrated on" in said


def rows_of(path: Path) -> tuple[list[tuple[object, ...]], list[str]]:
    with sqlite3.connect(path) as raw:
        entries = raw.execute("SELECT visit, measured, risk, risky FROM entry ORDER BY visit, measured").fetchall()
        events = [row[0] for row in raw.execute("SELECT kind FROM event ORDER BY number")]
        assert raw.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    return entries, events


@pytest.mark.full
def test_kill_9_of_a_nightly_job_changes_nothing(tmp_path: Path) -> None:
    """Monitor and recalibrate killed at random moments and started again: the same entries, no event twice."""
    calm, killed = tmp_path / "calm.sqlite", tmp_path / "killed.sqlite"
    models = {log: saved(tmp_path / log.stem) for log in (calm, killed)}
    tests = str(Path(__file__).parents[1])

    def start(log: Path) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", JOB, str(models[log]), str(log), tests]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    whole = start(calm)
    assert whole.wait() == 0
    chance = random.Random(0)
    for _ in range(6):
        job = start(killed)
        assert job.stdout is not None
        job.stdout.readline()
        time.sleep(chance.uniform(0.0, 1.5))
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
    assert start(killed).wait() == 0
    expected, found = rows_of(calm), rows_of(killed)
    assert found[0] == expected[0]
    assert found[1][:2] == expected[1][:2] == ["alarm", "recalibrated"]
    for one, two in zip(found[1], found[1][1:], strict=False):
        assert one != two, "an alarm is answered once, and raised once"
    assert fitted() is not None
