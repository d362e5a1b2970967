"""Calls about the statistics of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import InvalidObjectException, NoSuchObjectException

from catalog.doors.hms.base import Base, key_names
from catalog.doors.hms.names import CATALOG, exact_values, name_to_values
from catalog.doors.hms.statistics_forms import aggregated, merged, statistics_from, to_statistics
from catalog.metastores.types import HiveStatistics, HiveTable
from catalog.model.identifiers import TableName

# ruff: noqa: D102 - the calls are those of the protocol, and have its names


class StatisticsCalls(Base):
    """Storage, look-up, aggregation and deletion of statistics."""

    # --- look-up ------------------------------------------------------------------------------------------------

    def get_table_column_statistics(self, database: str | None, name: str | None, column: str | None) -> Any:
        table = self._table(database, name)
        found = self.entries.statistics(table.name, columns=[self._given(column, "name of the column")])
        return _one_set(table, None, found, f"column {column} of {table.name}")

    def get_partition_column_statistics(
        self, database: str | None, name: str | None, partition: str | None, column: str | None
    ) -> Any:
        table = self._table(database, name)
        values = self._values_of_name(table, partition)
        found = self.entries.statistics(table.name, values, [self._given(column, "name of the column")])
        return _one_set(table, partition, found, f"column {column} of {table.name}, partition {partition}")

    def get_table_statistics_req(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        found = self.entries.statistics(table.name, columns=request.colNames)
        return ttypes.TableStatsResult(tableStats=[to_statistics(part) for part in found])

    def get_partitions_statistics_req(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        found = self._of_partitions(table, request)
        return ttypes.PartitionsStatsResult(
            partStats={name: [to_statistics(part) for part in parts] for name, parts in found.items()}
        )

    def get_aggr_stats_for(self, request: Any) -> Any:
        table = self._table(request.dbName, request.tblName, request.catName)
        by_column: dict[str, list[HiveStatistics]] = {}
        complete = 0
        for parts in self._of_partitions(table, request).values():
            complete += len(parts) == len(set(request.colNames))
            for part in parts:
                by_column.setdefault(part.column, []).append(part)
        wanted = [column.lower() for column in request.colNames]
        return ttypes.AggrStats(
            colStats=[to_statistics(aggregated(by_column[column])) for column in wanted if column in by_column],
            partsFound=complete,
        )

    def _of_partitions(self, table: HiveTable, request: Any) -> dict[str, list[HiveStatistics]]:
        values = exact_values(self._given(request.partNames, "list of the partitions"), key_names(table))
        columns = self._given(request.colNames, "list of the columns")
        return self.entries.partition_statistics(table.name, values, columns)

    # --- storage ------------------------------------------------------------------------------------------------

    def update_table_column_statistics(self, statistics: Any) -> bool:
        return self._store([statistics])

    def update_partition_column_statistics(self, statistics: Any) -> bool:
        return self._store([statistics])

    def update_table_column_statistics_req(self, request: Any) -> Any:
        return ttypes.SetPartitionsStatsResponse(result=self._store(request.colStats, merge=bool(request.needMerge)))

    def update_partition_column_statistics_req(self, request: Any) -> Any:
        return self.update_table_column_statistics_req(request)

    def set_aggr_stats_for(self, request: Any) -> bool:
        return self._store(request.colStats, merge=bool(request.needMerge))

    def _store(self, sets: Sequence[Any] | None, *, merge: bool = False) -> bool:
        of_partitions: dict[TableName, list[tuple[tuple[str, ...], list[HiveStatistics]]]] = {}
        tables: dict[tuple[Any, ...], HiveTable] = {}
        for given in self._given(sets, "list of the statistics"):
            about = self._given(given.statsDesc, "description of the statistics")
            names = (about.dbName, about.tableName, about.catName)
            if names not in tables:
                tables[names] = self._table(*names)
            table, new = tables[names], [statistics_from(part) for part in given.statsObj or ()]
            values = None if about.isTblLevel else name_to_values(about.partName, key_names(table))
            if merge:
                new = merged(new, self.entries.statistics(table.name, values, [part.column for part in new]))
            if values is None:
                self.entries.set_statistics(table.name, None, new)
            else:
                of_partitions.setdefault(table.name, []).append((values, new))
        for name, statistics in of_partitions.items():
            self.entries.set_partition_statistics(name, statistics)
        return True

    # --- deletion -----------------------------------------------------------------------------------------------

    def delete_table_column_statistics(
        self, database: str | None, name: str | None, column: str | None, engine: str | None
    ) -> bool:
        table = self._table(database, name)
        if not self.entries.delete_statistics(table.name, None, column):
            raise NoSuchObjectException(f"there are no statistics of {table.name}")
        return True

    def delete_partition_column_statistics(
        self, database: str | None, name: str | None, partition: str | None, column: str | None, engine: str | None
    ) -> bool:
        table = self._table(database, name)
        if not self.entries.delete_statistics(table.name, self._values_of_name(table, partition), column):
            raise NoSuchObjectException(f"there are no statistics of {table.name}, partition {partition}")
        return True

    def delete_column_statistics_req(self, request: Any) -> bool:
        table = self._table(request.db_name, request.tbl_name, request.cat_name)
        parts: list[Sequence[str] | None] = [None]
        if not request.tableLevel:
            names = request.part_names or self.entries.partition_names(table.name)
            parts = [self._values_of_name(table, name) for name in names]
        for values in parts:
            for column in request.col_names or [None]:
                self.entries.delete_statistics(table.name, values, column)
        return True

    @staticmethod
    def _values_of_name(table: HiveTable, partition: str | None) -> tuple[str, ...]:
        try:
            return name_to_values(partition, key_names(table))
        except InvalidObjectException as error:
            raise NoSuchObjectException(error.message) from None


def _one_set(table: HiveTable, partition: str | None, found: Sequence[HiveStatistics], what: str) -> Any:
    if not found:
        raise NoSuchObjectException(f"there are no statistics of {what}")
    about = ttypes.ColumnStatisticsDesc(
        isTblLevel=partition is None,
        dbName=table.name.database,
        tableName=table.name.name,
        partName=partition,
        lastAnalyzed=found[0].analysed_at,
        catName=CATALOG,
    )
    return ttypes.ColumnStatistics(statsDesc=about, statsObj=[to_statistics(part) for part in found])
