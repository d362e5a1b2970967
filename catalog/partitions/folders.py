"""The rule that a default folder belongs to the partition of its values, and to no other partition of the table.

A custom location must not overlap a default folder in use: both partitions would return the same rows, and would show
those of a load even before its commit. A custom location must not lie in the working folders of operations either.
Partitions may share a folder that is not a default folder, as in Hive. Transactions that set custom locations lock the
table exclusively among those that add partitions (`Storage.lock_table`), so that they see each other's partitions and
the reservations of loads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, TextClause, bindparam, exists, func, select, text

from catalog.errors import LocationInUseError, LocationTakenError
from catalog.files.locations import folder_keys, keys_above, location_key, name_nodes, spellings
from catalog.model import Table
from catalog.model.partition_names import folder_start, folder_template, parse_partition_path, partition_path
from catalog.operations.staging import REJECTED, STAGING, VERSIONS
from catalog.partitions.versions import Version, find_homes, folders_of_versions, has_versions
from catalog.storage.bulk import among, batched, list_of_texts, listed
from catalog.storage.schema import (
    OperationRow,
    PartitionRow,
    PartitionVersionRow,
    PurgedFolderRow,
    StagedPartitionRow,
    VersionState,
)
from catalog.storage.values import ValueEncoder
from catalog.tables.neighbours import neighbours
from catalog.tables.purged_folders import refuse_purged

RESERVED = (STAGING, REJECTED, VERSIONS)
"""Working folders of operations inside a table's folder."""


class DefaultFolder(NamedTuple):
    """The default folder of a partition's values.

    Attributes:
        path: The path relative to the table's location.
        identity: As in `PartitionRow`; other spellings of equal values have the same identity.
    """

    path: str
    identity: bytes


@dataclass(frozen=True)
class Folders:
    """The relation of folders to the default folders of a table's possible partitions.

    Attributes:
        inside: Keys of folders (`catalog.files.locations.folder_keys`) that equal or lie inside a default folder → that
            default folder.
        around: Keys of folders that may contain default folders → the prefix of their partitions' packed values.
        reserved: Keys of folders inside a working folder of operations → the name of that folder.
    """

    inside: Mapping[bytes, DefaultFolder]
    around: Mapping[bytes, str]
    reserved: Mapping[bytes, str]


def compare_folders(table: Table, keys: Iterable[bytes]) -> Folders:
    """Return the relation of folders, given by their keys, to the default folders of a table."""
    root, names = location_key(table.location), table.key_names
    starts = [folder_start(name) for name in names]
    first = tuple(root + start.encode() for start in (*starts[:1], *RESERVED))
    paths, around, reserved, rows = dict[bytes, str](), dict[bytes, str](), dict[bytes, str](), []
    for key in keys:
        if not key.startswith(first):
            if root.startswith(key):
                around[key] = ""
            continue
        parts = key[len(root) : -1].decode().split("/")
        if parts[0] in RESERVED:
            reserved[key] = parts[0]
        elif not all(map(str.startswith, parts, starts)):
            continue
        elif len(parts) < len(names):
            around[key] = "".join(f"{part.removeprefix(start)}/" for part, start in zip(parts, starts, strict=False))
        else:
            path = "/".join(parts[: len(names)])
            values = [value for _, value in parse_partition_path(path)]
            if partition_path(names, values) == path:
                paths[key] = path
                rows.append(values)
    identities = ValueEncoder(table).encode_all(rows).identities if rows else ()
    inside = {
        key: DefaultFolder(path, identity) for (key, path), identity in zip(paths.items(), identities, strict=True)
    }
    return Folders(inside, around, reserved)


def owners_of_default_folders(
    connection: Connection, table: Table, folders: Iterable[DefaultFolder]
) -> Iterator[tuple[str, str]]:
    """Yield the paths of default folders that belong to a partition or to a load, each with a name of the owner."""
    by_identity: dict[bytes, set[str]] = {}
    for folder in folders:
        by_identity.setdefault(folder.identity, set()).add(folder.path)
    row, staged, version = PartitionRow, StagedPartitionRow, PartitionVersionRow
    live = select(row.identity, row.packed_values).where(row.table_id == table.id, row.location.is_(None))
    unsettled = select(version.identity, version.packed_values, version.home).where(
        version.table_id == table.id, version.state == VersionState.CURRENT
    )
    reserved = (
        select(staged.identity, staged.packed_values, staged.location, OperationRow.id)
        .join(OperationRow, OperationRow.number == staged.operation_number)
        .where(staged.table_id == table.id, staged.is_new)
    )
    for batch in batched(by_identity):
        for identity, packed in connection.execute(live.where(among(connection, row.identity, batch))):
            path = table.partition_name(packed)
            if path in by_identity[bytes(identity)]:
                yield path, f"partition {path}"
        for identity, packed, home in connection.execute(unsettled.where(among(connection, version.identity, batch))):
            path = table.partition_name(packed)
            if path in by_identity[bytes(identity)] and home == table.default_partition_location(path):
                yield path, f"partition {path}, to which vacuum will copy its files,"
        for identity, packed, location, load in connection.execute(
            reserved.where(among(connection, staged.identity, batch))
        ):
            path = table.partition_name(packed)
            if path in by_identity[bytes(identity)] and location == table.default_partition_location(path):
                yield path, f"partition {path}, which operation {load} is about to add,"


def default_folders_inside(connection: Connection, table: Table, starts: Iterable[str]) -> dict[str, str]:
    """Return the prefixes of packed values that partitions in default folders, or reserved by loads, have.

    Returns:
        Prefix → the path of the default folder of one of its partitions.
    """
    row, staged, version = PartitionRow, StagedPartitionRow, PartitionVersionRow
    is_unsettled = (version.table_id == table.id) & (version.state == VersionState.CURRENT)
    by_length: dict[int, set[str]] = {}
    for start in starts:
        by_length.setdefault(len(start), set()).add(start)
    paths = dict[str, str]()
    for length, prefixes in by_length.items():
        for values, condition in (
            (row.packed_values, (row.table_id == table.id) & row.location.is_(None)),
            (staged.packed_values, (staged.table_id == table.id) & staged.is_new),
            (version.packed_values, is_unsettled),
        ):
            prefix = func.substr(values, 1, length).label("prefix")
            query = select(prefix, func.min(values)).where(condition).group_by("prefix")
            for batch in batched(prefixes):
                rows = connection.execute(query.where(prefix.in_(batch)) if length else query)
                paths.update((start, table.partition_name(packed)) for start, packed in rows)
    return paths


def refuse_shared_folders(
    connection: Connection,
    table: Table,
    packed: Sequence[str],
    locations: Sequence[str | None],
    *,
    are_new: bool = False,
) -> None:
    """Check that partitions, whose rows the caller has just written, share no default folder with others.

    Args:
        packed: The partitions' values, as in `PartitionRow`.
        locations: Their locations as they are stored, in the same order: None for the default folder.
        are_new: They did not exist, so that a version may be left of an earlier partition with the same values, which
            the caller has judged (`catalog.partitions.versions.refuse_unsettled`).

    Raises:
        LocationTakenError: A location overlaps another partition of the table, or one that a load is about to add.
        LocationInUseError: A location lies in a working folder of operations, or waits to be settled
            (`catalog.partitions.versions`).
        FolderBeingPurgedError: A purge is deleting the files there.
    """
    own = [location for location in locations if location is not None]
    by_default = [values for values, location in zip(packed, locations, strict=True) if location is None]
    if has_versions(connection, table):
        unsettled = _unsettled(connection, table, own, by_default)
        LocationInUseError.raise_first(_in_homes(table, unsettled, set(packed if are_new else ())))
    if own:
        refuse_purged(connection, table.full_name, own)
        LocationInUseError.raise_first(_problems(connection, table, folder_keys(own)))
    if by_default:
        _refuse_taken(connection, table, by_default)


def _unsettled(
    connection: Connection, table: Table, locations: Sequence[str], packed: Sequence[str]
) -> Sequence[Version]:
    """Return the versions whose files vacuum will copy to custom locations, or to the default folders of values."""
    keys, nodes = folder_keys(locations), name_nodes(locations)
    folders = [text for key in keys for text in spellings(key, nodes)]
    folders += (table.default_partition_location(table.partition_name(values)) for values in packed)
    return find_homes(connection, table, folders)


def _in_homes(table: Table, versions: Iterable[Version], without: Collection[str]) -> Iterator[LocationInUseError]:
    """Yield the errors of the homes of versions, without those of some values."""
    for version in versions:
        if version.packed_values in without:
            continue
        owner = f"partition {table.partition_name(version.packed_values)}"
        reason = (
            f"the files of {owner} there were replaced, and are not exchanged yet: read its location again, or set "
            f"this one after `calve vacuum {table.full_name}`, which exchanges the files of changes that are older "
            "than the grace period"
        )
        yield LocationInUseError(table.full_name, version.home, owner, version.location, reason=reason)


def _problems(connection: Connection, table: Table, keys: Mapping[bytes, str]) -> Iterator[LocationInUseError]:
    """Yield the errors of custom locations, given by their keys."""
    folders = compare_folders(table, keys)
    for key, name in folders.reserved.items():
        reason = f"operations keep their files in {table.location}/{name}; choose another location"
        yield LocationInUseError(table.full_name, keys[key], name, f"{table.location}/{name}", reason=reason)
    yield from _overlaps(connection, table, keys, folders)


def find_shared_folders(connection: Connection, table: Table, locations: Iterable[str]) -> Iterator[LocationTakenError]:
    """Yield the custom locations of partitions that overlap the default folder of another partition of the table."""
    keys = folder_keys(locations)
    return _overlaps(connection, table, keys, compare_folders(table, keys))


def _overlaps(
    connection: Connection, table: Table, keys: Mapping[bytes, str], folders: Folders
) -> Iterator[LocationTakenError]:
    by_path: dict[str, set[str]] = {}
    for key, folder in folders.inside.items():
        by_path.setdefault(folder.path, set()).add(keys[key])
    for path, owner in owners_of_default_folders(connection, table, folders.inside.values()):
        for location in sorted(by_path[path]):
            yield LocationTakenError(table.full_name, location, owner, table.default_partition_location(path))
    if folders.around:
        paths = default_folders_inside(connection, table, folders.around.values())
        for key, start in folders.around.items():
            if start in paths:
                owner, default = f"partition {paths[start]}", table.default_partition_location(paths[start])
                yield LocationTakenError(table.full_name, keys[key], owner, default)


def used_by_others(connection: Connection, table: Table, folders: Sequence[str]) -> dict[str, str]:
    """Return the folders, among homes of a table's versions, that another table has, or a partition of any table.

    Returns:
        Folder → the name of the other.
    """
    used = {
        near.folder: f"a partition of {near.table}" if near.is_partition else f"table {near.table}"
        for near in neighbours(connection, folders)
        if not near.path and (near.is_partition or near.table_id != table.id)
    }
    row, keys = PartitionRow, folder_keys(folders)
    inside = compare_folders(table, keys).inside
    by_identity = {folder.identity: keys[key] for key, folder in inside.items()}
    for identities in batched(by_identity):
        live = select(row.identity, row.packed_values).where(
            row.table_id == table.id, row.location.is_(None), among(connection, row.identity, identities)
        )
        for identity, packed in connection.execute(live):
            name, folder = table.partition_name(packed), by_identity[bytes(identity)]
            if table.default_partition_location(name) == folder:
                used[folder] = f"partition {name} of {table.full_name}"
    return used


def folders_inside(connection: Connection, table: Table, locations: Sequence[str]) -> dict[str, set[str]]:
    """Return the folders of others inside locations of partitions of a table: location → folders, if it has any.

    Others are tables, partitions of any table, and what replaced or dropped partitions have left for vacuum.
    """
    inside = dict[str, set[str]]()
    for near in neighbours(connection, locations):
        if near.path:
            inside.setdefault(near.folder, set()).add(f"{near.folder}/{near.path}")
    keys = folder_keys(locations)
    homes = folders_of_versions(connection, table) if has_versions(connection, table) else ()
    for key in folder_keys(homes):
        for above in keys_above(key):
            if above in keys and above != key:
                inside.setdefault(keys[above], set()).add(keys[above] + "/" + key.removeprefix(above).decode()[:-1])
    return inside


def taken_default_folders(connection: Connection, table: Table, packed: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Return the partitions whose default folders overlap custom locations, or equal homes of versions, of others.

    Returns:
        Packed values → the name of the other partition, and its location.
    """
    return _taken(connection, table, packed, _look(connection, table)) | _homes_of_others(connection, table, packed)


class _Look(NamedTuple):
    """Purges and custom locations that default folders of a table may collide with.

    Attributes:
        is_purged: Whether any purge is unfinished.
        around: A partition's location that equals or contains the table's location; None if there is none.
        own_inside: The spellings of the table's location below which custom locations lie.
    """

    is_purged: bool
    around: str | None
    own_inside: Sequence[str]


def _look(connection: Connection, table: Table) -> _Look:
    keys, nodes = folder_keys([table.location]), name_nodes([table.location])
    texts = sorted(text for key in keys for text in spellings(key, nodes))
    around_it = {around for key in keys for around in keys_above(key)}
    above = [text for around in around_it for text in spellings(around, nodes)]
    values: dict[str, Any] = {f"spelling_{number}": text for number, text in enumerate(texts)}
    values |= {"above": list_of_texts(connection, above), "table_id": table.id}
    query = _look_query(connection.dialect.name, len(texts))
    is_purged, around, *first = connection.execute(query, values).one()
    return _Look(is_purged, around, [text for text, location in zip(texts, first, strict=True) if location is not None])


@cache
def _look_query(dialect: str, spelling_count: int) -> Select[Any]:
    """Return the query of `_look`; each part is one index look-up per string.

    ORDER BY forces an index scan: for any one row of many, PostgreSQL's planner would scan the table instead. The
    conditions are ranges, because PostgreSQL ignores ORDER BY on a column that is compared for equality.
    """
    row = PartitionRow
    around = text(
        "(SELECT max(location) FROM (SELECT (SELECT i.location FROM calve_partition i WHERE i.location >= value "
        "AND i.location <= value AND i.table_id + 0 = :table_id ORDER BY i.location LIMIT 1) AS location "
        f"FROM {listed(dialect, 'above')}) AS looks) AS around"
    )
    first = []
    for number in range(spelling_count):
        spelling = bindparam(f"spelling_{number}", type_=row.location.type)
        is_inside = (row.location > spelling + "/") & (row.location < spelling + "0")
        # No condition on the table: SQLite would read all its partitions instead of the index on locations.
        first.append(select(row.location).where(is_inside).order_by(row.location).limit(1).scalar_subquery())
    return select(exists().select_from(PurgedFolderRow), around, *first)


def _refuse_taken(connection: Connection, table: Table, packed: Sequence[str]) -> None:
    """Check that no purged folder, and no other partition's custom location, overlaps default folders."""
    look = _look(connection, table)
    if look.is_purged:
        template = folder_template(table.location, table.key_names)
        refuse_purged(connection, table.full_name, (template % tuple(values.split("/")) for values in packed))
    LocationInUseError.raise_first(
        LocationTakenError(
            table.full_name,
            table.default_partition_location(table.partition_name(values)),
            f"partition {owner}",
            location,
        )
        for values, (owner, location) in _taken(connection, table, packed, look).items()
    )


def _taken(connection: Connection, table: Table, packed: Sequence[str], look: _Look) -> dict[str, tuple[str, str]]:
    around: dict[str, Sequence[str]] = {} if look.around is None else {look.around: packed}
    inside = {}
    for root in look.own_inside:
        template = folder_template(root, table.key_names)
        above: dict[str, list[str]] = {}
        for values in packed:
            folder = template % tuple(values.split("/"))
            inside[folder] = values
            while len(folder) > len(root):
                above.setdefault(folder, []).append(values)
                folder = folder.rpartition("/")[0]
        around |= above
    row, taken = PartitionRow, dict[str, tuple[str, str]]()
    for batch in batched(around):
        # The sum `+ 0` keeps SQLite from reading all partitions of the table instead of those at the locations.
        query = select(row.location, row.packed_values).where(
            row.table_id + 0 == table.id, among(connection, row.location, batch)
        )
        for location, other in connection.execute(query):
            assert location is not None
            taken |= dict.fromkeys(around[location], (table.partition_name(other), location))
    for batch in batched(inside):
        parameters = {"folders": list_of_texts(connection, batch), "table_id": table.id}
        for folder, location, other in connection.execute(_inside_query(connection.dialect.name), parameters):
            taken[inside[folder]] = table.partition_name(other), location
    return taken


def _homes_of_others(connection: Connection, table: Table, packed: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the partitions to whose default folders vacuum will copy the files of others, as `_taken`."""
    if not has_versions(connection, table):
        return {}
    template = folder_template(table.location, table.key_names)
    by_folder = {template % tuple(values.split("/")): values for values in packed}
    found = find_homes(connection, table, by_folder)
    # A partition that was dropped and comes back gets a version, which has the same home.
    others = [version for version in found if version.packed_values != by_folder[version.home]]
    return {by_folder[other.home]: (table.partition_name(other.packed_values), other.home) for other in others}


@cache
def _inside_query(dialect: str) -> TextClause:
    """Return the query of one custom location inside each folder that has any."""
    # ORDER BY forces an index scan: for any one row of many, PostgreSQL's planner would scan the table instead.
    return text(
        "SELECT f.value, p.location, p.packed_values FROM (SELECT value, (SELECT i.id FROM calve_partition i "
        "WHERE i.location > value || '/' AND i.location < value || '0' AND i.table_id + 0 = :table_id "
        f"ORDER BY i.location LIMIT 1) AS id FROM {listed(dialect, 'folders')}) AS f "
        "JOIN calve_partition p ON p.id = f.id"
    )
