"""Fields that clients of one protocol cannot express: their changes leave them as a client of another one set them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from catalog.doors.entries.forms import COMMENT
from catalog.metastores.types import HiveSkew, HiveStorage, HiveTable
from catalog.model import Column

GLUE = "glue"
"""The name in `extra` of the fields that only Glue has; the other names are those of Hive's fields."""

COLUMN_PARAMETERS = "ColumnParameters"
"""Glue's own field of a table or storage: name of a column → its parameters."""

SKEW = "SkewedInfo"
"""Glue's own field of a storage: the frequent values in a spelling of their own."""


def keep_fields_of_glue(given: HiveTable, before: HiveTable) -> HiveTable:
    """Return a changed entry of a client of Hive's protocol, with the fields that only Glue has."""
    names = _names((*given.columns, *given.partition_keys))
    extra = {**_of_glue(before.extra, names), **given.extra}
    return replace(given, extra=extra, storage=keep_storage_of_glue(given.storage, before.storage, names))


def keep_storage_of_glue(given: HiveStorage, before: HiveStorage, names: Collection[str] | None = None) -> HiveStorage:
    """Return a changed storage of a client of Hive's protocol, with the fields that only Glue has.

    Args:
        names: The names of its columns; None if they are in the storage, or as they were.
    """
    if names is None and given.columns is not None:
        names = _names(given.columns)
    kept = _of_glue(before.extra, names)
    if (given.skew or HiveSkew()) != (before.skew or HiveSkew()):
        kept.get(GLUE, {}).pop(SKEW, None)
    return replace(given, extra={**kept, **given.extra}) if kept.get(GLUE) else given


def keep_fields_of_hive(given: HiveTable, before: HiveTable) -> HiveTable:
    """Return a changed entry of a client of Glue, with the fields that only Hive has."""
    storage = replace(given.storage, extra={**_of_hive(before.storage.extra), **given.storage.extra})
    return replace(
        given, storage=storage, owner_type=before.owner_type, extra={**_of_hive(before.extra), **given.extra}
    )


def _of_glue(extra: Mapping[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    own = dict(extra.get(GLUE, {}))
    parameters = own.pop(COLUMN_PARAMETERS, {})
    # Those of a removed column must not become those of a later one.
    if left := {name: value for name, value in parameters.items() if names is None or name in names}:
        own[COLUMN_PARAMETERS] = left
    return {GLUE: own} if own else {}


def _of_hive(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if name != GLUE}


def _names(columns: Collection[Column]) -> set[str]:
    return {column.name.lower() for column in columns}


# --- comments ---------------------------------------------------------------------------------------------------------


def hive_parameters(table: HiveTable) -> dict[str, str]:
    """Return the parameters of a table for clients of Hive's protocol, in which the description is one of them."""
    if table.description is None or COMMENT in table.parameters:
        return dict(table.parameters)
    return {**table.parameters, COMMENT: table.description}


def with_hive_comment(given: HiveTable, before: HiveTable) -> HiveTable:
    """Return a changed entry of a client of Hive's protocol, whose comment is that of before unless it has changed.

    Glue has a description, and perhaps a parameter of this name with another value; of both, Hive has the parameter.
    """
    parameters, comment = dict(given.parameters), given.parameters.get(COMMENT)
    if before.description is not None and COMMENT not in before.parameters:
        parameters.pop(COMMENT, None)
    is_same = comment == hive_parameters(before).get(COMMENT)
    return replace(given, description=before.description if is_same else comment, parameters=parameters)
