"""Columns that clients take from the classes of Hive that read files, instead of from the entries of tables.

Hive's client, which Spark uses too, derives the columns of an entry from its SerDe, unless that is one of a few whose
columns the metastore knows better. It sends these columns back with each change of the entry, also with one that is not
about columns, such as of a property or the name. They lack what the SerDe does not tell.

Source: Hive's `Table.getCols`, `MetaStoreUtils.getFieldsFromDeserializer` and `hive.serdes.using.metastore.for.schema`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from catalog.doors.entries.csv_tables import CSV_STORAGE
from catalog.doors.entries.storages import USUAL
from catalog.metastores.types import HiveTable
from catalog.model import Column, FileFormat

_FROM_SERDE = "from deserializer"
"""The comment that Hive's client gives to columns without one, unless the SerDe says that it is empty."""

_SMALL = re.compile(r"\b(tinyint|smallint)\b")


def _of_csv(column: Column) -> Column:
    """Return a column as `OpenCSVSerde` has it: without its type and comment."""
    return replace(column, type="string", comment=_FROM_SERDE)


def _of_avro(column: Column) -> Column:
    """Return a column as `AvroSerDe` has it: Avro has no smaller integers than `int`."""
    return replace(column, type=_SMALL.sub("int", column.type), comment=column.comment or "")


_DERIVED: Mapping[str, Callable[[Column], Column]] = {
    str(CSV_STORAGE.serde): _of_csv,
    str(USUAL[FileFormat.AVRO].serde): _of_avro,
}
"""SerDe → a column of an entry as the client derives it."""


def with_known_columns(given: HiveTable, before: HiveTable) -> HiveTable:
    """Return an entry that a client sends, with the columns of the former entry in place of those that it derived.

    Args:
        before: The entry that the client read.
    """
    derive = _DERIVED.get(before.storage.serde or "")
    if derive is None:
        return given
    known = {derive(column): column for column in before.columns}
    return replace(given, columns=tuple(known.get(column, column) for column in given.columns))
