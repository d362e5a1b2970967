"""The rule that a default folder belongs to the partition of its values.

Otherwise another partition would return its rows, too, those of a load even before its commit. That partitions share a
folder which is no partition's default folder is allowed, as in Hive. Transactions that give partitions locations of
their own hold the table alone among those that add partitions (`Storage.lock_table`), so that they see each other's
partitions, and loads' reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, exists, or_, select

from catalog.errors import LocationInUseError, LocationTakenError
from catalog.locations import folder_keys, location_key
from catalog.model import Table
from catalog.neighbours import spellings
from catalog.partition_names import folder_start, folder_template, given_values, parse_partition_path, partition_path
from catalog.purged_folders import refuse_purged
from catalog.storage.bulk import among, batched
from catalog.storage.schema import OperationRow, PartitionRow, PurgedFolderRow, StagedPartitionRow
from catalog.values import ValueEncoder


class DefaultFolder(NamedTuple):
    """The default folder that partitions of some values have.

    Attributes:
        path: Below the table's location.
        identity: As in `PartitionRow`; partitions whose values are spelled in another way have it, too.
    """

    path: str
    identity: bytes


def default_folders(table: Table, keys: Iterable[bytes]) -> dict[bytes, DefaultFolder]:
    """Return of locations that are default folders of a table's possible partitions, or inside one, which it is.

    Args:
        keys: The locations, as `catalog.locations.folder_keys` returns them.
    """
    root, names = location_key(table.location), table.key_names
    paths: dict[bytes, str] = {}
    rows = []
    for key in keys:
        path = "/".join(key.removeprefix(root).decode().split("/")[: len(names)])
        values = [value for _, value in parse_partition_path(path)] if key.startswith(root) else []
        if len(values) == len(names) and partition_path(names, values) == path:
            paths[key] = path
            rows.append(values)
    identities = ValueEncoder(table).encode_all(rows).identities if rows else ()
    return {key: DefaultFolder(path, identity) for (key, path), identity in zip(paths.items(), identities, strict=True)}


def owners_of_default_folders(
    connection: Connection, table: Table, folders: Iterable[DefaultFolder]
) -> Iterator[tuple[str, str]]:
    """Yield the paths of default folders that partitions have, or get from a load, each with a name of the owner."""
    by_identity: dict[bytes, set[str]] = {}
    for folder in folders:
        by_identity.setdefault(folder.identity, set()).add(folder.path)
    row, staged = PartitionRow, StagedPartitionRow
    live = select(row.identity, row.packed_values).where(row.table_id == table.id, row.location.is_(None))
    reserved = (
        select(staged.identity, staged.packed_values, staged.location, OperationRow.id)
        .join(OperationRow, OperationRow.number == staged.operation_number)
        .where(staged.table_id == table.id, staged.is_new)
    )
    for batch in batched(by_identity):
        for identity, packed in connection.execute(live.where(among(connection, row.identity, batch))):
            path = partition_path(table.key_names, given_values(packed))
            if path in by_identity[bytes(identity)]:
                yield path, f"partition {path}"
        for identity, packed, location, load in connection.execute(
            reserved.where(among(connection, staged.identity, batch))
        ):
            path = partition_path(table.key_names, given_values(packed))
            if path in by_identity[bytes(identity)] and location == table.default_partition_location(path):
                yield path, f"partition {path}, which operation {load} is about to add,"


def has_default_folders_inside(connection: Connection, table: Table, key: bytes) -> bool:
    """Return whether partitions have, or get from a load, default folders inside a folder of some of their keys."""
    parts = key.removeprefix(location_key(table.location)).decode().split("/")[:-1]
    starts = [folder_start(name) for name in table.key_names][: len(parts)]
    if len(parts) >= len(table.key_names) or not all(map(str.startswith, parts, starts)):
        return False
    packed = "".join(f"{part.removeprefix(start)}/" for part, start in zip(parts, starts, strict=True))
    row, staged = PartitionRow, StagedPartitionRow
    live = exists().where(
        row.table_id == table.id, row.location.is_(None), row.packed_values.startswith(packed, autoescape=True)
    )
    reserved = exists().where(
        staged.table_id == table.id, staged.is_new, staged.packed_values.startswith(packed, autoescape=True)
    )
    return bool(connection.scalar(select(or_(live, reserved))))


def refuse_shared_folders(
    connection: Connection, table: Table, packed: Sequence[str], locations: Sequence[str | None]
) -> None:
    """Make sure that partitions, whose rows the caller has just written, share no default folder with others.

    Args:
        packed: The partitions' values, as in `PartitionRow`.
        locations: Their locations as they are stored, in the same order: None for the default folder.

    Raises:
        LocationTakenError: Another partition of the table lies there, or a load is about to add one.
        FolderBeingPurgedError: A purge deletes the files there.
    """
    own = [location for location in locations if location is not None]
    if own:
        keys = folder_keys(own)
        refuse_purged(connection, table.full_name, own)
        root, folders = location_key(table.location), default_folders(table, keys)
        at = {folder.path: keys[key] for key, folder in folders.items() if key == root + f"{folder.path}/".encode()}
        defaults = (folder for folder in folders.values() if folder.path in at)
        LocationInUseError.raise_first(
            LocationTakenError(table.full_name, at[path], owner, table.default_partition_location(path))
            for path, owner in owners_of_default_folders(connection, table, defaults)
        )
    if len(own) < len(locations):
        by_default = [values for values, location in zip(packed, locations, strict=True) if location is None]
        _refuse_taken(connection, table, by_default)


def taken_default_folders(connection: Connection, table: Table, packed: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Return those of partitions whose default folders are other partitions' own locations, such as of renamed ones.

    Returns:
        Packed values → the name of the other partition, and its location.
    """
    return _taken(connection, table, packed, _look(connection, table).own_inside)


class _Look(NamedTuple):
    """Purges and locations that a default folder may collide with.

    Attributes:
        is_purged: Whether any purge has not ended.
        own_inside: The spellings of the table's location inside which partitions have own locations.
    """

    is_purged: bool
    own_inside: Sequence[str]


def _look(connection: Connection, table: Table) -> _Look:
    texts = sorted(text for key in folder_keys([table.location]) for text in spellings(key))
    values = {f"spelling_{number}": text for number, text in enumerate(texts)}
    is_purged, *first = connection.execute(_look_query(len(texts)), values).one()
    return _Look(is_purged, [text for text, location in zip(texts, first, strict=True) if location is not None])


@cache
def _look_query(spelling_count: int) -> Select[Any]:
    """Return the query of `_look`; each part is one look into an index."""
    row = PartitionRow
    first = []
    for number in range(spelling_count):
        spelling = bindparam(f"spelling_{number}", type_=row.location.type)
        is_inside = (row.location > spelling + "/") & (row.location < spelling + "0")
        # In the index's order, because PostgreSQL would rather scan the table for any one of many estimated rows. Of
        # all tables, because SQLite would rather read all partitions of one.
        first.append(select(row.location).where(is_inside).order_by(row.location).limit(1).scalar_subquery())
    return select(exists().select_from(PurgedFolderRow), *first)


def _refuse_taken(connection: Connection, table: Table, packed: Sequence[str]) -> None:
    """Make sure that no purge, and no other partition's own location, is in default folders."""
    look = _look(connection, table)
    if look.is_purged:
        template = folder_template(table.location, table.key_names)
        refuse_purged(connection, table.full_name, (template % tuple(values.split("/")) for values in packed))
    LocationInUseError.raise_first(
        LocationTakenError(
            table.full_name,
            table.default_partition_location(partition_path(table.key_names, given_values(values))),
            f"partition {owner}",
            location,
        )
        for values, (owner, location) in _taken(connection, table, packed, look.own_inside).items()
    )


def _taken(
    connection: Connection, table: Table, packed: Sequence[str], roots: Iterable[str]
) -> dict[str, tuple[str, str]]:
    row, taken = PartitionRow, {}
    for root in roots:
        template = folder_template(root, table.key_names)
        by_location = {template % tuple(values.split("/")): values for values in packed}
        for batch in batched(by_location):
            others = select(row.location, row.packed_values).where(
                # The sum keeps SQLite from reading all partitions of the table instead of those at the locations.
                row.table_id + 0 == table.id,
                among(connection, row.location, batch),
            )
            for location, other in connection.execute(others):
                assert location is not None
                taken[by_location[location]] = partition_path(table.key_names, given_values(other)), location
    return taken
