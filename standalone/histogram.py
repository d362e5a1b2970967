"""Histograms with horizontal bars as an SVG in the style of `docs/overview.svg`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _MARGIN, _TOP = 1_120, 24, 84
_HEAD, _LINE, _FOOT = 56, 24, 14
_LABEL, _VALUE = 190, 76
_STYLE = """
    text { fill: #40525c; font-size: 12px }
    .title { font-size: 20px; font-weight: bold; fill: #16303d }
    .name { font-size: 14px; font-weight: bold; fill: #16303d }
    .value { font-weight: bold; fill: #16303d }
    .end { text-anchor: end }
    .panel { fill: #ffffff; stroke: #d5dfe4; rx: 6 }
    .bar { fill: #8db4d3 }
    .marked { fill: #d98324 }
"""


@dataclass(frozen=True)
class Bar:
    """One partition: its label and its number of rows."""

    label: str
    count: int
    is_marked: bool = False


@dataclass(frozen=True)
class Histogram:
    """The partitions of a table at one time."""

    name: str
    explanation: str
    bars: Sequence[Bar]

    @property
    def height(self) -> int:
        """The height of the panel, in pixels."""
        return _HEAD + len(self.bars) * _LINE + _FOOT


def draw(title: str, subtitle: str, histograms: Sequence[Histogram]) -> str:
    """Return an SVG with histograms side by side on the same scale."""
    most = max((bar.count for histogram in histograms for bar in histogram.bars), default=1) or 1
    width = (_WIDTH - _MARGIN * (len(histograms) + 1)) // len(histograms)
    height = _TOP + max(histogram.height for histogram in histograms) + _MARGIN
    panels = [
        f'<g transform="translate({_MARGIN + number * (width + _MARGIN)},{_TOP})">'
        f"{''.join(_draw_panel(histogram, width, most))}</g>"
        for number, histogram in enumerate(histograms)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="Helvetica, Arial, sans-serif">',
            f"  <style>{_STYLE}  </style>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#f7f9fa"/>',
            _text(_MARGIN, 38, title, "title"),
            _text(_MARGIN, 62, subtitle),
            *panels,
            "</svg>\n",
        ]
    )


def _draw_panel(histogram: Histogram, width: int, most: int) -> Iterator[str]:
    yield f'<rect class="panel" width="{width}" height="{histogram.height}"/>'
    yield _text(16, 24, histogram.name, "name")
    yield _text(16, 42, histogram.explanation)
    room = width - _LABEL - _VALUE - 16
    for number, bar in enumerate(histogram.bars):
        top = _HEAD + number * _LINE
        yield _text(_LABEL - 10, top + 16, bar.label, "end")
        length = max(1.0, room * bar.count / most)
        css = "marked" if bar.is_marked else "bar"
        yield f'<rect class="{css}" x="{_LABEL}" y="{top + 3}" width="{length:.1f}" height="{_LINE - 6}" rx="2"/>'
        yield _text(_LABEL + length + 8, top + 16, f"{bar.count:,}", "value")


def _text(x: float, y: float, text: str, css: str = "") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
