"""Changes of a table's columns by other engines, followed by the ids of the columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from catalog.datafiles.publishing import published_layout
from catalog.errors import InvalidRequestError
from catalog.iceberg.differences import Difference
from catalog.iceberg.layout import RESERVED_NAMES
from catalog.iceberg.types import spelled
from catalog.model import PARTITION_ID, Column, Table
from catalog.model.identifiers import normalise_identifier
from catalog.tables.columns import TableColumns, scheme_column_last
from catalog.tables.normalising import check_columns
from catalog.tables.schemes import PARTITION_FOLDER

_TYPES: Final[dict[type[IcebergType], str]] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    StringType: "string",
    BinaryType: "binary",
    TimestamptzType: "timestamp",
    TimestampType: "timestamp_ntz",
}
_RESERVED = {PARTITION_ID, PARTITION_FOLDER, *RESERVED_NAMES}


class ColumnsError(Exception):
    """Calve cannot follow a change of columns; the message says which."""


def followed_columns(table: Table, commits: Difference) -> TableColumns | None:
    """Return the columns of a table after the changes of other engines; None if nothing has changed.

    A renamed column keeps its id, and a new one has the id that its engine has given it. The partition column stays the
    last one.

    Schemas that engines have set and replaced are followed, too: files may have columns of their names, and of ids that
    no later column may get.

    Raises:
        ColumnsError: Calve cannot follow a change.
    """
    before = TableColumns.of(table)
    columns = _with_replaced(_live_columns(table, commits.after.schema()) or before, commits.replaced_schemas)
    columns = replace(columns, last_id=max(columns.last_id, commits.raised_column_id))
    # Equal columns may have other names in files.
    is_same = columns == before and columns.owners == before.owners
    return None if is_same else columns


def _live_columns(table: Table, live: Schema) -> TableColumns | None:
    own = {field.field_id: field for field in published_layout(table).schema.fields}
    if {field.field_id: _key(field) for field in live.fields} == {number: _key(own[number]) for number in own} and [
        field.field_id for field in live.fields
    ] == [*own]:
        return None
    before = TableColumns.of(table)
    known = {column.id: column for column in table.columns}
    _refuse_scheme_columns(table, known, live)
    live_ids = {field.field_id for field in live.fields}
    after = before.dropping([column.name for column in table.columns if column.id not in live_ids])
    columns, last_id = [], table.last_column_id
    for field in live.fields:
        column = known.get(field.field_id)
        if column is None:
            columns.append(_added(after, field))
            last_id = max(last_id, field.field_id)
        else:
            columns.append(_changed(before, column, own[field.field_id], field))
    columns = list(scheme_column_last(columns, None if table.scheme is None else table.scheme.column))
    try:
        check_columns(table.full_name, columns, ())
    except InvalidRequestError as error:
        raise ColumnsError(str(error)) from error
    return replace(after, columns=tuple(columns), last_id=last_id)


def _with_replaced(columns: TableColumns, schemas: Iterable[Schema]) -> TableColumns:
    """Return columns together with those that only earlier schemas have, as dropped columns.

    A column that had another name gets a name for it, so that files of engines are read by ids.
    """
    for field in (field for schema in schemas for field in schema.fields):
        name, every = field.name.lower(), (*columns.columns, *columns.dropped)
        column = next((column for column in every if column.id == field.field_id), None)
        names = () if name not in columns.owners else (f"{name}__{field.field_id}",)
        if column is None:
            gone = Column(name, _type(field.field_type) or "string", field.doc, field.field_id, names)
            last_id = max(columns.last_id, field.field_id)
            columns = replace(columns, dropped=(*columns.dropped, gone), last_id=last_id)
        elif name != column.name and column in columns.columns and not column.file_names:
            changed = replace(column, file_names=(*(names or (name,)), column.name))
            columns = replace(
                columns, columns=tuple(changed if other is column else other for other in columns.columns)
            )
    return columns


def _key(field: NestedField) -> tuple[str, IcebergType, str | None]:
    return field.name, field.field_type, field.doc


def _refuse_scheme_columns(table: Table, known: dict[int, Column], live: Schema) -> None:
    """Refuse changes of the columns that determine where rows are stored.

    Raises:
        ColumnsError: The partition column or a sort column was renamed, dropped or has another type.
    """
    scheme = table.scheme
    if scheme is None:
        return
    fields = {field.field_id: field for field in live.fields}
    own = {field.field_id: field for field in published_layout(table).schema.fields}
    for column in known.values():
        if column.name in (scheme.column, *scheme.sort_columns):
            what = "partition column" if column.name == scheme.column else "sort column"
            field = fields.get(column.id)
            if field is None:
                raise ColumnsError(f"the {what} {column.name} was dropped")
            if field.name.lower() != column.name:
                raise ColumnsError(f"the {what} {column.name} was renamed to {field.name}")
            if field.field_type != own[column.id].field_type:
                raise ColumnsError(f"the {what} {column.name} became {spelled(field.field_type)}")


def _added(columns: TableColumns, field: NestedField) -> Column:
    name = _name(field)
    column_type = _type(field.field_type)
    if column_type is None:
        raise ColumnsError(f"column {field.name} of type {spelled(field.field_type)} was added")
    # In files of Calve, a name belongs to one column for good.
    file_names = (f"{name}__{field.field_id}",) if name in columns.owners else ()
    return Column(name, column_type, field.doc, field.field_id, file_names)


def _changed(columns: TableColumns, column: Column, own: NestedField, field: NestedField) -> Column:
    column_type = column.type
    if field.field_type != own.field_type:
        wider = _type(field.field_type)
        if not own.field_type.is_primitive and not field.field_type.is_primitive:
            raise ColumnsError(
                f"fields inside of column {column.name} were changed: {column.type} became {spelled(field.field_type)}"
            )
        if wider is None or not _is_wider(own.field_type, field.field_type):
            raise ColumnsError(
                f"column {column.name} of type {column.type} became {spelled(field.field_type)}, which existing files "
                "cannot be read as"
            )
        column_type = wider
    return columns.renamed(column, Column(_name(field), column_type, field.doc))


def _name(field: NestedField) -> str:
    try:
        name = normalise_identifier(field.name, "column")
    except InvalidRequestError as error:
        raise ColumnsError(str(error)) from error
    if name in _RESERVED:
        raise ColumnsError(f"a column has the reserved name {name}")
    return name


def _type(iceberg_type: IcebergType) -> str | None:
    """Return the catalog's type of a column; None if it has none."""
    if isinstance(iceberg_type, DecimalType):
        return f"decimal({iceberg_type.precision},{iceberg_type.scale})"
    return _TYPES.get(type(iceberg_type))


def _is_wider(before: IcebergType, after: IcebergType) -> bool:
    """Return whether a type has all values of another. Source: Iceberg's schema evolution, "Type Promotion"."""
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    pair = type(before), type(after)
    return pair in ((IntegerType, LongType), (FloatType, DoubleType))
