"""A year of nights in a simulated hospital: score, monitor, an alarm in the ninth month, recalibrate.

    python examples/nightly/run.py [--out out/nightly] [--patients 4000] [--quick]

Four years of records are fitted with the claim `later`. Then, night after night, the hospital's table as it stands is
monitored and scored. From day 240 on the laboratory's values scatter more (a new analyser, say): what the fit learnt
about errors is no longer true. Monitor says so; score promises nothing; recalibrate sets a new cut-off from the log.
What the simulation knows and a hospital does not, the true share of unacceptable values among those released, is
written beside it. `--quick` takes a night a week.
"""

import argparse
import json
import shutil
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from safeimpute import SafeImputer
from safeimpute.evaluation.monitor_summary import in_words, summarise_monitoring
from safeimpute.model.night_log import NightLog
from safeimpute.model.scorer import Scorer
from safeimpute.monitoring.monitor import monitor
from safeimpute.monitoring.recalibrate import recalibrate
from safeimpute.report.monitor_page import write_monitor_report
from safeimpute.visits.examples import simulate

FIT_DAYS, YEAR, DRIFT = 4 * 365, 365, 240
DRIFT_SD = 0.75  # HbA1c points that the new analyser adds to every value
TOLERANCE, LEVEL = 1.2, 0.2
START = date(2020, 1, 1)
ANSWERED_AFTER = 28  # days between an alarm and the recalibration: values must be measured first


@dataclass
class Released:
    """What was released in each month, and what the simulation knows about it."""

    values: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    def add(self, month: str, values: int, wrong: int) -> None:
        self.values[month] = self.values.get(month, 0) + values
        self.wrong[month] = self.wrong.get(month, 0) + wrong


def hospital(patients: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Visits and truth over five years, dated; after the drift every HbA1c scatters more."""
    visits, truth = simulate("mimic4", np.random.default_rng(16), patients=patients, shift="covariate")
    noise = np.random.default_rng(17).normal(0, DRIFT_SD, len(visits)).round(1)
    late = visits["time"].to_numpy() >= FIT_DAYS + DRIFT
    moved = pl.Series(np.where(late, noise, 0.0))
    dates = pl.Series("time", [START + timedelta(days=int(day)) for day in visits["time"]])
    within = pl.col("time") < START + timedelta(days=FIT_DAYS + YEAR)
    return tuple(  # type: ignore[return-value]
        table.with_columns((pl.col("hba1c") + moved).clip(4, 16).round(1), dates).filter(within)
        for table in (visits, truth)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/nightly"))
    parser.add_argument("--patients", type=int, default=4_000)
    parser.add_argument("--quick", action="store_true", help="a night a week")
    chosen = parser.parse_args()
    if chosen.out.exists():
        shutil.rmtree(chosen.out)
    chosen.out.mkdir(parents=True)
    visits, truth = hospital(chosen.patients)
    fitted = visits.filter(pl.col("time") < START + timedelta(days=FIT_DAYS))
    imputer = SafeImputer(target="hba1c", tolerance=TOLERANCE, fdr=LEVEL, claim="later")
    print(f"Fitting {len(fitted):,} visits …", flush=True)
    imputer.fit(fitted).save(chosen.out / "model")
    live_through(visits, truth, chosen.out, 7 if chosen.quick else 1)


def live_through(visits: pl.DataFrame, truth: pl.DataFrame, out: Path, step: int) -> None:
    """One night after the other: monitor first, then score what came in since the last."""
    scorer, log = Scorer.load(out / "model"), NightLog(out / "nights.sqlite")
    released, alarm_since = Released(), None
    for day in range(step, YEAR + 1, step):
        tonight, before = (START + timedelta(days=FIT_DAYS + day - back) for back in (0, step))
        table = visits.filter(pl.col("time") < tonight)
        found = monitor(scorer, table, log)
        if found.alarm and alarm_since is None:
            alarm_since = day
            print(f"{tonight}: ALARM: {'; '.join(found.watched.found)}", flush=True)
        if alarm_since is not None and day - alarm_since >= ANSWERED_AFTER:
            anew = recalibrate(scorer, log)
            alarm_since = None
            print(f"{tonight}: recalibrated on {anew.values:,} values, cut-off {anew.cutoffs[0].risk}", flush=True)
        score_night(scorer, log, table, before, truth, released)
    summary = summarise_monitoring(monitor(scorer, visits, log), scorer)
    write_monitor_report(out, summary)
    print("\n".join(in_words(summary)))
    tell(released, out)


def score_night(
    scorer: Scorer, log: NightLog, table: pl.DataFrame, before: date, truth: pl.DataFrame, released: Released
) -> None:
    """The records of the patients who came in since the last night; the night log keeps each decision."""
    came = table.filter(pl.col("time") >= before)["subject_id"].unique().to_list()
    if not came:
        return
    scored = scorer.score(table.filter(pl.col("subject_id").is_in(came)), log=log)
    new = scored.filter(pl.col("time") >= before).join(
        truth.rename({"hba1c": "truth"}), on=["subject_id", "time"], how="left"
    )
    out = new.filter("released")
    wrong = int(((out["value"] - out["truth"]).abs() >= TOLERANCE - 1e-9).sum())
    released.add(before.strftime("%Y-%m"), len(out), wrong)


def tell(released: Released, out: Path) -> None:
    print("\nReleased values by month, and how many of them the simulation knows to be unacceptable:")
    for month, values in released.values.items():
        wrong = released.wrong[month]
        share = f"{wrong / values:.3f}" if values else "–"
        print(f"  {month}  {values:>5,}  {share}")
    (out / "released.json").write_text(json.dumps(vars(released), indent=2) + "\n")
    print(f"\nReport: {out / 'monitor.html'}; picture: {out / 'monitor.png'}")


if __name__ == "__main__":
    main()
