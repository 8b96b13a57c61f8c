"""Growth laws from logged runs of `scale million`: seconds = a x visits^b per stage, and what they predict."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Run = dict[str, Any]
USUAL = {"labs": 10, "neighbours": 16}
SCORING = ("estimate",)  # what a visit costs that is scored later
START, END = "<!-- measured: python -m safeimpute_lab scale million --fit -->", "<!-- end of measured -->"
FIT_VISITS, ALL_VISITS = 1_000_000, 100_000_000
EXECUTORS, CORES = 25, 4  # the named cluster: 25 executors of 4 cores
LAW_FROM = 100_000  # visits; below, the panel is not yet full and reading evidence grows with the square
SHORTEST = 0.5  # seconds; shorter stages say nothing about growth


def report(runs: Sequence[Run]) -> str:
    """The measured part of the page on scaling."""
    alone = [run for run in runs if run["device"] == "cpu" and run["threads"] == "1"]
    on_cpu = [run for run in runs if run["device"] == "cpu" and run not in alone] + alone
    by_visits = _varying(on_cpu, "visits")
    parts = [_stage_table(by_visits), _growth_sentence(by_visits, "cpu")]
    for what in ("labs", "neighbours"):
        parts.append(_other_table(_varying(on_cpu, what), what))
    by_clock = [run for run in runs if run not in alone]
    parts.append(_clock_table(by_clock))
    for device, labs in sorted({(run["device"], run["labs"]) for run in by_clock}):
        alike = [run for run in by_clock if (run["device"], run["labs"]) == (device, labs)]
        parts.append(_growth_sentence(alike, "wall"))
    parts.append(_prediction(by_visits))
    return "\n\n".join(part for part in parts if part)


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the marks of a page."""
    before, _, rest = page.read_text().partition(START)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}")


def law(runs: Sequence[Run], stage: str) -> tuple[float, float]:
    """Log of a, and b, by least squares on logarithms; from full panels on, where two sizes have one."""
    large = [run for run in runs if run["visits"] >= LAW_FROM]
    runs = large if len(large) > 1 else runs
    visits = np.log([run["visits"] for run in runs])
    slope, intercept = np.polyfit(visits, np.log([_seconds(run, stage) for run in runs]), 1)
    return float(intercept), float(slope)


def predicted(runs: Sequence[Run], stage: str, visits: int) -> float:
    intercept, slope = law(runs, stage)
    return float(np.exp(intercept + slope * np.log(visits)))


def _varying(runs: Sequence[Run], what: str) -> list[Run]:
    """Runs that differ in one thing only, one per value of it; of several the last, on one thread if there is one."""
    fixed = {name: value for name, value in USUAL.items() if name != what}
    alike = [run for run in runs if all(run[name] == value for name, value in fixed.items())]
    if what != "visits":
        counts = [run["visits"] for run in alike if run[what] != USUAL[what]]
        alike = [run for run in alike if counts and run["visits"] == counts[-1]]
    last = {run[what]: run for run in alike}
    return [last[value] for value in sorted(last)]


def _seconds(run: Run, stage: str) -> float:
    return float(run["total"]["cpu"] if stage == "all" else run["stages"][stage]["cpu"])


def _stage_table(runs: Sequence[Run]) -> str:
    rows = [["stage", *(f"{run['visits']:,}" for run in runs), "exponent b"]]
    for stage in [*runs[0]["stages"], "all"]:
        seconds = [_seconds(run, stage) for run in runs]
        exponent = f"{law(runs, stage)[1]:.2f}" if _long(runs, stage) and len(runs) > 1 else "–"
        rows.append([stage, *(f"{each:.1f}" for each in seconds), exponent])
    rows.append(["peak memory, MiB", *(f"{run['peak_mib']:,.0f}" for run in runs), ""])
    return "Processor seconds, all threads together, against visits (10 labs beside the target).\n\n" + _table(rows)


def _growth_sentence(runs: Sequence[Run], measure: str) -> str:
    runs = sorted(runs, key=lambda run: int(run["visits"]))
    large = [run for run in runs if run["visits"] >= LAW_FROM]
    first, last = large[0] if len(large) > 1 else runs[0], runs[-1]
    if first["visits"] == last["visits"]:
        return ""
    visits, seconds = last["visits"] / first["visits"], last["total"][measure] / first["total"][measure]
    by = "processor time" if measure == "cpu" else f"the clock, {last['device']}"
    return (
        f"By {by}, {last['visits']:,} visits take {seconds:.2f} times as long as {first['visits']:,}, for {visits:g} "
        f"times the visits: {seconds / visits:.2f} times linear."
    )


def _other_table(runs: Sequence[Run], what: str) -> str:
    if len(runs) < 2:
        return ""
    rows = [["stage", *(f"{run[what]} {what}" for run in runs)]]
    for stage in [*runs[0]["stages"], "all"]:
        rows.append([stage, *(f"{_seconds(run, stage):.1f}" for run in runs)])
    return f"The same against {what}, {runs[0]['visits']:,} visits.\n\n" + _table(rows)


def _setting(run: Run) -> str:
    return f"{run['visits']:,} visits, {run['labs']} labs, {run['device']}, {run['cores']} cores"


def _clock_table(runs: Sequence[Run]) -> str:
    """Runs for the clock: all cores, or a GPU."""
    if not runs:
        return ""
    rows = [["stage", *(_setting(run) for run in runs)]]
    for stage in runs[0]["stages"]:
        rows.append([stage, *(f"{run['stages'][stage]['wall']:.1f}" for run in runs)])
    rows.append(["all", *(f"{run['total']['wall']:.1f}" for run in runs)])
    rows.append(["peak memory, MiB", *(f"{run['peak_mib']:,.0f}" for run in runs)])
    return "Seconds by the clock.\n\n" + _table(rows)


def _prediction(runs: Sequence[Run]) -> str:
    fit = sum(predicted(runs, stage, FIT_VISITS) for stage in runs[0]["stages"] if _long(runs, stage))
    each = sum(_seconds(runs[-1], stage) for stage in SCORING) / runs[-1]["visits"]
    hours = each * ALL_VISITS / 3600
    minutes = 60 * hours / (EXECUTORS * CORES)
    return (
        f"By these laws a fit on {FIT_VISITS:,} visits takes {fit / 60:.0f} processor minutes. Scoring takes "
        f"{1000 * each:.2f} ms of one core per visit, {hours:,.0f} core hours for {ALL_VISITS:,} visits: about "
        f"{minutes:.0f} minutes on {EXECUTORS} executors of {CORES} cores, if reading and writing keep up."
    )


def _long(runs: Sequence[Run], stage: str) -> bool:
    return min(_seconds(run, stage) for run in runs) >= SHORTEST


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" + "|---:" * (len(rows[0]) - 1) + "|", *lines[1:]])
