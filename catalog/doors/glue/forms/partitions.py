"""Partitions as Glue describes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from catalog.doors.entries.kept import COLUMN_PARAMETERS, GLUE
from catalog.doors.glue.failures import invalid_input
from catalog.doors.glue.forms.storages import storage_from_glue, storage_to_glue
from catalog.doors.glue.names import to_glue
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.types.memo import Memo

_ANALYSED = "LastAnalyzedTime"


def partition_from_glue(given: Mapping[str, Any], table: HiveTable) -> HivePartition:
    """Return the entry of a partition, given a `PartitionInput`; without a storage descriptor, it has its table's.

    Raises:
        GlueError: It has no values.
    """
    if "Values" not in given:
        raise invalid_input("the partition has no Values; give one for each partition key")
    descriptor = given.get("StorageDescriptor")
    storage = table.storage if descriptor is None else storage_from_glue(descriptor, with_columns=True)
    if _ANALYSED in given:
        own = {**storage.extra.get(GLUE, {}), _ANALYSED: given[_ANALYSED]}
        storage = replace(storage, extra={**storage.extra, GLUE: own})
    return HivePartition(
        tuple(given["Values"]),
        storage,
        given.get("Parameters", {}),
        (descriptor or {}).get("Location") or None,
        None,
        int(given.get("LastAccessTime", 0)),
    )


class PartitionWriter:
    """Writes partitions of one table as JSON: what partitions share is written once, and then copied."""

    def __init__(self, table: HiveTable, catalog_id: str, *, without_columns: bool = False) -> None:
        """Set the table.

        Args:
            without_columns: Leave out the columns of the partitions. Source: Glue's `ExcludeColumnSchema`.
        """
        self._table = table
        self._parameters = table.extra.get(GLUE, {}).get(COLUMN_PARAMETERS, {})
        self._without_columns = without_columns
        self._start = (
            f'{{"CatalogId":{quoted(catalog_id)},"DatabaseName":{quoted(to_glue(table.name.database))},'
            f'"TableName":{quoted(to_glue(table.name.name))},"Values":['
        )
        # The storages are kept, so that no other one gets their ids.
        self._storages: dict[int, tuple[HiveStorage, str]] = {}
        self._quoted: Memo[str, str] = Memo(quoted)

    def write(self, partitions: Iterable[HivePartition]) -> str:
        """Return partitions as a JSON list."""
        start, storages, quote_value = self._start, self._storages, self._quoted.__getitem__
        written = []
        for values, storage, parameters, location, created_at, accessed_at in partitions:
            _, rest = storages.get(id(storage)) or self._add(storage)
            place = "" if location is None else f'"Location":{quoted(location)},'
            accessed = f',"LastAccessTime":{accessed_at}' if accessed_at else ""
            shown = json.dumps(dict(parameters)) if parameters else "{}"
            written.append(
                f'{start}{",".join(map(quote_value, values))}],"CreationTime":{created_at or 0}{accessed},'
                f'"Parameters":{shown},"StorageDescriptor":{{{place}{rest}'
            )
        return f"[{','.join(written)}]"

    def _add(self, storage: HiveStorage) -> tuple[HiveStorage, str]:
        """Keep the end of the JSON of all partitions with a storage."""
        columns = None if self._without_columns else self._table.columns if storage.columns is None else storage.columns
        shown = json.dumps(storage_to_glue(storage, columns, None, self._parameters), separators=(",", ":"))
        analysed = storage.extra.get(GLUE, {}).get(_ANALYSED)
        end = "" if analysed is None else f',"{_ANALYSED}":{json.dumps(analysed)}'
        kept = storage, f"{shown[1:]}{end}}}"
        self._storages[id(storage)] = kept
        return kept
