"""Parquet files that cannot be files of a table."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    TimestamptzType,
)

from catalog.errors import FileProblem, UnusableFileError
from catalog.iceberg.footers.facts import FileFacts
from tests.catalog.iceberg.footers.test_parquet import problem_of, read, write


@pytest.mark.parametrize(
    ("array", "kind", "problem"),
    [
        (pyarrow.array([1], pyarrow.int64()), IntegerType(), FileProblem.WIDER_COLUMN),
        (pyarrow.array([1.0], pyarrow.float64()), FloatType(), FileProblem.WIDER_COLUMN),
        (pyarrow.array([Decimal("1.00")], pyarrow.decimal128(9, 2)), DecimalType(5, 2), FileProblem.WIDER_COLUMN),
        (pyarrow.array([Decimal("1.0")], pyarrow.decimal128(5, 1)), DecimalType(5, 2), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array(["1"]), IntegerType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1]), StringType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1]), TimestamptzType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1], pyarrow.uint32()), LongType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1], pyarrow.uint8()), IntegerType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1], pyarrow.uint16()), LongType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([b"a"], pyarrow.binary()), StringType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([b"a"], pyarrow.binary(1)), BinaryType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([[1]]), LongType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1]), ListType(9, LongType(), False), FileProblem.INCOMPATIBLE_COLUMN),
    ],
)
def test_a_column_that_does_not_fit_is_named_with_both_types(
    array: pyarrow.Array, kind: IcebergType, problem: FileProblem, tmp_path: Path
) -> None:
    error = problem_of(write(tmp_path / "f", {"Col": array}), {"col": kind})
    assert error.problem is problem
    assert "'Col'" in str(error)
    assert str(kind) in str(error)


def require_possible(facts: FileFacts) -> None:
    """Check that a file can have such counts."""
    assert facts.row_count >= 0
    assert min([*facts.value_counts.values(), *facts.column_sizes.values()], default=0) >= 0
    for field_id, nulls in facts.null_counts.items():
        assert 0 <= nulls <= facts.value_counts[field_id]


def _with_ids(ids: dict[str, int | None]) -> pyarrow.Table:
    """Return a table whose columns have field ids, and one that is a list whose elements have one, too."""

    def field(name: str, kind: pyarrow.DataType, path: str) -> pyarrow.Field:
        number = ids.get(path)
        return pyarrow.field(name, kind, metadata=None if number is None else {"PARQUET:field_id": str(number)})

    element = field("element", pyarrow.int64(), "l.element")
    fields = [field("a", pyarrow.int64(), "a"), field("b", pyarrow.int64(), "b")]
    fields += [field("l", pyarrow.list_(element), "l")]
    return pyarrow.table([[1], [2], [[3]]], schema=pyarrow.schema(fields))


_OWN_IDS: dict[str, int | None] = {"a": 1, "b": 2, "l": 3, "l.element": 9}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, None),
        ({"a": None, "b": None, "l": None, "l.element": None}, None),
        ({"a": 2, "b": 1}, "'a' has field id 2, and the Iceberg table's column has 1"),
        ({"b": None}, "'b' has no field id"),
        ({"l.element": 4}, "'l.element' has field id 4"),
        ({"a": None, "b": None, "l": None}, "'a' has no field id"),
    ],
)
def test_field_ids_in_a_file_are_the_tables_or_the_file_is_refused(
    changes: dict[str, int | None], named: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    pyarrow.parquet.write_table(_with_ids(_OWN_IDS | changes), path)
    columns = {"a": LongType(), "b": LongType(), "l": ListType(9, LongType(), False)}
    if named is None:
        assert read(path, columns).value_counts == {1: 1, 2: 1, 9: 1}
        return
    error = problem_of(path, columns)
    assert error.problem is FileProblem.FIELD_ID
    assert named in str(error)


def test_a_strange_column_beside_field_ids_is_refused(tmp_path: Path) -> None:
    """A column that is added to the Iceberg table may get its id, and would have its values."""
    pyarrow.parquet.write_table(_with_ids(_OWN_IDS), tmp_path / "f")
    error = problem_of(tmp_path / "f", {"a": LongType(), "b": LongType()})
    assert error.problem is FileProblem.FIELD_ID
    assert "'l'" in str(error)


def test_a_file_without_any_of_the_tables_columns_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"x": pyarrow.array([1]), "day": pyarrow.array(["7"])})
    error = problem_of(path, {"a": LongType()})
    assert error.problem is FileProblem.NO_COMMON_COLUMN
    assert "(x, day)" in str(error)


def test_names_that_differ_only_in_case_are_ambiguous(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([1]), "A": pyarrow.array([1])})
    assert problem_of(path, {"a": LongType()}).problem is FileProblem.AMBIGUOUS_NAME


def test_a_reserved_name_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([1]), "_file": pyarrow.array([1])})
    assert problem_of(path, {"a": LongType()}).problem is FileProblem.RESERVED_NAME


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", FileProblem.EMPTY),
        (b"x", FileProblem.FOREIGN),
        (b"a,b\n1,2\n3,4\n5,6\n", FileProblem.FOREIGN),
        (b"PAR1PAR1", FileProblem.DAMAGED),
        (b"PAR1 and then it was cut off", FileProblem.DAMAGED),
        (b"PAR1" + b"\x07" * 30 + (20).to_bytes(4, "little") + b"PAR1", FileProblem.DAMAGED),
        (b"PAR1" + b"\x07" * 30 + (2**31).to_bytes(4, "little") + b"PAR1", FileProblem.DAMAGED),
        (b"PAR1" + b"\x07" * 30 + bytes(4) + b"PAR1", FileProblem.DAMAGED),
        (b"PAR1" + b"\x07" * 30 + (20).to_bytes(4, "little") + b"PARE", FileProblem.FOREIGN),
    ],
)
def test_what_is_no_parquet_file_is_named(content: bytes, problem: FileProblem, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    assert problem_of(tmp_path / "f", {"a": LongType()}).problem is problem


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_footer_is_a_clear_error_at_most(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    columns = {"a": pyarrow.array([1, 2]), "b": pyarrow.array(["x", "y"])}
    content = bytearray(write(folder / "f", columns).read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(len(content) - 8 - length, len(content) - 9))] = data.draw(st.integers(0, 255))
    (folder / "f").write_bytes(content)
    with suppress(UnusableFileError):
        require_possible(read(folder / "f", {"a": LongType(), "b": StringType()}))


@pytest.mark.parametrize("group", [1, 2])
def test_no_byte_of_a_footer_makes_impossible_counts(tmp_path: Path, group: int) -> None:
    columns = {"a": pyarrow.array([1, None]), "b": pyarrow.array(["x", "y"]), "c": pyarrow.array([1.5, 2.5])}
    path = write(tmp_path / "f", columns, row_group_size=group)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    for position in range(len(content) - 8 - length, len(content) - 8):
        others = (0, 1, 0x18, 0x7F, 0x80, content[position] ^ 1, content[position] ^ 0x10)
        path.write_bytes(content[:position] + bytes([others[position % len(others)]]) + content[position + 1 :])
        with suppress(UnusableFileError):
            require_possible(read(path, {"a": LongType(), "b": StringType(), "c": FloatType()}))
