"""The layout of a Hive table as an Iceberg table: schema, partition spec, name mapping, typed partitions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Literal

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, TimestampType, TimestamptzType

from catalog.errors import (
    DuplicateColumnError,
    PartitionValueError,
    ReservedColumnError,
    UnsupportedColumn,
    UnsupportedIcebergTypeError,
)
from catalog.iceberg.metrics import metrics_modes
from catalog.iceberg.types import HiveTypeError, Loss, convert, fields_inside, spelled
from catalog.iceberg.values import PartitionValue, value_reader
from catalog.model import FileFormat, Table
from catalog.model.partition_names import NULL_VALUE
from catalog.types.key_types import KeyValueError

RESERVED_NAMES = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
"""Names of Iceberg's metadata columns. Spark refuses to read a table that has a column of such a name.

Source: Iceberg's `MetadataColumns.isMetadataColumn`, called by `SparkSchemaUtil.validateMetadataColumnReferences`.
"""

_ELEMENT_NAMES = ("bag", "array_element", "array", "item")
"""Names that old writers give to the elements of a list, or the group around each; Hive's first.

Iceberg's own readers ignore these names. DuckDB 1.5 does not, and reads nulls if none of them is mapped.
"""

_LOSS_WARNINGS: dict[Loss, str] = {
    Loss.BLANKS: "char(n) becomes string: the length is lost, and trailing blanks become significant",
    Loss.LENGTH: "varchar(n) becomes string, which has no maximum length",
    Loss.RANGE: "tinyint and smallint become int, which allows larger numbers",
    Loss.ZONE: "timestamp becomes timestamptz, an instant, which readers show in the time zone of their session",
}


@dataclass(frozen=True)
class TypeRules:
    """Conversion rules for types with two Iceberg equivalents.

    Attributes:
        timestamps: Whether Hive's `timestamp` becomes Iceberg's `timestamptz` (`with zone`) or `timestamp` (`without
            zone`). None: with zone in a table of Parquet files, without in one of ORC files, and refused in others.

    Source: Trino's `MigrateProcedure.toIcebergType`.
    """

    timestamps: Literal["with zone", "without zone"] | None = None

    def timestamp(self, file_format: FileFormat) -> IcebergType | None:
        """Return the Iceberg type of `timestamp` in a table of a format; None to refuse it."""
        usual = {FileFormat.PARQUET: "with zone", FileFormat.ORC: "without zone"}
        match self.timestamps or usual.get(file_format):
            case "with zone":
                return TimestamptzType()
            case "without zone":
                return TimestampType()
            case _:
                return None


@dataclass(frozen=True)
class ColumnChange:
    """The conversion of a column or partition key.

    Attributes:
        hive_type: As Hive writes it.
        iceberg_type: As Iceberg's specification writes it, nested types without field ids.
    """

    name: str
    hive_type: str
    iceberg_type: str
    is_partition_key: bool


@dataclass(frozen=True)
class Layout:
    """The definition of a Hive table as an Iceberg table.

    Attributes:
        schema: The columns, then the partition keys, all optional. Field ids start at 1.
        spec: One identity field per partition key, in their order. Field ids start at 1000.
        key_count: Number of partition keys, which are the last columns.
        hive_types: The Hive types of columns and keys.
        warnings: Properties of the Hive table that are lost, one sentence each.
        metrics: Field id → metrics mode, where it is not `truncate(16)` (`catalog.iceberg.metrics`).
        file_names: Field id → names of the column in files, if there are others than the column's name. Ids that are
            missing in the schema belong to dropped columns.
        dropped: The dropped columns with a nested type.
    """

    schema: Schema
    spec: PartitionSpec
    key_count: int
    hive_types: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    metrics: Mapping[int, str] = dataclass_field(default_factory=dict)
    file_names: Mapping[int, tuple[str, ...]] = dataclass_field(default_factory=dict)
    dropped: tuple[NestedField, ...] = ()

    @property
    def file_fields(self) -> tuple[NestedField, ...]:
        """The columns in data files, by their names there; columns with former names are repeated at the end."""
        fields = self.schema.fields[: len(self.schema.fields) - self.key_count]
        names = {field.field_id: self.file_names.get(field.field_id, (field.name,)) for field in fields}
        newest = [field.model_copy(update={"name": names[field.field_id][-1]}) for field in fields]
        former = [field.model_copy(update={"name": name}) for field in fields for name in names[field.field_id][:-1]]
        return (*newest, *former)

    def describe(self) -> list[ColumnChange]:
        """Return the conversion of each column and partition key, in their order."""
        first_key = len(self.hive_types) - self.key_count
        return [
            ColumnChange(field.name, hive_type, spelled(field.field_type), position >= first_key)
            for position, (field, hive_type) in enumerate(zip(self.schema.fields, self.hive_types, strict=True))
        ]

    def partition_record(self, values: Sequence[str | None]) -> tuple[PartitionValue, ...]:
        """Return the typed values of a partition for manifests.

        Args:
            values: One string per partition key, in order, without path escapes. None and `__HIVE_DEFAULT_PARTITION__`
                are null.

        Raises:
            PartitionValueError: A string is not of its key's type.
            ValueError: The number of values differs from that of the keys.
        """
        if len(values) != self.key_count:
            raise ValueError(f"{list(values)} has {len(values)} values for {self.key_count} partition keys")
        readers = map(value_reader, self.hive_types[len(self.hive_types) - self.key_count :])
        record: list[PartitionValue] = []
        for position, (text, read) in enumerate(zip(values, readers, strict=True)):
            try:
                value = None if text is None or text == NULL_VALUE else read(text)
            except KeyValueError as error:
                name, hive_type = self.spec.fields[position].name, self.hive_types[position - self.key_count]
                raise PartitionValueError(name, text or "", hive_type, str(error)) from None
            field = self.schema.fields[len(self.schema.fields) - self.key_count + position]
            if value is None and field.required:
                raise PartitionValueError(
                    field.name, NULL_VALUE, self.hive_types[position - self.key_count], "the column is NOT NULL"
                )
            record.append(value)
        return tuple(record)

    def name_mapping(
        self,
        spellings: Mapping[int, Collection[str]] | None = None,
        unknown: Iterable[tuple[int, Sequence[str]]] = (),
    ) -> str:
        """Return the name mapping for readers of files without field ids (`schema.name-mapping.default`).

        Args:
            spellings: Other names of fields in files, by field id.
            unknown: Columns in files that the table does not have: the field id of the enclosing struct, 0 for the
                table, and the names from there on. They get ids that no field has, as dropped columns keep theirs:
                PyIceberg refuses to read a file with a column that is not mapped, and DuckDB 1.5 reads null for the
                columns after it.

        Raises:
            ValueError: There is no field of an id, or two fields of one struct would have the same name.

        Source: Iceberg's specification, "Column Projection" and "Name Mapping Serialization".
        """
        others = dict(spellings or {})
        mapping = _mapped(self.schema.fields, others, names_of=self.file_names)
        mapping += _mapped(self.dropped, {}, names_of=self.file_names)
        ids = {field.field_id for field in (*self.schema.fields, *self.dropped)}
        for field_id in self.file_names.keys() - ids:
            mapping.append({"field-id": field_id, "names": list(self.file_names[field_id])})
        if others:
            raise ValueError(
                f"spellings are given for the field id {', '.join(map(str, sorted(others)))}, which does not exist"
            )
        map_unknown(mapping, unknown, max((self.schema.highest_field_id, *self.file_names)))
        return json.dumps(mapping, ensure_ascii=False, separators=(",", ":"))

    def as_json(self) -> dict[str, Any]:
        """Return the layout as JSON values; `from_json` is the inverse."""
        return {
            "schema": self.schema.model_dump(),
            "spec": self.spec.model_dump(),
            "key_count": self.key_count,
            "hive_types": list(self.hive_types),
            "warnings": list(self.warnings),
            "metrics": {str(field_id): mode for field_id, mode in self.metrics.items()},
            "file_names": {str(field_id): list(names) for field_id, names in self.file_names.items()},
            "dropped": Schema(*self.dropped).model_dump(),
        }

    @classmethod
    def from_json(cls, layout: Mapping[str, Any]) -> Layout:
        """Return the layout of `as_json`."""
        return cls(
            Schema.model_validate(layout["schema"]),
            PartitionSpec.model_validate(layout["spec"]),
            layout["key_count"],
            tuple(layout["hive_types"]),
            tuple(layout["warnings"]),
            {int(field_id): mode for field_id, mode in layout["metrics"].items()},
            {int(field_id): tuple(names) for field_id, names in layout.get("file_names", {}).items()},
            Schema.model_validate(layout["dropped"]).fields if "dropped" in layout else (),
        )


def layout_of(table: Table, rules: TypeRules | None = None) -> Layout:
    """Return the layout of a Hive table as an Iceberg table. No files are read or written.

    Field ids are those of the catalog, which Parquet files also have. Nested fields get higher ids, in the order of
    Trino and Spark: the fields of a struct are numbered before their own nested fields.

    Args:
        rules: By default Trino's.

    Raises:
        UnsupportedIcebergTypeError: Columns have types that Iceberg does not support.
        ReservedColumnError: Columns have the names of Iceberg's metadata columns.
        DuplicateColumnError: Columns, or fields inside them, have the same name, or names that differ only in case.

    Source: Trino's `MigrateProcedure.toIcebergSchema`; Iceberg's `TypeUtil.assignFreshIds`.
    """
    timestamp = (rules or TypeRules()).timestamp(table.format)
    columns = (*table.columns, *table.partition_keys)
    fields: list[NestedField] = []
    lossy: dict[Loss, list[str]] = {loss: [] for loss in Loss}
    unsupported: list[UnsupportedColumn] = []
    for position, column in enumerate(columns):
        try:
            converted = convert(column.type, timestamp)
            if position >= len(table.columns):
                _check_key_type(converted.type)
        except HiveTypeError as error:
            unsupported.append(UnsupportedColumn(column.name, column.type, str(error)))
            continue
        fields.append(NestedField(0, column.name.lower(), converted.type, required=False, doc=column.comment))
        for loss in converted.losses:
            lossy[loss].append(column.name)
    if unsupported:
        raise UnsupportedIcebergTypeError(table.full_name, unsupported)
    _check_names(table.full_name, fields)
    schema = _identified(assign_fresh_schema_ids(Schema(*fields)), table)
    inside = (*table.columns, *table.dropped_columns)
    return Layout(
        schema,
        _identity_spec(schema.fields[len(table.columns) :]),
        len(table.partition_keys),
        tuple(column.type for column in columns),
        tuple(_warnings(table, schema.fields, lossy)),
        metrics_modes(table.properties, schema),
        {column.id: column.stored_names for column in inside if column.file_names or column in table.dropped_columns},
        tuple(_dropped_fields(table)),
    )


def _identified(schema: Schema, table: Table) -> Schema:
    """Return a schema with the catalog's ids.

    Nested fields without an id, of tables of earlier versions, are numbered after all others.
    """
    columns = (*table.columns, *table.partition_keys)
    if any(column.id == 0 for column in columns):
        return schema
    distance = max(table.last_column_id - len(columns), 0)

    return Schema(
        *[
            field.model_copy(
                update={
                    "field_id": column.id,
                    "field_type": _with_part_ids(field.field_type, dict(column.part_ids), distance),
                }
            )
            for field, column in zip(schema.fields, columns, strict=True)
        ]
    )


def _with_part_ids(kind: IcebergType, ids: Mapping[str, int], distance: int = 0, path: str = "") -> IcebergType:
    """Return a type whose fields have ids by their paths; those without one are moved by a distance."""
    parts = [
        part.model_copy(
            update={
                "field_id": ids.get(f"{path}{part.name}", part.field_id + distance),
                "field_type": _with_part_ids(part.field_type, ids, distance, f"{path}{part.name}."),
            }
        )
        for part in fields_inside(kind)
    ]
    match kind, parts:
        case StructType(), _:
            return StructType(*parts)
        case ListType(), [element]:
            return ListType(element.field_id, element.field_type, element_required=element.required)
        case MapType(), [key, value]:
            return MapType(
                key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
            )
    return kind


def _dropped_fields(table: Table) -> Iterator[NestedField]:
    """Yield the dropped columns with a nested type: some readers need all names in files to be mapped."""
    for column in table.dropped_columns:
        if column.part_ids:
            kind = _with_part_ids(convert(column.type, TimestamptzType()).type, dict(column.part_ids))
            yield NestedField(column.id, column.name, kind, required=False)


def _check_key_type(key_type: IcebergType) -> None:
    if not key_type.is_primitive:
        raise HiveTypeError("a partition key cannot have a nested type")


def _check_names(table: str, fields: Sequence[NestedField]) -> None:
    if reserved := [field.name for field in fields if field.name in RESERVED_NAMES]:
        raise ReservedColumnError(table, reserved)
    counts = Counter(_full_names(fields))
    if duplicates := [name for name, count in counts.items() if count > 1]:
        raise DuplicateColumnError(table, duplicates)


def _full_names(fields: Iterable[NestedField]) -> Iterator[str]:
    """Yield the paths by which Iceberg finds fields; a dot in a name and one between names are not distinguished."""
    for field in fields:
        yield field.name
        for inner in _full_names(fields_inside(field.field_type)):
            yield f"{field.name}.{inner}"


def _identity_spec(keys: Sequence[NestedField]) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(key.field_id, PARTITION_FIELD_ID_START + position, IdentityTransform(), key.name)
            for position, key in enumerate(keys)
        )
    )


def _mapped(
    fields: Iterable[NestedField],
    spellings: dict[int, Collection[str]],
    others: Collection[str] = (),
    names_of: Mapping[int, tuple[str, ...]] | None = None,
) -> list[dict[str, Any]]:
    """Return the mapping of the fields of one struct, and remove their spellings.

    Args:
        others: Further names of the only field.
        names_of: Field id → names that replace the field's own.
    """
    mapped: list[dict[str, Any]] = []
    taken: set[str] = set()
    for field in fields:
        own = (names_of or {}).get(field.field_id, (field.name,))
        names = list(dict.fromkeys((*own, *sorted(spellings.pop(field.field_id, ())), *others)))
        if conflicts := taken.intersection(names):
            raise ValueError(f"field {field.field_id} cannot have the name {min(conflicts)!r}, which another field has")
        taken.update(names)
        entry: dict[str, Any] = {"field-id": field.field_id, "names": names}
        parts = fields_inside(field.field_type)
        if inside := _mapped(parts, spellings, _ELEMENT_NAMES if isinstance(field.field_type, ListType) else ()):
            entry["fields"] = inside
        mapped.append(entry)
    return mapped


def map_unknown(mapping: list[dict[str, Any]], unknown: Iterable[tuple[int, Sequence[str]]], last_id: int) -> None:
    """Add columns that the table does not have to a mapping, each inside its parent.

    Args:
        unknown: As in `Layout.name_mapping`.
        last_id: The new ids are greater.
    """
    inside = {0: mapping, **dict(_parts(mapping))}
    for parent, path in sorted({(parent, tuple(path)) for parent, path in unknown}):
        siblings = inside[parent]
        for name in path:
            entry = next((field for field in siblings if name in field["names"]), None)
            if entry is None:
                last_id += 1
                names = [name, *_ELEMENT_NAMES] if name == "element" and len(path) > 1 else [name]
                entry = {"field-id": last_id, "names": names}
                siblings.append(entry)
            siblings = entry.setdefault("fields", []) if name is not path[-1] else entry.get("fields", [])


def _parts(mapping: Iterable[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for entry in mapping:
        if "fields" in entry:
            yield entry.get("field-id", 0), entry["fields"]
            yield from _parts(entry["fields"])


def highest_mapped_id(name_mapping: str) -> int:
    """Return the highest field id of a name mapping; 0 for an empty one."""

    def ids(entries: Iterable[dict[str, Any]]) -> Iterator[int]:
        for entry in entries:
            yield entry.get("field-id", 0)
            yield from ids(entry.get("fields", ()))

    return max(ids(json.loads(name_mapping)), default=0)


def mapped_ids(name_mapping: str) -> dict[tuple[str, ...], int]:
    """Return the field ids of a name mapping by the paths that the fields have in files.

    Raises:
        ValueError: The text is not a name mapping.
    """
    try:
        return dict(_mapped_ids(json.loads(name_mapping)))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"this is not a name mapping: {name_mapping[:80]}") from error


def _mapped_ids(
    entries: Iterable[dict[str, Any]], outer: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    for entry in entries:
        for name in entry["names"]:
            yield (*outer, name), entry.get("field-id", 0)
            yield from _mapped_ids(entry.get("fields", ()), (*outer, name))


def _warnings(table: Table, fields: Sequence[NestedField], lossy: Mapping[Loss, Sequence[str]]) -> Iterator[str]:
    for loss, names in lossy.items():
        if names:
            yield f"{', '.join(names)}: {_LOSS_WARNINGS[loss]}"
    keys = fields[len(table.columns) :]
    if instants := [key.name for key in keys if isinstance(key.field_type, TimestamptzType)]:
        yield f"{', '.join(instants)}: the values of this partition key are interpreted as UTC times"
    if table.buckets is not None:
        yield (
            f"the table is bucketed by {', '.join(table.buckets.columns)} into {table.buckets.count}: its files are "
            "unchanged, and the Iceberg table has no buckets"
        )
