"""Why a table cannot become an Iceberg table, as far as the catalog knows; each reason has its own error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sqlalchemy import Connection

from catalog.errors import (
    AlreadyIcebergError,
    ForeignTableError,
    PositionalTableError,
    QuarantinedPartitionError,
    SharedLocationError,
    TransactionalTableError,
    UnsupportedChangeError,
    UnsupportedFormatError,
)
from catalog.files.locations import comparable, is_within
from catalog.iceberg.pointers import find_pointer, shared_locations
from catalog.model import FileFormat, Partition, PartitionState, Table
from catalog.storage.bulk import batched
from catalog.tables.checks import refuse_view
from catalog.tables.neighbours import neighbours

FORMATS = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)
"""The formats that Iceberg has data files in."""

_PROVIDERS = (*FORMATS, "hive")
_PROVIDER = "spark.sql.sources.provider"
_LOGS = {"delta": "Delta Lake", "hudi": "Hudi", "org.apache.hudi": "Hudi", "iceberg": "Iceberg"}

_BY_POSITION = ("parquet.column.index.access", "orc.force.positional.evolution")
"""Properties with which Hive finds the columns of files by position, whatever their names are."""


def refuse_table(connection: Connection, table: Table, *, or_target: bool = True) -> None:
    """Refuse a table that can never become an Iceberg table, or has become one.

    Args:
        or_target: The name must be free for an Iceberg table, too.

    Raises:
        NotATableError: It is a view.
        AlreadyIcebergError: It is an Iceberg table, or there is one of its name.
        UnsupportedChangeError: It has a partition scheme.
        ForeignTableError: Its files belong to another provider.
        TransactionalTableError: It is a transactional table.
        PositionalTableError: Hive finds its columns by their position in the files.
        UnsupportedFormatError: It is not stored as Parquet, ORC or Avro.
    """
    refuse_view(table, "has no files that could become an Iceberg table's")
    name = table.full_name
    if table.is_iceberg:
        raise AlreadyIcebergError(f"table {name} is an Iceberg table already (metadata: {table.metadata_location})")
    if or_target and (found := find_pointer(connection, table.database, table.name)):
        raise AlreadyIcebergError(
            f"there is an Iceberg table {name} in the catalog already (metadata: {found}), beside the Hive table of "
            "that name; rename one of them, or drop the one that is not needed"
        )
    if table.scheme is not None:
        raise UnsupportedChangeError(
            f"table {name} has a partition scheme ({table.scheme.type} on {table.scheme.column}), which Iceberg does "
            f"not know; copy its rows into a table with partition keys first: INSERT INTO … SELECT * FROM {name}"
        )
    _refuse_foreign(table)
    _refuse_positional(table.properties, f"table {name}")
    _refuse_format(table, table.format, f"table {name}")


def _refuse_foreign(table: Table) -> None:
    properties = {key.lower(): value.strip().lower() for key, value in table.properties.items()}
    found = [properties.get(_PROVIDER, ""), properties.get("table_type", "")]
    # Names of classes, as tables from elsewhere bring them: …hudi.hadoop.HoodieParquetInputFormat.
    classes = [
        value
        for key, value in properties.items()
        if key.rpartition(".")[2] in ("inputformat", "outputformat", "storage_handler", "serialization.lib")
    ]
    for text in (*found, *classes):
        if provider := next((each for word, each in _LOGS.items() if word in text or "hoodie" in text), None):
            provider = "Hudi" if "hoodie" in text else provider
            raise ForeignTableError(
                f"table {table.full_name} is a table of {provider} ({text}), whose own log says which files count; "
                f"rewrite it with {provider}'s tools or copy its rows into a Hive table first"
            )
    if found[0] and found[0] not in _PROVIDERS:
        raise ForeignTableError(
            f"table {table.full_name} is a table of the provider {found[0]} ({_PROVIDER}); only those of "
            f"{', '.join(_PROVIDERS)} become Iceberg tables. Copy its rows into one of these first"
        )
    if properties.get("transactional") == "true":
        raise TransactionalTableError(
            f"table {table.full_name} is transactional (ACID), with deltas that Hive has to merge; copy its rows into "
            "a table with 'transactional'='false' first"
        )


def _refuse_positional(properties: Mapping[str, str] | None, whose: str) -> None:
    for key, value in (properties or {}).items():
        # Those of a SerDe come with a prefix.
        if key.lower().endswith(_BY_POSITION) and value.strip().lower() == "true":
            raise PositionalTableError(
                f"{whose} has the property {key} = {value}: Hive finds columns by their position in the files, and "
                "Iceberg's readers find them by name. Copy its rows into a table without this property, or remove the "
                "property if the files have the table's names"
            )


def _refuse_format(table: Table, found: FileFormat, whose: str) -> None:
    if found not in FORMATS:
        raise UnsupportedFormatError(
            f"{whose} is stored as {found.upper()}, which Iceberg has no data files in; these are: "
            f"{', '.join(each.upper() for each in FORMATS)}. Write {'it' if found is table.format else 'them'} anew in "
            "one of these first"
        )


class PartitionChecks:
    """Looks at all partitions of a table, one after the other, and keeps only those with folders of their own."""

    def __init__(self, table: Table, *, is_nesting_allowed: bool) -> None:
        """Take the table.

        Args:
            is_nesting_allowed: A partition may lie inside another's folder, because files of folders inside a folder
                are none of its files.
        """
        self._table = table
        self._root = comparable(table.location)
        self._is_nesting_allowed = is_nesting_allowed
        self._own: dict[str, str] = {}

    @property
    def outside(self) -> dict[str, str]:
        """The folders outside the table's own → the partition."""
        return {location: name for location, name in self._own.items() if not is_within(location, self._root)}

    @property
    def has_own_inside(self) -> bool:
        """Say whether a partition has a folder of its own inside the table's."""
        return any(is_within(location, self._root) for location in self._own)

    def check(self, partition: Partition, *, has_own_folder: bool) -> None:
        """Refuse one that cannot be part of an Iceberg table.

        Args:
            has_own_folder: It says itself where it lies; it may be the default folder all the same.

        Raises:
            QuarantinedPartitionError: It is held back from readers.
            PositionalTableError: Hive finds its columns by their position in the files.
            UnsupportedFormatError: It is not stored as Parquet, ORC or Avro.
            SharedLocationError: It has the folder of another one.
        """
        if partition.properties:
            _refuse_positional(
                partition.properties, f"partition {partition.name(self._table)} of {self._table.full_name}"
            )
        if not has_own_folder and partition.state is PartitionState.VISIBLE and partition.format is None:
            return
        name, table = partition.name(self._table), self._table
        if partition.state is PartitionState.QUARANTINED:
            raise QuarantinedPartitionError(
                f"table {table.full_name}: partition {name} is quarantined, and an Iceberg table would show it; "
                f"release it (`calve release {table.full_name}`) or drop it first"
            )
        if partition.format is not None:
            _refuse_format(table, partition.format, f"partition {name} of {table.full_name}")
        if partition.location != table.default_partition_location(name):
            location = comparable(partition.location)
            if location in self._own:
                raise self._shared(self._own[location], location, name, location)
            self._own[location] = name

    def finish(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        """Refuse partitions that lie in each other's folders, when all were checked.

        Args:
            partitions: Yields them once more; only called when a partition has a folder of its own inside the table's.

        Raises:
            SharedLocationError: Two do.
        """
        own = self._own
        if not self._is_nesting_allowed:
            for location, name in own.items():
                if above := next((each for each in _above(location) if each in own), None):
                    raise self._shared(own[above], above, name, location)
        if not self.has_own_inside:
            return
        around = {each: location for location in own for each in _above(location)}
        for partition in partitions():
            name = partition.name(self._table)
            location = comparable(self._table.default_partition_location(name))
            if comparable(partition.location) != location:
                continue
            clash = location if location in own else None
            if clash is None and not self._is_nesting_allowed:
                clash = around.get(location) or next((each for each in _above(location) if each in own), None)
            if clash is not None:
                raise self._shared(own[clash], clash, name, location)

    def _shared(self, first: str, first_location: str, second: str, second_location: str) -> SharedLocationError:
        are = "are the same" if first_location == second_location else "are one inside the other"
        return SharedLocationError(
            f"table {self._table.full_name}: the folders of partition {first} ({first_location}) and of partition "
            f"{second} ({second_location}) {are}, so the same files would be in both; drop one of the partitions, or "
            "give it a folder of its own"
        )


def _above(location: str) -> Iterator[str]:
    """Yield the folders around one, the innermost last."""
    parts = location.split("/")
    for length in range(1, len(parts)):
        yield "/".join(parts[:length])


def refuse_shared_location(connection: Connection, table: Table, outside: Mapping[str, str]) -> None:
    """Refuse a table whose folders another table, or a partition of one, has, or has a part of, or is inside.

    Args:
        outside: The folders of partitions outside the table's own → the partition.

    Raises:
        SharedLocationError: There is one.
    """
    for folders in batched([table.location, *outside]):
        for neighbour in neighbours(connection, folders, without_table=table.id):
            whose = f"{'a partition of' if neighbour.is_partition else 'table'} {neighbour.table}"
            raise SharedLocationError(
                f"table {table.full_name}: its folder {neighbour.folder} and {neighbour.location} of {whose} are the "
                "same, or one is inside the other, so that its files would belong to both; move or drop one of the two "
                "tables first"
            )


def tables_sharing(connection: Connection, table: Table) -> list[str]:
    """Return the Iceberg tables beside a table that read its files."""
    root = comparable(table.location)
    return [
        f"{database}.{name}"
        for location, database, name in shared_locations(connection)
        if is_within(location, root) or is_within(root, location)
    ]
