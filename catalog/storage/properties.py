"""The text in which a partition's properties are kept, and its own format with them.

A format of its own is rare, so it has no column that every partition would be read with: it stands among the
properties, under a name that no property may have. The texts of partitions are few, and each is read once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from catalog.errors import InvalidPartitionError
from catalog.model import FileFormat, Table
from catalog.model.identifiers import text_properties

FORMAT_PROPERTY = "calve.format"
"""The reserved name."""

OwnProperties: TypeAlias = tuple[Mapping[str, str], FileFormat | None]
"""A partition's properties, and its format when it is not the table's."""


def properties_text(table: Table, properties: Mapping[str, str] | None, own_format: FileFormat | None) -> str | None:
    """Return what to store; None when there is nothing.

    Raises:
        InvalidPartitionError: A property has the reserved name.
    """
    stored = text_properties(properties) if properties else {}
    if FORMAT_PROPERTY in stored:
        raise InvalidPartitionError(
            table.full_name,
            reason=f"no partition property can be called {FORMAT_PROPERTY}; to say the format of a partition's files, "
            "set its format",
        )
    if own_format is not None and own_format is not table.format:
        stored[FORMAT_PROPERTY] = own_format.value
    return json.dumps(stored) if stored else None


def read_properties(text: str | None) -> OwnProperties:
    """Return what `properties_text` was given."""
    properties = json.loads(text) if text else {}
    own_format = properties.pop(FORMAT_PROPERTY, None)
    return MappingProxyType(properties), None if own_format is None else FileFormat(own_format)
