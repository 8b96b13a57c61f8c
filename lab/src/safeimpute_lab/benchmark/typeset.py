"""A table of plain cells set as terminal text, markdown or LaTeX, with marks for the best and the second best."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Literal

Mark = Literal["best", "second"]
TEXT_MARKS = {"best": "*", "second": "+"}  # of a terminal, after the figure


@dataclass(frozen=True)
class Table:
    """Title, what the figures mean, and cells as text."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[int] = frozenset()  # rows of the winners
    short: str = ""  # the note in a few words, for a terminal
    marks: Mapping[tuple[int, int], Mark] = field(default_factory=dict)  # of single cells, by row and column


def as_text(table: Table) -> str:
    """Columns lined up for a terminal."""
    rows = _marked(table, table.rows, {mark: f"{{}}{sign}" for mark, sign in TEXT_MARKS.items()})
    widths = [max(map(len, column)) for column in zip(table.head, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (table.head, *rows)
    ]
    lines += ["(* best, + second best)"] if table.marks else []
    title = f"{table.title}: {table.short}" if table.short else table.title
    return "\n".join([title, *(f"  {line}" for line in lines)])


def as_markdown(table: Table) -> str:
    """A markdown table under its title, the note below."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in table.rows]
    rows = _marked(table, rows, {"best": "**{}**", "second": "<u>{}</u>"})
    rows = [tuple(map("**{}**".format, row)) if i in table.bold else row for i, row in enumerate(rows)]
    body = "\n".join([line(table.head), line("---" for _ in table.head), *map(line, rows)])
    return "\n\n".join(part for part in (f"## {table.title}", body, table.note) if part)


def _marked(table: Table, rows: Iterable[tuple[str, ...]], forms: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Rows with their marked cells set apart."""
    return [
        tuple(forms[table.marks[i, k]].format(cell) if (i, k) in table.marks else cell for k, cell in enumerate(row))
        for i, row in enumerate(rows)
    ]


def best_two(values: Iterable[float | None], column: int, *, larger: bool = False) -> dict[tuple[int, int], Mark]:
    """Marks of the best and the second best figure of a column; equal ones share a mark."""
    listed = list(values)
    distinct = sorted({each for each in listed if each is not None}, reverse=larger)[:2]
    names: tuple[Mark, Mark] = ("best", "second")
    marks = dict(zip(distinct, names, strict=False))
    return {(row, column): marks[each] for row, each in enumerate(listed) if each in marks}


def as_html(table: Table) -> str:
    """A table of a page, every text escaped."""
    rows = _marked(table, [tuple(map(escape, row)) for row in table.rows], {"best": "<b>{}</b>", "second": "<u>{}</u>"})
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"<h2>{escape(table.title)}</h2>\n<table><tr>{head}</tr>\n{body}</table>\n{note}"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": r"$<$",
    "…": r"\ldots{}",
    "µ": r"\textmu{}",
}


def latex_text(text: str) -> str:
    """Text in which no character acts as a LaTeX command."""
    return "".join(_LATEX.get(character, character) for character in text)


def as_latex(table: Table) -> str:
    """A booktabs table that can be pasted into a paper."""

    def line(cells: Iterable[str]) -> str:
        return "  " + " & ".join(cells) + r" \\"

    rows = [tuple(map(latex_text, row)) for row in table.rows]
    rows = _marked(table, rows, {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"})
    rows = [tuple(map(r"\textbf{{{}}}".format, row)) if i in table.bold else row for i, row in enumerate(rows)]
    return "\n".join(
        [
            r"\begin{table*}[t]",
            r"\centering\small",
            rf"\caption{{{latex_text(table.title)}. {latex_text(table.note)}}}",
            rf"\begin{{tabular}}{{{'l' * len(table.head)}}}",
            r"\toprule",
            line(map(latex_text, table.head)),
            r"\midrule",
            *map(line, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
        ]
    )
