"""Checks whether a table can become an Iceberg table, from the catalog alone; each reason has its own error."""

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
"""The data file formats of Iceberg."""

_PROVIDERS = (*FORMATS, "hive")
_PROVIDER = "spark.sql.sources.provider"
_LOGS = {"delta": "Delta Lake", "hudi": "Hudi", "org.apache.hudi": "Hudi", "iceberg": "Iceberg"}

_BY_POSITION = ("parquet.column.index.access", "orc.force.positional.evolution")
"""Properties that make Hive match the columns of files by position instead of by name."""


def refuse_table(connection: Connection, table: Table, *, or_target: bool = True) -> None:
    """Refuse a table that cannot become an Iceberg table, or already is one.

    Args:
        or_target: Also refuse it if an Iceberg table of the same name exists.

    Raises:
        NotATableError: It is a view.
        AlreadyIcebergError: It is an Iceberg table, or an Iceberg table of its name exists.
        UnsupportedChangeError: It has a partition scheme.
        ForeignTableError: Its files belong to another provider.
        TransactionalTableError: It is a transactional table.
        PositionalTableError: Hive matches its columns by position.
        UnsupportedFormatError: It is not stored as Parquet, ORC or Avro.
    """
    refuse_view(table, "has no files that could become an Iceberg table's")
    name = table.full_name
    if table.is_iceberg:
        raise AlreadyIcebergError(f"table {name} is an Iceberg table already (metadata: {table.metadata_location})")
    if table.is_stored_as_iceberg:
        raise AlreadyIcebergError(f"table {name} is stored as Iceberg already (metadata: {table.published_location})")
    if table.scheme is not None:
        raise UnsupportedChangeError(
            f"table {name} has a partition scheme ({table.scheme.type} on {table.scheme.column}): other engines read "
            "it as an Iceberg table already, and only Calve changes it. For one that others change, copy its rows "
            f"into a table with partition keys: INSERT INTO … SELECT * FROM {name}"
        )
    if or_target and (metadata_location := find_pointer(connection, table.database, table.name)):
        raise AlreadyIcebergError(
            f"the catalog already has an Iceberg table {name} (metadata: {metadata_location}) besides the Hive table "
            "of that name; rename one of them, or drop the one that you do not need"
        )
    _refuse_foreign(table)
    _refuse_positional(table.properties, f"table {name}")
    _refuse_format(table, table.format, f"table {name}")


def _refuse_foreign(table: Table) -> None:
    properties = {key.lower(): value.strip().lower() for key, value in table.properties.items()}
    providers = [properties.get(_PROVIDER, ""), properties.get("table_type", "")]
    # Class names in the properties of imported tables, for instance …hudi.hadoop.HoodieParquetInputFormat.
    classes = [
        value
        for key, value in properties.items()
        if key.rpartition(".")[2] in ("inputformat", "outputformat", "storage_handler", "serialization.lib")
    ]
    for text in (*providers, *classes):
        if provider := next((name for word, name in _LOGS.items() if word in text or "hoodie" in text), None):
            provider = "Hudi" if "hoodie" in text else provider
            raise ForeignTableError(
                f"table {table.full_name} is a table of {provider} ({text}), whose own log determines its files; "
                f"rewrite it with {provider}'s tools or copy its rows into a Hive table first"
            )
    if providers[0] and providers[0] not in _PROVIDERS:
        raise ForeignTableError(
            f"table {table.full_name} is a table of the provider {providers[0]} ({_PROVIDER}); only tables of "
            f"{', '.join(_PROVIDERS)} can become Iceberg tables. Copy its rows into one of these first"
        )
    if properties.get("transactional") == "true":
        raise TransactionalTableError(
            f"table {table.full_name} is transactional (ACID), with deltas that only Hive can merge; copy its rows "
            "into a table with 'transactional'='false' first"
        )


def _refuse_positional(properties: Mapping[str, str] | None, owner: str) -> None:
    for key, value in (properties or {}).items():
        # Properties of a SerDe have a prefix.
        if key.lower().endswith(_BY_POSITION) and value.strip().lower() == "true":
            raise PositionalTableError(
                f"{owner} has the property {key} = {value}: Hive matches columns by position, but Iceberg's readers "
                "match them by name. Copy its rows into a table without this property, or remove the property if the "
                "files have the table's column names"
            )


def _refuse_format(table: Table, file_format: FileFormat, owner: str) -> None:
    if file_format not in FORMATS:
        raise UnsupportedFormatError(
            f"{owner} is stored as {file_format.upper()}, which Iceberg does not support; rewrite it as "
            f"{', '.join(supported.upper() for supported in FORMATS)} first"
        )


class PartitionChecks:
    """Checks of all partitions of a table, one by one; keeps only the custom locations in memory."""

    def __init__(self, table: Table, *, is_nesting_allowed: bool) -> None:
        """Create the checks of a table.

        Args:
            is_nesting_allowed: Allow a partition's folder inside another partition's folder, because files in nested
                folders do not belong to the outer partition.
        """
        self._table = table
        self._root = comparable(table.location)
        self._is_nesting_allowed = is_nesting_allowed
        self._own: dict[str, str] = {}

    @property
    def outside(self) -> dict[str, str]:
        """Custom locations outside the table's folder → the partition."""
        return {location: name for location, name in self._own.items() if not is_within(location, self._root)}

    @property
    def has_own_inside(self) -> bool:
        """Whether a partition has a custom location inside the table's folder."""
        return any(is_within(location, self._root) for location in self._own)

    def check(self, partition: Partition, *, has_own_folder: bool) -> None:
        """Refuse a partition that cannot be part of an Iceberg table.

        Args:
            has_own_folder: The partition has a stored location, which may still equal the default one.

        Raises:
            QuarantinedPartitionError: It is hidden from readers.
            PositionalTableError: Hive matches its columns by position.
            UnsupportedFormatError: It is not stored as Parquet, ORC or Avro.
            SharedLocationError: It has the same folder as another partition.
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
                f"table {table.full_name}: partition {name} is quarantined, but an Iceberg table would show it; "
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
        """Refuse partitions whose folders are nested; call it after all partitions were checked.

        Args:
            partitions: Returns all partitions again; only called if a custom location lies inside the table's folder.

        Raises:
            SharedLocationError: The folders of two partitions are equal or nested.
        """
        own = self._own
        if not self._is_nesting_allowed:
            for location, name in own.items():
                if above := next((folder for folder in _above(location) if folder in own), None):
                    raise self._shared(own[above], above, name, location)
        if not self.has_own_inside:
            return
        around = {folder: location for location in own for folder in _above(location)}
        for partition in partitions():
            name = partition.name(self._table)
            location = comparable(self._table.default_partition_location(name))
            if comparable(partition.location) != location:
                continue
            clash = location if location in own else None
            if clash is None and not self._is_nesting_allowed:
                clash = around.get(location) or next((folder for folder in _above(location) if folder in own), None)
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
    """Yield the parent folders of a folder, the innermost last."""
    parts = location.split("/")
    for length in range(1, len(parts)):
        yield "/".join(parts[:length])


def refuse_shared_location(connection: Connection, table: Table, outside: Mapping[str, str]) -> None:
    """Refuse a table whose folders overlap the location of another table or of its partitions.

    Args:
        outside: Custom locations outside the table's folder → the partition.

    Raises:
        SharedLocationError: A location overlaps.
    """
    for folders in batched([table.location, *outside]):
        for neighbour in neighbours(connection, folders, without_table=table.id):
            owner = f"{'a partition of' if neighbour.is_partition else 'table'} {neighbour.table}"
            raise SharedLocationError(
                f"table {table.full_name}: its folder {neighbour.folder} and {neighbour.location} of {owner} are the "
                "same or nested, so the files would belong to both; move or drop one of the two tables first"
            )


def tables_sharing(connection: Connection, table: Table) -> list[str]:
    """Return the other Iceberg tables that read a table's files."""
    root = comparable(table.location)
    return [
        f"{database}.{name}"
        for location, database, name in shared_locations(connection)
        if is_within(location, root) or is_within(root, location)
    ]
