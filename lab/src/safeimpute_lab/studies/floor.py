"""How far imputations lie above the floor: the posterior median under the simulator's own model.

    python -m safeimpute_lab floor run --out out/floor [--shapes mayo,mimic3,mimic4] [--seeds 5] [--methods best,paper]
    python -m safeimpute_lab floor table --out out/floor [--into docs/evidence.md]

On a simulated cohort everything but the random numbers is known, so the best possible imputation can be computed: a
patient's glycaemia is a level and a drift as wide as the patient is volatile (integrated out), every lab a linear
reading of it with a level, drift and visit noise of its own. Reported is the regret, MAE over the floor's minus one, at
the visits nobody measured, and the power of each method's risk against that of the floor's own risk, each released up
to the largest number of values whose share of unacceptable errors is at most the level (by the truth, so that only
the ranking counts). Cells are kept, so a stopped run goes on.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PATIENTS = {"mayo": 84, "mimic3": 4_243, "mimic4": 3_000}
FIRST_SEED = 500  # seeds below were looked at while `best` was made
TOLERANCE = 0.5
LEVELS = (0.05, 0.1, 0.2)
NODES = 15  # of the quadrature over a patient's volatility
LEVEL_OF_AGE, VOLATILITY_OF = -0.2, (0.85, 0.45, -0.25)  # own part, glycaemic level, age
RENAL = (0.9, 0.4)  # own part, age


class Posterior(NamedTuple):
    """Of the target at some visits: a mixture over the patient's volatility, on the scale of glycaemia."""

    weight: FloatArray  # nodes
    mean: FloatArray  # nodes x visits
    sd: FloatArray


def value_of(glycaemia: FloatArray) -> FloatArray:
    """HbA1c of a glycaemic state, without the assay's error."""
    from scipy.special import expit

    from safeimpute.visits.examples import HBA1C_CEILING, HBA1C_FLOOR

    return np.asarray(HBA1C_FLOOR + (HBA1C_CEILING - HBA1C_FLOOR) * expit(-1.05 + 0.72 * glycaemia))


def reading(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The glycaemic state a measured HbA1c points to, and the standard error of that."""
    from scipy.special import logit

    from safeimpute.visits.examples import HBA1C_ASSAY_SD, HBA1C_CEILING, HBA1C_FLOOR

    share = np.clip((value - HBA1C_FLOOR) / (HBA1C_CEILING - HBA1C_FLOOR), 0.004, 0.996)
    slope = (HBA1C_CEILING - HBA1C_FLOOR) * 0.72 * share * (1.0 - share)
    noise = np.sqrt(HBA1C_ASSAY_SD**2 + 0.1**2 / 12.0)  # the laboratory prints one decimal
    return (logit(share) + 1.05) / 0.72, noise / slope


def volatilities(age: float) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Nodes of a patient's log volatility given the age, their weights; mean and variance of the level at each."""
    own, of_level, of_age = VOLATILITY_OF
    norm, level_norm = np.sqrt(own**2 + of_level**2 + of_age**2), np.sqrt(1.0 + LEVEL_OF_AGE**2)
    level_mean, level_var = LEVEL_OF_AGE * age / level_norm, 1.0 / level_norm**2
    slope, rest = of_level / norm, (own / norm) ** 2
    mean, var = slope * level_mean + of_age * age / norm, slope**2 * level_var + rest
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    at = mean + np.sqrt(var) * nodes
    gain = slope * level_var / var
    return at, weights / weights.sum(), level_mean + gain * (at - mean), level_var - gain * slope * level_var


class Readings(NamedTuple):
    """All that was measured of a patient, as linear readings of the glycaemic state at visits."""

    row: IntArray  # visit of each reading
    value: FloatArray
    slope: FloatArray  # change per unit of glycaemia
    renal: FloatArray  # change per unit of renal impairment
    own: FloatArray  # covariance of what does not come from glycaemia


def readings_of(kept: FloatArray, hba1c: FloatArray, labs: dict[str, FloatArray]) -> Readings:
    """`kept` is the correlation of two visits' drifts; a lab has a level and a drift of its own."""
    from safeimpute.visits.examples import LABS

    seen = np.flatnonzero(~np.isnan(hba1c))
    state, error = reading(hba1c[seen])
    rows, values, slopes, renals, blocks = ([seen], [state], [np.ones(len(seen))], [0.0 * state], [np.diag(error**2)])
    for name, measured in labs.items():
        lab, there = LABS[name], np.flatnonzero(~np.isnan(measured))
        change = measured[there] / lab.centre if lab.skewed else measured[there] - lab.centre
        rows.append(there)
        values.append(np.log(change) if lab.skewed else change)
        slopes.append(np.full(len(there), lab.glycaemia))
        renals.append(np.full(len(there), lab.renal))
        noise = lab.visit_sd**2 * np.eye(len(there))
        blocks.append(lab.level_sd**2 + lab.drift_sd**2 * kept[np.ix_(there, there)] + noise)
    join = np.concatenate
    return Readings(join(rows), join(values), join(slopes), join(renals), block_diag(*blocks))


def posterior(age: float, time: FloatArray, hba1c: FloatArray, labs: dict[str, FloatArray]) -> Posterior:
    """Of one patient's visits without HbA1c, from everything the table shows of the patient."""
    from safeimpute.visits.examples import MEMORY_DAYS

    kept = np.exp(-np.abs(np.subtract.outer(time, time)) / MEMORY_DAYS)
    told, hidden = readings_of(kept, hba1c, labs), np.flatnonzero(np.isnan(hba1c))
    renal_norm = np.sqrt(RENAL[0] ** 2 + RENAL[1] ** 2)
    own = told.own + (RENAL[0] / renal_norm) ** 2 * np.outer(told.renal, told.renal)
    value = told.value - told.renal * RENAL[1] * age / renal_norm
    at, prior, level_mean, level_var = volatilities(age)
    log_weight, means, sds = np.log(prior), [], []
    for node, volatility in enumerate(at):
        glycaemia = 0.67**2 * level_var + (0.58 * np.exp(0.5 * volatility)) ** 2 * kept
        centre = 0.67 * level_mean[node]
        factor = np.linalg.cholesky(own + np.outer(told.slope, told.slope) * glycaemia[np.ix_(told.row, told.row)])
        cross = glycaemia[np.ix_(hidden, told.row)] * told.slope
        whitened = np.linalg.solve(factor, np.column_stack([value - told.slope * centre, cross.T]))
        away, seen = whitened[:, 0], whitened[:, 1:]
        log_weight[node] -= 0.5 * away @ away + np.log(np.diag(factor)).sum()
        means.append(centre + seen.T @ away)
        sds.append(np.sqrt(np.maximum(np.diag(glycaemia)[hidden] - np.sum(seen**2, axis=0), 1e-12)))
    weight = np.exp(log_weight - log_weight.max())
    return Posterior(weight / weight.sum(), np.array(means), np.array(sds))


def median_and_risk(found: Posterior) -> tuple[FloatArray, FloatArray]:
    """The value that half of the posterior lies below, and the chance that it is off by the tolerance or more."""
    from scipy.special import ndtr

    from safeimpute.visits.examples import HBA1C_ASSAY_SD

    def below(glycaemia: FloatArray) -> FloatArray:
        return np.asarray(found.weight @ ndtr((glycaemia - found.mean) / found.sd))

    low, high = (
        (found.mean - 9 * found.sd).min(axis=0, initial=0.0),
        (found.mean + 9 * found.sd).max(axis=0, initial=0.0),
    )
    for _ in range(60):
        middle = 0.5 * (low + high)
        over = below(middle) > 0.5
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    value = value_of(0.5 * (low + high))
    noise, weights = np.polynomial.hermite_e.hermegauss(9)
    risk = np.ones(len(value))
    for step, share in zip(noise, weights / weights.sum(), strict=True):
        up, _ = reading(value + TOLERANCE - HBA1C_ASSAY_SD * step)
        down, _ = reading(value - TOLERANCE - HBA1C_ASSAY_SD * step)
        risk -= share * (below(up) - below(down))
    return value, risk


def floor_of(cohort: Any) -> tuple[FloatArray, FloatArray]:
    """Posterior median and risk at every visit without HbA1c, in the order of the table; NaN elsewhere."""
    table = cohort.visits
    patient, time = table["subject_id"].to_numpy(), table["time"].to_numpy()
    names = [name for name in table.columns if name not in ("subject_id", "time", "hba1c", "sex", "age")]
    columns = {name: table[name].cast(float).fill_null(float("nan")).to_numpy() for name in ("hba1c", *names)}
    age = (table["age"].to_numpy() - 62.0) / 12.0
    value, risk = np.full(len(table), np.nan), np.full(len(table), np.nan)
    starts = np.flatnonzero(np.r_[True, patient[1:] != patient[:-1]])
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        here = slice(start, end)
        hidden = np.isnan(columns["hba1c"][here])
        if hidden.any():
            labs = {name: columns[name][here] for name in names}
            found = posterior(float(age[start]), time[here], columns["hba1c"][here], labs)
            value[here][hidden], risk[here][hidden] = median_and_risk(found)
    return value, risk


def power(risk: FloatArray, risky: NDArray[np.bool_], level: float) -> float:
    """The share of good values in the largest release by risk whose unacceptable share is at most the level."""
    order = np.argsort(risk, kind="stable")
    bad = np.cumsum(risky[order])
    fits = np.flatnonzero(bad <= level * np.arange(1, len(bad) + 1))
    return 0.0 if not len(fits) else float((fits[-1] + 1 - bad[fits[-1]]) / max((~risky).sum(), 1))


def one_cohort(shape: Any, seed: int, methods: tuple[str, ...]) -> dict[str, Any]:
    """The floor and every method on one simulated cohort, judged at the visits nobody measured."""
    import time as clock

    from safeimpute.visits.columns import ColumnChoice
    from safeimpute.visits.examples import simulate
    from safeimpute.visits.visits import prepare_visits

    cohort = simulate(shape, np.random.default_rng(FIRST_SEED + seed), patients=PATIENTS[shape])
    prepared = prepare_visits(cohort.visits, ColumnChoice(target="hba1c"))
    visits = prepared.arrays
    row = np.argsort(prepared.row_visit)  # of each visit, in the simulator's order
    hidden = np.isnan(visits.target_values)
    truth = cohort.truth["hba1c"].to_numpy()[row][hidden]
    value, risk = (each[row][hidden] for each in floor_of(cohort))
    found = {"floor": _judged(value, risk, truth)}
    for method in methods:
        start = clock.process_time()
        value, risk = _imputed(visits, method, seed)
        found[method] = _judged(value[hidden], risk[hidden], truth) | {"seconds": clock.process_time() - start}
    return {"shape": shape, "seed": seed, "visits": len(visits), "hidden": int(hidden.sum()), "methods": found}


def _imputed(visits: Any, method: str, seed: int) -> tuple[FloatArray, FloatArray]:
    """Values and risks of every visit, from all that is measured; NaN for a method without a risk."""
    from safeimpute.model.fit import fit_system
    from safeimpute.selection.questions import question_for
    from safeimpute.settings import make_settings
    from safeimpute_lab.benchmark.cell import impute_openly
    from safeimpute_lab.registry import METHODS

    if method not in ("best", "paper"):
        chosen = METHODS[method]
        value = impute_openly(chosen.make(), visits, seed, 0.0, stops=chosen.stops)
        return value, np.full(len(value), np.nan)
    settings = make_settings(target="hba1c", tolerance=TOLERANCE, fdr=0.2, preset=method, random_state=seed)
    estimates = fit_system(question_for(visits, settings), settings).estimates
    return estimates.value, estimates.risk


def _judged(value: FloatArray, risk: FloatArray, truth: FloatArray) -> dict[str, Any]:
    error = np.abs(value - truth)
    risky = error >= TOLERANCE - 1e-9
    told: dict[str, Any] = {"mae": float(error.mean())}
    if np.isfinite(risk).all():
        told["power"] = {str(level): power(risk, risky, level) for level in LEVELS}
    return told


def run(out: Path, shapes: tuple[str, ...], seeds: int, methods: tuple[str, ...]) -> None:
    """Every cell that is not there yet."""
    out.mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        for seed in range(seeds):
            path = out / f"{shape}_{seed}.json"
            kept = json.loads(path.read_text()) if path.exists() else None
            if kept is None or set(methods) - set(kept["methods"]):
                path.write_text(json.dumps(one_cohort(shape, seed, methods)))
                print(path.read_text(), flush=True)


def table(out: Path) -> str:
    """One row per shape and method."""
    cells = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    lines = [
        "| cohort | method | MAE | above the floor | power at "
        + " | power at ".join(f"{each:g}" for each in LEVELS)
        + " |",
        "|---|---|---|---|" + "---|" * len(LEVELS),
    ]
    for shape in dict.fromkeys(cell["shape"] for cell in cells):
        own = [cell for cell in cells if cell["shape"] == shape]
        for method in own[0]["methods"]:
            each = [cell["methods"][method] for cell in own]
            regret = np.array(
                [m["mae"] / cell["methods"]["floor"]["mae"] - 1 for m, cell in zip(each, own, strict=True)]
            )
            spread = regret.std(ddof=1) / np.sqrt(len(regret)) if len(regret) > 1 else np.nan
            above = "" if method == "floor" else f"{100 * regret.mean():.1f} ± {100 * spread:.1f} %"
            powers = [
                f"{np.mean([m['power'][str(level)] for m in each]):.2f}" if "power" in each[0] else ""
                for level in LEVELS
            ]
            name = f"{shape}, {own[0]['visits']:,} visits, {len(own)} seeds" if method == "floor" else ""
            mae = np.mean([m["mae"] for m in each])
            lines.append(f"| {name} | {method} | {mae:.3f} | {above} | " + " | ".join(powers) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run cells, or write them as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("out/floor"))
    parser.add_argument("--shapes", default="mayo,mimic3,mimic4")
    parser.add_argument("--methods", default="best,lightgbm,paper")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--into", type=Path)
    told = parser.parse_args()
    if told.what == "run":
        run(told.out, tuple(told.shapes.split(",")), told.seeds, tuple(told.methods.split(",")))
    elif told.into is None:
        print(table(told.out))
    else:
        from safeimpute_lab.studies.into_page import put_into

        put_into(told.into, "floor", table(told.out))


if __name__ == "__main__":
    main()
