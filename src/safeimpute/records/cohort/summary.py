"""What a built cohort holds, as numbers and as the text printed after a build, beside published counts."""

from pathlib import Path
from typing import Any

import polars as pl

from safeimpute.records.cohort.accounts import sum_counts

# As published for HbA1c anchors on the full data: a reference, never our result.
PUBLISHED = {
    "mimic3": {"cohort": "MIMIC-III", "patients": 4243, "visits_per_patient": 2.20},
    "mimic4": {"cohort": "MIMIC-IV", "patients": 28880, "visits_per_patient": 4.95},
    "meds": {"cohort": "MIMIC-IV", "patients": 28880, "visits_per_patient": 4.95},
}
GAP_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def summarise(visits: Path, labs: tuple[str, ...]) -> dict[str, Any]:
    """Patients, visits, visits per patient, share of visits with each lab, days between visits."""
    table = pl.scan_parquet(visits)
    observed = table.select(pl.len().alias("visits"), *(pl.col(lab).count() for lab in labs)).collect()
    per_patient = table.group_by("subject_id").len().select("len").collect()["len"]
    count = observed["visits"][0]
    return {
        "patients": len(per_patient),
        "visits": count,
        "visits_per_patient": {
            "mean": per_patient.mean(),
            "median": per_patient.median(),
            "max": per_patient.max(),
            "patients_with_one": int((per_patient == 1).sum()),
        },
        "observed_percent": {lab: 100 * observed[lab][0] / count for lab in labs},
        "gap_days": _gaps(table),
    }


def _gaps(table: pl.LazyFrame) -> dict[str, float | None]:
    """The visits are sorted by patient and time, so a gap is the difference to the row above."""
    gap = pl.col("time").diff().dt.total_seconds() / 86_400
    same_patient = pl.col("subject_id") == pl.col("subject_id").shift()
    gaps = table.select(pl.when(same_patient).then(gap).alias("gap")).drop_nulls().collect()["gap"]
    return {f"{100 * share:g} %": gaps.quantile(share, "linear") for share in GAP_QUANTILES}


def describe(record: dict[str, Any]) -> str:
    """The text shown after a build."""
    return "\n".join(
        [*_accounts_lines(record["accounts"]), "", *_summary_lines(record), *_note_lines(record)]
    )


def _accounts_lines(accounts: dict[str, Any]) -> list[str]:
    lines = [
        f"rows in            {accounts['rows']:>12,}",
        f"  used             {sum(accounts['used'].values()):>12,}",
    ]
    lines += [f"    {lab:<32}{rows:>10,}" for lab, rows in accounts["used"].items()]
    for title, key in (("set aside", "set_aside"), ("not relevant", "not_relevant")):
        lines.append(f"  {title:<17}{sum_counts(accounts[key]):>12,}")
        lines += [f"    {reason:<32}{sum(labs.values()):>10,}" for reason, labs in accounts[key].items()]
    merged = accounts["merged"]
    if merged["rows"]:
        lines.append(
            f"merged: {merged['rows']:,} results at {merged['measurements']:,} moments with several "
            f"(averaged where they differ: {merged['differing']:,})"
        )
    return lines


def _summary_lines(record: dict[str, Any]) -> list[str]:
    summary = record["summary"]
    per = summary["visits_per_patient"]
    published = record["published"]
    people, rate = "", ""
    if published:
        people = f"   published, full {published['cohort']}, HbA1c anchors: {published['patients']:,}"
        rate = f"   published: {published['visits_per_patient']:.2f}"
    lines = [
        f"patients           {summary['patients']:>12,}{people}",
        f"visits             {summary['visits']:>12,}",
        f"visits per patient {per['mean']:>12.2f}{rate}",
        f"  median {per['median']:g}, most {per['max']:,}, one visit only {per['patients_with_one']:,}",
    ]
    lines += [f"  {lab} at {share:.1f} % of visits" for lab, share in summary["observed_percent"].items()]
    if summary["gap_days"]["50 %"] is not None:
        gaps = ", ".join(f"{share} {days:.1f}" for share, days in summary["gap_days"].items())
        lines.append(f"days between visits: {gaps}")
    return lines


def _note_lines(record: dict[str, Any]) -> list[str]:
    remarks = record["remarks"]
    lines = [f"outside the usual range, kept: {lab} {rows:,}" for lab, rows in remarks["flagged"].items()]
    lines += [f"converted: {what} {rows:,}" for what, rows in remarks["converted"].items()]
    if remarks["known_before_drawn"]:
        lines.append(f"known before drawn, kept: {remarks['known_before_drawn']:,}")
    return lines + [f"note: {note}" for note in record["notes"]]
