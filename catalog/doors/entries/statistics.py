"""Statistics of columns, of tables and of partitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from catalog.doors.entries.partitions import PartitionMethods
from catalog.errors import InvalidTableError
from catalog.metastores.types import HiveStatistics
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.partitions.statistics import WHOLE_TABLE, StoredStatistics

_FIELDS = tuple(field.name for field in fields(HiveStatistics) if field.name not in ("column", "analysed_at"))


class StatisticsMethods(PartitionMethods):
    """Storage, look-up and deletion of statistics. Columns that a table has no longer have none."""

    def statistics(
        self, name: TableName, values: Sequence[str] | None = None, columns: Iterable[str] | None = None
    ) -> list[HiveStatistics]:
        """Return the statistics of a table or of a partition, sorted by column.

        Args:
            values: Those of a partition; None for the statistics of the whole table.
            columns: None for all; those without statistics are left out.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or partition does not exist.
        """
        if values is not None:
            by_partition = self.partition_statistics(name, [values], columns, or_none=False)
            return next(iter(by_partition.values()), [])
        table = self._table(name)
        if table.is_only_iceberg:
            return []
        return self._of_columns(table, [WHOLE_TABLE], columns).get(WHOLE_TABLE, [])

    def partition_statistics(
        self,
        name: TableName,
        values: Iterable[Sequence[str]],
        columns: Iterable[str] | None = None,
        *,
        or_none: bool = True,
    ) -> dict[str, list[HiveStatistics]]:
        """Return the statistics of partitions by their names; those without statistics are left out.

        Args:
            or_none: Leave out partitions that do not exist, too.

        Raises:
            TableNotFoundError: The table does not exist.
            PartitionNotFoundError: A partition does not exist, and `or_none` is false.
        """
        forms = self.forms(name)
        own = list(dict.fromkeys(map(forms.values, values)))
        found = self._visible(forms, own)
        if not or_none and len(found) < len(own):
            found = [self.catalog.get_partition(forms.table.full_name, partition) for partition in own]
        names = {partition.id: forms.name(partition.values) for partition in found}
        read = self._of_columns(forms.table, list(names), columns)
        return {names[number]: statistics for number, statistics in read.items()}

    def set_statistics(
        self, name: TableName, values: Sequence[str] | None, statistics: Iterable[HiveStatistics]
    ) -> None:
        """Store statistics of a table, or of the partition with some values; those of other columns stay.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or partition does not exist.
            InvalidTableError: The table has no such column.
        """
        if values is not None:
            self.set_partition_statistics(name, [(values, statistics)])
            return
        table = self.forms(name).table
        self.catalog.column_statistics.write(table, [(None, _stored(table, statistics))])

    def set_partition_statistics(
        self, name: TableName, given: Iterable[tuple[Sequence[str], Iterable[HiveStatistics]]]
    ) -> None:
        """Store statistics of many partitions, all or none.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or a partition does not exist.
            InvalidTableError: The table has no such column.
        """
        forms = self.forms(name)
        rows = [(forms.values(values), _stored(forms.table, statistics)) for values, statistics in given]
        self.catalog.column_statistics.write(forms.table, rows)

    def delete_statistics(self, name: TableName, values: Sequence[str] | None = None, column: str | None = None) -> int:
        """Delete the statistics of a table or of a partition; return the number of columns that had some.

        Args:
            column: None for all columns.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or partition does not exist.
        """
        forms = self.forms(name)
        own = None if values is None else forms.values(values)
        return self.catalog.column_statistics.delete(forms.table, own, None if column is None else column.lower())

    def _of_columns(
        self, table: Table, partition_ids: Sequence[int], columns: Iterable[str] | None
    ) -> dict[int, list[HiveStatistics]]:
        wanted = None if columns is None else [column.lower() for column in columns]
        known = {column.name for column in (*table.columns, *table.partition_keys)}
        found: dict[int, list[HiveStatistics]] = {}
        for stored in self.catalog.column_statistics.read(table, partition_ids, wanted):
            if stored.column in known:
                found.setdefault(stored.partition_id, []).append(_read_back(stored))
        return found


def _stored(table: Table, statistics: Iterable[HiveStatistics]) -> dict[str, dict[str, Any]]:
    known = {column.name for column in (*table.columns, *table.partition_keys)}
    stored = {}
    for given in statistics:
        name = given.column.lower()
        if name not in known:
            raise InvalidTableError(
                f"table {table.full_name} has no column {given.column} to keep statistics of; it has "
                f"{', '.join(sorted(known))}"
            )
        values = {field: getattr(given, field) for field in _FIELDS}
        stored[name] = {field: _plain(value) for field, value in values.items() if value not in (None, {})}
        if given.analysed_at is not None:
            stored[name]["analysed_at"] = given.analysed_at
    return stored


def _plain(value: Any) -> Any:
    """Return a value that JSON has, which has no infinite numbers."""
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _read_back(stored: StoredStatistics) -> HiveStatistics:
    values: Mapping[str, Any] = {
        field: float(value["float"]) if isinstance(value, dict) and value.keys() == {"float"} else value
        for field, value in stored.statistics.items()
    }
    return HiveStatistics(**{"column": stored.column, "analysed_at": stored.analysed_at_ms // 1000, **values})
