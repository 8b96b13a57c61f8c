"""The protocol of the DACMI challenge (ICHI 2019) on any MIMIC-III folder: one result hidden per analyte and stay.

    python -m safeimpute_lab dacmi run MIMIC3_FOLDER --out out/dacmi [--methods best,lightgbm,mice,locf] [--seeds 5]
    python -m safeimpute_lab dacmi table --out out/dacmi [--into docs/evidence.md]

The draws come through `safeimpute cohort`: a row per blood draw with any of the 13 analytes, everybody's, and each
draw belongs to the admission it fell into. In every admission and analyte one result is hidden, of all analytes at
once, where there are `--least` results or more: with few, the range by which errors are told is mere chance. Judged by
the challenge's nRMSD: the root of the mean squared error over the range of that analyte in that admission (admissions
without a range do not count). `best` runs as shipped for several labs, so that it also says which values it releases
at `--fdr` and the share of them that was wrong by more than the allowable error. Cells are kept: a stopped run goes on.

Whoever has MIMIC-III itself gives its folder; the demo has a hundred patients and is no yardstick for the published
figures, which stand beside for reference. The challenge: Luo, Briefings in Bioinformatics 23(1), 2022, bbab489.
"""

import argparse
import json
import subprocess
import sys
import time as clock
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute_lab.studies.into_page import put_into

FloatArray = NDArray[np.float64]

ANALYTES = (
    *("chloride", "potassium", "bicarbonate", "sodium", "hematocrit", "hemoglobin", "mcv", "platelets"),
    *("white_cells", "rdw", "urea_nitrogen", "creatinine", "glucose"),
)
# Regulators say nothing of these three: a twentieth of the value for the size of red cells, a tenth for the others.
TOLERANCE = "allowable,mcv=5%,rdw=10%,bicarbonate=10%"


def draws_of(folder: Path, out: Path) -> pl.DataFrame:
    """A row per draw of an admission, with the admission for a patient."""
    path = out / "draws.parquet"
    if not path.exists():
        told = ["cohort", "mimic3", str(folder), "--target", ",".join(ANALYTES), "--labs", ANALYTES[0]]
        told += ["--glucose", "serum", "--anchors", "target", "--diabetes", "none", "--quiet", "-o", str(path)]
        subprocess.run([sys.executable, "-m", "safeimpute", *told], check=True)
    draws = pl.read_parquet(path).select("subject_id", "time", *ANALYTES)
    (admissions,) = folder.glob("ADMISSIONS.csv*")
    stays = pl.read_csv(admissions, try_parse_dates=True).rename(str.lower)
    stays = stays.select(
        pl.col("subject_id").cast(draws["subject_id"].dtype),
        pl.col("admittime").cast(draws["time"].dtype),
        pl.col("dischtime").cast(draws["time"].dtype),
        "hadm_id",
    ).sort("admittime")
    inside = draws.sort("time").join_asof(
        stays, left_on="time", right_on="admittime", by="subject_id", check_sortedness=False
    )
    inside = inside.filter(pl.col("time") <= pl.col("dischtime"))
    start = pl.col("time").min().over("hadm_id")
    return inside.select(
        pl.col("hadm_id").alias("subject_id"), (pl.col("time") - start).dt.total_minutes() / 1440.0, *ANALYTES
    ).sort("subject_id", "time")


def hidden_cells(draws: pl.DataFrame, rng: np.random.Generator, least: int) -> dict[str, NDArray[np.bool_]]:
    """One result of every admission and analyte that has enough of them."""
    stay = draws["subject_id"].to_numpy()
    found = {}
    for analyte in ANALYTES:
        measured = np.flatnonzero(~np.isnan(draws[analyte].cast(pl.Float64).fill_null(np.nan).to_numpy()))
        order = measured[np.argsort(rng.random(len(measured)))]
        _, first, count = np.unique(stay[order], return_index=True, return_counts=True)
        mask = np.zeros(len(stay), dtype=bool)
        mask[order[first[count >= least]]] = True
        found[analyte] = mask
    return found


def ranges(draws: pl.DataFrame, analyte: str) -> FloatArray:
    """The range of an analyte in each draw's admission, as the challenge takes it: the hidden result counts."""
    column = pl.col(analyte)
    spread = (column.max() - column.min()).over("subject_id").cast(pl.Float64)
    return draws.select(spread.fill_null(0.0)).to_series().to_numpy()


def one_cell(draws: pl.DataFrame, method: str, seed: int, least: int, fdr: float) -> dict[str, Any]:
    """A method on one drawing of the hidden cells."""
    hidden = hidden_cells(draws, np.random.default_rng(seed), least)
    shown = draws.with_columns(
        pl.when(pl.Series(hidden[analyte])).then(None).otherwise(pl.col(analyte)).alias(analyte) for analyte in ANALYTES
    )
    start = clock.process_time()
    values, released = _as_shipped(shown, seed, fdr) if method == "best" else (_by(method, shown, seed), None)
    told: dict[str, Any] = {"method": method, "seed": seed, "seconds": clock.process_time() - start}
    told["labs"] = {
        analyte: _judged(
            draws, analyte, hidden[analyte], values[analyte], None if released is None else released[analyte]
        )
        for analyte in ANALYTES
    }
    return told


def _as_shipped(
    shown: pl.DataFrame, seed: int, fdr: float
) -> tuple[dict[str, FloatArray], dict[str, NDArray[np.bool_]]]:
    """Values and release of `best`, all analytes in one run."""
    from safeimpute import SafeImputer

    imputer = SafeImputer(target=ANALYTES, tolerance=TOLERANCE, fdr=fdr, random_state=seed).fit(shown)
    long = imputer.impute(shown)
    values, released = {}, {}
    for analyte in ANALYTES:
        own = long.filter(pl.col("lab") == analyte).select("subject_id", "time", "value", "released")
        joined = shown.select("subject_id", "time").join(own, on=["subject_id", "time"], how="left")
        values[analyte] = joined["value"].fill_null(np.nan).to_numpy()
        released[analyte] = joined["released"].fill_null(value=False).to_numpy()
    return values, released


def _by(method: str, shown: pl.DataFrame, seed: int) -> dict[str, FloatArray]:
    """Values of a method of the benchmark, one analyte after the other."""
    from safeimpute.visits.columns import ColumnChoice
    from safeimpute.visits.visits import prepare_visits
    from safeimpute_lab.benchmark.cell import impute_openly
    from safeimpute_lab.registry import METHODS

    chosen, found = METHODS[method], {}
    for analyte in ANALYTES:
        visits = prepare_visits(shown, ColumnChoice(analyte))
        value = impute_openly(chosen.make(), visits.arrays, seed, 0.0, stops=chosen.stops)
        found[analyte] = value[visits.row_visit]
    return found


def _judged(
    draws: pl.DataFrame, analyte: str, hidden: NDArray[np.bool_], value: FloatArray, released: NDArray[np.bool_] | None
) -> dict[str, Any]:
    """Squared errors over the range, summed; with a release, how many of the released were unacceptable."""
    from safeimpute.settings import make_settings
    from safeimpute.visits.lab_settings import settings_of_labs

    spread, truth = ranges(draws, analyte), draws[analyte].cast(pl.Float64).to_numpy()
    at = hidden & (spread > 0)
    told: dict[str, Any] = {"n": int(at.sum())}
    told["squares"] = float(np.sum(((value[at] - truth[at]) / spread[at]) ** 2))
    if released is not None:
        asked = make_settings(target=",".join(ANALYTES), tolerance=TOLERANCE, fdr=0.2)
        tolerance = settings_of_labs(asked, ANALYTES)[analyte].allowed_error
        chosen = hidden & released
        told |= {
            "hidden": int(hidden.sum()),
            "released": int(chosen.sum()),
            "wrong": int(tolerance.risky(value[chosen], truth[chosen]).sum()),
            "released_n": int((at & released).sum()),
            "released_squares": float(np.sum(((value - truth)[at & released] / spread[at & released]) ** 2)),
        }
    return told


def run(folder: Path, out: Path, methods: tuple[str, ...], seeds: int, least: int, fdr: float) -> None:
    """Every cell that is not there yet."""
    out.mkdir(parents=True, exist_ok=True)
    draws = draws_of(folder, out)
    print(f"{len(draws):,} draws of {draws['subject_id'].n_unique():,} admissions", flush=True)
    told = {"draws": len(draws), "admissions": draws["subject_id"].n_unique(), "least": least, "fdr": fdr}
    (out / "about.json").write_text(json.dumps(told))
    for seed in range(seeds):
        for method in methods:
            path = out / f"{method}_{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(one_cell(draws, method, seed, least, fdr)))
                print(f"{method}, seed {seed}: {_overall(json.loads(path.read_text())):.3f}", flush=True)


def _overall(cell: dict[str, Any], squares: str = "squares", n: str = "n") -> float:
    """The mean over analytes of the root mean squared error over the range, as the challenge ranks."""
    roots = [np.sqrt(lab[squares] / lab[n]) for lab in cell["labs"].values() if lab[n]]
    return float(np.mean(roots))


def table(out: Path) -> str:
    """The analytes by row, the methods by column, and what was released."""
    cells = [json.loads(path.read_text()) for path in sorted(out.glob("*_*.json"))]
    about = json.loads((out / "about.json").read_text())
    methods = sorted(
        {cell["method"] for cell in cells},
        key=lambda each: np.mean([_overall(c) for c in cells if c["method"] == each]),
    )
    of = {method: [cell for cell in cells if cell["method"] == method] for method in methods}
    lines = [
        f"{about['draws']:,} draws of {about['admissions']:,} admissions, {len(of[methods[0]])} drawings of the hidden "
        "results; nRMSD, lower is better.",
        "",
        "| | " + " | ".join(methods) + " | released by best | of these unacceptable |",
        "|---|" + "---|" * (len(methods) + 2),
    ]
    for analyte in ANALYTES:
        roots = [
            np.mean([np.sqrt(c["labs"][analyte]["squares"] / c["labs"][analyte]["n"]) for c in of[method]])
            for method in methods
        ]
        lines.append(
            f"| {analyte} | " + " | ".join(f"{each:.3f}" for each in roots) + f" | {_release(of, [analyte])} |"
        )
    means = []
    for method in methods:
        each = np.array([_overall(cell) for cell in of[method]])
        error = f" ± {each.std(ddof=1) / np.sqrt(len(each)):.3f}" if len(each) > 1 else ""
        means.append(f"{each.mean():.3f}{error}")
    lines.append("| all 13 | " + " | ".join(means) + f" | {_release(of, ANALYTES)} |")
    if "best" in of:
        kept = np.mean([_overall(cell, "released_squares", "released_n") for cell in of["best"]])
        lines.append(f"\nThe values `best` releases have an nRMSD of {kept:.3f}.")
    return "\n".join(lines) + "\n"


def _release(of: dict[str, list[dict[str, Any]]], analytes: Any) -> str:
    """Share of the hidden results released, and the share of these that was unacceptable."""
    labs = [cell["labs"][analyte] for cell in of.get("best", []) for analyte in analytes]
    hidden, released, wrong = (sum(lab[key] for lab in labs) for key in ("hidden", "released", "wrong"))
    if not hidden:
        return "|"
    return f"{100 * released / hidden:.0f} % | " + (f"{wrong / released:.3f}" if released else "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("folder", type=Path, nargs="?", help="MIMIC-III's csv files")
    parser.add_argument("--out", type=Path, default=Path("out/dacmi"))
    parser.add_argument("--methods", default="best,lightgbm,mice,locf")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--least", type=int, default=10, help="results an admission must have of an analyte")
    parser.add_argument("--fdr", type=float, default=0.2)
    parser.add_argument("--into", type=Path)
    told = parser.parse_args()
    if told.what == "run":
        if told.folder is None:
            parser.error("run needs MIMIC-III's folder")
        run(told.folder, told.out, tuple(told.methods.split(",")), told.seeds, told.least, told.fdr)
    elif told.into:
        put_into(told.into, "dacmi", table(told.out))
    else:
        print(table(told.out), end="")


if __name__ == "__main__":
    main()
