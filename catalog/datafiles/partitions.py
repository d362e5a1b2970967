"""Listing of the partitions of a table with a partition scheme, as in SHOW PARTITIONS."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from catalog.datafiles.files import Total, count_files
from catalog.datafiles.pruning import partitions_of
from catalog.expressions import parse_expression
from catalog.model import Table
from catalog.schemes.model import UNPLACED, Scheme, SchemeType


@dataclass(frozen=True)
class SchemePartition:
    """A partition with its totals.

    Attributes:
        id: -1 for the files of other engines that are in no partition yet.
        text: Its line in SHOW PARTITIONS, for instance `2, country = UK, US`. Hash partitions share one line there;
            here they have one each, for instance `0, hash(vin) % 5 = 0`.
    """

    id: int
    text: str
    row_count: int
    size_bytes: int
    file_count: int


def scheme_partitions(connection: Connection, table: Table, expression: str | None = None) -> list[SchemePartition]:
    """Return the partitions of a table in logical order; see `Catalog.scheme_partitions`."""
    scheme = table.scheme
    assert scheme is not None
    totals = count_files(connection, table)
    chosen = scheme.ids
    if expression is not None:
        chosen = partitions_of(parse_expression(expression, table.filter_view), table)
    lines = dict(zip(scheme.ids, scheme.lines(), strict=True)) if scheme.type is not SchemeType.HASH else {}
    partitions = []
    for partition_id in (*chosen, *([UNPLACED] if UNPLACED in totals else [])):
        total = totals.get(partition_id, Total())
        text = lines.get(partition_id) or f"{partition_id}, {text_of_partition(scheme, partition_id)}"
        partitions.append(SchemePartition(partition_id, text, total.row_count, total.size_bytes, total.file_count))
    return partitions


def text_of_partition(scheme: Scheme, partition_id: int) -> str:
    """Return the condition of a partition's rows, as `Scheme.text_of`, also for unplaced files."""
    return "unplaced" if partition_id == UNPLACED else scheme.text_of(partition_id)
