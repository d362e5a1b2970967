"""The table of the figures in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figures import Figure

DATABASE_NAMES = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "airflow": "Airflow"}


def show(figures: Sequence[Figure], headings: Mapping[str, str], console: Console) -> None:
    """Print a table for each heading, with a row for each case and database and a column for each scale."""
    for what, group in by_heading(figures, headings):
        counts = sorted({figure.parts[2] for figure in group})
        table = Table(box=None, padding=(0, 3, 0, 0))
        for header in ("partitions", "", *(f"{count:,}" for count in counts), "goal"):
            justify: Literal["left", "right"] = "right" if header[:1].isdigit() else "left"
            table.add_column(header, justify=justify, header_style="dim", no_wrap=True)
        for (case, database), row in rows(group):
            cells = [_cell(row[count]) if count in row else Text("") for count in counts]
            table.add_row(title(case), DATABASE_NAMES[database], *cells, _goal(list(row.values())))
        console.print(f"\n[bold]{headings[what]}[/bold]")
        console.print(table)
    console.print()
    console.print(summary(figures), markup=False)


def summary(figures: Iterable[Figure]) -> str:
    """Return a sentence with the number of met goals, and the missed goals."""
    with_goal = [figure for figure in figures if figure.met is not None]
    missed = [figure.name for figure in with_goal if not figure.met]
    text = f"{len(with_goal) - len(missed)} of {len(with_goal)} goals are met"
    return "\n  ".join([f"{text}; these are not:", *missed]) if missed else f"{text}."


def by_heading(figures: Iterable[Figure], headings: Mapping[str, str]) -> list[tuple[str, list[Figure]]]:
    """Return the figures grouped by the first part of their names, in the order of the headings."""
    groups = {what: [figure for figure in figures if figure.parts[0] == what] for what in headings}
    return [(what, group) for what, group in groups.items() if group]


def rows(group: Iterable[Figure]) -> list[tuple[tuple[str, str], dict[int, Figure]]]:
    """Return ((case, database), figures by scale) in the order of the figures, grouped by case."""
    cases: dict[str, dict[str, dict[int, Figure]]] = {}
    for figure in group:
        _, case, count, database = figure.parts
        cases.setdefault(case, {}).setdefault(database, {})[count] = figure
    return [((case, database), scales) for case, databases in cases.items() for database, scales in databases.items()]


def title(case: str) -> str:
    """Return the title of a case."""
    return case.replace("_", " ")


def short(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(ratio: float) -> str:
    """Return a formatted ratio: `1.7 ×`, or `1/3,000 ×`."""
    return f"1/{1 / ratio:,.0f} ×" if ratio < 0.1 else f"{short(ratio)} ×"


def _cell(figure: Figure) -> Text:
    """Return the ratio and its values: ours : peer (limit)."""
    style = {None: "", True: "green", False: "bold red"}[figure.met]
    limit = "" if figure.limit is None else f" ({short(figure.limit)})"
    unit = "/s" if figure.is_rate else f" {figure.unit}"
    values = f"{short(figure.ours)} : {short(figure.peer)}{limit}{unit}"
    return Text.assemble((times(figure.ratio), style), (f"  {values}", "dim"))


def _goal(row: Sequence[Figure]) -> Text:
    judged = [figure for figure in row if figure.goal is not None]
    if not judged:
        return Text("")
    is_met = all(figure.met for figure in judged)
    return Text(f"{judged[-1].goal_text} {'✓' if is_met else '✗'}", "green" if is_met else "bold red")
