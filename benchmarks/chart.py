"""The chart of the figures: an SVG in the style of `docs/overview.svg`, with ratios on logarithmic axes.

It is drawn without a plotting library, to avoid the dependency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape

from benchmarks.figures import Figure
from benchmarks.report import DATABASE_NAMES, by_heading, rows, short, times, title

COLOURS = {"postgresql": "#33678f", "sqlite": "#d98324", "airflow": "#7a5195"}

_COLUMN, _MARGIN, _TOP = 560, 24, 96
_PLOT_LEFT, _PLOT_WIDTH = 126, 280
_PANEL_HEAD, _PANEL_FOOT = 58, 34
_LANE, _GAP = 16, 10
_STYLE = """
    text { fill: #40525c; font-size: 12px }
    .title { font-size: 20px; font-weight: bold; fill: #16303d }
    .name { font-size: 14px; font-weight: bold; fill: #16303d }
    .value { font-weight: bold; fill: #16303d }
    .met { fill: #1f7a4d }
    .missed { fill: #b3261e }
    .small { font-size: 11px }
    .end { text-anchor: end }
    .middle { text-anchor: middle }
    .panel { fill: #ffffff; stroke: #d5dfe4; rx: 6 }
    .grid { stroke: #e3eaed }
    .one { stroke: #8da2ad; stroke-width: 1.5 }
    .goal { stroke-width: 3; stroke-linecap: round }
    .goal.met { stroke: #1f7a4d }
    .goal.missed { stroke: #b3261e }
"""


@dataclass(frozen=True)
class _Panel:
    """The figures under one heading: a lane for each case and database, grouped by case."""

    heading: str
    lanes: list[tuple[tuple[str, str], dict[int, Figure]]]

    @property
    def height(self) -> int:
        cases = len({case for (case, _), _ in self.lanes})
        return _PANEL_HEAD + len(self.lanes) * _LANE + cases * _GAP + _PANEL_FOOT


def draw(figures: Sequence[Figure], headings: Mapping[str, str]) -> str:
    """Return an SVG with a panel for each heading, in two columns."""
    panels = [_Panel(headings[what], rows(group)) for what, group in by_heading(figures, headings)]
    bottoms, drawn = [_TOP, _TOP], []
    for panel in panels:
        column = bottoms.index(min(bottoms))
        left = _MARGIN + column * (_COLUMN + _MARGIN)
        drawn.append(f'<g transform="translate({left},{bottoms[column]})">{"".join(_draw_panel(panel))}</g>')
        bottoms[column] += panel.height + _MARGIN // 2
    width, height = 2 * _COLUMN + 3 * _MARGIN, max(bottoms) + _MARGIN // 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="Helvetica, Arial, sans-serif">',
            f"  <style>{_STYLE}  </style>",
            f'<rect width="{width}" height="{height}" fill="#f7f9fa"/>',
            *_draw_legend(figures),
            *drawn,
            "</svg>\n",
        ]
    )


def _draw_legend(figures: Sequence[Figure]) -> Iterator[str]:
    yield _text(_MARGIN, 38, "How many times as much Calve takes", "title")
    yield _text(_MARGIN, 60, "Each beside its peer, in turn, in one run on one machine. Further left is better.")
    left = _MARGIN
    for database in sorted({figure.parts[3] for figure in figures}):
        yield _dot(left + 5, 78, 5, database)
        yield _text(left + 15, 82, DATABASE_NAMES[database])
        left += 105
    left += 20
    for place, meaning in enumerate(("least", "", "most partitions of a panel")):
        yield f'<circle cx="{left + 7}" cy="78" r="{_radius(place, range(3))}" fill="#8da2ad"/>'
        yield _text(left + 18, 82, meaning)
        left += 20 + 7 * len(meaning)
    left += 20
    for verdict, meaning in (("met", "goal, met"), ("missed", "goal, missed")):
        yield f'<line class="goal {verdict}" x1="{left + 7}" x2="{left + 7}" y1="72" y2="84"/>'
        yield _text(left + 16, 82, meaning)
        left += 90


def _draw_panel(panel: _Panel) -> Iterator[str]:
    name, _, explanation = panel.heading.partition(": ")
    yield f'<rect class="panel" width="{_COLUMN}" height="{panel.height}"/>'
    yield _text(16, 25, name, "name")
    yield _text(16, 43, explanation)
    shown = [figure for _, row in panel.lanes for figure in row.values()]
    scales = sorted({figure.parts[2] for figure in shown})
    bottom = panel.height - _PANEL_FOOT
    low, high = _bounds(shown)
    place = _logarithmic(low, high)
    for tick in _ticks(low, high):
        css = "one" if tick == 1 else "grid"
        yield f'<line class="{css}" x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="{_PANEL_HEAD}" y2="{bottom}"/>'
        yield _text(place(tick), bottom + 17, times(tick).rstrip(" ×"), "small middle")
    top = _PANEL_HEAD + _GAP // 2
    for case, lanes in groupby(panel.lanes, key=lambda lane: lane[0][0]):
        group = list(lanes)
        yield _text(_PLOT_LEFT - 14, top + len(group) * _LANE / 2 + 4, title(case), "end")
        for (_, database), row in group:
            yield from _draw_lane(row, database, top + _LANE / 2, place, scales)
            top += _LANE
        top += _GAP


def _draw_lane(
    row: Mapping[int, Figure], database: str, middle: float, place: Callable[[float], float], scales: Sequence[int]
) -> Iterator[str]:
    ratios = [figure.ratio for figure in row.values()]
    yield (
        f'<line x1="{place(min(ratios)):.1f}" x2="{place(max(ratios)):.1f}" y1="{middle}" y2="{middle}" '
        f'stroke="{COLOURS[database]}" stroke-width="2" opacity="0.5"/>'
    )
    for count, figure in sorted(row.items(), reverse=True):
        yield _dot(place(figure.ratio), middle, _radius(count, scales), database)
    largest = row[max(row)]
    verdict = "" if largest.goal is None else "missed" if any(figure.met is False for figure in row.values()) else "met"
    if largest.goal_ratio is not None:
        x = f"{place(largest.goal_ratio):.1f}"
        yield f'<line class="goal {verdict}" x1="{x}" x2="{x}" y1="{middle - 6}" y2="{middle + 6}"/>'
    right = _PLOT_LEFT + _PLOT_WIDTH + 76
    value = f"{short(largest.ours)}/s" if largest.is_rate else times(largest.ratio)
    yield _text(right, middle + 4, value, f"value end {verdict}")
    if largest.goal is not None:
        yield _text(right + 8, middle + 4, largest.goal_text, "small")


def _text(x: float, y: float, text: str, css: str = "") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _dot(x: float, y: float, radius: float, database: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{COLOURS[database]}" stroke="#ffffff" '
        'stroke-width="0.8"/>'
    )


def _radius(count: int, scales: Sequence[int]) -> float:
    return 2.5 + 4 * (scales.index(count) + 1) / len(scales)


# --- the axis -------------------------------------------------------------------------------------------------------


def _bounds(figures: Sequence[Figure]) -> tuple[float, float]:
    """Return the ends of the axis, which include 1, all ratios and goals, and at least an octave."""
    values = [1.0, *(figure.ratio for figure in figures), *(figure.goal_ratio or 1.0 for figure in figures)]
    return min(*values, 0.8) / 1.15, max(*values, 1.6) * 1.15


def _logarithmic(low: float, high: float) -> Callable[[float], float]:
    """Return the function from a value to its position on the axis."""
    span = math.log(high / low)
    return lambda value: _PLOT_LEFT + _PLOT_WIDTH * math.log(value / low) / span


def _ticks(low: float, high: float) -> list[float]:
    """Return up to about seven round numbers on the axis, including 1."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.2, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= 7:
            return ticks
    return [tick for tick in ticks if round(math.log10(tick)) % 2 == 0]
