"""Every error says what was wrong, keeps its values, and survives its way to another process."""

from __future__ import annotations

import inspect
import pickle

import pytest

from catalog import errors
from catalog.errors import (
    BoundsNotAscendingError,
    CatalogError,
    CatalogUnavailableError,
    ConflictError,
    DuplicateColumnError,
    ExpressionError,
    IndexedKeyError,
    InvalidPartitionError,
    OperationConflictError,
    PartitionProblem,
    PartitionValueError,
    PlanConflictError,
    RefusedPartition,
    ReservedColumnError,
    StatementError,
    UnsupportedColumn,
    UnsupportedIcebergTypeError,
    WrongFieldError,
)

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, CatalogError)]
REFUSED = RefusedPartition("n=foo", "n", "foo", "int", PartitionProblem.INVALID_TYPE, "by_n")


def make(error: type[CatalogError]) -> CatalogError:
    if issubclass(error, (ExpressionError, StatementError)):
        return error("cannot be read", "n = ", 4)
    if issubclass(error, InvalidPartitionError):
        return error("demo.t", [REFUSED])
    if issubclass(error, IndexedKeyError):
        return error("demo.t", "partition key n cannot become m", ["by_n"])
    if issubclass(error, UnsupportedIcebergTypeError):
        return error("demo.t", [UnsupportedColumn("c", "void", "there is no such type")])
    if issubclass(error, DuplicateColumnError | ReservedColumnError):
        return error("demo.t", ["a", "b"])
    if issubclass(error, PartitionValueError):
        return error("n", "foo", "int", "it is not a whole number")
    if issubclass(error, BoundsNotAscendingError):
        return error("RANGE_INFO", "2", "1")
    if issubclass(error, WrongFieldError):
        return error("items", "is empty")
    return error("table demo.t is wrong")


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_an_error_survives_pickling_with_its_message_and_values(error: type[CatalogError]) -> None:
    before = make(error)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is error
    assert str(after) == str(before)
    assert vars(after) == vars(before)
    assert after.retryable is before.retryable


def test_every_error_is_in_the_drawn_tree() -> None:
    assert errors.__doc__ is not None
    assert [error.__name__ for error in CLASSES if error.__name__ not in errors.__doc__] == []


def test_only_what_may_pass_by_itself_is_worth_another_try() -> None:
    retryable = {error for error in CLASSES if error.retryable}
    assert retryable == {ConflictError, OperationConflictError, PlanConflictError, CatalogUnavailableError}


def test_an_expression_error_points_at_the_place() -> None:
    error = ExpressionError("cannot be read", "n = ", 4)
    assert str(error) == "cannot be read at position 4 in expression: n = "
    assert len(str(ExpressionError("too long", "x" * 10_000))) < 300


def test_refused_partitions_are_named_up_to_ten() -> None:
    error = InvalidPartitionError("demo.t", [REFUSED] * 12)
    assert error.refused == (REFUSED,) * 12
    assert "12 partition(s) refused" in str(error)
    assert "and 2 more" in str(error)
    assert str(error).count("'foo'") == 10


def test_an_encrypted_partition_is_named_with_the_property_that_says_so() -> None:
    refused = RefusedPartition("n=1", None, None, None, PartitionProblem.ENCRYPTED, "by_n")
    assert "'n=1'" in str(refused)
    assert "has_encrypted_data" in str(refused)
    assert "ENCRYPTED_PARTITION_ERROR" in str(refused)
