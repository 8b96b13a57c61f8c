"""Time and memory of `safeimpute cohort mimic4` on a generated labevents table, as parquet and as csv.gz.

Run `python -m safeimpute_lab scale cohort` for 50 million rows (about 20 minutes, 3 GB of disk, removed afterwards) or
with `--rows 2000000` for a quick look. The count and each build run in their own process, on the same files.
"""

import argparse
import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

PARQUET_SECONDS = 60
CSV_RATIO = 2.0
PEAK_MIB = 2048
ROWS_PER_PATIENT = 400  # MIMIC-IV: 124 million rows of about 300,000 patients

# Of 1,000 rows: 2 HbA1c, 2 average glucose, 26 serum and 3 blood-gas glucose, 3 cholesterol, the rest other.
LABEVENTS = """
SELECT i AS labevent_id, subject_id, CASE WHEN h % 3 = 0 THEN 20000000 + i // 2000 END AS hadm_id,
       30000000 + i // 10 AS specimen_id, itemid, 'P' || (h % 97) AS order_provider_id, charttime,
       charttime + to_minutes(CAST(20 + h % 400 AS INTEGER)) AS storetime,
       CASE WHEN h % 50 = 0 THEN '___' ELSE printf('%.1f', valuenum) END AS value,
       CASE WHEN h % 50 <> 0 THEN valuenum END AS valuenum,
       CASE itemid WHEN 50852 THEN '%' ELSE 'mg/dL' END AS valueuom,
       3.5 AS ref_range_lower, 10.5 AS ref_range_upper, CASE WHEN h % 4 = 0 THEN 'abnormal' END AS flag,
       CASE WHEN h % 2 = 0 THEN 'ROUTINE' ELSE 'STAT' END AS priority,
       CASE WHEN h % 7 = 0 THEN 'VERIFIED BY REPLICATE ANALYSIS, ___.' END AS comments
FROM (
  SELECT i, 10000000 + i // {per_patient} AS subject_id, h, k,
         CASE WHEN k < 2 THEN 50852 WHEN k < 4 THEN 51613 WHEN k < 30 THEN 50931 WHEN k < 33 THEN 50809
              WHEN k < 36 THEN 50907 ELSE 51000 + h % 600 END AS itemid,
         CASE WHEN k < 2 THEN 4.5 + (h % 80) / 10.0 ELSE 60 + (h % 3000) / 10.0 END AS valuenum,
         TIMESTAMP '2110-01-01' + to_minutes(CAST((i % {per_patient}) * 5000 + h % 5000 AS BIGINT))
           AS charttime
  FROM (SELECT i, hash(i) >> 1 AS h, (hash(i + 7) >> 1) % 1000 AS k FROM range({rows}) AS t(i))
)
"""
PATIENTS = """
SELECT 10000000 + i AS subject_id, CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END AS gender,
       CAST(30 + i % 60 AS INTEGER) AS anchor_age, 2115 AS anchor_year
FROM range({patients}) AS t(i)
"""
DIAGNOSES = """
SELECT 10000000 + i AS subject_id, 20000000 + i AS hadm_id, 1 AS seq_num,
       CASE WHEN i % 5 = 0 THEN 'E119   ' ELSE 'I10    ' END AS icd_code, 10 AS icd_version
FROM range({patients}) AS t(i)
"""
ADMISSIONS = """
SELECT 10000000 + i AS subject_id, 20000000 + i AS hadm_id, TIMESTAMP '2110-02-03 04:05:06' AS admittime
FROM range({patients}) AS t(i)
"""
TABLES = {"labevents": LABEVENTS, "patients": PATIENTS, "diagnoses_icd": DIAGNOSES, "admissions": ADMISSIONS}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=50_000_000)
    rows = options.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="safeimpute-bench-") as folder:
        failures = measure(Path(folder), rows)
    for failure in failures:
        print(f"MISSED: {failure}")
    sys.exit(bool(failures))


def measure(folder: Path, rows: int) -> list[str]:
    sources = {form: folder / form for form in ("parquet", "csv.gz")}
    for form, place in sources.items():
        start = time.perf_counter()
        generate(place, rows, form)
        size = (place / "hosp" / f"labevents.{form}").stat().st_size / 1e6
        print(f"generated {rows:,} rows as {form}: {size:,.0f} MB in {time.perf_counter() - start:.0f} s", flush=True)
    csv = sources["csv.gz"] / "hosp" / "labevents.csv.gz"
    counted = in_own_process("count", str(csv))
    results = {
        f"{form}, anchors {anchors}": in_own_process(
            "build", str(sources[form]), str(folder / "visits.parquet"), anchors
        )
        for form, anchors in (("parquet", "target"), ("parquet", "any"), ("csv.gz", "target"))
    }
    print(f"\n{'':<28}{'seconds':>9}{'peak MiB':>10}{'visits':>12}")
    print(f"{'count csv.gz rows (DuckDB)':<28}{counted['seconds']:>9.1f}{counted['peak_mib']:>10.0f}")
    for name, result in results.items():
        print(f"{name:<28}{result['seconds']:>9.1f}{result['peak_mib']:>10.0f}{result['visits']:>12,}")
    ratio = results["csv.gz, anchors target"]["seconds"] / counted["seconds"]
    print(f"csv.gz build / count: {ratio:.2f}")
    failures = [f"{name}: {r['peak_mib']:.0f} MiB" for name, r in results.items() if r["peak_mib"] >= PEAK_MIB]
    failures += [
        f"{name}: {r['seconds']:.0f} s"
        for name, r in results.items()
        if "parquet" in name and r["seconds"] >= PARQUET_SECONDS
    ]
    failures += [f"{name}: {r['rows']:,} rows counted" for name, r in results.items() if r["rows"] != rows]
    return failures + ([f"csv.gz ratio {ratio:.2f}"] if ratio >= CSV_RATIO else [])


def generate(place: Path, rows: int, form: str) -> None:
    hosp = place / "hosp"
    hosp.mkdir(parents=True)
    sizes = {"rows": rows, "patients": rows // ROWS_PER_PATIENT + 1, "per_patient": ROWS_PER_PATIENT}
    for name, query in TABLES.items():
        export(query.format(**sizes), hosp / f"{name}.{form}")


def export(query: str, target: Path) -> None:
    """Streamed through DuckDB to parquet, or to csv through a pipe into gzip."""
    if target.suffix == ".parquet":
        connect().execute(f"COPY ({query}) TO '{target}' (FORMAT parquet)")
        return
    command = [sys.executable, __file__, "--task", "print", query]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as printer,
        gzip.open(target, "wb", compresslevel=1) as packed,
    ):
        assert printer.stdout is not None
        shutil.copyfileobj(printer.stdout, packed, 1 << 20)
    if printer.returncode:
        raise RuntimeError("generating the csv file failed")


def connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"memory_limit": "1GB", "preserve_insertion_order": False})


def in_own_process(*task: str) -> dict[str, float]:
    run = subprocess.run([sys.executable, __file__, "--task", *task], stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return result


def perform(task: str, source: str, *rest: str) -> None:
    """One build or count, timed; its peak memory is this process's. Or one table printed as csv."""
    if task == "print":
        connect().execute(f"COPY ({source}) TO '/dev/stdout' (FORMAT csv, HEADER)")
        return
    start = time.perf_counter()
    result: dict[str, float] = {}
    if task == "count":
        engine = duckdb.connect(config={"memory_limit": "1500MB"})
        counted = engine.execute(f"SELECT count(*) FROM read_csv('{source}', all_varchar = true)")
        ((result["rows"],),) = counted.fetchall()
    else:
        from safeimpute.sources.cohort.build import build_cohort
        from safeimpute.sources.cohort.definition import define_cohort
        from safeimpute.visits.catalogue import load_catalogue

        out, anchors = Path(rest[0]), rest[1]
        catalogue = load_catalogue()
        definition = define_cohort(catalogue, target="hba1c", anchors=anchors)
        record = build_cohort("mimic4", source, definition, out, catalogue=catalogue, force=True)
        result |= {"rows": record["accounts"]["rows"], "visits": record["summary"]["visits"]}
    result["seconds"] = time.perf_counter() - start
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        perform(*sys.argv[2:])
    else:
        main()
