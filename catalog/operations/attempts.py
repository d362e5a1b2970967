"""Names of the folders in which attempts at operations write, unique across attempts, operations and catalogs.

`<catalog>-<number of the operation>-<attempt>`: several catalogs may have tables in the same folders, and each may only
delete what it wrote itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, select, update

from catalog.errors import FencedError, VerificationFailedError
from catalog.operations.records import FINISHED, JobState, Operation, OperationKind
from catalog.storage import Storage
from catalog.storage.schema import JobRow, OperationRow


class AttemptName(NamedTuple):
    """The name of an attempt's folder, with the numbers of operation and attempt."""

    name: str
    number: int
    attempt: int


def attempt_folder(operation: Operation, attempt: int) -> str:
    """Return the folder name of an attempt."""
    return f"{operation.folder}-{attempt}"


def attempt_name(storage: Storage, number: int, attempt: int) -> AttemptName:
    """Return the folder name of an attempt, given the operation's number."""
    return AttemptName(f"{storage.identity}-{number}-{attempt}", number, attempt)


def attempts_among(storage: Storage, names: Iterable[str], prefix: str = "") -> Iterator[AttemptName]:
    """Yield the folders of attempts at this catalog's operations, in the order of the names.

    Args:
        prefix: Prefix of the folder names.
    """
    form = re.compile(rf"{prefix}{storage.identity}-([1-9][0-9]{{0,17}})-([1-9][0-9]{{0,8}})")
    for name in names:
        if numbers := form.fullmatch(name):
            yield AttemptName(name, int(numbers[1]), int(numbers[2]))


def require_own(storage: Storage, operation: Operation, folder: str) -> None:
    """Check that a folder was written by an attempt at this operation; other folders are live or left to vacuum.

    Raises:
        VerificationFailedError: It was not.
    """
    if operation.number not in {known.number for known in attempts_among(storage, [folder])}:
        raise VerificationFailedError(
            f"table {operation.table}: no attempt at operation {operation.id} wrote the folder {folder!r}; "
            "nothing was changed. Run the operation again"
        )


def require_latest(connection: Connection, operation: Operation, staging: str) -> None:
    """Check that a staging folder is the result of the latest attempt at its step, and was not withdrawn.

    Raises:
        FencedError: It was withdrawn, or another attempt has started.
    """
    query = select(JobRow.result).where(JobRow.operation_number == operation.number, JobRow.state == JobState.SUCCEEDED)
    if not any(result.get("staging") == staging for result in connection.scalars(query)):
        raise FencedError(
            f"operation {operation.id}: {staging} was withdrawn, or another attempt stages the load; nothing was "
            "committed. Run the load again from its start"
        )


def withdraw_attempt(connection: Connection, staged: AttemptName, staging: str) -> None:
    """Prevent, from the commit on, that the files staged by an attempt are published; lock its operation."""
    operation = select(OperationRow.kind, OperationRow.state).where(OperationRow.number == staged.number)
    row = connection.execute(operation.with_for_update()).one_or_none()
    if row is None or row.state in FINISHED:
        return
    jobs = select(JobRow.step, JobRow.result).where(
        JobRow.operation_number == staged.number, JobRow.attempt == staged.attempt
    )
    for step, result in connection.execute(jobs).all():
        # The attempt of a statement that stages rows also publishes them.
        if row.kind in (OperationKind.APPEND_ROWS, OperationKind.CHANGE_ROWS) or result.get("staging") == staging:
            connection.execute(
                update(JobRow)
                .where(JobRow.operation_number == staged.number, JobRow.step == step)
                .values(state=JobState.FAILED, error_class="WITHDRAWN", error_message="its files were discarded")
            )
