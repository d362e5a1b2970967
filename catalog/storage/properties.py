"""Serialization of a partition's properties, including its own format.

A partition rarely has its own format, so there is no column that every read of a partition would fetch: it is stored
among the properties, under a reserved name. Partitions share few distinct strings, each of which is parsed once.
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
"""The reserved name of a partition's own format."""

OwnProperties: TypeAlias = tuple[Mapping[str, str], FileFormat | None]
"""A partition's properties, and its format when it differs from the table's."""


def properties_text(table: Table, properties: Mapping[str, str] | None, own_format: FileFormat | None) -> str | None:
    """Return the string to store; None when there is nothing.

    Raises:
        InvalidPartitionError: A property has the reserved name.
    """
    stored = text_properties(properties) if properties else {}
    if FORMAT_PROPERTY in stored:
        raise InvalidPartitionError(
            table.full_name,
            reason=f"the partition property name {FORMAT_PROPERTY} is reserved; to set the format of a partition's "
            "files, use its format",
        )
    if own_format is not None and own_format is not table.format:
        stored[FORMAT_PROPERTY] = own_format.value
    return json.dumps(stored) if stored else None


def read_properties(text: str | None) -> OwnProperties:
    """Return the arguments of `properties_text`, given its result."""
    properties = json.loads(text) if text else {}
    own_format = properties.pop(FORMAT_PROPERTY, None)
    return MappingProxyType(properties), None if own_format is None else FileFormat(own_format)
