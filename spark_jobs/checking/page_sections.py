"""The section of a Data Docs page about the checked partitions, which Great Expectations' own pages do not have."""

from __future__ import annotations

import html
import numbers
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spark_jobs.checking.measures import COUNTS, NULL_RATIO

if TYPE_CHECKING:
    import pandas
    from great_expectations.render.components import RenderedSectionContent

MOST_SHOWN = 500
"""The number of partitions on a page; the catalog has all of them."""

_MOST_COLUMNS = 8
_TITLES = {"row_count": "Rows", "registered_row_count": "Registered rows"}
_COUNTED = (*COUNTS, "_below", "_above", NULL_RATIO)


def partition_section(summary: pandas.DataFrame, failed: Mapping[int, str]) -> RenderedSectionContent:
    """Return the section with the first partitions of a summary, failed ones first, and what was counted in them.

    Args:
        summary: As `spark_jobs.checking.partition_summary.summarise` returns it, with names that are escaped for HTML.
        failed: The ids of partitions that failed a check, and why.
    """
    from great_expectations.render.components import RenderedHeaderContent, RenderedSectionContent, RenderedTableContent

    is_failed = summary["partition_id"].isin(list(failed))
    shown = summary.assign(is_failed=is_failed).sort_values("is_failed", ascending=False, kind="stable")[:MOST_SHOWN]
    columns = list(_columns(summary))
    table = [
        [partition, _verdict(failed.get(number)), *map(_text, values)]
        for partition, number, values in zip(
            shown["partition"], shown["partition_id"], shown[columns].itertuples(index=False), strict=True
        )
    ]
    titles = [_TITLES.get(column, column.replace("_", " ")) for column in columns]
    more = f"; {MOST_SHOWN:,} are shown, failed ones first" if len(summary) > MOST_SHOWN else ""
    counts = f"{int(is_failed.sum()):,} of {len(summary):,} failed{more}"
    styling = {"classes": ["col-12", "table-responsive", "pt-1", "pl-1", "pr-1"]}
    header = RenderedHeaderContent(
        header="Partitions", subheader=counts, styling={"classes": ["col-12", "p-0"], "header": {"classes": []}}
    )
    body = RenderedTableContent(
        table=table,
        header_row=["Partition", "Verdict", *titles],
        styling={**styling, "body": {"classes": ["table", "table-sm", "calve-partitions"]}},
    )
    return RenderedSectionContent(section_name="Partitions", content_blocks=[header, body])


def _verdict(failures: str | None) -> str:
    return "✓ passed" if failures is None else f"✗ failed: {html.escape(failures)}"


def _columns(summary: pandas.DataFrame) -> Iterator[str]:
    """Yield the columns to show: the numbers of rows, then those in which anything was counted."""
    yield from (name for name in _TITLES if name in summary.columns)
    counted = [name for name in summary.columns if name.endswith(_COUNTED) and name not in _TITLES]
    counted.sort(key=lambda name: not (summary[name].fillna(0) > 0).any())
    yield from counted[: _MOST_COLUMNS - len(_TITLES)]


def _text(value: Any) -> str:
    if not isinstance(value, numbers.Real) or (number := float(value)) != number:
        return ""
    return f"{int(number):,}" if number.is_integer() else f"{number:.3g}"
