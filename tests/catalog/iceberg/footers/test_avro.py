from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from catalog.errors import FileProblem, UnusableFileError
from catalog.iceberg.footers.facts import FileFacts, FooterReader
from catalog.iceberg.manifests import zigzag
from catalog.model import FileFormat
from tests.support.iceberg_files import file_info, layout

MARKER = bytes(range(16))


def header(fields: list[dict[str, Any]]) -> bytes:
    schema = json.dumps({"type": "record", "name": "r", "fields": fields}).encode()
    meta = {b"avro.codec": b"null", b"avro.schema": schema}
    texts = b"".join(zigzag(len(text)) + text for item in meta.items() for text in item)
    return b"Obj\x01" + zigzag(2) + texts + zigzag(0) + MARKER


def block(rows: int, size: int = 10) -> bytes:
    return zigzag(rows) + zigzag(size) + b"\x55" * size + MARKER


def read(path: Path, columns: dict[str, IcebergType]) -> FileFacts:
    return FooterReader(layout(columns), FileFormat.AVRO).read(file_info(path))


def problem_of(path: Path, columns: dict[str, IcebergType]) -> FileProblem:
    with pytest.raises(UnusableFileError) as caught:
        read(path, columns)
    assert str(path) in str(caught.value)
    return caught.value.problem


A = [{"name": "A", "type": ["null", "long"]}]


@settings(max_examples=40, deadline=None)
@given(blocks=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 5000)), max_size=20))
def test_rows_are_those_of_all_blocks(blocks: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("a") / "f"
    path.write_bytes(header(A) + b"".join(block(*each) for each in blocks))
    found = read(path, {"a": LongType()})
    assert found == FileFacts(sum(rows for rows, _ in blocks), {}, {}, {}, {}, {}, {}, None, ((1, "A"),))


def test_rows_are_those_that_fastavro_wrote(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    with open(tmp_path / "f", "wb") as file:
        fastavro.writer(file, schema, [{"a": n} for n in range(5000)], codec="deflate", sync_interval=500)
    assert read(tmp_path / "f", {"a": LongType()}).row_count == 5000


def test_all_types_of_hive_and_spark_fit(tmp_path: Path) -> None:
    point = {"type": "record", "name": "p", "namespace": "n", "fields": [{"name": "x", "type": "int"}]}
    fields = [
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "f", "type": {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 5}},
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["a"]}},
        {"name": "s", "type": point},
        {"name": "l", "type": {"type": "array", "items": ["null", "n.p"]}},
    ]
    (tmp_path / "f").write_bytes(header(fields))
    struct = StructType(NestedField(20, "x", IntegerType()))
    columns: dict[str, IcebergType] = {
        "d": DateType(),
        "t": TimestamptzType(),
        "m": DecimalType(9, 2),
        "f": DecimalType(5, 0),
        "e": StringType(),
        "s": struct,
        "l": ListType(21, StructType(NestedField(22, "x", LongType())), False),
    }
    assert read(tmp_path / "f", columns).row_count == 0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([{"name": "a", "type": "long"}], FileProblem.WIDER_COLUMN),
        ([{"name": "a", "type": "string"}], FileProblem.INCOMPATIBLE_COLUMN),
        ([{"name": "a", "type": ["int", "string"]}], FileProblem.INCOMPATIBLE_COLUMN),
        ([{"name": "a", "type": "int"}, {"name": "A", "type": "int"}], FileProblem.AMBIGUOUS_NAME),
        ([{"name": "_pos", "type": "int"}], FileProblem.RESERVED_NAME),
        ([{"name": "a", "type": "unheard_of"}], FileProblem.DAMAGED),
        ([{"name": "a", "type": "int", "field-id": 2}], FileProblem.FIELD_ID),
        ([{"name": "a", "type": "int"}, {"name": "b", "type": "int", "field-id": 2}], FileProblem.FIELD_ID),
        ([{"name": "b", "type": "int"}], FileProblem.NO_COMMON_COLUMN),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    fields: list[dict[str, Any]], problem: FileProblem, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(header(fields))
    assert problem_of(tmp_path / "f", {"a": IntegerType()}) is problem


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("bytes", StringType()),
        ({"type": "string", "logicalType": "uuid"}, StringType()),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, TimestampType()),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, TimestampType()),
    ],
)
def test_types_that_icebergs_readers_fail_at_are_refused(declared: Any, kind: IcebergType, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(header([{"name": "a", "type": ["null", declared]}]))
    assert problem_of(tmp_path / "f", {"a": kind}) is FileProblem.INCOMPATIBLE_COLUMN


def test_field_ids_that_are_the_tables_are_taken(tmp_path: Path) -> None:
    array = {"type": "array", "items": "long", "element-id": 9}
    fields = [{"name": "a", "type": ["null", "int"], "field-id": 1}, {"name": "l", "type": array, "field-id": 2}]
    (tmp_path / "f").write_bytes(header(fields))
    assert read(tmp_path / "f", {"a": IntegerType(), "l": ListType(9, LongType(), False)}).row_count == 0
    assert problem_of(tmp_path / "f", {"a": IntegerType(), "l": ListType(8, LongType(), False)}) is FileProblem.FIELD_ID


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", FileProblem.EMPTY),
        (b"Obj", FileProblem.DAMAGED),
        (b"PAR1 or so", FileProblem.FOREIGN),
        (b"Obj\x01", FileProblem.DAMAGED),
        (b"Obj\x01\x00" + MARKER, FileProblem.DAMAGED),
        (b"Obj\x01" + b"\xff" * 30, FileProblem.DAMAGED),
        (header(A)[:-3], FileProblem.DAMAGED),
        (header(A) + block(5)[:-1], FileProblem.DAMAGED),
        (header(A) + block(5)[:3], FileProblem.DAMAGED),
        (header(A) + zigzag(3) + zigzag(2) + b"ab" + bytes(16), FileProblem.DAMAGED),
        (header(A) + zigzag(-3) + zigzag(2) + b"ab" + MARKER, FileProblem.DAMAGED),
    ],
)
def test_what_is_no_whole_avro_file_is_named(content: bytes, problem: FileProblem, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    assert problem_of(tmp_path / "f", {"a": LongType()}) is problem
