"""Hive types for property tests, with their Iceberg types and their notation in a metastore and in a statement."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

PLAIN: dict[str, IcebergType] = {
    "tinyint": IntegerType(),
    "smallint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "char(3)": StringType(),
    "varchar(65535)": StringType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "binary": BinaryType(),
    "decimal(10,0)": DecimalType(10, 0),
    "decimal(38,38)": DecimalType(38, 38),
}
NAMES = ("a", "b", "_c1", "element", "key", "comment", "struct", "int", "a b", "x-y", "ä", "1st", "$")
"""Field names, of which some need quotes in a statement, but not in a metastore."""


@dataclass(frozen=True)
class Sample:
    """A type in the notation of a metastore and of a statement, and its Iceberg type with all ids 0."""

    hive: str
    statement: str = field(compare=False)
    iceberg: IcebergType = field(compare=False)


def plain() -> st.SearchStrategy[Sample]:
    """Types that are not nested."""
    return st.sampled_from(sorted(PLAIN)).map(lambda name: Sample(name, name, PLAIN[name]))


def samples() -> st.SearchStrategy[Sample]:
    """Nested types of any depth."""
    return st.recursive(plain(), lambda inner: _arrays(inner) | _maps(inner) | _structs(inner), max_leaves=12)


def _arrays(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    return inner.map(
        lambda part: Sample(
            f"array<{part.hive}>", f"ARRAY <{part.statement}>", ListType(0, part.iceberg, element_required=False)
        )
    )


def _maps(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    return st.builds(
        lambda key, value: Sample(
            f"map<{key.hive},{value.hive}>",
            f"Map<{key.statement}, {value.statement}>",
            MapType(0, key.iceberg, 0, value.iceberg, value_required=False),
        ),
        inner,
        inner,
    )


def _structs(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)
    return names.flatmap(
        lambda chosen: st.tuples(*(inner for _ in chosen)).map(lambda parts: _struct(chosen, list(parts)))
    )


def _struct(names: list[str], parts: list[Sample]) -> Sample:
    return Sample(
        f"struct<{','.join(f'{name}:{part.hive}' for name, part in zip(names, parts, strict=True))}>",
        f"STRUCT< {', '.join(f'`{name}` : {part.statement}' for name, part in zip(names, parts, strict=True))} >",
        StructType(*(NestedField(0, name, part.iceberg) for name, part in zip(names, parts, strict=True))),
    )
