"""A benchmark's tables as plain cells, and who wins in sentences; `typeset` sets them in three forms."""

import math
from collections.abc import Iterable, Sequence

from safeimpute.evaluation.evaluate import ReleaseSummary
from safeimpute.evaluation.metrics import MeanSe
from safeimpute.machine.files import plain_text
from safeimpute.tolerance import parse_tolerance
from safeimpute_lab.benchmark.gather import OURS
from safeimpute_lab.benchmark.published import COHORTS
from safeimpute_lab.benchmark.result import BenchmarkResult, CohortFigures, MethodRow, Paired
from safeimpute_lab.benchmark.typeset import Table as Table
from safeimpute_lab.benchmark.typeset import as_latex as as_latex
from safeimpute_lab.benchmark.typeset import as_markdown as as_markdown
from safeimpute_lab.benchmark.typeset import as_text as as_text
from safeimpute_lab.benchmark.typeset import latex_text as latex_text

NONE = "–"
CLEAR = 0.05  # p-value below which a difference is called clear
SHORT_COHORTS = " / ".join(COHORTS).replace(" Clinic", "")
Entry = tuple[str, list[ReleaseSummary], MeanSe]  # a method, its release at each level, its risk's AUC


def by_accuracy(result: BenchmarkResult) -> list[str]:
    """Methods with a result, most accurate first; those with fewer splits, which do not compare, after the others."""
    methods = result["methods"]
    done = [name for name, row in methods.items() if row["splits_done"]]
    full = set(_with_all_splits(result))
    return sorted(done, key=lambda name: (name not in full, _mean(methods[name]["imputation"]["mae"]), name))


def _with_all_splits(result: BenchmarkResult) -> list[str]:
    """Methods that finished as many splits as anybody, so that their means speak of the same values."""
    methods = result["methods"]
    most = max(row["splits_done"] for row in methods.values())
    return [name for name, row in methods.items() if row["splits_done"] == most > 0]


def label_of(result: BenchmarkResult, name: str) -> str:
    """A method's name, with its number of splits where it finished fewer than others."""
    done = result["methods"][name]["splits_done"]
    return name if name in _with_all_splits(result) else f"{name} ({done} of {result['splits']} splits)"


def heading(result: BenchmarkResult) -> str:
    """What was compared on what, in one line."""
    allowed = parse_tolerance(result["tolerance"]).describe(result["unit"])
    return (
        f"{plain_text(result['target'], 40)} at {result['n_visits']:,} visits of {result['n_patients']:,} patients, "
        f"{result['splits']} split{'s' if result['splits'] > 1 else ''}; "
        f"an error of {plain_text(allowed)} or more is unacceptable"
    )


def all_tables(result: BenchmarkResult) -> list[Table]:
    """Every table there is something to say in."""
    tables = [accuracy_table(result), release_table(result)]
    tables += [shared_table(result, whose) for whose in ("best", "paper") if whose in _releasing(result)]
    failed = failure_table(result)
    return [*tables, failed] if failed.rows else tables


def _releasing(result: BenchmarkResult) -> set[str]:
    return {whose for row in result["methods"].values() for whose in row["on_release_of"]}


def accuracy_table(result: BenchmarkResult) -> Table:
    """Imputation alone, who is clearly worse than the rivals, and what it cost."""
    methods, order, rivals = result["methods"], by_accuracy(result), result["rivals"]
    rows = []
    for name in order:
        row = methods[name]
        against = [_against(row["against"][rival]) if rival != name else NONE for rival in rivals]
        rows.append(
            (
                label_of(result, name),
                mean_se(row["imputation"]["mae"]),
                mean_se(row["imputation"]["rmse"]),
                *against,
                _number(row["mean_rank"], "{:.1f}"),
                _seconds(row),
                _memory(row),
                _published(result["published"]["imputation"].get(name), "mae"),
            )
        )
    note = (
        "Errors on hidden test values, ± one standard error over splits; smaller is better. Every method has all other "
        "values, and takes from them what it needs to decide when to stop. 'MAE to X': ratio to "
        "the MAE of X, with the p-value of a paired test that allows for overlapping splits (Nadeau and Bengio), one "
        "comparison at a time. Time: fit and impute, per split; memory: largest resident size, of which the loaded "
        "libraries alone hold 350 to 650 MiB, and of 'best' and 'paper' with their risk. 'paper' is judged here "
        "without fallback edges, as it was published; its time is that of its own hold-out. "
        f"Published: MAE of HbA1c on the paper's own cohorts, "
        f"{SHORT_COHORTS}; other data, not comparable line by line with ours."
    )
    head = ("method", "MAE", "RMSE", *(f"MAE to {rival}" for rival in rivals), "mean rank")
    head += ("time", "memory", "published, other data")
    short = f"error on hidden values, smaller is better; published: MAE of HbA1c, {SHORT_COHORTS}"
    return Table("Accuracy alone", note, head, tuple(rows), frozenset({0} if rows else ()), short)


def release_table(result: BenchmarkResult, *, brief: bool = False) -> Table:
    """Each method with its own risk and its own release, most released first; `brief` fits a terminal."""
    entries = _releases(result)
    levels = [row["fdr"] for row in entries[0][1]] if entries else []
    shown = ("released", "risky") if brief else ("released", "risky", "pooled", "power", "MAE")
    head = ("method", *(f"{word} at {level:g}" for level in levels for word in shown), "risk AUC")
    rows = tuple(
        (name, *(cell for row in release for cell in _release_cells(row)[: len(shown)]), mean_se(area))
        for name, release, area in entries
    )
    note = (
        "Every method fitted by the paper's hold-out (70 % of what is not tested visible, 15 % validation, 15 % "
        "calibration), ranked by a learned risk fitted to its own validation errors, calibrated and released by the "
        f"same rule; means over {result['repartitions']} re-partitions of calibration and test per split. 'best' and "
        "'paper' also as shipped, with their own risk: 'paper' by the same hold-out, 'best' cross-calibrated, with all "
        "values but the test's, one draw per split. Their risks see signals of their own that other methods do not "
        "give. Released: share of all test values; larger is better. Risky: share of unacceptable errors among the "
        "released, on average at most the level; pooled: all risky values over all released ones, of all draws "
        "together. Power: share of the method's own acceptable values that are released. MAE: of the released values. "
        "Risk AUC: how well the risk tells unacceptable errors from acceptable ones."
    )
    short = "share of the values released, larger is better; risky should stay at or below the level"
    return Table("Release, each method with its own risk", note, head, rows, frozenset({0} if rows else ()), short)


def _release_cells(row: ReleaseSummary) -> tuple[str, ...]:
    """Released, risky, pooled, power, MAE."""
    pooled: MeanSe = {"mean": row["pooled"], "se": None}
    shares = (row["acceptance"], row["fdp"], pooled, row["power"])
    return (*map(_share, shares), mean_se(row["mae"]))


def _releases(result: BenchmarkResult) -> list[Entry]:
    """A line per method, most released first; those with fewer splits after the others."""
    full = _with_all_splits(result)
    fewer = [name for name in by_accuracy(result) if name not in full]
    return _most_first(result, full) + _most_first(result, fewer)


def _most_first(result: BenchmarkResult, names: Iterable[str]) -> list[Entry]:
    """A name, releases and AUC per line; our presets twice, as shipped and with everybody's risk."""
    entries: list[Entry] = []
    for name in names:
        label, row = label_of(result, name), result["methods"][name]
        alike = row["validation_risk"]
        if alike is None:
            entries.append((label, row["release"], row["risk_auc"]))
            continue
        entries.append((f"{label} (as shipped)", row["release"], row["risk_auc"]))
        entries.append((f"{label} (risk as for the others)", alike["release"], alike["risk_auc"]))
    return sorted(entries, key=lambda entry: -sum(_mean(row["acceptance"]) for row in entry[1]))


def shared_table(result: BenchmarkResult, whose: str) -> Table:
    """The paper's way: everybody judged on what one preset released."""
    rows, levels = [], [row["fdr"] for row in result["methods"][whose]["release"]]
    for name, row in _in_order(result):
        cells: list[str] = []
        for at in row["on_release_of"][whose]:
            precise = at["precision"]["mean"]
            cells += [mean_se(at["mae"]), mean_se(at["rmse"]), _number(precise, "{:.3f}")]
        published = result["published"]["under_selection"].get(name)
        rows.append((label_of(result, name), *cells, _published(published, "mae"), _published(published, "precision")))
    head: tuple[str, ...] = ("method",)
    for level in levels:
        head += (f"MAE at {level:g}", f"RMSE at {level:g}", f"precision at {level:g}")
    head += ("published MAE, other data", "published precision, other data")
    draws = [row["draws_released"] for row in result["methods"][whose]["on_release_of"][whose]]
    drawn = ", ".join(f"{100 * (share or 0):.0f} %" for share in draws)
    fitted = "all values but the test's visible" if whose == OURS else "the paper's hold-out"
    note = (
        f"The paper's way: all methods, each fitted with {fitted}, on the values that '{whose}' as shipped released "
        "at each level, so a method's own knowledge of its errors does not count. Precision: share of acceptable "
        f"errors among them. All over the draws in which it released something: {drawn} of them at these levels. "
        f"Published: HbA1c, {SHORT_COHORTS}, on the paper's own releases."
    )
    return Table(f"All methods on the values released by '{whose}'", note, head, tuple(rows))


def failure_table(result: BenchmarkResult) -> Table:
    """Who has no complete result, and why."""
    rows = tuple(
        (name, f"{row['splits_done']} of {result['splits']}", row["error"])
        for name, row in result["methods"].items()
        if row["error"] is not None
    )
    return Table("Not finished", "", ("method", "splits done", "why"), rows)


def reading(result: BenchmarkResult) -> list[str]:
    """Who wins, in sentences."""
    methods, full = result["methods"], set(_with_all_splits(result))
    order = [name for name in by_accuracy(result) if name in full]
    said = [result["note"]] if result["note"] else []
    if OURS in methods and OURS not in full:
        said.append(f"No verdict yet: {OURS} has finished {methods[OURS]['splits_done']} of {result['splits']} splits.")
    elif order:
        said.append(_most_accurate(result, order))
        said += [_most_released(result, position) for position in range(len(methods[order[0]]["release"]))]
    failed = [name for name, row in methods.items() if row["error"] is not None]
    if result["states_of_code"] > 1:
        said.append(
            f"The cells come from {result['states_of_code']} states of the code; a method that changed between them "
            "does not compare."
        )
    return [*said, f"Without a complete result: {', '.join(failed)}."] if failed else said


def _most_accurate(result: BenchmarkResult, order: Sequence[str]) -> str:
    methods, first = result["methods"], order[0]
    unit = f" {plain_text(result['unit'], 16)}" if result["unit"] else ""
    said = f"Most accurate: {first}, MAE {mean_se(methods[first]['imputation']['mae'])}{unit}."
    if len(order) < 2:
        return said
    second = order[1]
    more = _mean(methods[second]["imputation"]["mae"]) / _mean(methods[first]["imputation"]["mae"]) - 1
    said += f" Next: {second}, {100 * more:.1f} % larger"
    tested = methods[second]["against"].get(first) or methods[first]["against"].get(second)
    p_value = tested["p_value"] if tested else None
    if p_value is None:
        return f"{said}."
    return f"{said} (p = {p_value:.2g}, {'a clear difference' if p_value < CLEAR else 'no clear difference'})."


def _most_released(result: BenchmarkResult, position: int) -> str:
    """Who releases most at a level with a risk learnt alike for all, and what our preset as shipped does."""
    methods = result["methods"]
    at = {name: methods[name]["validation_risk"] or methods[name] for name in _with_all_splits(result)}
    rows = {name: row["release"][position] for name, row in at.items()}
    first, *others = sorted(rows, key=lambda name: -_mean(rows[name]["acceptance"]))
    row = rows[first]
    shipped = _as_shipped(methods[OURS]["release"][position]) if OURS in rows else ""
    if _mean(row["acceptance"]) == 0:
        return f"At level {row['fdr']:g} no method released anything.{shipped}"
    said = f"At level {row['fdr']:g}, each with a risk from its own validation errors, most is released by {first}: "
    said += f"{_share(row['acceptance'])} of the values, {_share(row['fdp'])} of these risky."
    said += f" Next: {others[0]}, {_share(rows[others[0]]['acceptance'])}." if others else ""
    return said + shipped


def _as_shipped(row: ReleaseSummary) -> str:
    return f" As shipped, {OURS} releases {_share(row['acceptance'])}, {_share(row['fdp'])} of these risky."


def _in_order(result: BenchmarkResult) -> list[tuple[str, MethodRow]]:
    return [(name, result["methods"][name]) for name in by_accuracy(result)]


def _mean(figure: MeanSe) -> float:
    """Of a method that finished a split."""
    return math.nan if figure["mean"] is None else figure["mean"]


def mean_se(figure: MeanSe) -> str:
    """Three significant digits of the mean, the standard error to the same decimal."""
    mean, error = figure["mean"], figure["se"]
    if mean is None:
        return NONE
    digits = max(0, 2 - math.floor(math.log10(abs(mean)))) if mean else 2
    return f"{mean:,.{digits}f}" + ("" if error is None else f" ± {error:,.{digits}f}")


def _against(paired: Paired | None) -> str:
    if paired is None:
        return NONE
    p_value = paired["p_value"]
    return f"{paired['ratio']:.3f}" + ("" if p_value is None else f" (p {_p(p_value)})")


def _p(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"{p_value:.2g}"


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)


def _seconds(row: MethodRow) -> str:
    """Graph, fit and imputation, without the risk."""
    seconds = (row["seconds"]["graph"] or 0.0) + (row["seconds"]["fit"] or 0.0)
    on_gpu = {not name.endswith(" CPU") for name in row["devices"]}
    where = {(True,): " GPU", (False, True): " CPU, GPU"}.get(tuple(sorted(on_gpu)), "")
    if seconds < 0.1:
        return f"< 0.1 s{where}"
    if seconds < 100:
        return f"{seconds:.2g} s{where}"
    return (f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h") + where


def _memory(row: MethodRow) -> str:
    gpu = row["gpu_peak_mib"]
    return f"{row['peak_mib']:,.0f} MiB" + (f" + {gpu:,.0f} GPU" if gpu else "")


def _share(figure: MeanSe) -> str:
    """A share in percent."""
    if figure["mean"] is None:
        return NONE
    error = "" if figure["se"] is None else f" ± {100 * figure['se']:.1f}"
    return f"{100 * figure['mean']:.1f}{error} %"


def _published(cohorts: CohortFigures | None, name: str) -> str:
    if cohorts is None:
        return NONE
    return " / ".join(f"{cohorts[cohort][name]:.2f}" for cohort in COHORTS)
