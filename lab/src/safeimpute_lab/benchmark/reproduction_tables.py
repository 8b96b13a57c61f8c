"""The paper's tables in the paper's form, published figures beside ours."""

from collections.abc import Sequence
from dataclasses import replace

from safeimpute_lab.benchmark.ablation_tables import ablation_tables
from safeimpute_lab.benchmark.protocols import METHODS, Protocol
from safeimpute_lab.benchmark.published import ALONE, COHORT_SIZES, COHORTS, RELEASE_SUMMARY, UNDER_SELECTION, Figures
from safeimpute_lab.benchmark.reproduction import Reproduced
from safeimpute_lab.benchmark.tables import NONE, mean_se
from safeimpute_lab.benchmark.typeset import Mark, Table, best_two

TITLES = {"paper": "SafeImpute (preset paper)", "best": "best (beyond the paper)", "transformer": "TRANS (transformer)"}
Cells = list[list[float | None]]  # figures of a table by column, for the marks


def all_tables(found: Reproduced, protocol: Protocol, patients: int, mean_visits: float) -> list[Table]:
    """In the order of the paper, each named by its number there; what is missing last."""
    tables = [
        under_selection(found, protocol),
        imputation_alone(found, protocol),
        *_ablations(found, protocol),
        release_summary(found, protocol),
        cohort_sizes(patients, mean_visits),
        *([other_risks(found)] if found["risks"] else []),
    ]
    if found["missing"]:
        rows = tuple(found["missing"].items())
        tables.append(Table("Without a complete result", "", ("what", "why"), rows))
    return tables


def under_selection(found: Reproduced, protocol: Protocol) -> Table:
    """Table 1: every method on the values that the paper's risk released."""
    methods, done = _methods(found), found["under_selection"]
    columns = ("mae", "rmse", "precision")
    ours: Cells = [[done[m][name]["mean"] for m in methods] for name in columns]  # type: ignore[literal-required]
    theirs = _published(UNDER_SELECTION, methods, protocol, 3)
    rows = [
        (
            *_named(found, method),
            *(mean_se(done[method][name]) for name in columns),  # type: ignore[literal-required]
            *(_figure(column[place]) for column in theirs),
        )
        for place, method in enumerate(methods)
    ]
    head = ("kind", "method", "MAE", "RMSE", "precision")
    released = next((done[m]["draws_released"] for m in methods), None)
    note = (
        "Paper's Table 1. Every method by the paper's split, on the values that preset paper's risk released, each "
        f"method's precision from its own values; over {_draws(found)}, {100 * (released or 0.0):.0f} % of which "
        "released something; the others are left out. Published: HbA1c in %, other data, not comparable line by line."
    )
    short = "on the values that preset paper's risk released; published: other data"
    marks = _marks(ours, 2, larger=(2,)) | _marks(theirs, 5, larger=tuple(range(2, len(theirs), 3)))
    return Table(
        "Table 1: under selection", note, (*head, *_heads(("MAE", "RMSE", "precision"), protocol)), tuple(rows),
        short=short, marks=marks,
    )  # fmt: skip


def imputation_alone(found: Reproduced, protocol: Protocol) -> Table:
    """Table 2: all hidden values, no selection."""
    methods = [name for name in _methods(found) if name in found["alone"]]
    done = found["alone"]
    ours: Cells = [[done[m]["mae"]["mean"] for m in methods], [done[m]["rmse"]["mean"] for m in methods]]
    theirs = _published(ALONE, methods, protocol, 2)
    rows = [
        (
            *_named(found, method),
            mean_se(done[method]["mae"]),
            mean_se(done[method]["rmse"]),
            *(_figure(column[place]) for column in theirs),
        )
        for place, method in enumerate(methods)
    ]
    note = (
        "Paper's Table 2. All hidden values, every method by the paper's split (70 % of what is not tested visible); "
        "preset paper without fallback edges. Published: HbA1c in %, other data, not comparable line by line."
    )
    head = ("kind", "method", "MAE", "RMSE", *_heads(("MAE", "RMSE"), protocol))
    marks = _marks(ours, 2) | _marks(theirs, 4)
    short = "all hidden values; published: other data"
    return Table("Table 2: imputation alone", note, head, tuple(rows), short=short, marks=marks)


def _ablations(found: Reproduced, protocol: Protocol) -> list[Table]:
    """Tables 3 and 4; of the published columns those of the protocol's cohorts."""
    if found["ablation"] is None:
        return []
    tables = []
    for number, table in zip((3, 4), ablation_tables(found["ablation"]), strict=True):
        kept = [k for k, name in enumerate(table.head) if _wanted(name, protocol)]
        rows = tuple(tuple(row[k] for k in kept) for row in table.rows)
        title = f"Table {number}: {table.title[0].lower()}{table.title[1:]}"
        tables.append(replace(table, title=title, head=tuple(table.head[k] for k in kept), rows=rows))
    return tables


def _wanted(head: str, protocol: Protocol) -> bool:
    return not head.startswith("published") or any(head.endswith(cohort) for cohort in protocol.cohorts)


def release_summary(found: Reproduced, protocol: Protocol) -> Table:
    """Table 5: what is released at the chosen level."""
    rows: list[tuple[str, ...]] = [
        (
            f"{TITLES[name]}, here",
            *(mean_se(row[c]) for c in ("fdp", "power", "acceptance", "precision", "mae", "rmse")),
            f"{row['splits_released']} of {found['splits_done'][name]}",
        )
        for name, row in found["release"].items()
    ]
    for cohort in COHORTS:
        if cohort in protocol.cohorts:
            figures = RELEASE_SUMMARY[cohort]
            rows.append((f"published, {cohort}", *(_figure(each) for each in figures), NONE, NONE, NONE))
    note = (
        "Paper's Table 5. Precision as the paper defines it: an empty release counts as 0, while its FDR counts as 0 "
        "too; MAE and RMSE leave empty releases out. 'best' is cross-calibrated with all values but the test's, one "
        "draw per split."
    )
    head = ("what", "FDR", "power", "acceptance", "precision", "MAE", "RMSE", "splits released")
    return Table("Table 5: release summary", note, head, tuple(rows), short="at the chosen level")


def other_risks(found: Reproduced) -> Table:
    """Beyond the paper's tables: the systems of its related work as risks, at the same level."""
    rows = []
    for name, row in found["risks"].items():
        at = row["release"]
        rows.append(
            (
                name,
                row["values"],
                mean_se(row["mae"]),
                mean_se(row["auc"]),
                *(mean_se(each) for each in (at["fdp"], at["power"], at["acceptance"])),
            )
        )
    marks = best_two([row["release"]["power"]["mean"] for row in found["risks"].values()], 5, larger=True)
    note = (
        "Each ranks the values named beside it, by the paper's split, and releases by the same rule at the same level. "
        "AUC: how well it tells unacceptable errors from others. Power: share of the acceptable values released."
    )
    head = ("risk", "values of", "MAE", "AUC", "FDR", "power", "released")
    return Table("Other risks at the same level", note, head, tuple(rows), short="power is what counts", marks=marks)


def cohort_sizes(patients: int, mean_visits: float) -> Table:
    """Table 6: patients and visits."""
    rows = [("here", f"{patients:,}", f"{mean_visits:.2f}")]
    rows += [(f"published, {name}", f"{size:,}", f"{mean:.2f}") for name, (size, mean) in COHORT_SIZES.items()]
    return Table("Table 6: cohorts", "", ("data", "patients", "mean visits"), tuple(rows))


def _methods(found: Reproduced) -> list[str]:
    return [name for names in METHODS.values() for name in names if name in found["under_selection"]]


def _named(found: Reproduced, method: str) -> tuple[str, str]:
    kind = next(kind for kind, names in METHODS.items() if method in names)
    done, wanted = found["splits_done"][method], len(found["seeds"])
    fewer = "" if done == wanted else f" ({done} of {wanted} splits)"
    return kind, f"{TITLES.get(method, method)}{fewer}"


def _published(table: dict[str, Figures], methods: Sequence[str], protocol: Protocol, width: int) -> Cells:
    """By column, the published figures of the protocol's cohorts; None where the paper has none."""
    return [
        [table[method][place][k] if method in table else None for method in methods]
        for place, cohort in enumerate(COHORTS)
        if cohort in protocol.cohorts
        for k in range(width)
    ]


def _heads(names: Sequence[str], protocol: Protocol) -> tuple[str, ...]:
    return tuple(f"published {name}, {cohort}" for cohort in protocol.cohorts for name in names)


def _marks(columns: Cells, first: int, larger: tuple[int, ...] = ()) -> dict[tuple[int, int], Mark]:
    found: dict[tuple[int, int], Mark] = {}
    for place, values in enumerate(columns):
        found |= best_two(values, first + place, larger=place in larger)
    return found


def _figure(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


def _draws(found: Reproduced) -> str:
    seeds = f"{len(found['seeds'])} splits"
    return (
        seeds
        if found["repartitions"] == 1
        else f"{seeds} with {found['repartitions']} draws of calibration and test each"
    )
