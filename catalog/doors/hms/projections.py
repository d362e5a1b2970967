"""Tables with only the fields that a client asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import MetaException
from thrift.Thrift import TType

_NUMBERS = frozenset({"createTime", "lastAccessTime", "retention", "numBuckets"})


def projected_all(tables: list[Any], spec: Any) -> list[Any]:
    """Return tables with the fields of a projection; all of them, if it names none or a list or map among them.

    As in Hive, whose single-valued fields alone are read alone.

    Raises:
        MetaException: A field does not exist, or the projection selects parameters by a pattern.
    """
    if spec is None:
        return tables
    if spec.includeParamKeyPattern or spec.excludeParamKeyPattern:
        raise MetaException("parameters of tables cannot be selected by patterns; ask for all of them")
    paths = [field.split(".") for field in spec.fieldList or ()]
    if not paths or not all(_is_single(path) for path in paths):
        return tables
    return [_projected(table, paths) for table in tables]


def _is_single(path: Sequence[str]) -> bool:
    """Return whether a path leads to a value that is no list or map."""
    structure: Any = ttypes.Table
    for name in path:
        fields = () if structure is None else structure.thrift_spec
        spec = next((field for field in fields if field is not None and field[2] == name), None)
        if spec is None:
            raise MetaException(f"a table has no field {'.'.join(path)}; ask for fields of Table")
        if spec[1] in (TType.LIST, TType.MAP, TType.SET):
            return False
        structure = spec[3][0] if spec[1] == TType.STRUCT else None
    return True


def _projected(whole: Any, paths: Sequence[Sequence[str]]) -> Any:
    """Return a structure with the fields at some paths, and the numbers that Hive always sends."""
    part = type(whole)()
    for field in vars(part):
        setattr(part, field, 0 if field in _NUMBERS else None)
    for name in dict.fromkeys(path[0] for path in paths):
        value = getattr(whole, name)
        inner = [path[1:] for path in paths if path[0] == name]
        setattr(part, name, _projected(value, inner) if all(inner) and value is not None else value)
    return part
