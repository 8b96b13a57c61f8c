"""Nights on real data: Mayo NAFLD, fitted up to a day, then scored month by month against what was measured.

    python -m safeimpute_lab nights nafld --prepare out/nafld.npz [--patients N]  # reads SAFEIMPUTE_DATA
    python -m safeimpute_lab nights nafld --arrays out/nafld.npz --result out/nafld_nights.json  # arrays
    python -m safeimpute_lab nights nafld --result out/nafld_nights.json --picture docs/images  # figure, table

Time is the cohort's own: days from each patient's index date, so that "later" means later in follow-up; months are
30.4 days. HDL, tolerance 5 mg/dL, level 0.35 and 0.2, promise average. Every value measured after the fit is imputed as
if missing by its own fold's model, from what was known by then, as monitor does it.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.learning.best.system import FrozenBest
from safeimpute.model.fit import fit_question
from safeimpute.model.frozen import freeze, learn_reference
from safeimpute.monitoring.monitor import entries_of_visits
from safeimpute.monitoring.watch import below_cutoff, errors_bet, measuring_bet, share_bet
from safeimpute.selection.cutoff import rule_of
from safeimpute.selection.questions import question_for
from safeimpute.settings import Settings
from safeimpute.visits.arrays import VisitArrays

MONTH = 30.4375
TOLERANCE, LEVELS = 5.0, (0.2, 0.35)
FIT_SHARE = 0.6  # of the visits lie before the day the fit ends
ARRAYS = ("patient", "time", "labs", "attributes", "patient_key", "visit_key", "high_cardinality")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--patients", type=int)
    parser.add_argument("--arrays", type=Path)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--picture", type=Path, help="folder for the figure")
    told = parser.parse_args()
    if told.prepare is not None:
        prepare(told.prepare, told.patients)
    elif told.arrays is not None:
        found = [nights(read_arrays(told.arrays), level) for level in LEVELS]
        told.result.parent.mkdir(parents=True, exist_ok=True)
        told.result.write_text(json.dumps(found, indent=1) + "\n")
        print(table(found))
    elif told.picture is not None:
        found = json.loads(told.result.read_text())
        draw(found, told.picture)
        print(table(found))


def prepare(path: Path, patients: int | None) -> None:
    """The cohort as arrays, so that the fit can run where no dataframe library is."""
    from safeimpute.visits.columns import ColumnChoice
    from safeimpute.visits.visits import prepare_visits
    from safeimpute_lab.evidence.datasets import BODY, nafld

    visits = prepare_visits(nafld(patients), ColumnChoice("hdl", attributes=BODY)).arrays
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: getattr(visits, name) for name in ARRAYS}
    names = {"lab_names": visits.lab_names, "attribute_names": visits.attribute_names}
    arrays |= {name: np.array(each) for name, each in names.items()} | {"target": np.array(visits.target)}
    np.savez_compressed(path, **arrays)
    print(f"{len(visits):,} visits of {int(visits.patient[-1]) + 1:,} patients")


def read_arrays(path: Path) -> VisitArrays:
    with np.load(path) as kept:
        arrays = {name: kept[name] for name in ARRAYS}
        return VisitArrays(
            **arrays,
            lab_names=tuple(kept["lab_names"].tolist()),
            attribute_names=tuple(kept["attribute_names"].tolist()),
            target=int(kept["target"]),
        )


def nights(visits: VisitArrays, level: float) -> dict[str, Any]:
    """Fit up to a day, then judge month by month."""
    began = time.perf_counter()
    settings = Settings(target="hdl", tolerance=TOLERANCE, fdr=level, claim="later", device="cpu")
    day = float(np.quantile(visits.time, FIT_SHARE))
    first = visits.take(visits.time <= day)
    fitted, calibrated = fit_question(first, question_for(first, settings), settings)
    decision = calibrated.release(settings.allowed_error, rule_of(settings))
    reference = learn_reference(calibrated, decision, settings)
    assert isinstance(fitted.frozen, FrozenBest)
    model = freeze(fitted.frozen, calibrated, decision, settings, None, reference, "")
    months = np.floor((visits.time - day) / MONTH).astype(np.int64)
    entered = entries_of_visits(visits, visits.time > day, months.astype(np.str_), model, settings.allowed_error)
    below, number = below_cutoff(entered), entered.month.astype(np.int64)
    rows = []
    for month in np.unique(number).tolist():
        there = below & (number == month)
        if there.sum() < 20:
            continue
        weight, risky = entered.odds[there], entered.risky[there]
        rows.append(
            {
                "month": month,
                "values": int(there.sum()),
                "plain": float(risky.mean()),
                "weighted": float((weight * risky).sum() / weight.sum()),
                "of_measured": float(there.sum() / max((entered.measured & (number == month)).sum(), 1)),
            }
        )
    bets = {
        "share": share_bet(entered, model.reference, level),
        "errors": errors_bet(entered, model.reference),
        "measuring": measuring_bet(entered, model.reference),
    }
    weight = entered.odds[below]
    return {
        "level": level,
        "day": day,
        "visits": len(visits),
        "fitted": len(first),
        "cutoff": decision.cutoffs[0].risk,
        "measured": int(entered.measured.sum()),
        "below": int(below.sum()),
        "plain": float(entered.risky[below].mean()) if below.any() else None,
        "weighted": float((weight * entered.risky[below]).sum() / weight.sum()) if below.any() else None,
        "months": rows,
        "alarms": {name: _alarm(bet, day) for name, bet in bets.items()},
        "seconds": round(time.perf_counter() - began, 1),
    }


def _alarm(bet: Any, day: float) -> float | None:
    """Months after the fit, or None."""
    return None if bet.entries_until is None else float((bet.day[bet.entries_until - 1] - day) / MONTH)


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        "| level | measured after the fit | below the cut-off | unacceptable, each counted once | weighted | months "
        "above the level | alarms (months after the fit) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in found:
        above = sum(row["weighted"] > each["level"] for row in each["months"])
        alarms = ", ".join(f"{name} {at:.1f}" for name, at in each["alarms"].items() if at is not None) or "none"
        plain, weighted = (f"{each[name]:.3f}" if each[name] is not None else "–" for name in ("plain", "weighted"))
        lines.append(
            f"| {each['level']:g} | {each['measured']:,} | {each['below']:,} | {plain} | {weighted} | "
            f"{above} of {len(each['months'])} | {alarms} |"
        )
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], folder: Path) -> None:
    """The achieved share by month and over twelve months, beside the level."""
    from matplotlib.figure import Figure

    from safeimpute.report.figure_style import in_percent, save, styled
    from safeimpute.report.palette import ERROR, INK, RELEASED, WITHHELD

    with styled():
        figure = Figure(figsize=(7.2, 3.2 * len(found)))
        panels = np.atleast_1d(figure.subplots(len(found), 1, sharex=True))
        for axes, each in zip(panels, found, strict=True):
            month, values, plain, weighted = (
                np.array([row[name] for row in each["months"]]) for name in ("month", "values", "plain", "weighted")
            )
            axes.scatter(month, plain, s=np.sqrt(values), color=WITHHELD, label="one month")
            year = _over_a_year(plain * values) / _over_a_year(values)
            axes.plot(month[6:-5], year, color=RELEASED, label="twelve months")
            by_weight = _over_a_year(weighted) / 12
            axes.plot(month[6:-5], by_weight, color=RELEASED, linestyle=":", label="twelve months, weighted")
            axes.axhline(each["level"], color=INK, linestyle="--", linewidth=1, label="level")
            for name, at in each["alarms"].items():
                if at is not None:
                    axes.axvline(at, color=ERROR, linewidth=1)
                    axes.text(at, 0.58, f" alarm: {name}", color=ERROR, va="top", fontsize="small")
            axes.set_title(f"NAFLD HDL, level {100 * each['level']:g} %: unacceptable below the cut-off")
            axes.set_ylim(0, 0.6)
            in_percent(axes, y=True)
        panels[-1].legend(loc="lower center", ncols=4, fontsize="small")
        panels[-1].set_xlabel("months after the fit")
    save(figure, folder, "nafld_nights")


def _over_a_year(each: np.ndarray) -> np.ndarray:
    """Sums of twelve months in a row."""
    return np.convolve(each, np.ones(12), mode="valid")


if __name__ == "__main__":
    main()
