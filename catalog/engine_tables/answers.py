"""Answers to requests with an idempotency key, which a repeated request gets again.

A key is claimed before the request runs. A change of tables stores its answer in its own transaction, so that a request
whose connection was lost can be repeated without being carried out twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import CommitOutcomeUnknownError, InvalidRequestError, OperationConflictError
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.schema import GivenAnswerRow

LIFETIME_MINUTES: Final = 30
"""How long a key must be remembered; it is longer."""

_KEPT_MS = 24 * 60 * 60 * 1_000
_ABANDONED_MS = 120_000
"""After this time, a request without an answer has been lost."""


@dataclass(frozen=True)
class GivenAnswer:
    """An answer.

    Attributes:
        status: HTTP's.
        body: None without one.
    """

    status: int
    body: str | None


class GivenAnswers:
    """The answers that one catalog has given."""

    def __init__(self, storage: Storage) -> None:
        """Set the storage."""
        self._storage = storage

    def claim(self, key: str, digest: bytes) -> GivenAnswer | None:
        """Claim a key for a request that now runs; return the answer if there is one already.

        Args:
            digest: Of the request, 32 bytes.

        Raises:
            InvalidRequestError: Another request had the key.
            OperationConflictError: The request with the key is still running.
        """
        row = GivenAnswerRow
        with self._storage.write() as connection:
            now_ms = read_clock_ms(connection)
            connection.execute(delete(row).where(row.given_at_ms < now_ms - _KEPT_MS))
            try:
                with connection.begin_nested():
                    connection.execute(insert(row).values(key=key, digest=digest, given_at_ms=CurrentMs()))
                    return None
            except IntegrityError:
                known = connection.execute(select(row.__table__).where(row.key == key).with_for_update()).one()
            if bytes(known.digest) != digest:
                raise InvalidRequestError(
                    f"the idempotency key {key.rpartition('/')[2]} belongs to another request; use a new one for each "
                    "change"
                )
            if known.status is not None:
                return GivenAnswer(known.status, known.answer)
            if known.given_at_ms > now_ms - _ABANDONED_MS:
                raise OperationConflictError(
                    "a request with this idempotency key is still running; wait, and send it again", key
                )
            connection.execute(update(row).where(row.key == key).values(given_at_ms=CurrentMs()))
            return None

    @staticmethod
    def store(connection: Connection, key: str, answer: GivenAnswer) -> None:
        """Store the answer to the request with a key, in the caller's transaction."""
        row = GivenAnswerRow
        connection.execute(
            update(row).where(row.key == key).values(status=answer.status, answer=answer.body, given_at_ms=CurrentMs())
        )

    def finish(self, key: str, answer: GivenAnswer) -> None:
        """Store the answer to the request with a key."""
        with self._storage.write() as connection:
            self.store(connection, key, answer)

    def release(self, key: str, error: BaseException) -> None:
        """Forget a request that had no lasting answer, so that it can be sent again.

        Args:
            error: Why. After a commit with an unknown outcome, the answer stays if the commit stored it.
        """
        row = GivenAnswerRow
        conditions = [row.key == key]
        if isinstance(error, CommitOutcomeUnknownError):
            conditions.append(row.status.is_(None))
        with self._storage.write() as connection:
            connection.execute(delete(row).where(*conditions))
