"""Calls that change partitions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import (
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
)

from catalog.doors.entries.kept import keep_storage_of_glue
from catalog.doors.hms.base import Base, key_names
from catalog.doors.hms.filters import to_expression
from catalog.doors.hms.names import exact_values, name_to_values
from catalog.doors.hms.partition_reads import filter_of
from catalog.doors.hms.partition_specs import from_specs
from catalog.doors.hms.structures import PartitionWriter, database_of, partition_from, unqualified, with_ddl_time
from catalog.errors import AlreadyExistsError, CatalogError, NotFoundError
from catalog.metastores.types import HivePartition, HiveTable
from catalog.model.identifiers import TableName

# ruff: noqa: D102 - the calls are those of the protocol, and have its names


_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


class PartitionChangeCalls(Base):
    """Addition, change, exchange and drop of partitions."""

    # --- additions ----------------------------------------------------------------------------------------------

    def add_partition(self, partition: Any) -> Any:
        return self._added([partition])[0]

    def add_partition_with_environment_context(self, partition: Any, context: Any) -> Any:
        return self._added([partition])[0]

    def add_partitions(self, partitions: list[Any] | None) -> int:
        partitions = self._given(partitions, "list of the partitions")
        if not partitions:
            return 0
        return self._add(partitions)[1]

    def add_partitions_pspec(self, specs: list[Any] | None) -> int:
        specs = self._given(specs, "list of the partition specs")
        if not specs:
            return 0
        target = ttypes.Partition(
            dbName=self._given(specs[0].dbName, "name of the database"),
            tableName=self._given(specs[0].tableName, "name of the table"),
            catName=specs[0].catName,
        )
        return self._add(from_specs(specs), target)[1]

    def add_partitions_req(self, request: Any) -> Any:
        if not request.parts:
            return ttypes.AddPartitionsResult()
        target = ttypes.Partition(dbName=request.dbName, tableName=request.tblName, catName=request.catName)
        if not request.needResult:
            self._add(request.parts, target, if_not_exists=bool(request.ifNotExists))
            return ttypes.AddPartitionsResult()
        added = self._added(request.parts, target, if_not_exists=bool(request.ifNotExists))
        return ttypes.AddPartitionsResult(partitions=added)

    def append_partition(self, database: str | None, name: str | None, values: list[str] | None) -> Any:
        return self._append(self._table_to_append_to(database, name), values)

    def append_partition_with_environment_context(
        self, database: str | None, name: str | None, values: list[str] | None, context: Any
    ) -> Any:
        return self.append_partition(database, name, values)

    def append_partition_by_name(self, database: str | None, name: str | None, partition: str | None) -> Any:
        table = self._table_to_append_to(database, name)
        return self._append(table, name_to_values(partition, key_names(table)))

    def append_partition_by_name_with_environment_context(
        self, database: str | None, name: str | None, partition: str | None, context: Any
    ) -> Any:
        return self.append_partition_by_name(database, name, partition)

    def append_partition_req(self, request: Any) -> Any:
        table = self._table_to_append_to(request.dbName, request.tableName, request.catalogName)
        values = request.partVals
        if request.name:
            values = name_to_values(request.name, key_names(table))
        return self._append(table, values)

    def _append(self, table: HiveTable, values: Sequence[str] | None) -> Any:
        values = self._given(values, "list of the values")
        _require_values(table, values)
        now = {"transient_lastDdlTime": str(int(time.time()))}
        self.entries.add_partitions(table.name, [HivePartition(tuple(values), table.storage, now)])
        return PartitionWriter(table).write(self.entries.partition(table.name, values))

    def _table_to_append_to(self, database: str | None, name: str | None, catalog: str | None = None) -> HiveTable:
        try:
            table = self._table(database, name, catalog)
        except NoSuchObjectException as error:
            raise InvalidObjectException(error.message) from None
        if table.location is None or not table.partition_keys:
            raise MetaException(f"cannot append a partition to {table.name}, which is a view or has no partition keys")
        return table

    def _table_to_add_to(self, partition: Any) -> HiveTable:
        name = database_of(partition)
        try:
            return self._table(name.database, partition.tableName, name.catalog)
        except NoSuchObjectException as error:
            raise InvalidObjectException(error.message) from None

    def _add(
        self, partitions: Sequence[Any], target: Any = None, *, if_not_exists: bool = False
    ) -> tuple[HiveTable, int]:
        """Add partitions; return their table, and their number.

        Args:
            target: A partition with the names of the table; by default the first.
        """
        for partition in partitions:
            self._given(partition, "partition")
        target = partitions[0] if target is None else target
        table = self._table_to_add_to(target)
        for partition in partitions:
            for given, own in ((partition.dbName, target.dbName), (partition.tableName, target.tableName)):
                if self._given(given, "name of the table of a partition").lower() != own.lower():
                    raise MetaException(f"Partition does not belong to target table {table.name}")
            _require_values(table, self._given(partition.values, "list of the values"))
            _require_storage(table, partition)
        if len({tuple(partition.values) for partition in partitions}) < len(partitions):
            raise MetaException("Duplicate partitions in the list; send each once")
        now = int(time.time())
        entries = [_new(partition, table, now) for partition in partitions]
        result = self.entries.add_partitions(table.name, entries, if_not_exists=if_not_exists)
        return table, result.added

    def _added(self, partitions: Sequence[Any], target: Any = None, *, if_not_exists: bool = False) -> list[Any]:
        """Add partitions, and return those that were added, as they are stored; see `_add`."""
        existing = set()
        if if_not_exists:
            known = self._table_to_add_to(partitions[0] if target is None else target)
            values = [tuple(partition.values or ()) for partition in partitions]
            for wanted in values:
                _require_values(known, wanted)
            existing = {partition.values for partition in self.entries.partitions_by_values(known.name, values)}
        table, _ = self._add(partitions, target, if_not_exists=if_not_exists)
        added = [tuple(partition.values) for partition in partitions if tuple(partition.values) not in existing]
        return PartitionWriter(table).write_all(self.entries.partitions_by_values(table.name, added))

    # --- changes ------------------------------------------------------------------------------------------------

    def alter_partition(self, database: str | None, name: str | None, partition: Any) -> None:
        self._alter_partitions(self._table_to_change(database, name), [partition])

    def alter_partition_with_environment_context(
        self, database: str | None, name: str | None, partition: Any, context: Any
    ) -> None:
        self.alter_partition(database, name, partition)

    def alter_partitions(self, database: str | None, name: str | None, partitions: list[Any] | None) -> None:
        self._alter_partitions(self._table_to_change(database, name), self._given(partitions, "list of the partitions"))

    def alter_partitions_with_environment_context(
        self, database: str | None, name: str | None, partitions: list[Any] | None, context: Any
    ) -> None:
        self.alter_partitions(database, name, partitions)

    def alter_partitions_req(self, request: Any) -> Any:
        table = self._table_to_change(request.dbName, request.tableName, request.catName)
        self._alter_partitions(table, self._given(request.partitions, "list of the partitions"))
        return ttypes.AlterPartitionsResponse()

    def rename_partition(
        self, database: str | None, name: str | None, values: list[str] | None, partition: Any
    ) -> None:
        self._rename(self._table_to_change(database, name), values, partition)

    def rename_partition_req(self, request: Any) -> Any:
        table = self._table_to_change(request.dbName, request.tableName, request.catName)
        self._rename(table, request.partVals, request.newPart)
        return ttypes.RenamePartitionResponse()

    def _table_to_change(self, database: str | None, name: str | None, catalog: str | None = None) -> HiveTable:
        try:
            return self._table(database, name, catalog)
        except (NotFoundError, NoSuchObjectException) as error:
            message = getattr(error, "message", None) or str(error)
            raise InvalidOperationException(message) from None

    def _rename(self, table: HiveTable, values: Sequence[str] | None, partition: Any) -> None:
        self._given(partition, "new partition")
        if not values:
            self._alter_partitions(table, [partition])
            return
        if list(values) == list(partition.values or ()):
            raise InvalidOperationException(f"partition {list(values)} of table {table.name} exists; name another one")
        self._change(table, [(values, partition)], is_renamed=True)

    def _alter_partitions(self, table: HiveTable, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            self._given(partition, "partition")
        self._change(table, [(partition.values, partition) for partition in partitions])

    def _change(
        self, table: HiveTable, changes: Iterable[tuple[Sequence[str] | None, Any]], *, is_renamed: bool = False
    ) -> None:
        known = [(tuple(self._given(values, "list of the values")), partition) for values, partition in changes]
        for values, _ in known:
            _require_values(table, values)
        found = self.entries.partitions_by_values(table.name, [values for values, _ in known])
        before = {partition.values: partition for partition in found}
        changed = []
        for values, partition in known:
            _require_values(table, self._given(partition.values, "list of the values"))
            _require_storage(table, partition)
            own = (database_of(partition).database or "", partition.tableName or "")
            if TableName(*map(str.lower, own)) != table.name:
                raise MetaException(f"a partition of {table.name} cannot become one of {'.'.join(own)}")
            new = partition_from(partition, table)
            # As Hive, in which the new name and not the client decides where a renamed partition is.
            former = before.get(values)
            location = None if is_renamed or former is None else unqualified(new.location, former.location)
            storage = new.storage if former is None else keep_storage_of_glue(new.storage, former.storage)
            changed.append((values, new._replace(location=location, storage=storage)))
        try:
            self.entries.alter_partitions(table.name, changed)
        except (NotFoundError, AlreadyExistsError) as error:
            raise InvalidOperationException(str(error)) from None

    def exchange_partition(
        self,
        spec: dict[str, str] | None,
        database: str | None,
        name: str | None,
        to_database: str | None,
        to_name: str | None,
    ) -> Any:
        self._exchange(spec, database, name, to_database, to_name)
        # As Hive, which returns an empty one.
        return ttypes.Partition(writeId=None)

    def exchange_partitions(
        self,
        spec: dict[str, str] | None,
        database: str | None,
        name: str | None,
        to_database: str | None,
        to_name: str | None,
    ) -> list[Any]:
        return self._exchange(spec, database, name, to_database, to_name)

    def _exchange(self, spec: Any, database: Any, name: Any, to_database: Any, to_name: Any) -> list[Any]:
        spec = self._given(spec, "specification of the partitions")
        try:
            target = self._table(to_database, to_name)
            source = self._table(database, name)
        except (NotFoundError, NoSuchObjectException) as error:
            raise MetaException(getattr(error, "message", None) or str(error)) from None
        keys = key_names(source)
        # Names that are no keys are skipped, as by Hive.
        values = {key: value for key in keys if (value := spec.get(key))}
        first = next((place for place, key in enumerate(keys) if key not in values), len(keys))
        if any(key in values for key in keys[first:]) or not values:
            raise MetaException(
                f"{dict(spec)} does not name the first of the keys {', '.join(keys)}; name them in order"
            )
        try:
            moved = self.entries.exchange_partitions(values, source.name, target.name)
        except CatalogError as error:
            raise MetaException(str(error)) from None
        return PartitionWriter(target).write_all(moved)

    # --- drops --------------------------------------------------------------------------------------------------

    def drop_partition(
        self, database: str | None, name: str | None, values: list[str] | None, delete_data: bool
    ) -> bool:
        return self._drop(self._table(database, name), values, delete_data)

    def drop_partition_req(self, request: Any) -> bool:
        table = self._table(request.dbName, request.tblName, request.catName)
        if request.partName:
            return self._drop_by_name(table, request.partName, bool(request.deleteData))
        return self._drop(table, request.partVals, bool(request.deleteData))

    def _drop(self, table: HiveTable, values: Sequence[str] | None, delete_data: bool) -> bool:
        values = self._given(values, "list of the values")
        if len(values) != len(table.partition_keys):
            raise MetaException(f"Invalid partition values {values}: the keys are {', '.join(key_names(table))}")
        self.entries.drop_partitions(table.name, [values], delete_data=bool(delete_data))
        return True

    def drop_partition_with_environment_context(
        self, database: str | None, name: str | None, values: list[str] | None, delete_data: bool, context: Any
    ) -> bool:
        return self.drop_partition(database, name, values, delete_data)

    def drop_partition_by_name(
        self, database: str | None, name: str | None, partition: str | None, delete_data: bool
    ) -> bool:
        return self._drop_by_name(self._table(database, name), partition, delete_data)

    def _drop_by_name(self, table: HiveTable, partition: str | None, delete_data: bool) -> bool:
        try:
            values = name_to_values(partition, key_names(table))
        except InvalidObjectException as error:
            raise NoSuchObjectException(error.message) from None
        self.entries.drop_partitions(table.name, [values], delete_data=bool(delete_data))
        return True

    def drop_partition_by_name_with_environment_context(
        self, database: str | None, name: str | None, partition: str | None, delete_data: bool, context: Any
    ) -> bool:
        return self.drop_partition_by_name(database, name, partition, delete_data)

    def drop_partitions_req(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        spec = self._given(request.parts, "specification of the partitions")
        if spec.names is not None:
            values = exact_values(spec.names, key_names(table))
            found, least = self.entries.partitions_by_values(table.name, values), len(spec.names)
        else:
            found, least = self._by_expressions(table, spec.exprs or [])
        if len(found) < least and not request.ifExists:
            raise NoSuchObjectException("Some partitions to drop are missing")
        written = PartitionWriter(table).write_all(found) if request.needResult is not False else None
        self.entries.drop_partitions(
            table.name,
            [partition.values for partition in found],
            delete_data=bool(request.deleteData),
            if_exists=bool(request.ifExists),
        )
        return ttypes.DropPartitionsResult(partitions=written)

    def _by_expressions(self, table: HiveTable, expressions: Sequence[Any]) -> tuple[list[HivePartition], int]:
        found: dict[tuple[str, ...], HivePartition] = {}
        for serialised in expressions:
            text = filter_of(serialised.expr)
            if not text:
                raise MetaException(
                    "a serialised expression cannot be read, so that nothing is dropped; drop the partitions by names"
                )
            expression = to_expression(text, table.partition_keys, is_of_release_4=self.is_of_release_4)
            found |= {partition.values: partition for partition in self.entries.partitions(table.name, expression)}
        return list(found.values()), len(expressions)


def _new(partition: Any, table: HiveTable, now: int) -> HivePartition:
    entry = partition_from(partition, table)
    return entry._replace(created_at=now, parameters=with_ddl_time(entry.parameters, now))


def _require_values(table: HiveTable, values: Sequence[str]) -> None:
    if len(values) != len(table.partition_keys) or any(value is None for value in values):
        raise MetaException(
            f"Invalid partition values {list(values)[:20]}: table {table.name} needs one for each of its keys "
            f"({', '.join(key_names(table)) or 'none'})"
        )


def _require_storage(table: HiveTable, partition: Any) -> None:
    descriptor = partition.sd
    if descriptor is None or descriptor.serdeInfo is None:
        raise MetaException("a partition has no storage descriptor, or that has no SerDe; send both")
    for field in descriptor.cols or ():
        if field.name is None or field.type is None:
            raise MetaException(f"column {field.name!r} of a partition has no name or no type; send both")
    if not descriptor.location:
        return
    if table.location is None:
        raise MetaException(f"cannot specify a location for a partition of the view {table.name}")
    if not _ABSOLUTE.match(descriptor.location):
        raise MetaException(f"location {descriptor.location!r} is neither a URI nor an absolute path")
