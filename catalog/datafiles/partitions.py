"""The partitions of a table with a partition scheme, as SHOW PARTITIONS lists them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from catalog.datafiles.files import Total, count_files
from catalog.datafiles.pruning import partitions_of
from catalog.expressions import parse_expression
from catalog.model import Table
from catalog.schemes.model import SchemeType


@dataclass(frozen=True)
class SchemePartition:
    """A partition, and what it holds.

    Attributes:
        text: Its line of SHOW PARTITIONS, for instance `2, country = UK, US`; of hashed tables, whose partitions have
            one line together, `0, hash(vin) % 5 = 0`.
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
    found = []
    for each in chosen:
        total = totals.get(each, Total())
        text = lines.get(each) or f"{each}, {scheme.text_of(each)}"
        found.append(SchemePartition(each, text, total.row_count, total.size_bytes, total.file_count))
    return found
