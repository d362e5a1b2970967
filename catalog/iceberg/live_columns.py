"""Columns of tables whose contents only Iceberg's metadata describe, as statements use them.

The catalog keeps the definition of the former Hive table, which a revert restores; engines may have changed the columns
and the partition spec since.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from catalog.errors import UnreadableMetadataError
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.pointers import require_metadata
from catalog.model import Column, FileFormat, Table

_NAMES: Final[dict[type[IcebergType], str]] = {
    IntegerType: "int",
    LongType: "bigint",
    TimestamptzType: "timestamp",
    TimestampType: "timestamp_ntz",
    UUIDType: "string",
    FixedType: "binary",
}
"""Names that differ from Iceberg's own; for types that Spark does not have, those that it reads and writes."""


def with_live_columns(table: Table) -> Table:
    """Return an Iceberg table with the columns and partition keys of its current metadata.

    A column is a partition key if the partition spec has its values as they are, and if no column after it is none:
    the keys of a migrated table are its last columns.

    Raises:
        TableNotFoundError: Another engine has dropped the table.
        UnreadableMetadataError: The metadata cannot be read.
    """
    return _with_columns(table, _metadata(table))


def _metadata(table: Table) -> TableMetadata:
    location = require_metadata(table)
    try:
        return read_metadata(location)
    except (OSError, ValueError, ValidationError) as error:
        raise UnreadableMetadataError(table.full_name, location, str(error).split("\n")[0]) from error


def _with_columns(table: Table, metadata: TableMetadata) -> Table:
    sources = _identity_sources(metadata)
    fields = metadata.schema().fields
    columns = [Column(field.name.lower(), _type_text(field.field_type), field.doc, field.field_id) for field in fields]
    first = len(columns)
    while first and columns[first - 1].id in sources:
        first -= 1
    return replace(table, columns=tuple(columns[:first]), partition_keys=tuple(columns[first:]))


def with_live_definition(table: Table) -> Table:
    """Return an Iceberg table that an engine made as its current metadata define it.

    Raises:
        TableNotFoundError, UnreadableMetadataError: As for `with_live_columns`.
    """
    metadata = _metadata(table)
    properties = dict(metadata.properties)
    words = {form.value: form for form in (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)}
    return replace(
        _with_columns(table, metadata),
        location=metadata.location,
        properties=properties,
        description=properties.get("comment"),
        format=words.get(properties.get("write.format.default", "").lower(), FileFormat.PARQUET),
    )


def _identity_sources(metadata: TableMetadata) -> set[int]:
    """Return the ids of the columns whose values are those of the partitions."""
    schema = metadata.schema()
    return {
        field.source_id
        for field in metadata.spec().fields
        if isinstance(field.transform, IdentityTransform)
        and isinstance(schema.find_field(field.source_id).field_type, PrimitiveType)
    }


def _type_text(kind: IcebergType) -> str:
    """Return the name of a type in statements; of one that they do not have, Iceberg's name."""
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case ListType():
            return f"array<{_type_text(kind.element_type)}>"
        case MapType():
            return f"map<{_type_text(kind.key_type)},{_type_text(kind.value_type)}>"
        case StructType():
            return f"struct<{','.join(f'`{part.name}`:{_type_text(part.field_type)}' for part in kind.fields)}>"
    return _NAMES.get(type(kind), str(kind))
