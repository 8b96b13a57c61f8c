"""Tables of the study in Markdown; what exceeds its level by more than three standard errors is bold."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from safeimpute_lab.studies.guarantee.attacks import ATTACKS
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY, SCENARIOS
from safeimpute_lab.studies.guarantee.rules import ALPHAS, summarise

Row = dict[str, Any]
CONFIDENT_ERROR = 0.1


def summarise_cells(cells: Sequence[Row]) -> list[Row]:
    """Cohorts of one scenario, and size -> one row per promise, level and kind of candidates."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for cell in cells:
        groups.setdefault((cell["patients"], cell["scenario"]), []).append(cell)
    rows = []
    for (patients, scenario), found in groups.items():
        common: Row = {"patients": patients, "scenario": scenario, "cohorts": len(found), "draws": len(found)}
        for name in ("mae", "risky_share", "risk_auc", "measuring_auc", "effective_visits", "seconds"):
            known = [each[name] for each in found if each.get(name) is not None]
            common[name] = float(np.mean(known)) if known else None
        rows += [common | row for row in _releases(found)]
    return rows


def _releases(found: list[Row]) -> list[Row]:
    counts: dict[tuple[str, float, str], list[tuple[float, ...]]] = {}
    for cell in found:
        for each in cell["releases"]:
            key = (each["promise"], each["alpha"], each["who"])
            counts.setdefault(key, []).append((each["risky"], each["released"], each["good"]))
    rows = []
    for (promise, alpha, who), table in counts.items():
        risky, released, good = np.array(table, dtype=np.float64).T
        told = summarise(risky, released, good, alpha)
        rows.append({"rule": promise, "alpha": alpha, "who": who} | vars(told))
    return rows


def broken(row: Row) -> bool:
    """Whether a promise made was not kept, beyond chance."""
    if row["rule"] == "confident":
        se = float(np.sqrt(CONFIDENT_ERROR * (1 - CONFIDENT_ERROR) / row["draws"]))
        return bool(row["exceeds"] > CONFIDENT_ERROR + 3 * se)
    return bool(
        row["pooled"] > row["alpha"] + 3 * row["pooled_se"] or row["mean_fdp"] > row["alpha"] + 3 * row["mean_fdp_se"]
    )


def promised(row: Row) -> bool:
    """Whether anything was promised in this scenario."""
    return row["scenario"] in BY_KEY and BY_KEY[row["scenario"]].promised


def average_table(rows: Sequence[Row], first: Sequence[str]) -> str:
    """One line per scenario; per level the share over all released values, mean FDP, power."""
    levels = [f"{alpha:g}: pooled share ± SE; mean FDP; power (empty)" for alpha in ALPHAS]
    return _table([*first, *levels], rows, "average", _average_cell)


def confident_table(rows: Sequence[Row], first: Sequence[str]) -> str:
    """One line per scenario; per level the share of draws above it, and power."""
    levels = [f"{alpha:g}: draws above; power (empty)" for alpha in ALPHAS]
    return _table([*first, *levels], rows, "confident", _confident_cell)


def _table(head: list[str], rows: Sequence[Row], rule: str, cell: Any) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    kept = [row for row in rows if row["rule"] == rule]
    for key in dict.fromkeys(row["scenario"] for row in _in_order(kept)):
        found = {row["alpha"]: row for row in kept if row["scenario"] == key}
        some = next(iter(found.values()))
        shown = [cell(found[alpha]) if alpha in found else "" for alpha in ALPHAS]
        lines.append("| " + " | ".join([*_first(head, some), *shown]) + " |")
    return "\n".join(lines)


def _in_order(rows: Sequence[Row]) -> list[Row]:
    order = [scenario.key for scenario in SCENARIOS] + list(ATTACKS)
    return sorted(rows, key=lambda row: order.index(row["scenario"]))


def _first(head: list[str], row: Row) -> list[str]:
    words = BY_KEY[row["scenario"]].words if row["scenario"] in BY_KEY else row["scenario"]
    shown = {
        "scenario": words,
        "cohorts": str(row.get("cohorts", "")),
        "MAE": _number(row.get("mae"), 3),
        "risky": _number(row.get("risky_share"), 2),
        "AUC of risk": _number(row.get("risk_auc"), 2),
        "AUC of measuring": _number(row.get("measuring_auc"), 2),
        "effective visits": _number(row.get("effective_visits"), 0),
    }
    return [shown[name] for name in head if name in shown]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _average_cell(row: Row) -> str:
    bold = "**" if broken(row) else ""
    share = f"{bold}{row['pooled']:.3f} ± {row['pooled_se']:.3f}{bold}"
    return f"{share}; {row['mean_fdp']:.3f}; {row['power']:.2f}{_empty(row)}"


def _confident_cell(row: Row) -> str:
    bold = "**" if broken(row) else ""
    return f"{bold}{100 * row['exceeds']:.1f} %{bold}; {row['power']:.2f}{_empty(row)}"


def _empty(row: Row) -> str:
    empty = row.get("empty", 0.0)
    return f" ({100 * empty:.0f} %)" if empty >= 0.005 else ""
