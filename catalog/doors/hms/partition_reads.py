"""Calls that read partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import InvalidObjectException, MetaException, NoSuchObjectException
from thrift.Thrift import TType

from catalog.doors.entries.partitions import ORDERED, Translate
from catalog.doors.hms.base import Base, key_names
from catalog.doors.hms.encoding import COLUMNS, EncodedList, encode_names, encoder_of
from catalog.doors.hms.filters import of_partial_values, to_expression
from catalog.doors.hms.name_order import in_order
from catalog.doors.hms.names import exact_values, name_to_pairs, name_to_values, parse_database, partition_name
from catalog.doors.hms.partition_specs import grouped_specs, to_specs
from catalog.doors.hms.structures import PartitionWriter
from catalog.errors import LiteralTypeError, NotFoundError
from catalog.metastores.types import HivePartition, HiveTable
from catalog.model.identifiers import TableName
from catalog.partitions.names import SortedNames

# ruff: noqa: D102 - the calls are those of the protocol, and have its names

_NO_EXPRESSION = b"\xff"
"""The bytes of a request without an expression. Source: `SessionHiveMetaStoreClient` of Hive 4."""

_AUTHORISED = "PARTITION_LEVEL_PRIVILEGE"
"""Parameter of a table whose partitions are shown with the privileges of the user who asks."""


class PartitionReadCalls(Base):
    """Searches of partitions."""

    # --- one partition ------------------------------------------------------------------------------------------

    def get_partition(self, database: str | None, name: str | None, values: list[str] | None) -> Any:
        return self._one(self._table(database, name), values)

    def get_partition_req(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        return ttypes.GetPartitionResponse(partition=self._one(table, request.partVals))

    def get_partition_with_auth(
        self,
        database: str | None,
        name: str | None,
        values: list[str] | None,
        user: str | None,
        groups: list[str] | None,
    ) -> Any:
        table = self._table(database, name)
        return _privileged(table, [self._one(table, values)], user, groups)[0]

    def get_partition_by_name(self, database: str | None, name: str | None, partition: str | None) -> Any:
        table = self._table(database, name)
        return self._one(table, self._values_of(table, partition))

    def _one(self, table: HiveTable, values: Sequence[str] | None) -> Any:
        values = self._given(values, "list of the values")
        if len(values) != len(table.partition_keys):
            raise MetaException(f"Invalid partition values {values}: the keys are {', '.join(key_names(table))}")
        return PartitionWriter(table).write(self.entries.partition(table.name, values))

    @staticmethod
    def _values_of(table: HiveTable, partition: str | None) -> tuple[str, ...]:
        try:
            return name_to_values(partition, key_names(table))
        except InvalidObjectException as error:
            raise NoSuchObjectException(error.message) from None

    # --- many partitions ----------------------------------------------------------------------------------------

    def get_partitions(self, database: str | None, name: str | None, limit: int | None) -> EncodedList:
        return self._encoded(self._table_name(database, name), _everything, limit)

    def get_partitions_req(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        return ttypes.PartitionsResponse(partitions=_written(table, self._found(table, None, request.maxParts)))

    def get_partitions_with_auth(
        self, database: str | None, name: str | None, limit: int | None, user: str | None, groups: list[str] | None
    ) -> Any:
        return self._with_privileges(self._table_name(database, name), _everything, limit, user, groups)

    def get_partitions_pspec(self, database: str | None, name: str | None, limit: int | None) -> list[Any]:
        return self._specs(database, name, None, limit)

    def get_partitions_by_filter(
        self, database: str | None, name: str | None, text: str | None, limit: int | None
    ) -> EncodedList:
        return self._encoded(self._table_name(database, name), self._matching(text), limit)

    def get_partitions_by_filter_req(self, request: Any) -> EncodedList:
        self.is_of_release_4 = True
        table = self._table_name(request.dbName, request.tblName, request.catName)
        return self._encoded(table, self._matching(request.filter), request.maxParts)

    def get_part_specs_by_filter(
        self, database: str | None, name: str | None, text: str | None, limit: int | None
    ) -> list[Any]:
        return self._specs(database, name, text, limit)

    def get_num_partitions_by_filter(self, database: str | None, name: str | None, text: str | None) -> int:
        table = self._table(database, name)
        found = self.entries.partitions(table.name, self._expression(text, table))
        return sum(1 for _ in found)

    def get_partitions_by_names(self, database: str | None, name: str | None, names: list[str] | None) -> EncodedList:
        forms = self.entries.forms(self._table_name(database, name))
        return encoder_of(forms).encode(self._by_names(forms.entry, names))

    def get_partitions_by_names_req(self, request: Any) -> Any:
        table = self._table(request.db_name, request.tbl_name)
        return ttypes.GetPartitionsByNamesResult(partitions=_written(table, self._by_names(table, request.names)))

    def get_partitions_ps(
        self, database: str | None, name: str | None, values: list[str] | None, limit: int | None
    ) -> EncodedList:
        return self._encoded(self._table_name(database, name), self._having(values), limit)

    def get_partitions_ps_with_auth(
        self,
        database: str | None,
        name: str | None,
        values: list[str] | None,
        limit: int | None,
        user: str | None,
        groups: list[str] | None,
    ) -> Any:
        return self._with_privileges(self._table_name(database, name), self._having(values), limit, user, groups)

    def get_partitions_ps_with_auth_req(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        if request.partVals is not None:
            found = self._by_partial_values(table, request.partVals, request.maxParts)
        else:
            found = self._found(table, None, request.maxParts)
        written = _privileged(table, _written(table, found), request.userName, request.groupNames)
        return ttypes.GetPartitionsPsWithAuthResponse(partitions=written)

    def get_partitions_with_specs(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        filters = getattr(request.filterSpec, "filters", None) or []
        mode = getattr(request.filterSpec, "filterMode", None)
        found: Iterable[HivePartition]
        if mode == ttypes.PartitionFilterMode.BY_NAMES:
            found = self._by_names(table, filters)
        elif mode == ttypes.PartitionFilterMode.BY_VALUES:
            found = self._by_partial_values(table, filters, -1)
        else:
            text = " and ".join(f"({part})" for part in filters)
            found = self._found(table, self._expression(text, table), -1)
        return ttypes.GetPartitionsResponse(partitionSpec=grouped_specs(table, _written(table, found)))

    def _encoded(self, table: TableName, translate: Translate, limit: int | None) -> EncodedList:
        try:
            forms, pages = self.entries.partition_rows(table, translate, COLUMNS, _limit(limit))
        except LiteralTypeError:
            # No partition has a value that is not of its key's type.
            return EncodedList(TType.STRUCT, 0, ())
        return encoder_of(forms).encode_pages(pages)

    def _having(self, values: Sequence[str] | None) -> Translate:
        """Return the translation of values of the first keys."""
        given = self._given(values, "list of the values")
        return lambda table: of_partial_values(given, table.partition_keys)

    def _with_privileges(
        self, name: TableName, translate: Translate, limit: int | None, user: str | None, groups: list[str] | None
    ) -> list[Any] | EncodedList:
        table = self.entries.table(name)
        if not _is_authorised(table):
            return self._encoded(name, translate, limit)
        return _privileged(table, _written(table, self._found(table, translate(table), limit)), user, groups)

    def _expression(self, text: str | None, table: HiveTable) -> str | None:
        return to_expression(text, table.partition_keys, is_of_release_4=self.is_of_release_4)

    def _matching(self, text: str | None) -> Translate:
        """Return the translation of a filter in Hive Metastore's language."""
        return lambda table: self._expression(text, table)

    def _found(self, table: HiveTable, expression: str | None, limit: int | None) -> Iterable[HivePartition]:
        return _in_order(self.entries.partitions(table.name, expression), limit)

    def _specs(self, database: str | None, name: str | None, text: str | None, limit: int | None) -> list[Any]:
        table = self._table(database, name)
        found = self._found(table, self._expression(text, table), limit)
        return to_specs(table, _written(table, found))

    def _by_names(self, table: HiveTable, names: Sequence[str] | None) -> list[HivePartition]:
        keys = key_names(table)
        found = self.entries.partitions_by_values(
            table.name, exact_values(self._given(names, "list of the names"), keys)
        )
        return sorted(found, key=lambda partition: partition_name(keys, partition.values))

    def _by_partial_values(
        self, table: HiveTable, values: Sequence[str] | None, limit: int | None
    ) -> Iterable[HivePartition]:
        expression = of_partial_values(self._given(values, "list of the values"), table.partition_keys)
        try:
            return self._found(table, expression, limit)
        except LiteralTypeError:
            # No partition has a value that is not of its key's type.
            return []

    # --- expressions of Hive's compiler -------------------------------------------------------------------------

    def get_partitions_by_expr(self, request: Any) -> Any:
        found, is_unknown = self._by_expression(request)
        return ttypes.PartitionsByExprResult(partitions=found, hasUnknownPartitions=is_unknown)

    def get_partitions_spec_by_expr(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        found, is_unknown = self._by_expression(request)
        return ttypes.PartitionsSpecByExprResult(partitionsSpec=to_specs(table, found), hasUnknownPartitions=is_unknown)

    def _by_expression(self, request: Any) -> tuple[list[Any], bool]:
        """Return the partitions that may match a serialised expression, and whether each must still be checked."""
        table = self._table(request.dbName, request.tblName, request.catName)
        text = filter_of(request.expr)
        expression = None if text is None else self._expression(text, table)
        return _written(table, self._found(table, expression, request.maxParts)), text is None

    # --- names and values ---------------------------------------------------------------------------------------

    def get_partition_names(self, database: str | None, name: str | None, limit: int | None) -> EncodedList:
        return encode_names(self._names(self._table_name(database, name), _everything, limit))

    def fetch_partition_names_req(self, request: Any) -> list[str] | EncodedList:
        self.is_of_release_4 = True
        try:
            table = self._table_name(request.dbName, request.tblName, request.catName)
            return encode_names(self._names(table, _everything, request.maxParts))
        except (NotFoundError, NoSuchObjectException):
            # As Hive, which looks up the partitions only.
            if request.tblName and parse_database(request.dbName).database:
                return []
            raise

    def get_partition_names_req(self, request: Any) -> list[str] | EncodedList:
        table = self._table_name(request.dbName, request.tblName, request.catName)
        text = "" if request.expr == _NO_EXPRESSION else filter_of(request.expr)
        if text is None:
            # Unlike those of `get_partitions_by_expr`, nobody filters these.
            raise MetaException("a serialised expression cannot be read; ask for the names of all partitions")
        if not request.order:
            return encode_names(self._names(table, self._matching(text), request.maxParts))
        keys = self.entries.table(table).partition_keys
        limit = _limit(request.maxParts)
        names = in_order(self._names(table, self._matching(text), None).as_list(), request.order, keys)
        return names if limit < 0 else names[:limit]

    def get_partition_names_ps(
        self, database: str | None, name: str | None, values: list[str] | None, limit: int | None
    ) -> EncodedList:
        return encode_names(self._names(self._table_name(database, name), self._having(values), limit))

    def get_partition_names_ps_req(self, request: Any) -> Any:
        table = self._table_name(request.dbName, request.tblName, request.catName)
        names = self._names(table, self._having(request.partValues or []), request.maxParts)
        return ttypes.GetPartitionNamesPsResponse(names=names.as_list())

    def _names(self, table: TableName, translate: Translate, limit: int | None) -> SortedNames:
        try:
            return self.entries.sorted_names(table, translate, _limit(limit))
        except LiteralTypeError:
            return SortedNames(())

    def get_partition_values(self, request: Any) -> Any:
        try:
            table = self._table(request.dbName, request.tblName, request.catName)
        except (NotFoundError, NoSuchObjectException) as error:
            raise MetaException(getattr(error, "message", None) or str(error)) from None
        self._given(request.partitionKeys or None, "list of the keys")
        places = _places(table, request.partitionKeys)
        found = self.entries.partitions(table.name, self._expression(request.filter, table))
        rows: Iterable[tuple[str, ...]] = (tuple(partition.values[place] for place in places) for partition in found)
        if request.applyDistinct is not False:
            rows = dict.fromkeys(rows)
        order = [places.index(place) for place in _places(table, request.partitionOrder) if place in places]
        rows = sorted(
            rows,
            key=lambda row: [row[place] for place in order] if order else row,
            reverse=request.ascending is False,
        )
        limit = _limit(request.maxParts)
        return ttypes.PartitionValuesResponse(
            partitionValues=[
                ttypes.PartitionValuesRow(row=list(row)) for row in islice(rows, None if limit < 0 else limit)
            ]
        )

    def partition_name_to_vals(self, name: str | None) -> list[str]:
        return [value for _, value in name_to_pairs(name)] if name else []

    def partition_name_to_spec(self, name: str | None) -> dict[str, str]:
        return dict(name_to_pairs(name)) if name else {}

    def partition_name_has_valid_characters(self, values: list[str], may_raise: bool) -> bool:
        return True

    def markPartitionForEvent(self, *arguments: Any) -> None:
        """Accept an event of a partition; there are no listeners."""

    def isPartitionMarkedForEvent(self, *arguments: Any) -> bool:
        """Return that a partition has no event."""
        return False


def filter_of(serialised: bytes | str | None) -> str | None:
    """Return the filter that a client sends instead of Hive's serialised expression; None if it is such an expression.

    Those are Java objects, which Calve does not read: their client filters the partitions itself. Source:
    `MsckPartitionExpressionProxy` of Hive, whose clients send the text.
    """
    if not serialised:
        return ""
    try:
        text = serialised if isinstance(serialised, str) else serialised.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _everything(_table: HiveTable) -> None:
    """Match all partitions."""


def _in_order(found: Iterator[HivePartition], limit: int | None) -> Iterable[HivePartition]:
    """Return partitions; a few of them in the order of their values, as a metastore does.

    Args:
        limit: The maximum number; None or less than 0 for all.
    """
    first = list(islice(found, ORDERED + 1))
    some = sorted(first, key=attrgetter("values")) if len(first) <= ORDERED else chain(first, found)
    return islice(some, None if limit is None or limit < 0 else limit)


def _limit(limit: int | None) -> int:
    return -1 if limit is None or limit < 0 else limit


def _places(table: HiveTable, fields: Iterable[Any] | None) -> list[int]:
    keys = list(key_names(table))
    try:
        return [keys.index((field.name or "").lower()) for field in fields or ()]
    except ValueError:
        raise MetaException(f"a column is no partition key; the keys of {table.name} are {', '.join(keys)}") from None


def _written(table: HiveTable, partitions: Iterable[HivePartition]) -> list[Any]:
    return PartitionWriter(table).write_all(partitions)


def _privileged(table: HiveTable, partitions: list[Any], user: str | None, groups: list[str] | None) -> list[Any]:
    """Return partitions with the privileges of a user: none, as of a metastore in which nobody granted any."""
    if _is_authorised(table):
        privileges = ttypes.PrincipalPrivilegeSet(
            userPrivileges={} if user is None else {user: []},
            groupPrivileges={group: [] for group in groups or ()},
            rolePrivileges={"public": []},
        )
        for partition in partitions:
            partition.privileges = privileges
    return partitions


def _is_authorised(table: HiveTable) -> bool:
    return table.parameters.get(_AUTHORISED, "").lower() == "true"
