"""The demo's section on partition schemes: split a skewed range of flights by delay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog import Catalog
from catalog.datafiles.partitions import SchemePartition
from catalog.datafiles.pruning import FileScan
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


def run(guide: Guide, catalog: Catalog) -> None:
    """Create a table with a skewed range, apply the advisor's proposals through Airflow, and compare.

    Raises:
        DemoError: The advisor proposes nothing, or rows are lost.
    """
    guide.title("7. Split a range that has grown too large")
    guide.run_sql(_SCRIPT)
    before = catalog.scheme_partitions(TABLE)
    _show(guide, before)
    read_before = _read(guide, catalog)
    guide.say("\nHalf of all flights leave early and are in one range. The advisor proposes:")
    for proposal in _proposals(guide):
        guide.say(f"  {proposal['statement']}\n  reason: {proposal['reason']}")
        guide.run_dag("rebalance_partitions", {**proposal["request"], "dry_run": False})
    after = catalog.scheme_partitions(TABLE)
    if _rows(before) != _rows(after):
        raise DemoError(f"{TABLE} had {_rows(before):,} rows before the split and has {_rows(after):,} after it")
    guide.say(f"\nAll {_rows(after):,} flights are still there; only the rows of the split range were moved:")
    _show(guide, after)
    read_after = _read(guide, catalog)
    guide.say(f"The same query now reads {100 * read_after / max(1, read_before):.0f} % of the rows it read before.")
    picture = guide.home / "delays.svg"
    picture.write_text(_picture(before, after))
    guide.say(f"Histogram of the rows before and after: {picture.as_uri()}")


def _proposals(guide: Guide) -> list[dict[str, Any]]:
    run_id = guide.run_dag("rebalance_advisor", {"tables": [TABLE], "dry_run": True})
    proposals: list[dict[str, Any]] = guide.api.xcom("rebalance_advisor", run_id, "propose", "proposals")
    if not proposals:
        raise DemoError(f"the advisor proposes nothing for {TABLE}, although its first range has half of the rows")
    return proposals


def _rows(partitions: Sequence[SchemePartition]) -> int:
    return sum(partition.row_count for partition in partitions)


def _label(partition: SchemePartition) -> str:
    """Return a partition's bounds: its line of SHOW PARTITIONS without the id."""
    if partition.id == DEFAULT_PARTITION:
        return "120 <= dep_delay, or cancelled"
    return partition.text.partition(", ")[2]


def _in_order(partitions: Sequence[SchemePartition]) -> list[SchemePartition]:
    """Return the partitions in the order of their bounds, the default partition last."""
    return sorted(partitions, key=lambda partition: partition.id == DEFAULT_PARTITION)


def _show(guide: Guide, partitions: Sequence[SchemePartition]) -> None:
    most = max(partition.row_count for partition in partitions)
    for partition in _in_order(partitions):
        bar = "█" * max(1, round(_BAR_LENGTH * partition.row_count / most))
        guide.say(f"  {_label(partition):>30} {partition.row_count:8,} {bar}")


def _read(guide: Guide, catalog: Catalog) -> int:
    """Print the rows and files that a query reads; return the number of rows."""
    scan = catalog.explain_partitions(TABLE, _WHERE)
    assert isinstance(scan, FileScan)
    read = scan.read
    guide.say(
        f"WHERE {_WHERE} ({_MEANING}): reads {read.row_count:,} rows in {read.file_count} of {scan.files_total} files"
    )
    return read.row_count


def _picture(before: Sequence[SchemePartition], after: Sequence[SchemePartition]) -> str:
    changed = {partition.id for partition in before} ^ {partition.id for partition in after}
    histograms = [
        histogram.Histogram(
            name,
            f"{len(partitions)} partitions; the largest has {max(p.row_count for p in partitions):,} flights",
            [histogram.Bar(_label(p), p.row_count, p.id in changed) for p in _in_order(partitions)],
        )
        for name, partitions in (("Before", before), ("After", after))
    ]
    subtitle = (
        f"{_rows(after):,} flights of 2013 in {TABLE}: rows of each partition. Orange: the split range and its parts."
    )
    return histogram.draw("Flights by departure delay in minutes", subtitle, histograms)
