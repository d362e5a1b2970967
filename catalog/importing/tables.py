"""Making a table of the catalog what its source says it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, select, update

from catalog.errors import NotFoundError, TableAlreadyExistsError, UnsupportedSourceTableError
from catalog.files.locations import comparable
from catalog.importing.definition import Definition
from catalog.model import Column, Table
from catalog.storage.properties import FORMAT_PROPERTY, read_properties
from catalog.storage.schema import PartitionRow
from catalog.tables.altering import prepare_key_changes
from catalog.tables.columns import TableColumns
from catalog.tables.definitions import Definitions, buckets_json, check_columns
from catalog.tables.own_properties import RESERVED, SOURCE_PROPERTY


def find_table(definitions: Definitions, connection: Connection, definition: Definition) -> Table | None:
    """Return the catalog's table of the same name; None when there is none, nor perhaps its database."""
    try:
        return definitions.get_table(definition.name, connection)
    except NotFoundError:
        return None


def create_table(definitions: Definitions, connection: Connection, definition: Definition) -> Table:
    """Create a table as its source defines it, in the caller's transaction.

    Raises:
        InvalidRequestError: A name or a type cannot be used.
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
    """Return what a table would be, for a dry run.

    Raises:
        InvalidTableError, InvalidKeyTypeError: It cannot be created.
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
    """Refuse what is another table than the source's, and what no change can make that one.

    Args:
        is_adopted: A table that did not come from this entry of this source may become that, too.

    Raises:
        TableAlreadyExistsError: It came from elsewhere, and is not adopted.
        UnsupportedSourceTableError: It is a view where the source has a table, or the other way round; it has a
            partition scheme; or it has not as many partition keys, or has them in another order.
    """
    origin, wanted = table.properties.get(SOURCE_PROPERTY), definition.properties[SOURCE_PROPERTY]
    if origin != wanted and not is_adopted:
        raise TableAlreadyExistsError(
            f"table {table.full_name} exists, and came from {origin or 'no source'} instead of {wanted}; rename it, or "
            "drop it, or ask for updates to make it what the source says"
        )
    here, there = ([key.name for key in keys] for keys in (table.partition_keys, definition.partition_keys))
    reason = None
    if table.is_view != (definition.view_text is not None):
        reason = "a view in the catalog, and a table" if table.is_view else "a table in the catalog, and a view"
        reason += " in the source"
    elif table.is_iceberg:
        reason = "an Iceberg table in the catalog, and a Hive table in the source"
    elif table.scheme is not None:
        reason = f"a table with a partition scheme ({table.scheme.type} on {table.scheme.column}), which no source has"
    elif len(here) != len(there) or (here != there and sorted(here) == sorted(there)):
        reason = f"partitioned by ({', '.join(here)}) in the catalog, and by ({', '.join(there)}) in the source"
    if reason is not None:
        raise UnsupportedSourceTableError(
            f"table {table.full_name} is {reason}; rename it, or drop it, and import it again"
        )


def differences(table: Table, definition: Definition) -> list[str]:
    """Return what is defined otherwise in the catalog than in the source, in words."""
    found = [*_column_differences("column", table.columns, definition.columns)]
    found += _column_differences("partition key", table.partition_keys, definition.partition_keys)
    found += [f"format: {table.format} here, {definition.format} there"] * (table.format is not definition.format)
    if comparable(table.location) != comparable(definition.location):
        found.append(f"location: {table.location} here, {definition.location} there")
    for what in ("kind", "description", "view_text", "buckets"):
        here, there = getattr(table, what), getattr(definition, what)
        found += [f"{what.replace('_', ' ')}: {here} here, {there} there"] * (here != there)
    return [*found, *_property_differences(table, definition)]


def _property_differences(table: Table, definition: Definition) -> Iterator[str]:
    for name in sorted(table.properties.keys() | definition.properties.keys()):
        here, there = table.properties.get(name), definition.properties.get(name)
        if here != there and (name == SOURCE_PROPERTY or not name.startswith(RESERVED)):
            yield f"property {name}: {here} here, {there} there"


def _column_differences(what: str, here: Sequence[Column], there: Sequence[Column]) -> Iterator[str]:
    known, wanted = ({column.name: column for column in columns} for columns in (here, there))
    for name in (*known, *(name for name in wanted if name not in known)):
        old, new = known.get(name), wanted.get(name)
        if old is None or new is None:
            yield f"{what} {name}: only {'there' if old is None else 'here'}"
        elif not _is_same_type(old.type, new.type):
            yield f"{what} {name}: {old.type} here, {new.type} there"
        elif old.comment != new.comment:
            yield f"{what} {name}: another comment"
    order = [column.name for column in there]
    if known.keys() == wanted.keys() and list(known) != order:
        yield f"{what}s: in the order {', '.join(known)} here, {', '.join(order)} there"


def _is_same_type(one: str, other: str) -> bool:
    return "".join(one.split()) == "".join(other.split())


def update_table(definitions: Definitions, connection: Connection, table: Table, definition: Definition) -> Table:
    """Make a table that the caller holds exclusively what its source says.

    Partitions keep their places, and their values have to stay the same under other types of keys.

    Raises:
        InvalidTableError: The value of a partition would not be the same any more.
        IndexedKeyError: A partition index does not admit another key.
    """
    keys = {old.name: new for old, new in zip(table.partition_keys, definition.partition_keys, strict=True)}
    if definition.view_text is None:
        check_columns(table.full_name, definition.columns, definition.partition_keys)
    prepare_key_changes(connection, definitions, table, keys, location=definition.location)
    if table.format is not definition.format:
        _pin_formats(connection, table)
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


def _pin_formats(connection: Connection, table: Table) -> None:
    """Write down the format of partitions that have none of their own, which would follow the table's new one."""
    row = PartitionRow
    texts = connection.scalars(select(row.properties).where(row.table_id == table.id).distinct()).all()
    for text in texts:
        properties, own_format = read_properties(text)
        if own_format is None:
            pinned = json.dumps({**properties, FORMAT_PROPERTY: table.format.value})
            same = row.properties.is_(None) if text is None else row.properties == text
            connection.execute(update(row).where(row.table_id == table.id, same).values(properties=pinned))


def _own(table: Table) -> dict[str, str]:
    """Return the properties that Calve itself gave a table."""
    return {name: value for name, value in table.properties.items() if name.startswith(RESERVED)}
