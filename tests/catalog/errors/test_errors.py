"""All errors have a complete message, keep their values, and can be pickled."""

from __future__ import annotations

import inspect
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from catalog import errors
from catalog.errors import (
    AmbiguousMergeError,
    BoundsNotAscendingError,
    CatalogError,
    CatalogFullError,
    CatalogLockedError,
    CatalogUnavailableError,
    ConflictError,
    DuplicateColumnError,
    DuplicateFilesError,
    EntryModifiedError,
    ExpressionError,
    FileProblem,
    FolderBeingPurgedError,
    IndexedKeyError,
    InvalidPartitionError,
    LocationInUseError,
    MigrationConflictError,
    NestedFolderError,
    OperationConflictError,
    OperationReusedError,
    PartitionProblem,
    PartitionValueError,
    PlanConflictError,
    RefusedFile,
    RefusedPartition,
    ReservedColumnError,
    ReservedPropertyError,
    SourceUnavailableError,
    StatementError,
    UnknownIcebergTypeError,
    UnknownSnapshotError,
    UnplacedFilesError,
    UnreadableMetadataError,
    UnsupportedColumn,
    UnsupportedCommitError,
    UnsupportedIcebergTypeError,
    UnusableFileError,
    UnusableFilesError,
    WrongFieldError,
)
from catalog.errors.base import first_of

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, CatalogError)]


def subclasses(base: type[CatalogError]) -> set[type[CatalogError]]:
    return {base}.union(*(subclasses(found) for found in base.__subclasses__()))


def test_every_class_is_exported() -> None:
    own = {found for found in subclasses(CatalogError) if found.__module__.startswith("catalog.errors")}
    assert own == set(CLASSES)


REFUSED = RefusedPartition("n=foo", "n", "foo", "int", PartitionProblem.INVALID_TYPE, "by_n")


ARGUMENTS: dict[type[CatalogError], tuple[object, ...]] = {
    ExpressionError: ("cannot be read", "n = ", 4),
    StatementError: ("cannot be read", "n = ", 4),
    InvalidPartitionError: ("demo.t", [REFUSED]),
    IndexedKeyError: ("demo.t", "partition key n cannot become m", ["by_n"]),
    UnsupportedIcebergTypeError: ("demo.t", [UnsupportedColumn("c", "void", "there is no such type")]),
    UnknownIcebergTypeError: ("/lake/t", "v", "variant"),
    DuplicateColumnError: ("demo.t", ["a", "b"]),
    ReservedPropertyError: ("calve.source", ["calve.max_new_partitions"]),
    ReservedColumnError: ("demo.t", ["a", "b"]),
    PartitionValueError: ("n", "foo", "int", "it is not a whole number"),
    UnusableFileError: ("/a", FileProblem.EMPTY, "it is empty"),
    UnusableFilesError: ("demo.t", [RefusedFile("/a", FileProblem.EMPTY, "it is empty")]),
    DuplicateFilesError: ("demo.t", ["/a", "/b"], 2),
    NestedFolderError: ("/a", "/a/b"),
    LocationInUseError: ("demo.t", "/a", "demo.u", "/a/b"),
    AmbiguousMergeError: ("demo.t", "{1, a}", 2),
    BoundsNotAscendingError: ("RANGE_INFO", "2", "1"),
    WrongFieldError: ("items", "is empty"),
    UnknownSnapshotError: ("demo.t", 7, [(8, datetime(2026, 1, 31, tzinfo=UTC))]),
    UnplacedFilesError: ("demo.t", [2, 3], 4, "CALL calve.system.place('demo.t')"),
    UnreadableMetadataError: ("demo.t", "/m.json", "it is damaged"),
    UnsupportedCommitError: ("demo.t", "it has the partition spec [c]", 7, "Undo it"),
    EntryModifiedError: ("demo.t", "v", None, "1"),
    OperationReusedError: ("run", "rebalance of table demo.t"),
}
"""The arguments of errors that build their message; subclasses have the same."""


def make(error: type[CatalogError]) -> CatalogError:
    arguments = next((given for known, given in ARGUMENTS.items() if issubclass(error, known)), None)
    return error(*(arguments or ("table demo.t is wrong",)))


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
    conflicts = {ConflictError, OperationConflictError, PlanConflictError, MigrationConflictError, CatalogLockedError}
    assert retryable == {
        *conflicts,
        CatalogFullError,
        errors.StorageError,
        CatalogUnavailableError,
        errors.CommitOutcomeUnknownError,
        SourceUnavailableError,
        FolderBeingPurgedError,
        errors.FolderBeingMovedError,
        errors.SlowRequestError,
        errors.TooManyRequestsError,
    }


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


@pytest.mark.parametrize(
    ("items", "most", "more", "expected"),
    [
        (["a"], 1, {}, "a"),
        (["a", "b", "c"], 2, {}, "a, b and 1 more"),
        (["a", "b"], 5, {"count": 1_002}, "a, b and 1,000 more"),
        (["a", "b"], 5, {"count": 2, "separator": "; "}, "a; b"),
        (["a", "b", "c"], 2, {"separator": "; "}, "a; b; and 1 more"),
        ([], 3, {}, ""),
    ],
)
def test_the_first_items_are_followed_by_the_number_of_the_others(
    items: list[str], most: int, more: dict[str, Any], expected: str
) -> None:
    assert first_of(items, most, **more) == expected
