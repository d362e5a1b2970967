"""Changes of a table: its name, columns, partition keys, properties, location and description."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

from sqlalchemy import ColumnElement, Connection, Text, func, literal, select, update

from catalog.errors import IndexedKeyError, InvalidTableError, UnsupportedChangeError
from catalog.files.filesystem import Folder
from catalog.files.locations import comparable
from catalog.indexes.definitions import maintained_indexes
from catalog.indexes.encoding import encode_packed
from catalog.model import Column, Table, TableKind
from catalog.model.identifiers import normalise_identifier
from catalog.model.partition_names import folder_start, unpack_values
from catalog.storage.properties import FORMAT_PROPERTY, read_properties
from catalog.storage.schema import PartitionRow
from catalog.tables.buckets import renamed_buckets
from catalog.tables.checks import refuse_stored_as_iceberg, refuse_view
from catalog.tables.columns import (
    TableColumns,
    check_type_change,
    refuse_other_names,
    refuse_used_columns,
    scheme_column_last,
)
from catalog.tables.definitions import Definitions
from catalog.tables.normalising import ColumnLike, check_columns, normalise_columns, normalise_location
from catalog.tables.own_properties import CREATED_AS, check_own_properties
from catalog.tables.ownership import is_own_folder
from catalog.tables.spark_schema import with_spark_schema
from catalog.tables.table_versions import details_of_change
from catalog.types.key_types import recorded_key_type

_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """The requested changes of a table, normalised; `Catalog.alter_table` describes the arguments.

    Raises:
        InvalidRequestError: A name, type, property or location is not allowed in any table.
    """

    rename_to: str | None = None
    add_columns: InitVar[Iterable[ColumnLike]] = ()
    change_columns: InitVar[Mapping[str, ColumnLike] | None] = None
    drop_columns: InitVar[Iterable[str]] = ()
    column_order: Sequence[str] | None = None
    key_order: Sequence[str] | None = None
    properties: Mapping[str, str | None] | None = None
    location: str | None = None
    description: str | None = None

    added: tuple[Column, ...] = field(init=False)
    changed: Mapping[str, Column] = field(init=False)
    dropped: tuple[str, ...] = field(init=False)

    def __post_init__(
        self,
        add_columns: Iterable[ColumnLike],
        change_columns: Mapping[str, ColumnLike] | None,
        drop_columns: Iterable[str],
    ) -> None:
        """Check and normalise what depends on no table."""
        check_own_properties(self.properties)
        names, columns = (change_columns or {}).keys(), (change_columns or {}).values()
        normalised = {
            "added": normalise_columns(add_columns),
            "changed": dict(zip(_column_names(names), normalise_columns(columns), strict=True)),
            "dropped": _column_names(drop_columns),
            "rename_to": None if self.rename_to is None else normalise_identifier(self.rename_to, "table"),
            "location": None if self.location is None else normalise_location(self.location),
        }
        for name, value in normalised.items():
            object.__setattr__(self, name, value)

    @property
    def is_only_rename(self) -> bool:
        """Return whether nothing changes besides the name."""
        others = self.added, self.properties, self.description
        return not self.is_structural and not any(others)

    @property
    def is_structural(self) -> bool:
        """Return whether anything changes besides the name, added columns, properties and the description."""
        reordered = self.column_order is not None or self.key_order is not None
        return bool(self.changed or self.dropped or reordered or self.location is not None)


def _column_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(normalise_identifier(name, "column") for name in names)


def alter_table(connection: Connection, definitions: Definitions, table: Table, change: TableChange) -> str:
    """Change a table that the caller's transaction has locked, and return its name; see `Catalog.alter_table`."""
    if change.added or change.is_structural:
        refuse_view(table, "has no columns, keys or location of its own to change")
    if change.is_structural or change.rename_to is not None:
        definitions.refuse_if_busy(connection, table)
    columns, keys = _changed_columns(connection, definitions, table, change)
    if not table.is_view:
        is_recorded = table.details is not None
        check_columns(table.full_name, columns.columns, columns.keys, is_recorded=is_recorded)
    prepare_key_changes(connection, definitions, table, keys)
    location, kind = _moved(connection, definitions, table, change.location)
    name = change.rename_to or table.name
    properties = definitions.changed_properties(table, change.properties)
    properties = with_spark_schema(properties, TableColumns.of(table), columns)
    if name != table.name:
        properties.pop(CREATED_AS, None)
    definitions.update_table(
        connection,
        table,
        name=name,
        columns=columns,
        properties=properties,
        location=location,
        kind=kind,
        description=table.description if change.description is None else change.description,
        buckets=renamed_buckets(table, columns.columns),
        details=details_of_change(table),
    )
    return name


def _moved(
    connection: Connection, definitions: Definitions, table: Table, location: str | None
) -> tuple[str, TableKind]:
    """Return the location of a table after a change, and its kind, which says whether Calve owns its files."""
    if location is None:
        return table.location, table.kind
    if definitions.has_partitions(connection, table):
        raise InvalidTableError(
            f"table {table.full_name} has partitions, or files of earlier snapshots, below {table.location}; drop the "
            "partitions, and run vacuum when the snapshots are old enough, before you change its location"
        )
    is_own = table.kind is not TableKind.MANAGED or is_own_folder(location, is_usual=False)
    return location, table.kind if is_own else TableKind.EXTERNAL


def _changed_columns(
    connection: Connection, definitions: Definitions, table: Table, change: TableChange
) -> tuple[TableColumns, dict[str, Column]]:
    if table.partition_keys or table.has_file_rows:
        return changed_columns(table, change, is_empty=not definitions.has_partitions(connection, table))
    try:
        return changed_columns(table, change, is_empty=False)
    except UnsupportedChangeError:
        # Only the folder shows whether an unpartitioned table has files.
        if table.is_view or _has_files(table):
            raise
        return changed_columns(table, change, is_empty=True)


def _has_files(table: Table) -> bool:
    return any(not is_folder for _, is_folder in Folder(table.location).entries(recursive=True))


def changed_columns(table: Table, change: TableChange, *, is_empty: bool) -> tuple[TableColumns, dict[str, Column]]:
    """Return the columns after a change, and the partition keys (old name → key, in the new order).

    Args:
        is_empty: The table has no rows yet.

    Raises:
        InvalidTableError: A change names an unknown column, or a new order does not list each name once.
        UnsupportedChangeError: Existing files cannot be read as the new type, other engines would not find a column
            in them, or the table needs a dropped column.
    """
    before = TableColumns.of(table)
    is_without_files = is_empty and not table.has_file_rows
    if is_without_files:
        before = before.without_files()
    known = {column.name: column for column in (*before.columns, *before.keys)}
    if unknown := [name for name in change.changed if name not in known]:
        raise InvalidTableError(
            f"table {table.full_name} has no column {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    refuse_scheme_columns(table, change.changed)
    for column in table.columns:
        if column.name in change.changed:
            new_type = change.changed[column.name].type
            check_type_change(table.full_name, column.name, column.type, new_type, is_empty=is_empty)
    order = _order(table.full_name, "partition keys", table.key_names, change.key_order)
    changed = {name: before.renamed(column, change.changed.get(name, column)) for name, column in known.items()}
    keys = {name: changed[name] for name in order}
    _refuse_names_in_files(table, keys)
    refuse_used_columns(table, change.dropped)
    after = before.dropping(change.dropped)
    columns = (*(changed[column.name] for column in after.columns), *change.added)
    if change.column_order is not None:
        by_name = {column.name: column for column in columns}
        columns = tuple(
            by_name[name] for name in _order(table.full_name, "columns", list(by_name), change.column_order)
        )
    columns = scheme_column_last(columns, None if table.scheme is None else table.scheme.column)
    after = replace(after, columns=columns, keys=tuple(keys.values())).numbered()
    if is_without_files:
        return after.without_files(), keys
    refuse_other_names(table, before, after)
    return after, keys


def _order(table: str, what: str, names: Sequence[str], order: Sequence[str] | None) -> Sequence[str]:
    new = names if order is None else _column_names(order)
    if sorted(new) != sorted(names):
        raise InvalidTableError(
            f"the new order of the {what} of {table} is ({', '.join(new)}); it must list each of "
            f"{', '.join(names)} once"
        )
    return new


def _refuse_names_in_files(table: Table, keys: Mapping[str, Column]) -> None:
    """Refuse to rename a key to a name that data files use: readers could not tell the key from that column."""
    names_in_files = {name for column in (*table.columns, *table.dropped_columns) for name in column.stored_names}
    names_in_files -= {column.name for column in table.columns}
    for old, key in keys.items():
        if key.name != old and key.name in names_in_files:
            raise InvalidTableError(
                f"table {table.full_name}: partition key {old} cannot become {key.name}, because data files have a "
                "column of that name; choose another name"
            )


def refuse_scheme_columns(table: Table, changes: Mapping[str, Column]) -> None:
    """Refuse to rename or retype the columns that determine where a table's rows are stored.

    Raises:
        InvalidTableError: A change renames or retypes the partition column or a sort column.
    """
    if table.scheme is None:
        return
    types = {column.name: column.type for column in table.columns}
    for name in (table.scheme.column, *table.scheme.sort_columns):
        changed = changes.get(name)
        if changed is not None and (changed.name, changed.type) != (name, types[name]):
            what = "partition column" if name == table.scheme.column else "sort column"
            raise InvalidTableError(
                f"table {table.full_name}: the {what} {name} must keep its name and its type {types[name]}, because "
                "they determine where rows are stored; create a new table to change it"
            )


def prepare_key_changes(
    connection: Connection,
    definitions: Definitions,
    table: Table,
    keys: Mapping[str, Column],
    *,
    location: str | None = None,
) -> None:
    """Check a change of partition keys, and prepare the partitions for it; the caller has locked the table.

    Folders of partitions stay in place when a key's name or the table's location changes.

    Args:
        keys: Old name → key, in the new order.
        location: The new location of the table; by default the current one.

    Raises:
        IndexedKeyError: A partition index prevents the change.
        InvalidTableError: The change would alter the identity of existing partitions.
    """
    renamed = [old for old, key in keys.items() if key.name != old]
    retyped = {
        key.name: keys[key.name]
        for key in table.partition_keys
        if str(recorded_key_type(key.type)) != str(recorded_key_type(keys[key.name].type))
    }
    moved = [old for old, new in zip(table.key_names, keys, strict=True) if old != new]
    _refuse_if_indexed(connection, table, keys, renamed, retyped, moved)
    if retyped or moved:
        refuse_stored_as_iceberg(
            table,
            "another type or order of partition keys",
            "Create a table with other keys, and copy the rows with INSERT INTO … SELECT",
        )
    if not definitions.has_partitions(connection, table):
        return
    if moved:
        raise InvalidTableError(
            f"table {table.full_name} has partitions, whose folders follow the order of its keys; drop them before "
            "you change the order"
        )
    for old, key in retyped.items():
        _check_values(connection, table, old, key)
    location = table.location if location is None else location
    if table.is_stored_as_iceberg:
        return
    if renamed or comparable(location) != comparable(table.location):
        _keep_folders(connection, table, location, [key.name for key in keys.values()])


def _refuse_if_indexed(
    connection: Connection,
    table: Table,
    keys: Mapping[str, Column],
    renamed: Sequence[str],
    retyped: Mapping[str, Column],
    moved: Sequence[str],
) -> None:
    indexes = maintained_indexes(connection, table.id)
    if renamed and indexes:
        change = f"partition key {renamed[0]} cannot become {keys[renamed[0]].name}"
        raise IndexedKeyError(table.full_name, change, [index.name for index in indexes])
    for old in (*retyped, *moved):
        if affected := [index.name for index in indexes if old in index.keys]:
            what = f"become {retyped[old].type}" if old in retyped else "move to another position"
            raise IndexedKeyError(table.full_name, f"partition key {old} cannot {what}", affected)


def _check_values(connection: Connection, table: Table, old: str, key: Column) -> None:
    """Check that each stored value is encoded equally under a key's new type, so that identities stay the same."""
    position = table.key_names.index(old)
    old_type, new_type = table.key_types[position], recorded_key_type(key.type)
    distinct = (
        select(func.split_part(PartitionRow.packed_values, "/", position + 1))
        .where(PartitionRow.table_id == table.id)
        .distinct()
    )
    differing = sorted(
        text for text in connection.scalars(distinct) if encode_packed(old_type, text) != encode_packed(new_type, text)
    )
    if differing:
        shown = ", ".join(repr(unpack_values(text)[0]) for text in differing[:_SHOWN])
        raise InvalidTableError(
            f"table {table.full_name}: partition key {old} cannot become {new_type}, because {len(differing):,} of its "
            f"values differ between {old_type} and {new_type}: {shown}. Drop their partitions, change the key, and "
            "add them again"
        )


def _keep_folders(connection: Connection, table: Table, location: str, names: Sequence[str]) -> None:
    """Keep partitions in their folders when the table's location or its keys' names change.

    Stores locations that were implied before, and clears those that the change makes the default, so that readers do
    not take them for custom locations.
    """
    is_in_table = PartitionRow.table_id == table.id
    before, after = _default_location(table.location, table.key_names), _default_location(location, names)
    connection.execute(update(PartitionRow).where(is_in_table, PartitionRow.location.is_(None)).values(location=before))
    connection.execute(update(PartitionRow).where(is_in_table, PartitionRow.location == after).values(location=None))


def pin_formats(connection: Connection, table: Table) -> None:
    """Store the current format in partitions that use the table's, so that they do not follow its new format."""
    row = PartitionRow
    texts = connection.scalars(select(row.properties).where(row.table_id == table.id).distinct()).all()
    for text in texts:
        properties, own_format = read_properties(text)
        if own_format is None:
            pinned = json.dumps({**properties, FORMAT_PROPERTY: table.format.value})
            same = row.properties.is_(None) if text is None else row.properties == text
            connection.execute(update(row).where(row.table_id == table.id, same).values(properties=pinned))


def _default_location(location: str, names: Sequence[str]) -> ColumnElement[str]:
    path: ColumnElement[str] = literal(location, Text)
    for number, name in enumerate(names, 1):
        prefix = literal("/" + folder_start(name), Text)
        path = path + prefix + func.split_part(PartitionRow.packed_values, "/", number, type_=Text)
    return path
