"""The layout of the Iceberg table that a Hive table becomes: schema, partition spec, name mapping, typed partitions."""

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
from catalog.iceberg.types import HiveTypeError, Loss, convert, spelled
from catalog.iceberg.values import PartitionValue, value_reader
from catalog.model import FileFormat, Table
from catalog.model.partition_names import NULL_VALUE
from catalog.types.key_types import KeyValueError

RESERVED_NAMES = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
"""Names of Iceberg's metadata columns. With one of them as a column, Spark refuses to read the table.

Source: Iceberg's `MetadataColumns.isMetadataColumn`, asked by `SparkSchemaUtil.validateMetadataColumnReferences`.
"""

_ELEMENT_NAMES = ("bag", "array_element", "array", "item")
"""What writers of old call the elements of a list, or the group around each; Hive's first.

Iceberg's own readers do not look at these names. DuckDB 1.5 does, and reads nulls where it finds none that is mapped.
"""

_TOLD: dict[Loss, str] = {
    Loss.BLANKS: "char(n) becomes string: it has no length, and blanks at its end count",
    Loss.LENGTH: "varchar(n) becomes string, which has no greatest length",
    Loss.RANGE: "tinyint and smallint become int, which holds greater numbers",
    Loss.ZONE: "timestamp becomes timestamptz, an instant, which readers show in the time zone of their session",
}


@dataclass(frozen=True)
class TypeRules:
    """What is to become of types that Iceberg has in two kinds.

    Attributes:
        timestamps: Whether Hive's `timestamp` becomes Iceberg's `timestamptz` (`with zone`) or `timestamp` (`without
            zone`). None: with zone in a table of Parquet files, without in one of ORC files, and refused in others.

    Source: Trino's `MigrateProcedure.toIcebergType`.
    """

    timestamps: Literal["with zone", "without zone"] | None = None

    def timestamp(self, file_format: FileFormat) -> IcebergType | None:
        """Return what `timestamp` becomes in a table of a format; None to refuse it."""
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
    """What becomes of a column or partition key.

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
    """What a Hive table is as an Iceberg table.

    Attributes:
        schema: The columns, then the partition keys, all optional. Field ids count from 1.
        spec: One identity field for each partition key, in their order. Field ids count from 1000.
        key_count: How many of the last columns are the partition keys.
        hive_types: What the columns and keys were in Hive.
        warnings: What the Hive table says and the Iceberg table does not, a sentence each.
        metrics: Field id → metrics mode, where that is not `truncate(16)` (`catalog.iceberg.metrics`).
        file_names: The names that files have columns under, by field id, where these are not the column's name alone.
            Ids that the schema does not have are of columns that were dropped.
    """

    schema: Schema
    spec: PartitionSpec
    key_count: int
    hive_types: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    metrics: Mapping[int, str] = dataclass_field(default_factory=dict)
    file_names: Mapping[int, tuple[str, ...]] = dataclass_field(default_factory=dict)

    @property
    def file_fields(self) -> tuple[NestedField, ...]:
        """The columns inside data files, under the names there; those with former names come again, at the end."""
        fields = self.schema.fields[: len(self.schema.fields) - self.key_count]
        names = {each.field_id: self.file_names.get(each.field_id, (each.name,)) for each in fields}
        newest = [each.model_copy(update={"name": names[each.field_id][-1]}) for each in fields]
        former = [each.model_copy(update={"name": name}) for each in fields for name in names[each.field_id][:-1]]
        return (*newest, *former)

    def describe(self) -> list[ColumnChange]:
        """Return what becomes of each column and partition key, in their order."""
        first_key = len(self.hive_types) - self.key_count
        return [
            ColumnChange(field.name, hive_type, spelled(field.field_type), position >= first_key)
            for position, (field, hive_type) in enumerate(zip(self.schema.fields, self.hive_types, strict=True))
        ]

    def partition_record(self, values: Sequence[str | None]) -> tuple[PartitionValue, ...]:
        """Return the typed values of a partition, as they stand in manifests.

        Args:
            values: One text for each partition key, in order, without the escapes of a path. None is null, and so is
                `__HIVE_DEFAULT_PARTITION__`.

        Raises:
            PartitionValueError: A text is not of its key's type.
            ValueError: There are more or fewer values than keys.
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
        """Return what readers find the columns of files by, which have no field ids: `schema.name-mapping.default`.

        Args:
            spellings: Other names that files use for a field, by field id.
            unknown: Columns of files that the table does not have: the field id of the struct that they are inside, 0
                for the table, and the names from there on. They get ids that no field has, as columns that were dropped
                keep theirs: PyIceberg refuses to read a file with a column that is not mapped, and DuckDB 1.5 reads
                null for those behind it.

        Raises:
            ValueError: There is no field of an id, or two fields side by side would have one name.

        Source: Iceberg's specification, "Column Projection" and "Name Mapping Serialization".
        """
        others = dict(spellings or {})
        mapping = _mapped(self.schema.fields, others, names_of=self.file_names)
        ids = {field.field_id for field in self.schema.fields}
        for field_id in self.file_names.keys() - ids:
            mapping.append({"field-id": field_id, "names": list(self.file_names[field_id])})
        if others:
            raise ValueError(
                f"there is no field with the id {', '.join(map(str, sorted(others)))} to be spelled otherwise"
            )
        map_unknown(mapping, unknown, max((self.schema.highest_field_id, *self.file_names)))
        return json.dumps(mapping, ensure_ascii=False, separators=(",", ":"))

    def as_json(self) -> dict[str, Any]:
        """Return the layout as what `json` writes; `from_json` reads it back."""
        return {
            "schema": self.schema.model_dump(),
            "spec": self.spec.model_dump(),
            "key_count": self.key_count,
            "hive_types": list(self.hive_types),
            "warnings": list(self.warnings),
            "metrics": {str(field_id): mode for field_id, mode in self.metrics.items()},
            "file_names": {str(field_id): list(names) for field_id, names in self.file_names.items()},
        }

    @classmethod
    def from_json(cls, layout: Mapping[str, Any]) -> Layout:
        """Return the layout that `as_json` wrote."""
        return cls(
            Schema.model_validate(layout["schema"]),
            PartitionSpec.model_validate(layout["spec"]),
            layout["key_count"],
            tuple(layout["hive_types"]),
            tuple(layout["warnings"]),
            {int(field_id): mode for field_id, mode in layout["metrics"].items()},
            {int(field_id): tuple(names) for field_id, names in layout.get("file_names", {}).items()},
        )


def layout_of(table: Table, rules: TypeRules | None = None) -> Layout:
    """Return what a Hive table is as an Iceberg table. Nothing is read or written.

    Field ids are those of the catalog, which Parquet files have, too. What is inside columns gets higher ones, as Trino
    and Spark would give: the fields of a struct get theirs before what is inside them, one after the other.

    Args:
        rules: By default as Trino does.

    Raises:
        UnsupportedIcebergTypeError: Columns have types that Iceberg does not have.
        ReservedColumnError: Columns have names of Iceberg's own columns.
        DuplicateColumnError: Columns, or fields inside them, have the same name, or case alone tells them apart.

    Source: Trino's `MigrateProcedure.toIcebergSchema`; Iceberg's `TypeUtil.assignFreshIds`.
    """
    timestamp = (rules or TypeRules()).timestamp(table.format)
    columns = (*table.columns, *table.partition_keys)
    fields: list[NestedField] = []
    lossy: dict[Loss, list[str]] = {loss: [] for loss in Loss}
    unsupported: list[UnsupportedColumn] = []
    for position, column in enumerate(columns):
        try:
            found = convert(column.type, timestamp)
            if position >= len(table.columns):
                _check_key_type(found.type)
        except HiveTypeError as error:
            unsupported.append(UnsupportedColumn(column.name, column.type, str(error)))
            continue
        fields.append(NestedField(0, column.name.lower(), found.type, required=False, doc=column.comment))
        for loss in found.losses:
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
        {each.id: each.stored_names for each in inside if each.file_names or each in table.dropped_columns},
    )


def _identified(schema: Schema, table: Table) -> Schema:
    """Return a schema with the catalog's ids of the columns, and what is inside them numbered behind all of these."""
    columns = (*table.columns, *table.partition_keys)
    if any(column.id == 0 for column in columns):
        return schema
    distance = max(table.last_column_id - len(columns), 0)

    def moved(found: IcebergType) -> IcebergType:
        match found:
            case StructType():
                return StructType(*[_moved_field(field) for field in found.fields])
            case ListType():
                return found.model_copy(
                    update={"element_id": found.element_id + distance, "element_type": moved(found.element_type)}
                )
            case MapType():
                ids = {"key_id": found.key_id + distance, "value_id": found.value_id + distance}
                return found.model_copy(
                    update={**ids, "key_type": moved(found.key_type), "value_type": moved(found.value_type)}
                )
            case _:
                return found

    def _moved_field(field: NestedField) -> NestedField:
        return field.model_copy(update={"field_id": field.field_id + distance, "field_type": moved(field.field_type)})

    return Schema(
        *[
            field.model_copy(update={"field_id": column.id, "field_type": moved(field.field_type)})
            for field, column in zip(schema.fields, columns, strict=True)
        ]
    )


def _check_key_type(found: IcebergType) -> None:
    if not found.is_primitive:
        raise HiveTypeError("a partition key cannot have parts")


def _check_names(table: str, fields: Sequence[NestedField]) -> None:
    if reserved := [field.name for field in fields if field.name in RESERVED_NAMES]:
        raise ReservedColumnError(table, reserved)
    counts = Counter(_full_names(fields))
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DuplicateColumnError(table, twice)


def _full_names(fields: Iterable[NestedField]) -> Iterator[str]:
    """Yield the names that Iceberg finds fields by: a dot in a name is not told from one between names."""
    for field in fields:
        yield field.name
        for inner in _full_names(_fields_inside(field.field_type)):
            yield f"{field.name}.{inner}"


def _fields_inside(found: IcebergType) -> tuple[NestedField, ...]:
    match found:
        case StructType():
            return found.fields
        case ListType():
            return (found.element_field,)
        case MapType():
            return (found.key_field, found.value_field)
        case _:
            return ()


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
    """Return the mapping of fields side by side, and take their spellings away.

    Args:
        others: Names that the only one of them has besides.
        names_of: Names instead of the field's own, by field id.
    """
    mapped: list[dict[str, Any]] = []
    taken: set[str] = set()
    for field in fields:
        own = (names_of or {}).get(field.field_id, (field.name,))
        names = list(dict.fromkeys((*own, *sorted(spellings.pop(field.field_id, ())), *others)))
        if again := taken.intersection(names):
            raise ValueError(f"field {field.field_id} cannot have the name {min(again)!r}: a field beside it has it")
        taken.update(names)
        entry: dict[str, Any] = {"field-id": field.field_id, "names": names}
        parts = _fields_inside(field.field_type)
        if inside := _mapped(parts, spellings, _ELEMENT_NAMES if isinstance(field.field_type, ListType) else ()):
            entry["fields"] = inside
        mapped.append(entry)
    return mapped


def map_unknown(mapping: list[dict[str, Any]], unknown: Iterable[tuple[int, Sequence[str]]], last_id: int) -> None:
    """Add to a mapping the columns that the table does not have, each after what it is inside.

    Args:
        unknown: As in `Layout.name_mapping`.
        last_id: Their ids are greater.
    """
    inside = {0: mapping, **dict(_parts(mapping))}
    for parent, path in sorted({(parent, tuple(path)) for parent, path in unknown}):
        beside = inside[parent]
        for name in path:
            entry = next((each for each in beside if name in each["names"]), None)
            if entry is None:
                last_id += 1
                names = [name, *_ELEMENT_NAMES] if name == "element" and len(path) > 1 else [name]
                entry = {"field-id": last_id, "names": names}
                beside.append(entry)
            beside = entry.setdefault("fields", []) if name is not path[-1] else entry.get("fields", [])


def _parts(mapping: Iterable[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for entry in mapping:
        if "fields" in entry:
            yield entry.get("field-id", 0), entry["fields"]
            yield from _parts(entry["fields"])


def highest_mapped_id(name_mapping: str) -> int:
    """Return the highest field id of a name mapping; 0 of an empty one."""

    def ids(entries: Iterable[dict[str, Any]]) -> Iterator[int]:
        for entry in entries:
            yield entry.get("field-id", 0)
            yield from ids(entry.get("fields", ()))

    return max(ids(json.loads(name_mapping)), default=0)


def _warnings(table: Table, fields: Sequence[NestedField], lossy: Mapping[Loss, Sequence[str]]) -> Iterator[str]:
    for loss, names in lossy.items():
        if names:
            yield f"{', '.join(names)}: {_TOLD[loss]}"
    keys = fields[len(table.columns) :]
    if instants := [key.name for key in keys if isinstance(key.field_type, TimestamptzType)]:
        yield f"{', '.join(instants)}: the texts of this partition key are taken for times of UTC"
    if table.buckets is not None:
        yield (
            f"the table is bucketed by {', '.join(table.buckets.columns)} into {table.buckets.count}: its files stay "
            "as they are, and the Iceberg table has no buckets"
        )
