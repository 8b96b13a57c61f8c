"""The paper's two ablation tables, ours beside the published figures."""

from collections.abc import Sequence

from safeimpute_lab.benchmark.ablate import Ablation
from safeimpute_lab.benchmark.published import ABLATED_IMPUTER, ABLATED_RISK
from safeimpute_lab.benchmark.tables import mean_se
from safeimpute_lab.benchmark.typeset import Mark, Table, best_two

PUBLISHED_ON = ("Mayo Clinic", "MIMIC-III")


def ablation_tables(result: Ablation) -> list[Table]:
    """Parts of the imputer, and parts of the risk."""
    return [_imputer_table(result), _risk_table(result)]


def _imputer_table(result: Ablation) -> Table:
    found = result["imputer"]
    rows = [
        (name, mean_se(row["mae"]), mean_se(row["rmse"]), *_published(ABLATED_IMPUTER[name]))
        for name, row in found.items()
    ]
    marks = best_two([row["mae"]["mean"] for row in found.values()], 1)
    marks |= best_two([row["rmse"]["mean"] for row in found.values()], 2)
    head = ("variant", "MAE", "RMSE", *_heads(("MAE", "RMSE")))
    note = f"All hidden values, without fallback edges and without selection; {_splits(result)}."
    return Table("Ablation of the imputer", note, head, tuple(rows), short=note, marks=marks)


def _risk_table(result: Ablation) -> Table:
    found, columns = result["risk"], ("mae", "rmse", "fdp", "power", "acceptance", "precision")
    rows = [
        (
            name,
            *(mean_se(row[c]) for c in columns),  # type: ignore[literal-required]
            f"{row['splits_released']} of {result['splits']}",
            *_published(ABLATED_RISK[name]),
        )
        for name, row in found.items()
    ]
    marks: dict[tuple[int, int], Mark] = {}
    for place, name in enumerate(("mae", "rmse", "fdp"), start=1):
        marks |= best_two([row[name]["mean"] for row in found.values()], place)  # type: ignore[literal-required]
    head = ("variant", "MAE", "RMSE", "FDR", "power", "released", "precision", "splits released")
    note = (
        f"Released values at level {result['fdr']:g}; {_splits(result)}. MAE and RMSE over splits that released "
        "something; an empty release counts as FDR 0, power 0 and, as the paper defines it, precision 0."
    )
    short = f"released values at level {result['fdr']:g}; {_splits(result)}"
    full = (*head, *_heads(("MAE", "RMSE", "FDR")))
    return Table("Ablation of the risk", note, full, tuple(rows), short=short, marks=marks)


def _splits(result: Ablation) -> str:
    return f"{result['splits']} split{'s' if result['splits'] > 1 else ''}"


def _published(cohorts: Sequence[Sequence[float]]) -> tuple[str, ...]:
    return tuple(f"{figure:.4f}" for cohort in cohorts for figure in cohort)


def _heads(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"published {name}, {cohort}" for cohort in PUBLISHED_ON for name in names)
