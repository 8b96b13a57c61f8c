"""Every row of the source accounted for, and what the built cohort holds, as numbers and as text."""

from pathlib import Path
from typing import Any, TypedDict

import ibis.expr.types as ir
import polars as pl

from safeimpute.errors import SafeImputeError
from safeimpute.sources.cohort.definition import CohortDefinition
from safeimpute.sources.cohort.results import NOT_RELEVANT, OTHER_CODE, SET_ASIDE, UNUSED
from safeimpute.sources.readers.engine import Source

Counts = dict[str, dict[str, int]]  # reason -> lab -> rows
GAP_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


class Accounts(TypedDict):
    """What became of the source's rows."""

    rows: int
    used: dict[str, int]  # by lab, as all counts of rows
    set_aside: Counts
    not_relevant: Counts
    merged: dict[str, int]


class Remarks(TypedDict):
    """Usable rows worth knowing about."""

    flagged: dict[str, int]
    converted: dict[str, int]
    known_before_drawn: int


class Summary(TypedDict):
    """What the visits hold."""

    patients: int
    visits: int
    visits_per_patient: dict[str, float]
    observed_percent: dict[str, float]
    gap_days: dict[str, float | None]


class Published(TypedDict):
    """A published cohort."""

    cohort: str
    patients: int
    visits_per_patient: float


class Found(TypedDict):
    """What a build found in its source."""

    accounts: Accounts
    censored: dict[str, int]
    contacts: dict[str, int]
    remarks: Remarks
    clocks: list[str]
    columns: list[str]
    notes: list[str]


class CohortRecord(Found):
    """All that is written beside the visits."""

    source: dict[str, str]
    definition: dict[str, object]
    labs: list[str]
    attributes: list[str]
    visits_sha256: str
    created: str
    versions: dict[str, str]
    summary: Summary
    published: Published | None


# As published for HbA1c anchors on the full data: a reference, never our result.
PUBLISHED: dict[str, Published] = {
    "mimic3": {"cohort": "MIMIC-III", "patients": 4243, "visits_per_patient": 2.20},
    "mimic4": {"cohort": "MIMIC-IV", "patients": 28880, "visits_per_patient": 4.95},
    "meds": {"cohort": "MIMIC-IV", "patients": 28880, "visits_per_patient": 4.95},
}


def account(source: Source, gathered: ir.Table, judged: ir.Table, measured: ir.Table, found: ir.Table) -> Accounts:
    """Counts by fate and lab; used rows are counted from the visits back, not by subtraction."""
    total = source.rows(gathered.agg(rows=_total(gathered.rows)))[0]["rows"] or 0
    not_relevant = _by_reason(source, gathered, "place", NOT_RELEVANT)
    set_aside = _by_reason(source, judged, "fate", SET_ASIDE)
    used, merged = {}, {"rows": 0, "measurements": 0, "differing": 0}
    for row in source.rows(_fate_of_measurements(measured, found).order_by("lab")):
        if row["used"]:
            used[row["lab"]] = row["rows"]
            merged = {key: merged[key] + row[f"merged_{key}"] for key in merged}
        else:
            not_relevant.setdefault(UNUSED, {})[row["lab"]] = row["rows"]
    accounts = Accounts(rows=total, used=used, set_aside=set_aside, not_relevant=not_relevant, merged=merged)
    _require_balance(accounts)
    return accounts


def remarks(source: Source, judged: ir.Table, definition: CohortDefinition) -> Remarks:
    """Usable rows worth knowing about: outside the flag range, converted, or known before they were drawn."""
    usable = judged.filter(judged.fate.isnull())
    flagged = usable.filter(usable.flagged == 1).group_by("lab").agg(rows=_total(usable.rows))
    early = usable.filter(usable.known < usable.drawn)
    units = usable.group_by("lab", "unit").agg(rows=_total(usable.rows))
    foreign = {
        (item.name, unit): item.lab.unit
        for item in definition.labs
        for unit, rule in item.lab.conversions.items()
        if rule.changes
    }
    converted = {
        f"{row['lab']}: {row['unit']} to {foreign[row['lab'], row['unit']]}": row["rows"]
        for row in source.rows(units.order_by("lab", "unit"))
        if (row["lab"], row["unit"]) in foreign
    }
    return {
        "flagged": {row["lab"]: row["rows"] for row in source.rows(flagged.order_by("lab"))},
        "converted": converted,
        "known_before_drawn": source.rows(early.agg(rows=_total(early.rows)))[0]["rows"] or 0,
    }


def _by_reason(source: Source, table: ir.Table, column: str, order: tuple[str, ...]) -> Counts:
    reasoned = table.filter(table[column].notnull())
    sums = reasoned.group_by(reason=reasoned[column], lab=reasoned.lab).agg(rows=_total(reasoned.rows))
    counts: Counts = {}
    for row in sorted(source.rows(sums), key=lambda row: (order.index(row["reason"]), row["lab"] or "")):
        counts.setdefault(row["reason"], {})[row["lab"] or OTHER_CODE] = row["rows"]
    return counts


def _fate_of_measurements(measured: ir.Table, found: ir.Table) -> ir.Table:
    keys = ["subject_id", "lab", "drawn"]
    drawn_on = found.select(*keys).distinct().mutate(hit=1)
    marked = measured.left_join(drawn_on, keys)
    marked = marked.mutate(used=marked.hit.notnull().ifelse(1, 0))
    several = marked.rows > 1
    return marked.group_by("lab", "used").agg(
        rows=_total(marked.rows),
        merged_rows=_total(several.ifelse(marked.rows, 0)),
        merged_measurements=_total(several.ifelse(1, 0)),
        merged_differing=_total(marked.differing),
    )


def _total(column: ir.Value) -> ir.Value:
    return column.sum().cast("int64")


def sum_counts(counts: Counts) -> int:
    return sum(rows for by_lab in counts.values() for rows in by_lab.values())


def _require_balance(accounts: Accounts) -> None:
    parts = sum(accounts["used"].values()) + sum_counts(accounts["set_aside"]) + sum_counts(accounts["not_relevant"])
    if parts != accounts["rows"]:
        raise SafeImputeError(
            f"the row count does not balance: {accounts['rows']:,} rows in, {parts:,} accounted for. "
            "Nothing was written. Please report this."
        )


def summarise(visits: Path, labs: tuple[str, ...]) -> Summary:
    """Patients, visits, visits per patient, share of visits with each lab, days between visits."""
    table = pl.scan_parquet(visits)
    observed = table.select(pl.len().alias("visits"), *(pl.col(lab).count() for lab in labs)).collect()
    per_patient: Any = table.group_by("subject_id").len().select("len").collect()["len"]
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


def describe(record: CohortRecord) -> str:
    """The text shown after a build."""
    return "\n".join([*_accounts_lines(record["accounts"]), "", *_summary_lines(record), *_note_lines(record)])


def _accounts_lines(accounts: Accounts) -> list[str]:
    lines = [f"rows in            {accounts['rows']:>12,}", f"  used             {sum(accounts['used'].values()):>12,}"]
    lines += [f"    {lab:<32}{rows:>10,}" for lab, rows in accounts["used"].items()]
    for title, counts in (("set aside", accounts["set_aside"]), ("not relevant", accounts["not_relevant"])):
        lines.append(f"  {title:<17}{sum_counts(counts):>12,}")
        lines += [f"    {reason:<32}{sum(labs.values()):>10,}" for reason, labs in counts.items()]
    merged = accounts["merged"]
    if merged["rows"]:
        lines.append(
            f"merged: {merged['rows']:,} results at {merged['measurements']:,} moments with several "
            f"(averaged where they differ: {merged['differing']:,})"
        )
    return lines


def _summary_lines(record: CohortRecord) -> list[str]:
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


def _note_lines(record: CohortRecord) -> list[str]:
    remarks = record["remarks"]
    lines = [f"outside the usual range, kept: {lab} {rows:,}" for lab, rows in remarks["flagged"].items()]
    lines += [f"converted: {what} {rows:,}" for what, rows in remarks["converted"].items()]
    if remarks["known_before_drawn"]:
        lines.append(f"known before drawn, kept: {remarks['known_before_drawn']:,}")
    return lines + [f"note: {note}" for note in record["notes"]]
