"""Calve's CSV tables, as engines read and write them without a change of theirs.

Spark reads them with its own reader and Calve's settings, because the entry is that of one of Spark's tables. Hive has
a SerDe that reads all columns as strings, and no class to write: it would write files without a header. Where no engine
but Calve finds the columns, the entry names a class that does not exist, so that engines fail instead of reading other
rows. None of this is stored: `own_form` removes it from what clients send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from catalog.doors.entries.storages import PATH, TEXT_INPUT, USUAL, qualified
from catalog.metastores.types import HiveStorage, HiveTable
from catalog.model import FileFormat, Table
from catalog.tables.columns import NESTED_TYPE
from catalog.tables.spark_schema import PROVIDER, SCHEMA, schema_text, spark_parameters, spark_provider
from catalog.tables.table_versions import is_own

_SERDE = "org.apache.hadoop.hive.serde2.OpenCSVSerde"
_NO_WRITER = "org.apache.hadoop.hive.ql.io.HiveOutputFormat"
"""An interface: engines that read do not need an instance of it, and those that write cannot get one."""

_OPTIONS = {
    # For Spark: those with which Calve writes. Files of others may have times in another form.
    "header": "true",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "enableDateTimeParsingFallback": "true",
    "timeZone": "UTC",
    # For the SerDe: the defaults of Spark.
    "separatorChar": ",",
    "quoteChar": '"',
    "escapeChar": "\\",
}
_FORMAT = "serialization.format"
CSV_STORAGE = replace(
    USUAL[FileFormat.CSV],
    input_format=TEXT_INPUT,
    output_format=_NO_WRITER,
    serde=_SERDE,
    serde_parameters={**_OPTIONS, _FORMAT: "1"},
)
"""The storage of Calve's CSV tables, without their location."""

_HEADER = {"skip.header.line.count": "1"}
_REFUSED = "calve.only_calve_reads_these_files."


def refused_storage(file_format: FileFormat, storage: HiveStorage) -> HiveStorage:
    """Return a storage that no engine can read, with the columns of another."""
    name = f"{_REFUSED}{file_format}"
    return replace(USUAL[file_format], input_format=name, output_format=name, columns=storage.columns)


def is_refused(table: Table) -> bool:
    """Return whether engines that find the columns of CSV files by position would take other ones."""
    ids = [column.id for column in table.columns]
    nested = any(NESTED_TYPE.match(column.type) for column in table.columns)
    return is_calves(table) and (bool(table.dropped_columns) or ids != sorted(ids) or nested)


def csv_format(storage: HiveStorage) -> FileFormat | None:
    """Return the format of a storage that this module has made; None for others."""
    if (name := storage.input_format or "").startswith(_REFUSED):
        return FileFormat(name.removeprefix(_REFUSED))
    return FileFormat.CSV if _is_served(storage) else None


def _is_served(storage: HiveStorage) -> bool:
    if (storage.serde, storage.input_format) != (_SERDE, TEXT_INPUT):
        return False
    options = {name: value for name, value in storage.serde_parameters.items() if name not in (PATH, _FORMAT)}
    return options == _OPTIONS


# --- to clients -------------------------------------------------------------------------------------------------------


def served(entry: HiveTable, table: Table) -> HiveTable:
    """Return the entry of a table as clients get it."""
    if not is_calves(table) or csv_format(entry.storage) is not FileFormat.CSV:
        return entry
    if is_refused(table):
        return replace(entry, storage=refused_storage(FileFormat.CSV, entry.storage))
    location = qualified(entry.location)
    options = entry.storage.serde_parameters if location is None else {**CSV_STORAGE.serde_parameters, PATH: location}
    parameters = {**entry.parameters, **_HEADER, **spark_parameters("csv", entry.columns, entry.partition_keys)}
    return replace(entry, parameters=parameters, storage=replace(entry.storage, serde_parameters=options))


def is_calves(table: Table) -> bool:
    """Return whether a table is a CSV table of Calve's, and not one that Spark has created as its own."""
    if table.format is not FileFormat.CSV or table.is_iceberg or table.live_location is not None:
        return False
    return is_own(table) or spark_provider(table.properties) is None


# --- from clients -----------------------------------------------------------------------------------------------------


def own_storage(storage: HiveStorage) -> HiveStorage:
    """Return a storage that a client sends as it is stored."""
    file_format = csv_format(storage)
    if file_format is None:
        return storage
    used = CSV_STORAGE if file_format is FileFormat.CSV else USUAL[file_format]
    return replace(
        storage,
        input_format=used.input_format,
        output_format=used.output_format,
        serde=used.serde,
        serde_parameters=used.serde_parameters,
    )


def own_form(given: HiveTable, before: HiveTable | None = None) -> HiveTable:
    """Return an entry that a client sends without what `served` has added to it.

    Args:
        before: The entry that the client read. Clients other than Spark change the columns, but not Spark's schema.
    """
    if csv_format(given.storage) is not FileFormat.CSV:
        return given
    storage, parameters = own_storage(given.storage), given.parameters
    expected = [_schema(spark_parameters("csv", given.columns, given.partition_keys))]
    expected += [] if before is None else [_schema(before.parameters)]
    if PROVIDER in parameters and _schema(parameters) not in expected:
        # A schema of Spark that Hive's columns do not show.
        return given
    return replace(given, storage=storage, parameters=without_added(parameters))


def without_added(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return parameters without those that `served` adds."""
    added = {*_HEADER, *spark_parameters("csv", (), ())}
    return {name: value for name, value in parameters.items() if name not in added and not name.startswith(SCHEMA)}


def _schema(parameters: Mapping[str, str]) -> object:
    text = schema_text(parameters)
    return None if text is None else json.loads(text)
