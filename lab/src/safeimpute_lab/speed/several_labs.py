"""What several labs in one run cost: against one lab, and the whole chain from visits to review page.

    python -m safeimpute_lab speed several_labs ratio [--labs 20] [--visits 2000] [--threads 1,2]
    python -m safeimpute_lab speed several_labs chain {mimic4,icu} [--threads 2] [--out DIR]

`ratio` fits all labs of one table in one run, and some of them alone, each in a process of its own, and compares
wall and processor seconds and memory. The table is simulated (labs correlated, measured at 30 to 80 % of visits).
`chain` fits, releases, saves, reports, scores and opens the review page on open data (SAFEIMPUTE_DATA), with times:
three labs of the MIMIC-IV demo, or twenty of PhysioNet 2012 (2,000 visits).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHAINS: dict[str, dict[str, Any]] = {
    "mimic4": {"target": "calcium,magnesium,phosphate", "tolerance": "allowable,phosphate=25%", "fdr": 0.2},
    "icu": {
        "target": "all",
        "tolerance": "20%,Temp=0.5,pH=0.05,Na=4,GCS=2,MAP=10,SysABP=15,DiasABP=10,HR=10",
        "fdr": 0.2,
    },
}


def simulated(labs: int, visits: int, seed: int = 7) -> Any:
    """Labs that share factors and drift along each patient's visits; which are measured hangs on what was seen."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed)
    patients = visits // 8
    patient = np.repeat(np.arange(patients), 8)
    time_ = np.cumsum(rng.exponential(30.0, (patients, 8)), axis=1).ravel()
    loading = rng.normal(0.0, 0.6, (3, labs))
    steady = rng.normal(size=(patients, 3))[patient] + 0.5 * rng.normal(size=(len(patient), 3))
    own = 0.7 * rng.normal(size=(patients, labs))[patient]
    values = 100.0 + 12.0 * (steady @ loading + own + 0.4 * rng.normal(size=(len(patient), labs)))
    share = np.linspace(0.3, 0.8, labs)
    chance = 1.0 / (1.0 + np.exp(-np.log(share / (1 - share)) - 0.6 * steady[:, [0]]))
    values = np.where(rng.random(values.shape) < chance, values, np.nan)
    columns = {f"lab{k:02d}": pl.Series(values[:, k]).fill_nan(None) for k in range(labs)}
    return pl.DataFrame({"subject_id": patient, "time": time_, "age": rng.normal(60, 10, patients)[patient], **columns})


def fitted(labs: int, visits: int, target: str) -> dict[str, Any]:
    """One fit, in this process."""
    import lightgbm  # noqa: F401  # loaded before the clock starts
    import torch  # noqa: F401

    from safeimpute import SafeImputer
    from safeimpute.machine.resources import peak_mib

    table = simulated(labs, visits)
    start, spent = time.perf_counter(), time.process_time()
    imputer = SafeImputer(target=target, tolerance="10%", fdr=0.2).fit(table)
    wall, cpu = time.perf_counter() - start, time.process_time() - spent
    released = imputer.impute(table)["released"].mean()
    return {"target": target, "wall": wall, "cpu": cpu, "peak_mib": peak_mib(), "released": released}


def in_own_process(threads: int, *words: str) -> dict[str, Any]:
    told = {**os.environ, **{f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}}
    done = subprocess.run([sys.executable, __file__, *words], env=told, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ratio(labs: int, visits: int, threads: list[int]) -> None:
    singles = [f"lab{k:02d}" for k in (labs // 4, labs // 2, 3 * labs // 4)]
    size = ["--labs", str(labs), "--visits", str(visits)]
    for count in threads:
        alone = [in_own_process(count, "fit", "--target", lab, *size) for lab in singles]
        every = in_own_process(count, "fit", "--target", "all", *size)
        mean = {name: sum(each[name] for each in alone) / len(alone) for name in ("wall", "cpu", "peak_mib")}
        print(
            f"{count} threads: one lab {mean['wall']:.1f} s wall, {mean['cpu']:.1f} s CPU, {mean['peak_mib']:.0f} MiB; "
            f"{labs} labs {every['wall']:.1f} s wall, {every['cpu']:.1f} s CPU, {every['peak_mib']:.0f} MiB; "
            f"ratio {every['wall'] / mean['wall']:.2f} wall, {every['cpu'] / mean['cpu']:.2f} CPU"
        )


def chain_table(name: str) -> Any:
    import polars as pl

    from safeimpute_lab.evidence.datasets import ICU_LABS, icu_stays, mimic_days

    if name == "mimic4":
        return mimic_days(4)
    stays = icu_stays(labs=(*ICU_LABS, "DiasABP")).sort("subject_id", "time")
    return stays.with_columns(pl.col("Gender").cast(pl.String), age="Age").drop("Age").head(2000)


def chain(name: str, threads: int, out: Path) -> None:
    """Every step as a user takes it, with its seconds."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    out.mkdir(parents=True, exist_ok=True)
    visits, run = out / f"{name}.parquet", out / f"{name}-run"
    chain_table(name).write_parquet(visits)
    asked = [f"--{option}={value}" for option, value in CHAINS[name].items()]
    program = [sys.executable, "-m", "safeimpute"]
    steps = {
        "run (fit, release, save, report)": [*program, "run", str(visits), *asked, "--out", str(run), "--force"],
        "score": [
            *program,
            "score",
            str(run / "model"),
            str(visits),
            "-o",
            str(out / f"{name}-scored.parquet"),
            "--force",
        ],
        "report": [*program, "report", str(run)],
    }
    for step, command in steps.items():
        start = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"{step}: {time.perf_counter() - start:.1f} s")
        print(done.stdout if step.startswith("run") else "", end="")
    start = time.perf_counter()
    from safeimpute.web.app import open_reviews

    reviews = open_reviews(run)
    print(f"page: {len(reviews)} labs open in {time.perf_counter() - start:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ratio", "fit", "chain"])
    parser.add_argument("name", nargs="?", choices=sorted(CHAINS))
    parser.add_argument("--labs", type=int, default=20)
    parser.add_argument("--visits", type=int, default=2000)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--target", default="all")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    if told.what == "fit":
        print(json.dumps(fitted(told.labs, told.visits, told.target)))
    elif told.what == "ratio":
        ratio(told.labs, told.visits, [int(each) for each in told.threads.split(",")])
    else:
        chain(told.name, int(told.threads.split(",")[-1]), told.out or Path(tempfile.mkdtemp()))


if __name__ == "__main__":
    main()
