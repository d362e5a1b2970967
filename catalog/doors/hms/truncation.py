"""The calls that delete the rows of a table or of partitions, and keep their definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import MetaException, NoSuchObjectException
from thrift.Thrift import TApplicationException

from catalog.doors.hms.base import Base, key_names
from catalog.doors.hms.names import exact_values
from catalog.errors import NotFoundError
from catalog.files.filesystem import Folder
from catalog.files.folders import make_folders
from catalog.metastores.types import HivePartition, HiveTable

# ruff: noqa: D102 - the calls are those of the protocol, and have its names

_BATCH = 10_000
_COUNTS = ("numFiles", "numRows", "rawDataSize", "totalSize")


class TruncateCalls(Base):
    """Deletion of rows, whoever wrote them, as a metastore deletes files."""

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
        if not table.partition_keys:
            Folder(table.location).delete_except([])
            make_folders([table.location])
            return
        if names is None:
            found = list(self.entries.partitions(table.name))
        else:
            found = self.entries.partitions_by_values(table.name, exact_values(names, key_names(table)))
        for start in range(0, len(found), _BATCH):
            self._empty(table, found[start : start + _BATCH])

    def _empty(self, table: HiveTable, partitions: Sequence[HivePartition]) -> None:
        """Drop partitions with their files, and add them without any."""
        self.entries.drop_partitions(table.name, [partition.values for partition in partitions], delete_data=True)
        emptied = [partition._replace(parameters=_without_counts(partition.parameters)) for partition in partitions]
        self.entries.add_partitions(table.name, emptied)


def _without_counts(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: "0" if name in _COUNTS else value for name, value in parameters.items()}
