"""Tables and partitions in the common form of Hive Metastore and Glue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.model import Column
from catalog.model.identifiers import TableName


@dataclass(frozen=True, slots=True)
class HiveStorage:
    """Location and format of files; None and empty for missing values.

    Attributes:
        location: As the source writes it.
        input_format, serde: Names of Java classes.
    """

    location: str | None = None
    input_format: str | None = None
    serde: str | None = None
    serde_parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HiveTable:
    """A table or view as a source describes it.

    Attributes:
        table_type: `MANAGED_TABLE`, `EXTERNAL_TABLE`, `VIRTUAL_VIEW` …; None in Glue if the client that created it set
            none.
        view_text: The statement of a view, with qualified names if the source has them.
    """

    name: TableName
    table_type: str | None
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...]
    storage: HiveStorage
    parameters: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    view_text: str | None = None
    bucket_columns: tuple[str, ...] = ()
    bucket_count: int = 0


@dataclass(frozen=True, slots=True)
class HivePartition:
    """A partition as a source describes it."""

    values: tuple[str, ...]
    storage: HiveStorage
    parameters: Mapping[str, str]
