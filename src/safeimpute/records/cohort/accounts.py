"""Every row of the source accounted for: in = used + set aside + not relevant, checked to the row."""

from typing import Any

import ibis.expr.types as ir

from safeimpute.errors import SafeImputeError
from safeimpute.records.cohort.definition import CohortDefinition
from safeimpute.records.cohort.results import NOT_RELEVANT, OTHER_CODE, SET_ASIDE, UNUSED
from safeimpute.records.readers.engine import Source

Counts = dict[str, dict[str, int]]  # reason -> lab -> rows


def account(
    source: Source, gathered: ir.Table, judged: ir.Table, measured: ir.Table, found: ir.Table
) -> dict[str, Any]:
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
    accounts = {
        "rows": total,
        "used": used,
        "set_aside": set_aside,
        "not_relevant": not_relevant,
        "merged": merged,
    }
    _require_balance(accounts)
    return accounts


def remarks(source: Source, judged: ir.Table, definition: CohortDefinition) -> dict[str, Any]:
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


def _require_balance(accounts: dict[str, Any]) -> None:
    parts = (
        sum(accounts["used"].values())
        + sum_counts(accounts["set_aside"])
        + sum_counts(accounts["not_relevant"])
    )
    if parts != accounts["rows"]:
        raise SafeImputeError(
            f"the row count does not balance: {accounts['rows']:,} rows in, {parts:,} accounted for. "
            "Nothing was written. Please report this."
        )
