"""Errors about conflicting operations."""

from __future__ import annotations

from typing import ClassVar

from catalog.errors.base import ConflictError


class OperationConflictError(ConflictError):
    """Another operation is running on the table.

    Attributes:
        holder: The id of this operation; None if the same request does not succeed when it has ended.
    """

    def __init__(self, message: str, holder: str | None = None) -> None:
        """Build the error."""
        self.holder = holder
        super().__init__(message)


class OperationReusedError(OperationConflictError):
    """The operation of this id was started for another request, so its outcome does not apply to this one.

    Attributes:
        operation_id: The reused id.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, operation_id: str, begun_for: str) -> None:
        """Build the message from the id and the earlier request."""
        self.operation_id = operation_id
        super().__init__(
            f"operation {operation_id} was started for another request, {begun_for}; start a new operation with an id "
            "of its own (in Airflow: a run with another run id)"
        )


class CatalogLockedError(ConflictError):
    """Another transaction has held a lock for longer than this one waits; nothing was changed."""


class PlanConflictError(ConflictError):
    """The table changed after the plan was made; make a new plan."""


class FencedError(ConflictError):
    """This attempt of a job was replaced or cancelled, or its operation has ended; it may not commit."""

    retryable: ClassVar[bool] = False
