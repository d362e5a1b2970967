"""Approvals of deletions: which person approved which deletion of which run.

They stand in the catalog, because the users of Airflow who may start a run may also write its XComs and set the states
of its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, insert, select

from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import ApprovalRow

VALID_MS = 24 * 60 * 60 * 1000
"""An approval counts for so long; a run that is cleared later asks again."""

_BATCH = 1_000


@dataclass(frozen=True)
class Approval:
    """One person's approval.

    Attributes:
        approved_by: The person's name; None when Airflow knows none.
        age_ms: How long ago it was given when it was read, by the database's clock.
    """

    approved_by: str | None
    approved_at_ms: int
    age_ms: int = field(compare=False)

    @property
    def is_expired(self) -> bool:
        """Whether it counts no longer."""
        return self.age_ms > VALID_MS


class Approvals:
    """The approvals in one catalog."""

    def __init__(self, storage: Storage) -> None:
        """Take the database."""
        self._storage = storage

    def record(self, operation_id: str, keys: Iterable[str], approved_by: str | None) -> None:
        """Record that a person has approved deletions; a later approval replaces an earlier one.

        Args:
            operation_id: The run whose deletions they are.
            keys: A digest of what is deleted, one for each deletion.
        """
        for batch in batched(sorted(set(keys)), _BATCH):
            with self._storage.write() as connection:
                row, of_run = ApprovalRow, ApprovalRow.operation_id == operation_id
                connection.execute(delete(row).where(of_run, among(connection, row.key, batch)))
                common = {"operation_id": operation_id, "approved_by": approved_by, "approved_at_ms": CurrentMs()}
                connection.execute(insert(row).values([{**common, "key": key} for key in batch]))

    def find(self, operation_id: str, key: str) -> Approval | None:
        """Return the approval of one deletion of a run; None when nobody has approved it."""
        row = ApprovalRow
        query = select(row.approved_by, row.approved_at_ms, CurrentMs() - row.approved_at_ms)
        with self._storage.read() as connection:
            found = connection.execute(query.where(row.operation_id == operation_id, row.key == key)).one_or_none()
        return None if found is None else Approval(*found)


def expire_approvals(connection: Connection, before_ms: int) -> None:
    """Remove the expired approvals that were given before some time, in the caller's transaction."""
    given = ApprovalRow.approved_at_ms
    connection.execute(delete(ApprovalRow).where(given <= before_ms, given < CurrentMs() - VALID_MS))
