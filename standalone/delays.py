"""The chapter of the tour on partition schemes: flights by their delay, a skewed range, and how it is split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog import Catalog
from catalog.datafiles.partitions import SchemePartition
from catalog.schemes.model import DEFAULT_PARTITION
from standalone import histogram
from standalone.guide import DemoError, Guide

TABLE = "demo.delays"
_SCRIPT = f"""
CREATE TABLE {TABLE} (carrier string, origin string, dest string, flight int, time_hour timestamp, distance int)
  PARTITIONED BY (dep_delay int) STORED BY 'carbondata'
  TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='0, 15, 30, 60, 120', 'SORT_COLUMNS'='carrier, origin',
                 'calve.target_file_bytes'='131072');
INSERT INTO {TABLE}
  SELECT carrier, origin, dest, flight, time_hour, distance, dep_delay FROM demo.flights;
"""
_WHERE, _MEANING = "dep_delay between -3 and -1", "flights that left one to three minutes early"
_BAR_LENGTH = 40


def lead(guide: Guide, catalog: Catalog) -> None:
    """Create the table, find its skew, let the advisor propose and Airflow do something about it, and compare.

    Raises:
        DemoError: Nothing is proposed, or rows are lost.
    """
    guide.title("7. Rows placed by ranges, and a range that has grown too large")
    guide.run_sql(_SCRIPT)
    before = catalog.scheme_partitions(TABLE)
    _show(guide, before)
    read_before = _read(guide, catalog)
    guide.say("\nHalf of all flights leave early, and are in one range. What does the advisor say?")
    for proposal in _proposals(guide):
        guide.say(f"  {proposal['statement']}\n  because {proposal['reason']}")
        guide.run_dag("rebalance_partitions", {**proposal["request"], "dry_run": False})
    after = catalog.scheme_partitions(TABLE)
    if _rows(before) != _rows(after):
        raise DemoError(f"{TABLE} had {_rows(before):,} rows, and has {_rows(after):,} now")
    guide.say(f"\nAll {_rows(after):,} flights are still there; only the rows of what was split were moved:")
    _show(guide, after)
    read_after = _read(guide, catalog)
    guide.say(f"That is {100 * read_after / max(1, read_before):.0f} % of the rows that the same query read before.")
    picture = guide.home / "delays.svg"
    picture.write_text(_picture(before, after))
    guide.say(f"Before and after, as a picture: {picture.as_uri()}")


def _proposals(guide: Guide) -> list[dict[str, Any]]:
    run_id = guide.run_dag("rebalance_advisor", {"tables": [TABLE], "dry_run": True})
    proposals: list[dict[str, Any]] = guide.api.xcom("rebalance_advisor", run_id, "propose", "proposals")
    if not proposals:
        raise DemoError(f"the advisor has nothing to propose for {TABLE}, whose first range has half of the rows")
    return proposals


def _rows(partitions: Sequence[SchemePartition]) -> int:
    return sum(each.row_count for each in partitions)


def _label(partition: SchemePartition) -> str:
    """Return a partition's bounds; the line of SHOW PARTITIONS begins with its id."""
    if partition.id == DEFAULT_PARTITION:
        return "120 <= dep_delay, or cancelled"
    return partition.text.partition(", ")[2]


def _in_order(partitions: Sequence[SchemePartition]) -> list[SchemePartition]:
    """Return the ranges by their bounds; the default partition, which is behind the last one, comes last."""
    return sorted(partitions, key=lambda each: each.id == DEFAULT_PARTITION)


def _show(guide: Guide, partitions: Sequence[SchemePartition]) -> None:
    most = max(each.row_count for each in partitions)
    for each in _in_order(partitions):
        bar = "█" * max(1, round(_BAR_LENGTH * each.row_count / most))
        guide.say(f"  {_label(each):>30} {each.row_count:8,} {bar}")


def _read(guide: Guide, catalog: Catalog) -> int:
    """Say what a query reads, and return how many rows that is."""
    scan = catalog.scan_files(TABLE, _WHERE)
    read = scan.read
    guide.say(
        f"WHERE {_WHERE} ({_MEANING}): reads {read.row_count:,} rows in {read.file_count} of {scan.files_total} files"
    )
    return read.row_count


def _picture(before: Sequence[SchemePartition], after: Sequence[SchemePartition]) -> str:
    changed = {each.id for each in before} ^ {each.id for each in after}
    histograms = [
        histogram.Histogram(
            name,
            f"{len(partitions)} partitions; the largest has {max(each.row_count for each in partitions):,} flights",
            [histogram.Bar(_label(each), each.row_count, each.id in changed) for each in _in_order(partitions)],
        )
        for name, partitions in (("Before", before), ("After", after))
    ]
    subtitle = (
        f"{_rows(after):,} flights of 2013 in {TABLE}: rows of each partition. Orange: what was split, and into what."
    )
    return histogram.draw("Flights by departure delay in minutes", subtitle, histograms)
