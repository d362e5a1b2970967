"""Partition specs and sort orders over a schema: the columns and transforms that they may have.

Source: `PartitionSpec`, `SortOrder` and the transforms of Apache Iceberg.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog.errors import InvalidTableError
from catalog.iceberg.documents.schemas import Json, all_fields, nested_fields, sources_of

_VOID = "void"
_INSTANTS = frozenset(("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"))
_WHOLE = frozenset(("int", "long", "string", "binary", "decimal"))
_SOURCES: Mapping[str, frozenset[str]] = {
    "bucket": _WHOLE | _INSTANTS | {"date", "time", "fixed", "uuid"},
    "truncate": _WHOLE,
    "year": _INSTANTS | {"date"},
    "month": _INSTANTS | {"date"},
    "day": _INSTANTS | {"date"},
    "hour": _INSTANTS,
}
"""Transform → the types that it takes, without their parameters; those that are missing here take all."""

_UNORDERED = frozenset(("variant", "geometry", "geography"))
"""Types whose values are neither compared nor the same for all rows of a partition."""


def check_spec_fields(fields: Sequence[Json], schema: Json) -> None:
    """Check that a schema has the columns of a partition spec, and that the names of its fields are clear.

    Raises:
        InvalidTableError: It has not, or they are not.
    """
    # A dropped column leaves a void field behind.
    _check_sources("partition spec", [field for field in fields if field["transform"] != _VOID], schema)
    check_spec_names(fields, schema)


def check_spec_names(fields: Sequence[Json], schema: Json) -> None:
    """Check that the names of a partition spec's fields are unique, and not those of other columns.

    Raises:
        InvalidTableError: They are not.
    """
    known = {name: field_id for field_id, name, _ in all_fields(schema)}
    ids, names = set(known.values()), set[str]()
    for field in fields:
        name, source = field["name"], sources_of(field)[0]
        if name in names:
            raise InvalidTableError(f"Cannot use the partition name {name} more than once; rename one field")
        if source in ids and known.get(name, source) != source:
            raise InvalidTableError(
                f"Cannot create a partition field {name} from another column than {name}; choose a name that no column "
                "of the schema has"
            )
        names.add(name)


def check_order_fields(fields: Sequence[Json], schema: Json) -> None:
    """Check that a schema has the columns of a sort order.

    Raises:
        InvalidTableError: It has not.
    """
    _check_sources("sort order", fields, schema)


def _check_sources(what: str, fields: Sequence[Json], schema: Json) -> None:
    known = dict(_columns(schema))
    for field in fields:
        label = field.get("name") or field["transform"]
        for source in sources_of(field):
            if source not in known:
                raise InvalidTableError(
                    f"Cannot find source column for the field {label} of the {what}: no column of the schema has the "
                    f"id {source}"
                )
            name, kind, is_repeated = known[source]
            if isinstance(kind, dict):
                raise InvalidTableError(
                    f"Cannot use column {name} of type {kind.get('type')} in the {what}; name a column with single "
                    "values"
                )
            if is_repeated and what == "partition spec":
                raise InvalidTableError(
                    f"Invalid partition field parent: {name} is inside a list or a map; name another column"
                )
            _check_transform(field["transform"], name, kind)


def _columns(kind: Any, prefix: str = "", is_repeated: bool = False) -> Iterator[tuple[int, tuple[str, Any, bool]]]:
    """Yield all fields inside a type: id, and full name, type, and whether it is inside a list or a map."""
    inside = is_repeated or kind.get("type") != "struct"
    for field_id, name, inner in nested_fields(kind):
        yield field_id, (prefix + name, inner, inside)
        if isinstance(inner, dict):
            yield from _columns(inner, f"{prefix}{name}.", inside)


def _check_transform(transform: str, column: str, kind: str) -> None:
    word, _, width = transform.partition("[")
    base = kind.partition("(")[0].partition("[")[0].strip()
    sources = _SOURCES.get(word)
    if base in _UNORDERED or (sources is not None and base not in sources):
        raise InvalidTableError(
            f"Invalid source type {kind} for transform: {transform}; column {column} needs another transform"
        )
    if word in ("bucket", "truncate") and width.strip("0]") == "":
        raise InvalidTableError(f"Invalid width of the transform {transform}; write a number above 0: {word}[16]")
