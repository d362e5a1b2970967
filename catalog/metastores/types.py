"""What a Hive Metastore and Glue say of a table and its partitions, in the one shape that both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.model import Column
from catalog.model.identifiers import TableName


@dataclass(frozen=True, slots=True)
class HiveStorage:
    """Where and how files lie; None and empty for what a source leaves out.

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
        table_type: `MANAGED_TABLE`, `EXTERNAL_TABLE`, `VIRTUAL_VIEW` …; None in Glue, if whoever made it left it out.
        view_text: The statement of a view, with names qualified if the source knows such a text.
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
