"""Approvals of deletions: who approved which deletion of which run.

They are stored in the catalog, because Airflow users who may start a run may also write its XComs and set the states of
its tasks.
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
"""Validity of an approval; a run that is cleared later asks again."""

_BATCH = 1_000


@dataclass(frozen=True)
class Approval:
    """One person's approval.

    Attributes:
        approved_by: The person's name; None when Airflow does not provide one.
        age_ms: Its age when it was read, by the database's clock.
    """

    approved_by: str | None
    approved_at_ms: int
    age_ms: int = field(compare=False)

    @property
    def is_expired(self) -> bool:
        """Whether the approval is no longer valid."""
        return self.age_ms > VALID_MS


class Approvals:
    """The approvals in one catalog."""

    def __init__(self, storage: Storage) -> None:
        """Use the catalog's database."""
        self._storage = storage

    def record(self, operation_id: str, keys: Iterable[str], approved_by: str | None) -> None:
        """Record that a person approved deletions; a later approval replaces an earlier one.

        Args:
            operation_id: The run of the deletions.
            keys: One digest per deletion.
        """
        for batch in batched(sorted(set(keys)), _BATCH):
            with self._storage.write() as connection:
                row, of_run = ApprovalRow, ApprovalRow.operation_id == operation_id
                connection.execute(delete(row).where(of_run, among(connection, row.key, batch)))
                common = {"operation_id": operation_id, "approved_by": approved_by, "approved_at_ms": CurrentMs()}
                connection.execute(insert(row).values([{**common, "key": key} for key in batch]))

    def find(self, operation_id: str, key: str) -> Approval | None:
        """Return the approval of one deletion of a run; None when it is not approved."""
        row = ApprovalRow
        query = select(row.approved_by, row.approved_at_ms, CurrentMs() - row.approved_at_ms)
        with self._storage.read() as connection:
            approval = connection.execute(query.where(row.operation_id == operation_id, row.key == key)).one_or_none()
        return None if approval is None else Approval(*approval)


def expire_approvals(connection: Connection, before_ms: int) -> None:
    """Remove expired approvals that were given at or before a time, in the caller's transaction."""
    given = ApprovalRow.approved_at_ms
    connection.execute(delete(ApprovalRow).where(given <= before_ms, given < CurrentMs() - VALID_MS))
