"""Nights in simulated hospitals: what scoring releases in a second year, and what monitor sees of it.

    python -m safeimpute_lab nights study --out out/nights --jobs 16 --minutes 28
    python -m safeimpute_lab nights study --out out/nights --table        # the tables

Kinds: `hospitals` and `delayed` (promise confident, level 0.2: long-run share over the second year), `calm` (drift-free
years, for false alarms; every other one with delayed results), `doubled`, `halved`, `unit` (drift three months into the
second year). One line per hospital in out/nights/cells.jsonl; a rerun goes on where it stopped. Arrays only: it runs on
a bare machine.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # hospitals run side by side, one thread each

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.learning.best.system import FrozenBest
from safeimpute.model.fit import fit_question
from safeimpute.model.frozen import FrozenModel, freeze, learn_reference
from safeimpute.model.night_log import Entered
from safeimpute.monitoring.monitor import entries_of_visits
from safeimpute.monitoring.watch import Bet, below_cutoff, errors_bet, measuring_bet, share_bet, strange_labs
from safeimpute.selection.cutoff import rule_of
from safeimpute.selection.questions import question_for
from safeimpute.settings import BestSettings, Settings
from safeimpute.visits.arrays import on_its_way
from safeimpute_lab.studies.guarantee.cohorts import TOLERANCE
from safeimpute_lab.studies.nights.world import DRIFT_DAY, YEAR, Hospital, draw_hospital, drift

ALPHA = 0.2
COUNTS = {"hospitals": 40, "delayed": 40, "calm": 200, "doubled": 60, "halved": 40, "unit": 40}
DRIFTS = {"doubled", "halved", "unit"}


@dataclass(frozen=True)
class Cell:
    """One simulated hospital."""

    kind: str
    number: int
    patients: int

    @property
    def settings(self) -> Settings:
        """How it is fitted; the default promise where monitor is judged."""
        promise = "confident" if self.kind in ("hospitals", "delayed") else "average"
        return Settings(
            target="target",
            tolerance=TOLERANCE,
            fdr=ALPHA,
            claim="later",
            promise=promise,  # type: ignore[arg-type]
            random_state=self.number,
            device="cpu",
            best=BestSettings(),
        )


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit the first year, live through the second, judge."""
    began = time.perf_counter()
    rng = np.random.default_rng([16, list(COUNTS).index(cell.kind), cell.number])
    delayed = cell.kind == "delayed" or (cell.kind == "calm" and cell.number % 2 == 1)
    hospital = draw_hospital(rng, cell.patients, delayed=delayed)
    model = fit_first_year(hospital, cell.settings)
    if cell.kind in DRIFTS:
        sd = _doubling(hospital, model, cell.settings, rng) if cell.kind == "doubled" else 0.0
        hospital = drift(hospital, cell.kind, rng, sd)  # type: ignore[arg-type]
    entered = second_year(hospital, model, cell.settings)
    told = {"kind": cell.kind, "number": cell.number, "patients": cell.patients}
    told |= released(hospital, entered, cell.settings) | judged(entered, model)
    if cell.kind == "unit":
        told |= unit_found(hospital, model)
    return told | {"seconds": round(time.perf_counter() - began, 1)}


def fit_first_year(hospital: Hospital, settings: Settings) -> FrozenModel:
    """On the table as it stood at the end of the first year."""
    first = hospital.until(YEAR).visits
    fitted, calibrated = fit_question(first, question_for(first, settings), settings)
    decision = calibrated.release(settings.allowed_error, rule_of(settings))
    reference = learn_reference(calibrated, decision, settings)
    assert isinstance(fitted.frozen, FrozenBest)
    return freeze(fitted.frozen, calibrated, decision, settings, None, reference, "")


def second_year(hospital: Hospital, model: FrozenModel, settings: Settings) -> Entered:
    """Every visit of the second year as monitor enters it, in the order it becomes known."""
    visits = hospital.visits
    rows = visits.time >= YEAR
    months = np.full(len(visits), "", dtype=np.str_)
    entered = entries_of_visits(visits, rows, months, model, settings.allowed_error)
    clock = dict(zip(visits.visit_key.tolist(), _known(visits).tolist(), strict=True))
    known = np.array([clock[key] for key in entered.visit.tolist()])
    order = np.argsort(known, kind="stable")
    return replace(entered.at(order), number=np.arange(1, len(order) + 1))


def _known(visits: Any) -> np.ndarray:
    if visits.known is None:
        return np.asarray(visits.time)
    return np.asarray(np.fmax(visits.known[:, visits.target], visits.time))


def released(hospital: Hospital, entered: Entered, settings: Settings) -> dict[str, Any]:
    """What nightly scoring let through, judged against the truth: unmeasured visits, and results on their way."""
    rows = {key: row for row, key in enumerate(hospital.visits.visit_key.tolist())}
    place = np.array([rows[key] for key in entered.visit.tolist()], dtype=np.int64)
    truth = hospital.truth[place]
    with np.errstate(invalid="ignore"):
        out = entered.inside & (entered.risk <= entered.cutoff)
    risky = settings.allowed_error.risky(entered.value, truth)
    unmeasured = ~entered.measured
    late = on_its_way(hospital.visits, hospital.visits.target)[place]
    night = unmeasured | late
    return {
        "released": int(np.sum(out & night)),
        "risky_released": int(np.sum(out & night & risky)),
        "released_unmeasured": int(np.sum(out & unmeasured)),
        "risky_unmeasured": int(np.sum(out & unmeasured & risky)),
        "candidates": int(night.sum()),
        "risky_candidates": int(np.sum(night & risky)),
    }


def judged(entered: Entered, model: FrozenModel) -> dict[str, Any]:
    """Alarms, and after how many measured values since the drift."""
    bets = {
        "share": share_bet(entered, model.reference, ALPHA),
        "errors": errors_bet(entered, model.reference),
        "measuring": measuring_bet(entered, model.reference),
    }
    below = below_cutoff(entered)
    after = entered.day >= DRIFT_DAY
    shares = {
        "share_before": float(entered.risky[below & ~after].mean()) if (below & ~after).any() else None,
        "share_after": float(entered.risky[below & after].mean()) if (below & after).any() else None,
    }
    days = {f"{name}_day": _alarm_day(bet) for name, bet in bets.items()}
    found = [day for day in days.values() if day is not None]
    first = min(found, default=None)
    since = entered.measured & after & (entered.day <= (first if first is not None else np.inf))
    wealth = {f"{name}_log": float(np.max(bet.log_wealth, initial=0.0)) for name, bet in bets.items()}
    measured_year = int(entered.measured.sum())
    return days | shares | wealth | {"values_until": int(since.sum()), "measured": measured_year}


def _alarm_day(bet: Bet) -> float | None:
    until = bet.entries_until
    return None if until is None else float(bet.day[until - 1])


def unit_found(hospital: Hospital, model: FrozenModel) -> dict[str, Any]:
    """Night by night after the change: the first night it is found, and how many values that took."""
    visits = hospital.visits
    measured = ~np.isnan(visits.target_values)
    seen = 0
    for night in range(int(DRIFT_DAY), int(DRIFT_DAY) + 60):
        rows = (visits.time >= max(night, DRIFT_DAY)) & (visits.time < night + 1)
        seen += int(np.sum(rows & measured))
        if strange_labs(visits, rows, model.reference):
            return {"unit_nights": night - int(DRIFT_DAY), "unit_values": seen}
    return {"unit_nights": None, "unit_values": seen}


def _doubling(hospital: Hospital, model: FrozenModel, settings: Settings, rng: np.random.Generator) -> float:
    """The extra noise after which twice as many values below the cut-off are risky, risks reacting to it included."""
    seed = int(rng.integers(2**31))

    def share(sd: float) -> tuple[float, float]:
        moved = drift(hospital, "doubled", np.random.default_rng(seed), sd)
        entered = second_year(moved, model, settings)
        below, after = below_cutoff(entered), entered.day >= DRIFT_DAY
        return float(entered.risky[below & ~after].mean()), float(entered.risky[below & after].mean())

    low, high = 0.0, 3.0 * TOLERANCE
    for _ in range(7):
        middle = (low + high) / 2
        before, now = share(middle)
        low, high = (middle, high) if now < 2 * before else (low, middle)
    return (low + high) / 2


# ---- running and reading


def main() -> None:
    """Run the cells that are not there yet, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", choices=list(COUNTS), default=list(COUNTS))
    parser.add_argument("--cells", type=int, help="at most so many of each kind")
    parser.add_argument("--patients", type=int, default=1_200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no hospital after so long")
    parser.add_argument("--table", action="store_true")
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    path = told.out / "cells.jsonl"
    lines = read_lines(path)
    if told.table:
        print(tables(lines))
        return
    done = {(line["kind"], line["number"], line["patients"]) for line in lines}
    most = told.cells or max(COUNTS.values())
    cells = [
        Cell(kind, number, told.patients)
        for number in range(most)
        for kind in told.kinds
        if number < COUNTS[kind] and (kind, number, told.patients) not in done
    ]
    print(f"{len(cells)} hospitals to go", flush=True)
    run_all(cells, path, told.jobs, told.minutes)


def run_all(cells: list[Cell], path: Path, jobs: int, minutes: float) -> None:
    stop = time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool, path.open("a") as file:
        waiting = {pool.submit(_in_time, cell, stop - time.monotonic(), time.time()): cell for cell in cells}
        for done in as_completed(waiting):
            try:
                line = done.result()
            except Exception as error:  # one hospital must not end the study
                print(f"{waiting[done]} failed: {error!r}", flush=True)
                continue
            if line is not None:
                file.write(json.dumps(line) + "\n")
                file.flush()
    print("done", flush=True)


def _in_time(cell: Cell, left: float, asked: float) -> dict[str, Any] | None:
    return run_cell(cell) if time.time() - asked < left else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Finished hospitals; a last line cut off by a kill is left out."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def tables(lines: list[dict[str, Any]]) -> str:
    """Markdown for docs/scoring.md."""
    parts = [
        "| second year | hospitals | released something | share at most 0.2 | pooled share | power | released | "
        "unmeasured only: share at most 0.2, pooled |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    parts += [_release_row(kind, _of(lines, kind)) for kind in ("hospitals", "delayed") if _of(lines, kind)]
    parts += ["", "| year | hospitals | alarms | by test | measured values until the alarm, median (90 %) |"]
    parts += ["| --- | --- | --- | --- | --- |"]
    kinds = [kind for kind in ("calm", "doubled", "halved", "unit") if _of(lines, kind)]
    parts += [_alarm_row(kind, _of(lines, kind)) for kind in kinds]
    if units := _of(lines, "unit"):
        nights = [line["unit_nights"] for line in units]
        same = sum(night == 0 for night in nights)
        values = np.median([line["unit_values"] for line in units])
        parts += ["", f"Unit: found the same night in {same} of {len(units)} (nights: {sorted(set(nights), key=str)}; "]
        parts[-1] += f"values of the target until then, median {values:.0f})."
    return "\n".join(parts)


def _of(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def _release_row(kind: str, lines: list[dict[str, Any]]) -> str:
    def kept(out: str, risky: str) -> tuple[int, float]:
        held = sum(line[risky] <= ALPHA * line[out] for line in lines)
        return held, sum(line[risky] for line in lines) / max(sum(line[out] for line in lines), 1)

    some = sum(line["released"] > 0 for line in lines)
    held, pooled = kept("released", "risky_released")
    alone, alone_pooled = kept("released_unmeasured", "risky_unmeasured")
    good = [line["candidates"] - line["risky_candidates"] for line in lines]
    right = [line["released"] - line["risky_released"] for line in lines]
    power = np.mean([one / two for one, two in zip(right, good, strict=True)])
    count = len(lines)
    return (
        f"| {kind} | {count} | {some} | {held} of {count} | {pooled:.3f} | {power:.2f} | "
        f"{np.mean([line['released'] for line in lines]):.0f} | {alone} of {count}, {alone_pooled:.3f} |"
    )


def _alarm_row(kind: str, lines: list[dict[str, Any]]) -> str:
    tests = ("share", "errors", "measuring")
    if kind == "calm":
        alarmed = [line for line in lines if any(line[f"{test}_day"] is not None for test in tests)]
    else:
        alarmed = [line for line in lines if (_first(line) or 0.0) >= DRIFT_DAY]
    by_test = ", ".join(f"{test} {sum(line[f'{test}_day'] is not None for line in lines)}" for test in tests)
    waits = [line["values_until"] for line in alarmed]
    told = f"{np.median(waits):.0f} ({np.quantile(waits, 0.9):.0f})" if waits and kind != "calm" else "–"
    return f"| {kind} | {len(lines)} | {len(alarmed)} ({len(alarmed) / len(lines):.1%}) | {by_test} | {told} |"


def _first(line: dict[str, Any]) -> float | None:
    days = [line[f"{test}_day"] for test in ("share", "errors", "measuring")]
    return min((day for day in days if day is not None), default=None)


if __name__ == "__main__":
    main()
