"""Ends of operations whose work fails in the caller's process; on each database."""

from __future__ import annotations

import pytest

from catalog.errors import (
    CatalogUnavailableError,
    FencedError,
    OperationReusedError,
)
from catalog.operations.journal import Operations
from catalog.operations.records import JobState, OperationKind, OperationState
from tests.catalog.operations.test_journal import TABLE, begin
from tests.catalog.operations.test_journal import operations as operations

pytestmark = pytest.mark.smoke


def test_a_step_in_this_process_records_its_failure(operations: Operations) -> None:
    begin(operations, "run-1")
    with pytest.raises(ZeroDivisionError), operations.attempt("run-1", "register"):
        raise ZeroDivisionError("by nothing")
    failed = operations.get_job("run-1", "register")
    assert failed is not None
    assert (failed.state, failed.error_class, failed.error_message) == (
        *(JobState.FAILED, "ZeroDivisionError", "by nothing"),
    )


def test_an_error_ends_the_operation_of_a_block(operations: Operations) -> None:
    begin(operations, "run-1")
    with pytest.raises(ZeroDivisionError), operations.failing("run-1"), operations.attempt("run-1", "write"):
        raise ZeroDivisionError
    failed = operations.get("run-1")
    assert (failed.state, failed.failure_code, failed.failure_detail) == (
        *(OperationState.FAILED, "ZeroDivisionError", "ZeroDivisionError"),
    )


@pytest.mark.parametrize("error", [ZeroDivisionError("files are gone"), KeyboardInterrupt()])
def test_the_error_of_a_replaced_attempt_leaves_the_operation_to_its_successor(
    operations: Operations, error: BaseException
) -> None:
    begin(operations, "run-1")

    def replaced_attempt() -> None:
        with operations.failing("run-1"), operations.attempt("run-1", "write"):
            operations.start_job("run-1", "write")
            raise error

    with pytest.raises(FencedError, match="attempt 1 at step write") as fenced:
        replaced_attempt()
    assert fenced.value.__cause__ is error
    job = operations.get_job("run-1", "write")
    assert job is not None
    assert (operations.get("run-1").state, job.attempt, job.state) == (OperationState.RUNNING, 2, JobState.SUBMITTED)


def test_an_error_before_an_operation_begins_is_not_hidden(operations: Operations) -> None:
    with pytest.raises(ZeroDivisionError), operations.failing("run-1/1"):
        raise ZeroDivisionError


def test_a_refused_request_leaves_the_operation_of_another_one(operations: Operations) -> None:
    begin(operations, "run-1")
    with pytest.raises(OperationReusedError), operations.failing("run-1"):
        operations.begin("run-1", OperationKind.MIGRATE, TABLE, is_fixed=True)
    assert operations.get("run-1").state is OperationState.PLANNED


def test_an_error_is_not_hidden_by_a_catalog_that_is_away(
    operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(operations, "run-1")

    def away(*_arguments: object) -> None:
        raise CatalogUnavailableError("the database is away")

    def attempt() -> None:
        with operations.failing("run-1"), operations.attempt("run-1", "write"):
            monkeypatch.setattr(operations, "fail_job", away)
            monkeypatch.setattr(operations, "fail", away)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attempt()
