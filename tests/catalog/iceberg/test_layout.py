"""The Iceberg layout of a Hive table: field ids, partition spec, name mapping, and refusals."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.name_mapping import (
    NameMapping,
    apply_name_mapping,
    create_mapping_from_schema,
    parse_mapping_from_json,
)
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from catalog.errors import DuplicateColumnError, ReservedColumnError, UnsupportedIcebergTypeError
from catalog.iceberg.layout import RESERVED_NAMES, ColumnChange, Layout, TypeRules, layout_of
from catalog.model import Buckets, Column, FileFormat, Table
from tests.support.hive_types import PLAIN, Sample, plain, samples


def table(
    columns: Sequence[tuple[str, str]] = (("a", "int"),),
    keys: Sequence[tuple[str, str]] = (),
    file_format: FileFormat = FileFormat.PARQUET,
    **more: Any,
) -> Table:
    return Table(
        "demo",
        "t",
        tuple(Column(*each) for each in columns),
        tuple(Column(*each) for each in keys),
        file_format,
        "/lake/demo/t",
        **more,
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, list[Sample], list[Sample]]:
    """A table, and its columns and partition keys."""
    columns, keys = draw(st.lists(samples(), min_size=1, max_size=4)), draw(st.lists(plain(), max_size=3))
    made = table(
        [(f"c{number}", each.hive) for number, each in enumerate(columns)],
        [(f"k{number}", each.hive) for number, each in enumerate(keys)],
    )
    return made, columns, keys


def inside(found: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(found, StructType):
        return found.fields
    if isinstance(found, ListType):
        return (found.element_field,)
    return (found.key_field, found.value_field) if isinstance(found, MapType) else ()


def siblings(fields: Sequence[NestedField]) -> Iterator[Sequence[NestedField]]:
    """Yield the fields of each level, the table's first, then those of each nested field, in order."""
    yield fields
    for each in fields:
        if inner := inside(each.field_type):
            yield from siblings(inner)


def without_ids(found: IcebergType) -> IcebergType:
    if isinstance(found, StructType):
        return StructType(*(NestedField(0, each.name, without_ids(each.field_type)) for each in found.fields))
    if isinstance(found, ListType):
        return ListType(0, without_ids(found.element_type), element_required=False)
    if isinstance(found, MapType):
        return MapType(0, without_ids(found.key_type), 0, without_ids(found.value_type), value_required=False)
    return found


# --- schema and spec ------------------------------------------------------------------------------------------------


def test_field_ids_are_those_of_trino_and_iceberg() -> None:
    layout = layout_of(
        table(
            [("a", "struct<x:array<int>,y:map<string,struct<z:date>>>"), ("b", "int"), ("c", "array<array<string>>")],
            [("k", "int"), ("l", "string")],
        )
    )
    expected = """table {
  1: a: optional struct<6: x: optional list<int>, 7: y: optional map<string, struct<11: z: optional date>>>
  2: b: optional int
  3: c: optional list<list<string>>
  4: k: optional int
  5: l: optional string
}"""
    assert str(layout.schema) == expected
    ids = {layout.schema.find_column_name(number): number for number in range(1, 14)}
    assert (ids["a.x.element"], ids["a.y.key"], ids["a.y.value"], ids["a.y.value.z"]) == (8, 9, 10, 11)
    assert (ids["c.element"], ids["c.element.element"]) == (12, 13)
    assert layout.spec == PartitionSpec(
        PartitionField(4, 1000, IdentityTransform(), "k"), PartitionField(5, 1001, IdentityTransform(), "l")
    )
    assert layout.key_count == 2


@given(made=tables())
def test_any_table_has_the_types_of_its_columns_and_consecutive_ids(
    made: tuple[Table, list[Sample], list[Sample]],
) -> None:
    source, columns, keys = made
    layout = layout_of(source)
    fields = layout.schema.fields
    assert [each.name for each in fields] == [each.name for each in (*source.columns, *source.partition_keys)]
    assert [without_ids(each.field_type) for each in fields] == [each.iceberg for each in (*columns, *keys)]
    groups = list(siblings(fields))
    assert [each.field_id for group in groups for each in group] == list(range(1, sum(map(len, groups)) + 1))
    assert layout.spec.partition_type(layout.schema).fields == tuple(
        NestedField(1000 + number, key.name, key.field_type) for number, key in enumerate(fields[len(columns) :])
    )
    # PyIceberg keeps all ids in a new table.
    metadata = new_table_metadata(layout.schema, layout.spec, UNSORTED_SORT_ORDER, source.location)
    assert metadata.schema() == layout.schema
    assert metadata.spec() == layout.spec


@given(made=tables())
def test_a_layout_survives_json_and_pickling(made: tuple[Table, list[Sample], list[Sample]]) -> None:
    layout = layout_of(made[0])
    text = json.dumps(layout.as_json())
    for again in (
        Layout.from_json(json.loads(text)),
        Layout.from_json(layout.as_json()),
        pickle.loads(pickle.dumps(layout)),
    ):
        assert again == layout
        assert again.as_json() == layout.as_json()
        assert again.name_mapping() == layout.name_mapping()
        assert again.describe() == layout.describe()
    assert Schema.model_validate_json(json.dumps(json.loads(text)["schema"])) == layout.schema
    assert PartitionSpec.model_validate_json(json.dumps(json.loads(text)["spec"])) == layout.spec


def test_comments_are_kept() -> None:
    source = Table(
        "demo",
        "t",
        (Column("a", "struct<x:int comment 'inner'>", "outer"),),
        (Column("k", "int", "key"),),
        FileFormat.ORC,
        "/t",
    )
    schema = layout_of(source).schema
    assert [schema.find_field(name).doc for name in ("a", "a.x", "k")] == ["outer", "inner", "key"]


def test_a_table_without_keys_is_unpartitioned() -> None:
    layout = layout_of(table())
    assert layout.spec.is_unpartitioned()
    assert layout.partition_record(()) == ()
    assert layout_of(table([], [("k", "int")])).spec.fields[0].source_id == 1


# --- timestamps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file_format", "rules", "expected"),
    [
        (FileFormat.PARQUET, None, "timestamptz"),
        (FileFormat.ORC, None, "timestamp"),
        (FileFormat.PARQUET, TypeRules(), "timestamptz"),
        *(
            (each, TypeRules("with zone"), "timestamptz")
            for each in (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)
        ),
        *(
            (each, TypeRules("without zone"), "timestamp")
            for each in (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)
        ),
    ],
)
def test_timestamps_are_as_in_trino_or_as_told(file_format: FileFormat, rules: TypeRules | None, expected: str) -> None:
    source = table([("a", "timestamp"), ("b", "array<timestamp>")], [("k", "timestamp")], file_format)
    layout = layout_of(source, rules)
    assert [each.iceberg_type for each in layout.describe()] == [expected, f"list<{expected}>", expected]
    assert layout.partition_record(["2024-02-29 12:30:00.000001"]) == (1709209800000001,)
    assert any("UTC" in each for each in layout.warnings) is (expected == "timestamptz")


def test_timestamps_of_avro_are_refused_unless_told() -> None:
    source = table([("a", "timestamp"), ("b", "int")], [("k", "timestamp")], FileFormat.AVRO)
    with pytest.raises(UnsupportedIcebergTypeError) as refused:
        layout_of(source)
    assert [each.name for each in refused.value.columns] == ["a", "k"]
    assert layout_of(table([("b", "timestamp with local time zone")], [], FileFormat.AVRO)).schema.fields


# --- refusals -------------------------------------------------------------------------------------------------------


def test_every_column_that_iceberg_cannot_hold_is_named_at_once() -> None:
    source = table(
        [("a", "interval_day_time"), ("b", "int"), ("c", "array<uniontype<int,string>>"), ("d", "void")],
        [("k", "array<int>"), ("l", "int"), ("m", "nothing")],
    )
    with pytest.raises(UnsupportedIcebergTypeError) as refused:
        layout_of(source)
    assert [(each.name, each.type) for each in refused.value.columns] == [
        ("a", "interval_day_time"),
        ("c", "array<uniontype<int,string>>"),
        ("d", "void"),
        ("k", "array<int>"),
        ("m", "nothing"),
    ]
    message = str(refused.value)
    assert message.startswith("table demo.t cannot become an Iceberg table")
    assert "column c of type array<uniontype<int,string>>: its field element: Iceberg has no type uniontype" in message
    assert "column k of type array<int>: a partition key cannot have a nested type" in message
    assert message.endswith("Nothing was changed; change or drop these columns first")


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
@pytest.mark.parametrize("is_key", [False, True])
def test_names_of_metadata_columns_are_refused(name: str, is_key: bool) -> None:
    column = (name.upper(), "string")
    source = table([("a", "int")], [column]) if is_key else table([("a", "int"), column])
    with pytest.raises(ReservedColumnError, match=f"reserves the name {name} for") as refused:
        layout_of(source)
    assert refused.value.columns == (name,)
    # Only top-level columns conflict with Iceberg's names.
    assert layout_of(table([("a", f"struct<{name}:int>")])).schema.fields


@pytest.mark.parametrize(
    ("columns", "keys", "twice"),
    [
        ([("a", "int"), ("A", "string")], [], ["a"]),
        ([("a", "int")], [("A", "int")], ["a"]),
        ([("a", "struct<x:int,y:int,X:string,Y:int>")], [], ["a.x", "a.y"]),
        ([("a", "array<map<int,struct<x:int,X:int>>>")], [], ["a.element.value.x"]),
        # Iceberg looks up a field by its dotted name.
        ([("a", "struct<x:int>"), ("a.x", "int")], [], ["a.x"]),
        ([("a", "struct<x.y:int,x:struct<y:int>>")], [], ["a.x.y"]),
        ([("a", "array<int>"), ("a.element", "int")], [], ["a.element"]),
    ],
)
def test_names_that_case_or_dots_do_not_tell_apart_are_refused(
    columns: list[tuple[str, str]], keys: list[tuple[str, str]], twice: list[str]
) -> None:
    with pytest.raises(DuplicateColumnError, match="rename all but one") as refused:
        layout_of(table(columns, keys))
    assert refused.value.names == tuple(twice)


# --- name mapping ---------------------------------------------------------------------------------------------------


@given(made=tables())
def test_the_name_mapping_is_the_one_that_pyiceberg_makes(made: tuple[Table, list[Sample], list[Sample]]) -> None:
    layout = layout_of(made[0])
    mapping = parse_mapping_from_json(layout.name_mapping())
    # Elements of lists have more names than PyIceberg gives them.
    first_names = json.loads(layout.name_mapping(), object_hook=_with_first_name)
    assert NameMapping(first_names) == create_mapping_from_schema(layout.schema)
    assert apply_name_mapping(layout.schema, mapping).fields == layout.schema.fields


def _with_first_name(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "names": entry["names"][:1]}


@given(made=tables(), data=st.data())
def test_other_spellings_find_the_same_fields(
    made: tuple[Table, list[Sample], list[Sample]], data: st.DataObject
) -> None:
    layout = layout_of(made[0])
    fields = [each for group in siblings(layout.schema.fields) for each in group]
    chosen = data.draw(st.lists(st.sampled_from(fields), unique_by=lambda each: each.field_id))
    spellings = {each.field_id: {each.name.upper(), each.name.title(), each.name} for each in chosen}
    mapping = parse_mapping_from_json(layout.name_mapping(spellings))
    names = {each.field_id: each.names for each in _mapped_fields(mapping.root)}
    expected = {
        each.field_id: [each.name, *sorted(spellings.get(each.field_id, set()) - {each.name})] for each in fields
    }
    # Elements of lists have more names at the end.
    assert {number: found[: len(expected[number])] for number, found in names.items()} == expected
    assert apply_name_mapping(layout.schema, mapping).fields == layout.schema.fields


def _mapped_fields(fields: Sequence[Any]) -> Iterator[Any]:
    for each in fields:
        yield each
        yield from _mapped_fields(each.fields)


def test_a_file_in_other_spelling_and_order_is_matched_by_pyiceberg() -> None:
    layout = layout_of(table([("id", "bigint"), ("place", "struct<city:string,tags:array<string>>")]))
    spelled = Schema(
        NestedField(1, "Place", StructType(NestedField(2, "City", PLAIN["string"]))),
        NestedField(3, "ID", PLAIN["bigint"]),
    )
    mapping: NameMapping = parse_mapping_from_json(layout.name_mapping({1: ["ID"], 2: ["Place"], 3: ["City"]}))
    found = apply_name_mapping(spelled, mapping)
    assert {found.find_column_name(number): number for number in (1, 2, 3)} == {"ID": 1, "Place": 2, "Place.City": 3}
    assert schema_to_pyarrow(found).names == ["Place", "ID"]


def test_a_name_mapping_is_never_ambiguous() -> None:
    layout = layout_of(table([("a", "int"), ("b", "struct<c:int>")]))
    with pytest.raises(ValueError, match="field 2 cannot have the name 'A'"):
        layout.name_mapping({1: ["A"], 2: ["A"]})
    with pytest.raises(ValueError, match="field 2 cannot have the name 'a'"):
        layout.name_mapping({2: ["a"]})
    with pytest.raises(ValueError, match="field id 4, 9, which does not exist"):
        layout.name_mapping({9: ["x"], 4: [], 3: ["C"]})
    assert '"names":["c","a"]' in layout.name_mapping({3: ["a"]})


# --- messages --------------------------------------------------------------------------------------------------------


def test_people_are_told_what_becomes_of_a_table() -> None:
    layout = layout_of(
        table(
            [("a", "char(3)"), ("b", "array<varchar(5)>"), ("c", "smallint"), ("d", "timestamp"), ("e", "char(1)")],
            [("k", "tinyint"), ("t", "timestamp")],
            buckets=Buckets(("a", "c"), 8),
        )
    )
    assert layout.describe()[1] == ColumnChange("b", "array<varchar(5)>", "list<string>", False)
    assert layout.describe()[-1] == ColumnChange("t", "timestamp", "timestamptz", True)
    assert [each.is_partition_key for each in layout.describe()] == [False] * 5 + [True] * 2
    assert layout.warnings == (
        "a, e: char(n) becomes string: the length is lost, and trailing blanks become significant",
        "b: varchar(n) becomes string, which has no maximum length",
        "c, k: tinyint and smallint become int, which allows larger numbers",
        "d, t: timestamp becomes timestamptz, an instant, which readers show in the time zone of their session",
        "t: the values of this partition key are interpreted as UTC times",
        "the table is bucketed by a, c into 8: its files are unchanged, and the Iceberg table has no buckets",
    )
    plain_layout = layout_of(table([("a", "int"), ("d", "timestamp")], [("k", "string")], FileFormat.ORC))
    assert plain_layout.warnings == ()
