"""Errors about operations that conflict."""

from __future__ import annotations

from typing import ClassVar

from catalog.errors.base import ConflictError


class OperationConflictError(ConflictError):
    """Another operation is at work on the table."""


class OperationReusedError(OperationConflictError):
    """The operation of this id was begun for another request, whose outcome is not this one's.

    Attributes:
        operation_id: The id that was used again.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, operation_id: str, begun_for: str) -> None:
        """Name the id and the earlier request."""
        self.operation_id = operation_id
        super().__init__(
            f"operation {operation_id} was begun for another request, {begun_for}; start another operation, of an id "
            "of its own (in Airflow: a run with another run id)"
        )


class PlanConflictError(ConflictError):
    """The table is not any more as a plan expects it; make a new plan."""


class FencedError(ConflictError):
    """This attempt of a job was given up and a later one, or nobody, may commit in its place."""

    retryable: ClassVar[bool] = False
