"""Answers to requests with an idempotency key, which a repeated request gets again.

A key is claimed before the request runs. A change of tables stores its answer in its own transaction, so that a request
whose connection was lost can be repeated without being carried out twice.
"""

from __future__ import annotations

from contextvars import Context
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import CatalogUnavailableError, InvalidRequestError, OperationConflictError
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.schema import GivenAnswerRow

LIFETIME_MINUTES: Final = 30
"""How long a key must be remembered; it is longer."""

_KEPT_MS = 24 * 60 * 60 * 1_000
_ABANDONED_MS = 120_000
"""After this time, a request without an answer counts as lost, and a repetition takes its key."""


@dataclass(frozen=True)
class GivenAnswer:
    """An answer.

    Attributes:
        status: HTTP's.
        body: None without one.
    """

    status: int
    body: str | None


class Claim(NamedTuple):
    """A key that belongs to a running request, unless a repetition has taken it.

    Attributes:
        at_ms: The time of the claim, which distinguishes it from others of the key.
    """

    key: str
    at_ms: int


class GivenAnswers:
    """The answers that one catalog has given."""

    def __init__(self, storage: Storage) -> None:
        """Set the storage."""
        self._storage = storage

    def claim(self, key: str, digest: bytes) -> Claim | GivenAnswer:
        """Claim a key for a request that now runs; return the answer instead if there is one already.

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
                    connection.execute(insert(row).values(key=key, digest=digest, given_at_ms=now_ms))
                    return Claim(key, now_ms)
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
            connection.execute(update(row).where(row.key == key).values(given_at_ms=now_ms))
            return Claim(key, now_ms)

    @staticmethod
    def store(connection: Connection, claim: Claim, answer: GivenAnswer) -> None:
        """Store the answer to a request, in the transaction of its change.

        Raises:
            CatalogUnavailableError: A repetition has taken the key, so that this request must change nothing.
        """
        if not _is_stored(connection, claim, answer):
            raise CatalogUnavailableError(
                f"the request took more than {_ABANDONED_MS // 1_000} seconds, and a repetition of it is running "
                "instead; wait, and send it again"
            )

    def finish(self, claim: Claim, answer: GivenAnswer) -> None:
        """Store the answer to a request that has ended, unless a repetition has taken the key."""
        # A request that was interrupted (`catalog.storage.interrupting`) has no further transactions of its own.
        Context().run(self._finish, claim, answer)

    def _finish(self, claim: Claim, answer: GivenAnswer) -> None:
        with self._storage.write() as connection:
            _is_stored(connection, claim, answer)

    def release(self, claim: Claim) -> None:
        """Forget a request without an answer, so that it can be sent again; a commit may have stored one."""
        Context().run(self._release, claim)

    def _release(self, claim: Claim) -> None:
        with self._storage.write() as connection:
            connection.execute(delete(GivenAnswerRow).where(*_running(claim)))


def _is_stored(connection: Connection, claim: Claim, answer: GivenAnswer) -> bool:
    """Store an answer; return False if the key has been taken."""
    values = {"status": answer.status, "answer": answer.body, "given_at_ms": CurrentMs()}
    return connection.execute(update(GivenAnswerRow).where(*_running(claim)).values(values)).rowcount > 0


def _running(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    row = GivenAnswerRow
    return row.key == claim.key, row.given_at_ms == claim.at_ms, row.status.is_(None)
