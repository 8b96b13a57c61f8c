"""A reproduction of the paper as one folder: an index page, tables in four forms, figures; all from one result."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TypedDict

from safeimpute.evaluation.data_profile import DataProfile
from safeimpute.machine.files import finished_file, plain_text
from safeimpute.report import data_figures
from safeimpute.report.figure_style import save, styled
from safeimpute.report.figures import evaluation_curves, score_alignment
from safeimpute.report.run_folder import save_json
from safeimpute.tolerance import parse_tolerance
from safeimpute_lab.benchmark.protocols import Protocol
from safeimpute_lab.benchmark.published import SOURCE
from safeimpute_lab.benchmark.reproduction import Reproduced
from safeimpute_lab.benchmark.reproduction_tables import all_tables
from safeimpute_lab.benchmark.typeset import Table, as_html, as_latex, as_markdown, as_text, latex_text

# File, the paper's figure, and what it shows.
FIGURES = (
    ("fdr_power", "Figures 2 and 7", "Achieved FDR and power against the level, one panel per tolerance."),
    ("risk_alignment", "Figure 3", "Mean absolute error against the mean proxy risk of groups of equal size."),
    ("missingness_heat_map", "Figure 4", "What was measured at which visit."),
    ("visits_per_patient", "Figure 5, left", "Visits per patient."),
    ("gaps_between_visits", "Figure 5, right", "Days between consecutive visits of a patient."),
    ("cumulative_missingness", "Figure 6", "Share of labs missing at each visit of ten sampled patients, stacked."),
)
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1d2733}"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
    "th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #d9dee4;white-space:nowrap}"
    "th{white-space:normal;vertical-align:bottom;max-width:7rem}"
    "figure{margin:1.5rem 0}img{max-width:min(100%,48rem)}p.note{color:#5a6773;font-size:13px;max-width:60rem}"
)


class Reproduction(TypedDict):
    """reproduce.json: what was reproduced on what, and everything found."""

    protocol: str
    target: str
    unit: str | None
    tolerance: float | str
    fdr: float
    splits: int
    test_fraction: float
    n_visits: int
    n_patients: int
    source: str
    found: Reproduced
    data: DataProfile


def make_tables(result: Reproduction, protocol: Protocol) -> list[Table]:
    """Every table of the paper."""
    mean = result["n_visits"] / max(result["n_patients"], 1)
    return all_tables(result["found"], protocol, result["n_patients"], mean)


def heading(result: Reproduction) -> str:
    """What was reproduced on what, in one line."""
    allowed = parse_tolerance(result["tolerance"]).describe(result["unit"])
    return (
        f"{plain_text(result['target'], 40)} at {result['n_visits']:,} visits of {result['n_patients']:,} patients; "
        f"protocol {result['protocol']}: {100 * result['test_fraction']:g} % held out, unacceptable from "
        f"{plain_text(allowed)}, level {result['fdr']:g}, {result['splits']} "
        f"split{'' if result['splits'] == 1 else 's'}"
    )


def write_reproduction(folder: Path, result: Reproduction, protocol: Protocol) -> None:
    """Figures and tables first, then the index, then the JSON that says it is finished."""
    tables = make_tables(result, protocol)
    drawn = _draw(folder / "figures", result)
    said = [heading(result), *([result["found"]["note"]] if result["found"]["note"] else [])]
    source = f"Published figures: {SOURCE}."
    _write(folder / "tables.txt", "\n\n".join([*said, *map(as_text, tables), source]))
    _write(folder / "tables.md", "\n\n".join([f"# {said[0]}", *said[1:], *map(as_markdown, tables), source]))
    tex = [f"% {latex_text(each)}" for each in (*said, source)]
    _write(
        folder / "tables.tex",
        "\n\n".join(["\n".join([*tex, r"% Needs \usepackage{booktabs}"]), *map(as_latex, tables)]),
    )
    _write(folder / "index.html", index_page(said, tables, drawn, source))
    save_json(result, folder / "reproduce.json")


def _draw(folder: Path, result: Reproduction) -> list[str]:
    """The figures there is something to draw for; their names."""
    found, unit = result["found"], result["unit"]
    done = found["ablation"]["splits"] if found["ablation"] else 0
    splits = f"test values, {done} split{'' if done == 1 else 's'}"
    figures = data_figures.draw_all(result["data"]) | {
        "fdr_power": lambda: evaluation_curves(found["curves"], unit) if found["curves"] else None,
        "risk_alignment": lambda: score_alignment(found["alignment"], unit, splits),
    }
    drawn = []
    for name, _, _ in FIGURES:
        with styled():
            figure = figures[name]()
        if figure is not None:
            save(figure, folder, name)
            drawn.append(name)
    return drawn


def index_page(said: Sequence[str], tables: Sequence[Table], drawn: Sequence[str], source: str) -> str:
    """One page with every table and figure; the figures lie beside it."""
    parts = [f"<h1>The paper’s tables and figures</h1><p>{'<br>'.join(map(escape, said))}</p>"]
    parts.append(
        '<p>The same as <a href="tables.md">markdown</a>, <a href="tables.tex">LaTeX</a>, '
        '<a href="tables.txt">text</a>, <a href="reproduce.json">JSON</a>.</p>'
    )
    parts += map(as_html, tables)
    for name, number, words in FIGURES:
        if name in drawn:
            parts.append(
                f'<figure><img src="figures/{name}.png" alt="{escape(words)}"><figcaption>{number} of the paper. '
                f'{escape(words)} <a href="figures/{name}.svg">SVG</a></figcaption></figure>'
            )
    parts.append(f'<p class="note">{escape(source)}</p>')
    head = f'<meta charset="utf-8"><title>Reproduction</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>"


def _write(path: Path, text: str) -> None:
    with finished_file(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
