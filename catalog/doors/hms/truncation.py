"""The calls that delete the rows of a table or of partitions, and keep their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import MetaException, NoSuchObjectException
from thrift.Thrift import TApplicationException

from catalog.doors.hms.base import Base, key_names
from catalog.doors.hms.names import exact_values
from catalog.errors import NotFoundError
from catalog.metastores.types import HiveTable

# ruff: noqa: D102 - the calls are those of the protocol, and have its names


class TruncateCalls(Base):
    """Deletion of all rows, including those of other engines, as a metastore deletes files."""

    def truncate_table(self, database: str | None, name: str | None, partitions: list[str] | None) -> None:
        try:
            table = self._table(database, name)
        except (NotFoundError, NoSuchObjectException) as error:
            # The protocol declares no exception for this.
            message = getattr(error, "message", None) or str(error)
            raise TApplicationException(TApplicationException.INTERNAL_ERROR, message) from None
        self._truncate(table, partitions)

    def truncate_table_req(self, request: Any) -> Any:
        self._truncate(self._table(request.dbName, request.tableName), request.partNames)
        return ttypes.TruncateTableResponse()

    def _truncate(self, table: HiveTable, names: Sequence[str] | None) -> None:
        if table.table_type != "MANAGED_TABLE" or table.location is None:
            raise MetaException(f"table {table.name} is not managed; its files are deleted where they come from")
        values = None if names is None or not table.partition_keys else exact_values(names, key_names(table))
        self.entries.truncate(table.name, values)
