"""Compare two checkouts byte for byte: simulated cohorts, readers, built cohorts, methods, both presets.

    python bench/compare_checkouts.py OLD NEW [--only NAME …] [--json FILE]

Each checkout runs in a process of its own, with its own `src` first on the path and one thread, so that sums are
taken in one order. A probe gives parts (a column, an array, a file), each as a digest. A part that only one
checkout has (a column added later) is named but is no difference. Cohorts are built where SAFEIMPUTE_DATA names
the folder of open clinical data. Against checkouts from before the ledger, whose `best` had another statistical
core, leave `best` out: `--except "preset best" "method best" "run best"`. Ends with 1 if anything differs or cannot
be compared.
"""

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

Parts = Iterator[tuple[str, str]]  # name of a part -> its digest

SEED = 2026
EFFORT = 0.001  # every method takes at least one round of training
SOURCES = {
    "mimic3": "mimic3_demo",
    "mimic4": "mimic4_demo",
    "omop": "omop_synthea27nj",
    "meds": "mimic4_demo_meds",
    "fhir": "fhir_r4",
}
SEQUENCES = ("lstm", "transformer", "saits", "brits", "grud", "csdi")
TABLES = ("mean", "locf", "patient_mean", "knn", "mice", "missforest", "lightgbm")
NETWORKS = ("grape", "tdm", "miwae", "remasker", "diffputer")
# Target, tolerance, level and seed: releases of a quarter, of nearly all and of almost none of the candidates.
PAPER_RUNS = (("cholesterol", "20%", 0.2, 1), ("cholesterol", "30%", 0.2, 2), ("platelets", "20%", 0.35, 1))
# Claim, target, tolerance and level of whole runs of preset `best`, every file of whose folder is compared.
BEST_RUNS = (
    ("unmeasured", "cholesterol", "20%", "0.2"),
    ("later", "cholesterol", "20%", "0.3"),
    ("visits", "platelets", "20%", "0.35"),
)
EVALUATION = "--target albumin --tolerance 10% --fdr 0.2,0.35 --splits 2 --preset paper --device cpu --quiet"
NOT_COMPARED = {"seconds", "peak_mib", "written", "path", "checksum", "files"}

# Where a module of ours stands: in this checkout, and where it stood in earlier ones.
HOMES = {
    "tables": ("safeimpute.records.tables",),
    "visits": ("safeimpute.records.visits", "safeimpute.records.columns"),
    "simulate": ("safeimpute.records.simulate",),
    "bundled": ("safeimpute.records.bundled",),
    "catalogue": ("safeimpute.records.catalogue",),
    "cohort": ("safeimpute.records.cohort",),
    "splits": ("safeimpute.splits.roles", "safeimpute.splits"),
    "registry": ("safeimpute.benchmark.registry", "safeimpute.imputers.registry"),
    "bh": ("safeimpute.selection.bh",),
    "p_values": ("safeimpute.selection.p_values",),
}


def ours(name: str, *attributes: str) -> Any:
    """A name of the package, by today's name or an earlier one, from whichever home has it."""
    for home in HOMES[name]:
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError:
            continue
        for attribute in attributes:
            if hasattr(module, attribute):
                return getattr(module, attribute)
    raise LookupError(f"{' or '.join(attributes)} is in none of {', '.join(HOMES[name])}")


def digest_of(thing: Any) -> str:
    """One digest of an array, a column, a file's bytes or anything JSON can write."""
    if isinstance(thing, np.ndarray):
        found = f"{thing.dtype} {thing.shape} ".encode() + np.ascontiguousarray(thing).tobytes()
    elif isinstance(thing, pl.Series):
        found = f"{thing.dtype} {thing.to_list()!r}".encode()
    elif isinstance(thing, bytes):
        found = thing
    else:
        found = json.dumps(thing, sort_keys=True, default=str).encode()
    return hashlib.sha256(found).hexdigest()


def columns_of(frame: pl.DataFrame, prefix: str = "") -> Parts:
    yield from ((f"{prefix}{column.name}", digest_of(column)) for column in frame)


def probe_simulate(shape: str) -> Parts:
    """A cohort of a shape under every shift, and its truth; in full size without a shift."""
    for shift, patients in (("none", None), ("covariate", 200), ("value", 200), ("patients", 200)):
        found = ours("simulate", "simulate")(
            shape, np.random.default_rng(SEED), patients=patients, labs=6, shift=shift
        )
        yield from columns_of(found.visits, f"{shift}: ")
        yield from columns_of(found.truth, f"{shift}: truth ")


def probe_readers() -> Parts:
    """The bundled visits, and what is read back from csv, zipped csv and parquet, as tables and as arrays."""
    visits = ours("bundled", "load_pbc")()
    yield from columns_of(visits, "bundled ")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("visits.csv", "visits.csv.gz", "visits.parquet"):
            path = Path(folder) / name
            _write(visits, path)
            read = ours("tables", "read_visits")(path)
            yield from columns_of(read, f"{name} ")
            yield from _arrays(name, read, "cholesterol")


def _write(table: pl.DataFrame, path: Path) -> None:
    if path.suffix == ".parquet":
        table.write_parquet(path)
    else:
        table.write_csv(path, compression="gzip" if path.suffix == ".gz" else "uncompressed")


def _arrays(name: str, table: pl.DataFrame, target: str) -> Parts:
    visits = ours("visits", "prepare_visits")(table, ours("visits", "ColumnChoice")(target))
    arrays = visits.arrays
    for field in ("patient", "time", "labs", "attributes", "patient_key", "visit_key"):
        yield f"{name} array {field}", digest_of(getattr(arrays, field))
    yield f"{name} labs", digest_of([arrays.lab_names, arrays.attribute_names, visits.ignored])


def probe_cohort(kind: str) -> Parts:
    """The visits file of a published source, and its record but for the hour it was made and the versions."""
    place = Path(os.environ["SAFEIMPUTE_DATA"]) / SOURCES[kind]
    catalogue = ours("catalogue", "load_catalogue")()
    for anchors in ("target", "any"):
        definition = ours("cohort", "define_cohort")(catalogue, target="hba1c", anchors=anchors)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "visits.parquet"
            record = ours("cohort", "build_cohort")(kind, str(place), definition, out, catalogue=catalogue)
            yield f"{anchors}: visits.parquet", digest_of(out.read_bytes())
        for key in sorted(set(record) - {"created", "versions"}):
            yield f"{anchors}: record {key}", digest_of(record[key])


def probe_method(name: str) -> Parts:
    """What a method says about every visit of a small cohort after as few rounds as it takes."""
    table = ours("simulate", "simulate")("mimic4", np.random.default_rng(3), patients=24).visits
    arrays = ours("visits", "prepare_visits")(table, ours("visits", "ColumnChoice")("hba1c")).arrays
    measured = ~np.isnan(arrays.target_values)
    roles = ours("splits", "split_visits")(measured, np.random.default_rng(0), test_fraction=0.2)
    task = ours("splits", "hide")(arrays, roles)
    fitted = ours("registry", "make_imputer")(name, EFFORT).fit(task, np.random.default_rng(5))
    imputation = fitted.impute(task)
    yield "roles", digest_of(roles)
    yield "value", digest_of(imputation.value)
    yield from (
        (f"signal {key}", digest_of(np.asarray(column))) for key, column in imputation.signals.items()
    )


def probe_paper(target: str, tolerance: str, fdr: float, seed: int) -> Parts:
    """Preset `paper` on the bundled visits through the public surface: values, risks, release under `visits`."""
    import safeimpute

    visits = ours("bundled", "load_pbc")()
    imputer = safeimpute.SafeImputer(
        target=target,
        tolerance=tolerance,
        fdr=fdr,
        preset="paper",
        claim="visits",
        random_state=seed,
        device="cpu",
    )
    table = imputer.fit(visits).impute(visits)
    yield from columns_of(table)
    yield from columns_of(imputer.transform(visits), "filled ")


def probe_run(*arguments: str) -> Parts:
    """The folder of a whole `safeimpute run`: tables and pictures as bytes, JSON figure by figure."""
    with tempfile.TemporaryDirectory() as place:
        visits, out = Path(place) / "visits.parquet", Path(place) / "run"
        ours("bundled", "load_pbc")().write_parquet(visits)
        command = [sys.executable, "-m", "safeimpute", "run", str(visits), "--out", str(out), *arguments]
        subprocess.run([*command, "--device", "cpu", "--quiet"], check=True)
        for path in sorted(each for each in out.rglob("*") if each.is_file()):
            name = path.relative_to(out).as_posix()
            if path.suffix == ".json":
                leaves = _leaves(json.loads(path.read_text(encoding="utf-8")))
                kept = [(key, value) for key, value in leaves if NOT_COMPARED.isdisjoint(key.split())]
                yield name, digest_of(kept)
            elif path.name != "report.html":  # says when it was made
                yield name, digest_of(path.read_bytes())


def best_run(claim: str, target: str, tolerance: str, fdr: str) -> tuple[str, ...]:
    return ("--claim", claim, "--target", target, "--tolerance", tolerance, "--fdr", fdr, "--why")


def probe_evaluate() -> Parts:
    """`safeimpute evaluate` of preset `paper` as typed, figure by figure but for time and memory."""
    with tempfile.TemporaryDirectory() as folder:
        visits, out = Path(folder) / "visits.parquet", Path(folder) / "result.json"
        ours("bundled", "load_pbc")().write_parquet(visits)
        command = [sys.executable, "-m", "safeimpute", "evaluate", str(visits), *EVALUATION.split()]
        subprocess.run([*command, "--json", str(out)], check=True)
        found = json.loads(out.read_text(encoding="utf-8"))
    yield from (
        (key, digest_of(value)) for key, value in _leaves(found) if NOT_COMPARED.isdisjoint(key.split())
    )


def _leaves(found: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The single figures of a nested result, each named by the way to it."""
    if not isinstance(found, dict | list):
        yield name, found
        return
    for key, value in found.items() if isinstance(found, dict) else enumerate(found):
        yield from _leaves(value, f"{name} {key}".strip())


def probe_selection() -> Parts:
    """The paper's p-values, with its ties and with ours, and the step-up rule on drawn risks."""
    rng = np.random.default_rng(SEED)
    risk, other = np.round(rng.random(400), 2), np.round(rng.random(300), 2)
    risky = rng.random(300) < other
    tie, other_tie = rng.random(400), rng.random(300)
    published = ours("p_values", "paper_p_values")(risk, other, risky, tie)
    yield "p-values, the paper's ties", digest_of(published)
    yield "released, the paper's ties", digest_of(ours("bh", "benjamini_hochberg")(published, 0.3))
    group = ours("p_values", "Ranked", "Scores")
    p_value = ours("p_values", "conformal_p_values")(group(risk, tie), group(other, other_tie), risky)
    yield "p-values", digest_of(p_value)
    yield "released", digest_of(ours("bh", "benjamini_hochberg")(p_value, 0.3))


def probes() -> dict[str, Callable[[], Parts]]:
    """Every probe by name, in the order of the flow."""
    found: dict[str, Callable[[], Parts]] = {
        f"simulate {shape}": lambda shape=shape: probe_simulate(shape)  # type: ignore[misc]
        for shape in ("mayo", "mimic3", "mimic4")
    }
    found["readers"] = probe_readers
    if os.environ.get("SAFEIMPUTE_DATA"):
        found |= {f"cohort {kind}": lambda kind=kind: probe_cohort(kind) for kind in SOURCES}  # type: ignore[misc]
    found["selection"] = probe_selection
    for name in (*TABLES, *NETWORKS, *SEQUENCES, "paper", "best"):
        found[f"method {name}"] = lambda name=name: probe_method(name)  # type: ignore[misc]
    for run in PAPER_RUNS:
        found[f"preset paper, {run[0]} {run[1]}"] = lambda run=run: probe_paper(*run)  # type: ignore[misc]
    paper = ("--preset", "paper", "--target", "cholesterol", "--tolerance", "20%", "--fdr", "0.2")
    found["run paper"] = lambda: probe_run(*paper)
    for told in BEST_RUNS:
        found[f"run best, {told[0]}"] = lambda told=told: probe_run(*best_run(*told))  # type: ignore[misc]
    return found | {"evaluate, preset paper": probe_evaluate}


def work(checkout: Path, only: list[str], without: list[str]) -> None:
    """In the process of one checkout: run the probes and print one line of JSON for each."""
    import safeimpute

    if not Path(safeimpute.__file__).is_relative_to(checkout):
        raise SystemExit(f"{checkout} was asked for, but the package came from {safeimpute.__file__}")
    for name, probe in probes().items():
        if (only and not name.startswith(tuple(only))) or name.startswith(tuple(without)):
            continue
        began = time.perf_counter()
        try:
            answer: dict[str, Any] = {"parts": dict(probe())}
        except Exception as error:  # a probe that fails is a finding, not the end
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        answer |= {"probe": name, "seconds": round(time.perf_counter() - began, 1)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def run_in(checkout: Path, only: list[str], without: list[str]) -> dict[str, dict[str, Any]]:
    """Every probe's answer from a process whose package is this checkout's."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    environment = os.environ | one_thread | {"PYTHONPATH": str(checkout / "src"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(checkout)]
    command += ["--only", *only, "--except", *without]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    return {answer["probe"]: answer for answer in answers}


def compared(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """One row of the table: how many parts are equal, which differ, and which only one checkout has."""
    errors = [f"{side}: {each['error']}" for side, each in (("old", old), ("new", new)) if "error" in each]
    before, after = old.get("parts", {}), new.get("parts", {})
    both = [part for part in before if part in after]
    differing = [part for part in both if before[part] != after[part]]
    return {
        "equal": bool(both) and not differing and not errors,
        "parts": len(both),
        "differing": differing,
        "only_old": [part for part in before if part not in after] if after else [],
        "only_new": [part for part in after if part not in before] if before else [],
        "errors": errors,
        "seconds": [old.get("seconds"), new.get("seconds")],
    }


def remark(row: dict[str, Any]) -> str:
    """What a reader needs to know beyond yes and no."""
    said = list(row["errors"])
    for title, key in (("differ", "differing"), ("only in old", "only_old"), ("only in new", "only_new")):
        if parts := row[key]:
            said.append(f"{title}: {', '.join(parts[:6])}{' …' if len(parts) > 6 else ''}")
    return "; ".join(said)


def shown(rows: dict[str, dict[str, Any]]) -> str:
    lines = ["| probe | equal | parts | remark |", "|---|---|---|---|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {'yes' if row['equal'] else 'NO'} | {row['parts']} | {remark(row)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--only", nargs="*", default=[], help="probes whose name begins so")
    parser.add_argument("--except", nargs="*", default=[], dest="without", help="probes to leave out")
    parser.add_argument("--json", type=Path, help="write the whole comparison here")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        work(given.worker, given.only, given.without)
        return 0
    if len(given.checkouts) != 2:
        parser.error("two checkouts are needed: OLD NEW")
    old, new = (run_in(checkout.resolve(), given.only, given.without) for checkout in given.checkouts)
    missing = {"error": "no answer"}
    rows = {name: compared(old.get(name, missing), new.get(name, missing)) for name in (old | new)}
    print(shown(rows))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0 if rows and all(row["equal"] for row in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
