"""Bounds and groups alone: drawn worlds with known odds of measuring, judged by their truth.

    python -m safeimpute_lab guarantee promises --out out/study --repetitions 2000 --jobs 2

Per scenario: how often the bound is exceeded at the worst of many thresholds picked after looking, for the values of
the table and in the long run; and the pooled share of risky values in the worst group when the level holds in each.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import math
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from safeimpute.selection.bounds import ledger_bound
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.release import SelectionData, decide
from safeimpute.visits.arrays import FloatArray, IntArray
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY
from safeimpute_lab.studies.guarantee.worlds import World, draw_world

SCENARIOS = ("none", "covariate", "clock", "site", "minority", "rare heavy", "heavy", "icc 0.1", "icc 0.9")
ALPHAS = (0.1, 0.2)
CONFIDENCE = 0.9
LOOKS = 20  # thresholds looked at, evenly over the candidates
LONG_RUN = 60_000  # patients that stand for the long run
OFTEN = 0.5  # share of draws in which a group must release for its pooled share to speak
FEWEST = 200  # released values of the long run below which its share says nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--patients", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--jobs", type=int, default=2)
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    cells = [(key, size, told.repetitions) for size in told.patients for key in SCENARIOS]
    with ProcessPoolExecutor(told.jobs) as pool:
        rows = list(pool.map(one_row, cells))
    (told.out / "promises.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print(json.dumps(row))


def one_row(cell: tuple[str, int, int]) -> dict[str, Any]:
    """One scenario at one size."""
    key, patients, repetitions = cell
    scenario = BY_KEY[key]
    shares = _long_run(draw_world(scenario, np.random.default_rng([7, 1]), LONG_RUN))
    broken, width = np.zeros(2), list[tuple[float, float]]()
    groups = {alpha: defaultdict[tuple[int, ...], list[tuple[int, int]]](list) for alpha in ALPHAS}
    for number in range(repetitions):
        world = draw_world(scenario, np.random.default_rng([2027, number, patients]), patients)
        broken += _exceeded(world, shares, width)
        for alpha in ALPHAS:
            for name, counts in _by_group(world, alpha).items():
                groups[alpha][name].append(counts)
    return {
        "scenario": key,
        "patients": patients,
        "repetitions": repetitions,
        "exceeded_here": broken[0] / repetitions,
        "exceeded_long_run": broken[1] / repetitions,
        "se": math.sqrt(0.09 / repetitions),
        "bound_at_half": float(np.mean([each[0] for each in width])),
        "true_at_half": float(np.mean([each[1] for each in width])),
        "groups": {str(alpha): _worst(groups[alpha], repetitions) for alpha in ALPHAS},
    }


def _long_run(world: World) -> tuple[FloatArray, FloatArray]:
    """Risks in order, and the running share of risky values."""
    order = np.argsort(world.risk[world.candidate], kind="stable")
    risky = np.cumsum(world.risky[world.candidate][order])
    return world.risk[world.candidate][order], risky / np.arange(1, len(risky) + 1)


def _exceeded(world: World, shares: tuple[FloatArray, FloatArray], width: list[Any]) -> FloatArray:
    """Whether any threshold breaks its bound: among the world's own candidates, in the long run."""
    asked = world.candidate
    risk, patient, risky = world.risk[asked], world.patient[asked], world.risky[asked]
    found = np.zeros(2)
    for look in range(1, LOOKS + 1):
        cutoff = float(np.quantile(risk, look / LOOKS))
        bound = ledger_bound(world.entries(), cutoff, risk, patient, CONFIDENCE)
        true = int(risky[risk <= cutoff].sum())
        place = int(np.searchsorted(shares[0], cutoff, side="right"))
        found[0] = max(found[0], true > bound.risky)
        found[1] = max(found[1], place > FEWEST and shares[1][place - 1] > (bound.share or 0.0))
        if look == LOOKS // 2:
            width.append((bound.risky / bound.values, true / bound.values))
    return found


def _cells(world: World) -> IntArray:
    """Six cells: thirds of the risk, as bands of a value would be, by short and long records."""
    third = np.digitize(world.risk, np.quantile(world.risk, (1 / 3, 2 / 3)))
    return third * 2 + (world.count >= 6)


def _by_group(world: World, alpha: float) -> dict[tuple[int, ...], tuple[int, int]]:
    """Risky and released values of every group."""
    cells = _cells(world)
    data = SelectionData(
        risk=world.risk,
        tie=np.zeros(len(world.risk)),
        patient=world.patient,
        weight=world.weight,
        outside={"scope": ~world.inside},
        judged=world.measured,
        risky=world.risky,
        candidate=~world.measured,
        cell=cells,
    )
    decision = decide(data, Rule("unmeasured", alpha))
    assert decision.merged is not None
    group, risky = decision.merged.of(cells)[data.candidate], world.risky[data.candidate]
    return {
        members: (
            int(np.sum(decision.released & risky & (group == number))),
            int(np.sum(decision.released & (group == number))),
        )
        for number, members in decision.merged.cells.items()
    }


def _worst(groups: dict[tuple[int, ...], list[tuple[int, int]]], repetitions: int) -> dict[str, Any]:
    """The largest mean share of any group, and the largest pooled share of groups that release in most draws.

    Where every value is too risky, a release is rare, and what it lets through is risky whatever the rule.
    """
    worst: dict[str, Any] = {"fdp": 0.0, "fdp_se": 0.0, "share": 0.0, "se": 0.0, "draws": 0, "released": 0.0}
    for counts in groups.values():
        risky, released = np.array(counts, dtype=np.float64).T
        if len(counts) < max(repetitions // 20, 2) or released.sum() < 1:
            continue
        share = float(risky.sum() / released.sum())
        se = float(np.std(risky - share * released) / math.sqrt(len(counts)) / released.mean())
        fdp = risky / np.maximum(released, 1.0)
        excess = {"fdp": float(fdp.mean()), "fdp_se": float(fdp.std() / math.sqrt(len(counts)))}
        worst = max(worst, worst | excess, key=lambda each: each["fdp"])
        if float(np.mean(released > 0)) >= OFTEN and share > worst["share"]:
            worst |= {"share": share, "se": se, "draws": len(counts), "released": float(released.mean())}
    return worst


if __name__ == "__main__":
    main()
