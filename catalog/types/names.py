"""Names of column types as users write them and as the catalog stores them."""

from __future__ import annotations

import re

MAXIMUM_DEPTH = 50
"""Maximum nesting depth of arrays, maps and structs."""

_PLAIN = ("string", "tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "date", "timestamp", "binary")
ALIASES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "double precision": "double",
}
"""Name of a type that engines have besides Hive's → Hive's name, which is the only one that all readers know."""

DECIMALS = ("decimal", "dec", "numeric")
LENGTHS = {"char": 255, "varchar": 65535}
_PARTS = {"array": 1, "map": 2}

KNOWN = "string, char(n), varchar(n), tinyint … bigint (long), float, double, decimal(p,s), boolean, date, timestamp, "
KNOWN += "binary, array<…>, map<…> and struct<…>"


class TypeNameError(ValueError):
    """Invalid name of a type; the message gives the reason."""


def plain_type(name: str) -> str:
    """Return the catalog's name of a type without a size.

    Raises:
        TypeNameError: Unknown type, or one that needs a size.
    """
    name = name.lower()
    name = ALIASES.get(name, name)
    if name in _PLAIN:
        return name
    if name in DECIMALS:
        return "decimal(10,0)"
    if name in LENGTHS:
        raise TypeNameError(f"type {name} needs a length; for instance, {name}(20)")
    if name in _PARTS or name == "struct":
        raise TypeNameError(f"type {name} needs the types of its parts; for instance, {name}<{_example(name)}>")
    raise TypeNameError(f"type {name[:40]} is not known; use {KNOWN}")


def sized_type(name: str, first: int, second: int | None) -> str:
    """Return the catalog's name of a type with a length, or with precision and scale.

    Raises:
        TypeNameError: Unknown type, or an invalid size.
    """
    name = name.lower()
    if name in LENGTHS and second is None:
        if not 1 <= first <= LENGTHS[name]:
            raise TypeNameError(f"type {name} has a length from 1 to {LENGTHS[name]}, not {first}")
        return f"{name}({first})"
    if name in DECIMALS:
        scale = second or 0
        if not (1 <= first <= 38 and scale <= first):
            raise TypeNameError(
                f"type decimal({first},{scale}) is not valid; use 1 to 38 digits, and a scale of at most as many"
            )
        return f"decimal({first},{scale})"
    # Other databases allow sizes such as `int(11)`.
    raise TypeNameError(f"type {name[:40]} takes no size like this; use {KNOWN}")


def nested_type(name: str, parts: list[str]) -> str:
    """Return the catalog's name of an array or a map.

    Raises:
        TypeNameError: Unknown type, or a wrong number of parts.
    """
    name = name.lower()
    if name == "struct" or _PARTS.get(name) != len(parts):
        raise TypeNameError(f"type {name[:40]}<…> is not known; use array<type>, map<type,type> or struct<name:type,…>")
    return f"{name}<{','.join(parts)}>"


def struct_type(name: str, fields: list[tuple[str, str]]) -> str:
    """Return the catalog's name of a struct.

    Raises:
        TypeNameError: Another type with fields.
    """
    if name.lower() != "struct":
        raise TypeNameError(f"type {name[:40]} has no fields; use struct<name:type,…>")
    return f"struct<{','.join(f'{_field_name(field)}:{text}' for field, text in fields)}>"


def _field_name(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else f"`{name}`"


def _example(name: str) -> str:
    return {"array": "string", "map": "string,int"}.get(name, "name:string")
