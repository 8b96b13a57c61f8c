"""The rules alone: thousands of drawn worlds with known odds of measuring, judged by what they released.

    python -m safeimpute_lab guarantee rules --out out/study --repetitions 2000 --jobs 2    writes out/study/rules.json
    python -m safeimpute_lab guarantee rules --out out/decided --decisions --patients 300 --repetitions 1000 --jobs 1
                                                                      limits, classes and costs; prints their table

Every world is judged three times: at the unmeasured visits of its own patients, at those of as many patients the ledger
never saw, and in the long run (the share among all that the cut-off would ever release).
"""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.selection.cutoff import Rule, find_cutoff
from safeimpute.selection.ledger import Ledger
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.studies.guarantee.attacks import ATTACKS
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY, SCENARIOS
from safeimpute_lab.studies.guarantee.worlds import DECIDED, World, draw_decided, draw_world

ALPHAS = (0.05, 0.1, 0.2)
CONFIDENCE = 0.9
LONG_RUN = 40_000  # patients
SIZES = (150, 300, 1000)
Draw = Callable[[np.random.Generator, int], World]
USUAL: dict[str, Draw] = {each.key: partial(draw_world, each) for each in SCENARIOS} | ATTACKS
SHIFTS = {"no shift": BY_KEY["none"], "shift": BY_KEY["covariate"]}
DECISIONS: dict[str, Draw] = {
    f"{kind}, {name}": partial(draw_decided, kind, scenario) for kind in DECIDED for name, scenario in SHIFTS.items()
}
WORLDS = USUAL | DECISIONS
FindCutoff = Callable[[Ledger, float], float | None]


def _average(ledger: Ledger, alpha: float) -> float | None:
    return find_cutoff(ledger, Rule("unmeasured", alpha)).risk


def _confident(ledger: Ledger, alpha: float) -> float | None:
    return find_cutoff(ledger, Rule("unmeasured", alpha, "confident", CONFIDENCE)).risk


RULES: dict[str, FindCutoff] = {"average": _average, "confident": _confident}


class LongRun:
    """Share of risky values, and of good ones released, below any cut-off; from very many patients."""

    def __init__(self, world: World) -> None:
        rows = np.flatnonzero(world.candidate)
        rows = rows[np.argsort(world.risk[rows], kind="stable")]
        self.risk, self.risky, self.count = world.risk[rows], world.risky[rows], world.count[rows]
        self.most = int(world.count.max())

    def best(self, alpha: float) -> float:
        """Share of the good ones that the largest cut-off whose share is at most alpha would release."""
        share = np.cumsum(self.risky) / np.arange(1, len(self.risky) + 1)
        places = np.flatnonzero(share <= alpha)
        good = np.cumsum(1.0 - self.risky)
        return float(good[places[-1]] / max(good[-1], 1)) if len(places) else 0.0

    def at(self, cutoff: float | None, longest: int) -> tuple[float, float]:
        """Share and power at a cut-off, within the promise."""
        if cutoff is None:
            return 0.0, 0.0
        place = int(np.searchsorted(self.risk, cutoff, side="right"))
        risky, good = self.risky, float(np.sum(1.0 - self.risky))
        if longest < self.most:
            there = self.count[:place] <= longest
            place, risky = int(there.sum()), risky[:place][there]
        found = float(risky[:place].sum())
        return found / max(place, 1), (place - found) / max(good, 1)


def counted(world: World, cutoff: float | None, longest: int) -> tuple[float, int, float]:
    """Risky ones released, released, and good candidates."""
    candidate = world.candidate
    good = float(np.sum(1.0 - world.risky[candidate]))
    if cutoff is None:
        return 0.0, 0, good
    released = candidate & (world.risk <= cutoff) & (world.count <= longest)
    return float(np.sum(world.risky[released])), int(released.sum()), good


Draws = dict[tuple[str, float], list[tuple[float, ...]]]


def repeat(
    key: str,
    patients: int,
    repetitions: Sequence[int],
    alphas: Sequence[float] = ALPHAS,
    rules: dict[str, FindCutoff] | None = None,
    family: int = 2026,
) -> Draws:
    """Per rule and level one row a repetition: counts of same patients, of new ones, long-run share and power."""
    draw, number = WORLDS[key], list(WORLDS).index(key)
    long_run = LongRun(draw(np.random.default_rng([7, number]), LONG_RUN))
    found: Draws = {}
    for repetition in repetitions:
        rng = np.random.default_rng([family, number, patients, repetition])
        world, new = draw(rng, patients), draw(rng, patients)
        ledger, longest = Ledger(world.entries(), world.grid(), world.risk[world.candidate]), world.longest
        for name, rule in (rules or RULES).items():
            for alpha in alphas:
                cutoff = rule(ledger, alpha)
                counts = (*counted(world, cutoff, longest), *counted(new, cutoff, longest))
                asked = (int(world.candidate.sum()), int(new.candidate.sum()))
                row = (*counts, *long_run.at(cutoff, longest), *asked, long_run.best(alpha))
                found.setdefault((name, alpha), []).append(row)
    return found


@dataclass(frozen=True)
class Summary:
    """What the repetitions of one rule, level and kind of candidates come to."""

    mean_fdp: float
    mean_fdp_se: float
    pooled: float
    pooled_se: float
    exceeds: float  # share of draws above the level
    exceeds_se: float
    power: float
    empty: float
    excess: float = 0.0  # risky values beyond the level's share, per 1,000 candidates


def summarise(risky: FloatArray, released: FloatArray, good: FloatArray, alpha: float) -> Summary:
    """Counts per draw -> the figures; a draw that releases nothing has FDP 0 and power 0."""
    n = len(risky)
    fdp = risky / np.maximum(released, 1)
    pooled = risky.sum() / max(released.sum(), 1)
    off = np.std(risky - pooled * released) / np.sqrt(n) / max(released.mean(), 1e-9)
    above = float(np.mean(fdp > alpha))
    return Summary(
        mean_fdp=float(fdp.mean()),
        mean_fdp_se=float(fdp.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0,
        pooled=float(pooled),
        pooled_se=float(off),
        exceeds=above,
        exceeds_se=float(np.sqrt(above * (1 - above) / n)),
        power=float(np.mean((released - risky) / np.maximum(good, 1))),
        empty=float(np.mean(released == 0)),
    )


def summaries(draws: Draws) -> list[dict[str, Any]]:
    """One row per rule, level and kind of candidates."""
    rows = []
    for (rule, alpha), found in draws.items():
        table = np.array(found, dtype=np.float64)
        for who, start, asked in (("same", 0, 8), ("new", 3, 9)):
            risky, released, good = table[:, start : start + 3].T
            excess = 1000.0 * float(np.sum(risky - alpha * released) / max(table[:, asked].sum(), 1.0))
            told = replace(summarise(risky, released, good, alpha), excess=excess)
            rows.append({"rule": rule, "alpha": alpha, "who": who, "oracle": table[0, 10]} | vars(told))
        above = float(np.mean(table[:, 6] > alpha))
        told_run = {"exceeds": above, "exceeds_se": float(np.sqrt(above * (1 - above) / len(table)))}
        rows.append({"rule": rule, "alpha": alpha, "who": "long run", "power": float(table[:, 7].mean())} | told_run)
    return rows


def decision_table(rows: Sequence[dict[str, Any]]) -> str:
    """Per world and rule, at the fitted patients: what counted on average, how often above the level, and power."""
    lines = [
        "| world | rule | mean share at .05, .1, .2 | above the level | power (of the best cut-off) |",
        "|---|---|---|---|---|",
    ]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["who"] == "same":
            found.setdefault((row["scenario"], row["rule"]), []).append(row)
    for (world, rule), levels in found.items():
        mean = ", ".join(f"{each['mean_fdp']:.3f}" for each in levels)
        above = ", ".join(f"{each['exceeds']:.2f}" for each in levels)
        power = ", ".join(f"{each['power']:.2f} ({each['oracle']:.2f})" for each in levels)
        lines.append(f"| {world} | {rule} | {mean} | {above} | {power} |")
    return "\n".join(lines)


def run_scenario(
    pool: ProcessPoolExecutor,
    key: str,
    patients: int,
    repetitions: int,
    jobs: int,
    family: int,
    rules: dict[str, FindCutoff],
) -> list[dict[str, Any]]:
    """All repetitions of one scenario and size, divided among the workers."""
    parts = [range(start, repetitions, jobs) for start in range(jobs)]
    joined: Draws = {}
    for part in pool.map(partial(repeat, family=family, rules=rules), [key] * jobs, [patients] * jobs, parts):
        for name, rows in part.items():
            joined.setdefault(name, []).extend(rows)
    return [{"scenario": key, "patients": patients} | row for row in summaries(joined)]


def main() -> None:
    """Run all scenarios and write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--patients", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--scenarios", nargs="+", choices=sorted(WORLDS), default=list(USUAL))
    parser.add_argument("--decisions", action="store_true", help="limits, classes and costs instead")
    parser.add_argument("--rules", nargs="+", choices=sorted(RULES), default=list(RULES))
    parser.add_argument("--family", type=int, default=2026, help="of random seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    told = parser.parse_args()
    rows, rules = list[dict[str, Any]](), {name: RULES[name] for name in told.rules}
    with ProcessPoolExecutor(told.jobs) as pool:
        for patients in told.patients:
            for key in DECISIONS if told.decisions else told.scenarios:
                found = run_scenario(pool, key, patients, told.repetitions, told.jobs, told.family, rules)
                rows += found
                print(f"{key}, {patients} patients", flush=True)
    told.out.mkdir(parents=True, exist_ok=True)
    if told.decisions:
        print(decision_table(rows))
    text = json.dumps({"repetitions": told.repetitions, "rows": rows}, indent=1)
    (told.out / "rules.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
