"""Creation and update of the catalog's tables from a source's definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from catalog.errors import NotFoundError, TableAlreadyExistsError, UnsupportedSourceTableError
from catalog.files.locations import comparable
from catalog.importing.definition import Definition
from catalog.model import Column, Table
from catalog.tables.altering import pin_formats, prepare_key_changes
from catalog.tables.buckets import buckets_json
from catalog.tables.columns import TableColumns
from catalog.tables.definitions import Definitions
from catalog.tables.normalising import check_columns
from catalog.tables.own_properties import RESERVED, SOURCE_PROPERTY


def find_table(definitions: Definitions, connection: Connection, definition: Definition) -> Table | None:
    """Return the catalog's table of the same name; None if the table or its database does not exist."""
    try:
        return definitions.get_table(definition.name, connection)
    except NotFoundError:
        return None


def create_table(definitions: Definitions, connection: Connection, definition: Definition) -> Table:
    """Create a table as its source defines it, in the caller's transaction.

    Raises:
        InvalidRequestError: A name or type is invalid.
    """
    return definitions.insert_table(
        connection,
        definition.name,
        columns=definition.columns,
        partition_keys=definition.partition_keys,
        format=definition.format,
        location=definition.location,
        properties=definition.properties,
        kind=definition.kind,
        description=definition.description,
        view_text=definition.view_text,
        buckets=definition.buckets,
    )


def unborn_table(definition: Definition) -> Table:
    """Return a table as it would be created, for a dry run.

    Raises:
        InvalidTableError, InvalidKeyTypeError: The table cannot be created.
    """
    if definition.columns or definition.view_text is None:
        check_columns(str(definition.name), definition.columns, definition.partition_keys)
    return Table(
        *definition.name,
        definition.columns,
        definition.partition_keys,
        definition.format,
        definition.location,
        definition.properties,
        kind=definition.kind,
        description=definition.description,
        view_text=definition.view_text,
        buckets=definition.buckets,
    )


def refuse_other(table: Table, definition: Definition, *, is_adopted: bool) -> None:
    """Refuse a table of another origin, and one that cannot be updated to the source's definition.

    Args:
        is_adopted: Accept a table of another origin.

    Raises:
        TableAlreadyExistsError: It has another origin, and `is_adopted` is false.
        UnsupportedSourceTableError: It is a view and the source's is a table, or the other way round; it has a
            partition scheme; or the number or order of its partition keys differs.
    """
    origin, address = table.properties.get(SOURCE_PROPERTY), definition.properties[SOURCE_PROPERTY]
    if origin != address and not is_adopted:
        raise TableAlreadyExistsError(
            f"table {table.full_name} exists, but was imported from {origin or 'no source'} instead of {address}; "
            "rename or drop it, or ask for updates to replace its definition with the source's"
        )
    here, there = ([key.name for key in keys] for keys in (table.partition_keys, definition.partition_keys))
    reason = None
    if table.is_view != (definition.view_text is not None):
        reason = "a view in the catalog, but a table" if table.is_view else "a table in the catalog, but a view"
        reason += " in the source"
    elif table.is_iceberg:
        reason = "an Iceberg table in the catalog, but a Hive table in the source"
    elif table.is_stored_as_iceberg:
        reason = "stored as Iceberg in the catalog, but a Hive table in the source"
    elif table.scheme is not None:
        scheme = f"{table.scheme.type} on {table.scheme.column}"
        reason = f"a table with a partition scheme ({scheme}), which sources do not support"
    elif len(here) != len(there) or (here != there and sorted(here) == sorted(there)):
        reason = f"partitioned by ({', '.join(here)}) in the catalog, but by ({', '.join(there)}) in the source"
    if reason is not None:
        raise UnsupportedSourceTableError(
            f"table {table.full_name} is {reason}; rename or drop it, then import it again"
        )


def differences(table: Table, definition: Definition) -> list[str]:
    """Return descriptions of the differences between the catalog's and the source's definition."""
    descriptions = [*_column_differences("column", table.columns, definition.columns)]
    descriptions += _column_differences("partition key", table.partition_keys, definition.partition_keys)
    descriptions += [f"format: {table.format} here, {definition.format} there"] * (
        table.format is not definition.format
    )
    if comparable(table.location) != comparable(definition.location):
        descriptions.append(f"location: {table.location} here, {definition.location} there")
    for what in ("kind", "description", "view_text", "buckets"):
        here, there = getattr(table, what), getattr(definition, what)
        descriptions += [f"{what.replace('_', ' ')}: {here} here, {there} there"] * (here != there)
    return [*descriptions, *_property_differences(table, definition)]


def _property_differences(table: Table, definition: Definition) -> Iterator[str]:
    for name in sorted(table.properties.keys() | definition.properties.keys()):
        here, there = table.properties.get(name), definition.properties.get(name)
        if here != there and (name == SOURCE_PROPERTY or not name.startswith(RESERVED)):
            yield f"property {name}: {here} here, {there} there"


def _column_differences(what: str, here: Sequence[Column], there: Sequence[Column]) -> Iterator[str]:
    known, expected = ({column.name: column for column in columns} for columns in (here, there))
    for name in (*known, *(name for name in expected if name not in known)):
        old, new = known.get(name), expected.get(name)
        if old is None or new is None:
            yield f"{what} {name}: only {'there' if old is None else 'here'}"
        elif not _is_same_type(old.type, new.type):
            yield f"{what} {name}: {old.type} here, {new.type} there"
        elif old.comment != new.comment:
            yield f"{what} {name}: another comment"
    order = [column.name for column in there]
    if known.keys() == expected.keys() and list(known) != order:
        yield f"{what}s: in the order {', '.join(known)} here, {', '.join(order)} there"


def _is_same_type(one: str, other: str) -> bool:
    return "".join(one.split()) == "".join(other.split())


def update_table(definitions: Definitions, connection: Connection, table: Table, definition: Definition) -> Table:
    """Update a table, which the caller has locked exclusively, to its source's definition.

    Partitions keep their locations, and new types of keys must not change their values.

    Raises:
        InvalidTableError: A value of a partition would change.
        IndexedKeyError: A partition index prevents the change of a key.
    """
    keys = {old.name: new for old, new in zip(table.partition_keys, definition.partition_keys, strict=True)}
    if definition.view_text is None:
        check_columns(table.full_name, definition.columns, definition.partition_keys)
    prepare_key_changes(connection, definitions, table, keys, location=definition.location)
    if table.format is not definition.format:
        pin_formats(connection, table)
    definitions.update_table(
        connection,
        table,
        columns=TableColumns.of(table).following(definition.columns, definition.partition_keys),
        format=definition.format,
        location=definition.location,
        kind=definition.kind,
        description=definition.description,
        view_text=definition.view_text,
        buckets=buckets_json(table.full_name, definition.columns, definition.buckets),
        properties={**_own(table), **definition.properties},
    )
    return definitions.get_table(definition.name, connection)


def _own(table: Table) -> dict[str, str]:
    """Return the properties of a table that Calve has set."""
    return {name: value for name, value in table.properties.items() if name.startswith(RESERVED)}
