"""Tables, views and changes, as Iceberg's REST protocol has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from catalog.engine_tables.names import Identifier
from catalog.iceberg.documents.schemas import Json

Also = Callable[[Connection, Sequence["Loaded"]], None]
"""Further work in the transaction of a change, given the result."""


@dataclass(frozen=True)
class Loaded:
    """A table or view.

    Attributes:
        location: Of its metadata file; None if it is only staged.
        document: The normalised metadata.
    """

    location: str | None
    document: Json


@dataclass(frozen=True)
class NewTable:
    """The definition of a new table.

    Attributes:
        location: None for a folder below that of the namespace.
        spec, order: In Iceberg's JSON; None for no partitions, and no order.
    """

    schema: Json
    location: str | None = None
    spec: Json | None = None
    order: Json | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Commit:
    """Updates of a table or view that a client sends, and the requirements that must hold."""

    identifier: Identifier
    requirements: Sequence[Json]
    updates: Sequence[Json]
