"""Locks that clients of the Hive Metastore protocol ask for, for instance Iceberg's HiveCatalog for each commit.

They exclude only one another: Calve's own changes lock the rows of their tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select, text, update

from catalog.errors.operations import MetastoreLockNotFoundError
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.schema import MetastoreLockRow

VALID_MS = 300_000
"""Time without a heartbeat after which a lock is free. Source: Hive's `metastore.txn.timeout`."""


class LockKind(StrEnum):
    """What a lock lets others do."""

    SHARED_READ = "SHARED_READ"
    """Others may read and write."""
    SHARED_WRITE = "SHARED_WRITE"
    """Others may read."""
    EXCLUSIVE = "EXCLUSIVE"
    """Others may do nothing."""


class LockState(StrEnum):
    """How far a lock is."""

    ACQUIRED = "ACQUIRED"
    WAITING = "WAITING"


@dataclass(frozen=True)
class LockComponent:
    """A database, table or partition that is locked."""

    database: str
    table: str | None
    partition: str | None
    kind: LockKind

    def conflicts_with(self, earlier: LockComponent) -> bool:
        """Return whether an earlier lock prevents this one."""
        if self.database != earlier.database:
            return False
        for mine, others in ((self.table, earlier.table), (self.partition, earlier.partition)):
            if mine is None or others is None:
                break
            if mine != others:
                return False
        kinds = {self.kind, earlier.kind}
        return LockKind.EXCLUSIVE in kinds or kinds == {LockKind.SHARED_WRITE}


@dataclass(frozen=True)
class MetastoreLock:
    """A lock.

    Attributes:
        holder: The user who asked for it.
    """

    id: int
    state: LockState
    holder: str
    host: str
    components: tuple[LockComponent, ...]
    acquired_at_ms: int | None
    heartbeat_at_ms: int


class MetastoreLocks:
    """The locks in one catalog."""

    def __init__(self, storage: Storage) -> None:
        """Use the catalog's database."""
        self._storage = storage

    def request(self, holder: str, host: str, components: Iterable[LockComponent]) -> MetastoreLock:
        """Ask for a lock; it is acquired, or waits for earlier ones.

        Args:
            holder: The user.
            host: The user's machine.
        """
        stored = [
            {"database": part.database, "table": part.table, "partition": part.partition, "kind": part.kind}
            for part in components
        ]
        values = {"state": LockState.WAITING, "holder": holder[:255], "host": host[:255], "components": stored}
        with self._storage.write() as connection:
            self._alone(connection)
            new = insert(MetastoreLockRow).values(**values, acquired_at_ms=None, heartbeat_at_ms=CurrentMs())
            number = connection.scalar(new.returning(MetastoreLockRow.id))
            assert number is not None
            return self._tried(connection, number)

    def check(self, number: int) -> MetastoreLock:
        """Return a lock, which is acquired now if nothing prevents it; this is a heartbeat, too.

        Raises:
            MetastoreLockNotFoundError: It does not exist, or has expired.
        """
        with self._storage.write() as connection:
            self._alone(connection)
            self._beat(connection, number)
            return self._tried(connection, number)

    def heartbeat(self, number: int) -> None:
        """Keep a lock.

        Raises:
            MetastoreLockNotFoundError: It does not exist, or has expired.
        """
        with self._storage.write() as connection:
            self._beat(connection, number)

    def release(self, number: int) -> None:
        """Release a lock, or stop waiting for it.

        Raises:
            MetastoreLockNotFoundError: It does not exist, or has expired.
        """
        with self._storage.write() as connection:
            if not connection.execute(delete(MetastoreLockRow).where(MetastoreLockRow.id == number)).rowcount:
                raise _missing(number)

    def all(self) -> list[MetastoreLock]:
        """Return the locks that have not expired, the oldest first."""
        with self._storage.read() as connection:
            since = read_clock_ms(connection) - VALID_MS
            return _read(connection, since)

    def _tried(self, connection: Connection, number: int) -> MetastoreLock:
        now = read_clock_ms(connection)
        connection.execute(delete(MetastoreLockRow).where(MetastoreLockRow.heartbeat_at_ms < now - VALID_MS))
        locks = _read(connection, now - VALID_MS)
        [own] = [lock for lock in locks if lock.id == number]
        if own.state is LockState.ACQUIRED:
            return own
        earlier = [part for lock in locks if lock.id < number for part in lock.components]
        if any(mine.conflicts_with(part) for mine in own.components for part in earlier):
            return own
        change = update(MetastoreLockRow).where(MetastoreLockRow.id == number)
        connection.execute(change.values(state=LockState.ACQUIRED, acquired_at_ms=now))
        return MetastoreLock(own.id, LockState.ACQUIRED, own.holder, own.host, own.components, now, own.heartbeat_at_ms)

    @staticmethod
    def _beat(connection: Connection, number: int) -> None:
        valid = MetastoreLockRow.heartbeat_at_ms >= read_clock_ms(connection) - VALID_MS
        change = update(MetastoreLockRow).where(MetastoreLockRow.id == number, valid)
        if not connection.execute(change.values(heartbeat_at_ms=CurrentMs())).rowcount:
            raise _missing(number)

    @staticmethod
    def _alone(connection: Connection) -> None:
        """Let no other transaction decide about locks until this one ends; SQLite has one writer anyway."""
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"LOCK TABLE {MetastoreLockRow.__tablename__} IN SHARE ROW EXCLUSIVE MODE"))


def _read(connection: Connection, since: int) -> list[MetastoreLock]:
    table = MetastoreLockRow.__table__
    query = select(table).where(table.c.heartbeat_at_ms >= since).order_by(table.c.id)
    return [
        MetastoreLock(
            row.id,
            LockState(row.state),
            row.holder,
            row.host,
            _components(row.components),
            row.acquired_at_ms,
            row.heartbeat_at_ms,
        )
        for row in connection.execute(query)
    ]


def _components(stored: Sequence[Any]) -> tuple[LockComponent, ...]:
    return tuple(
        LockComponent(part["database"], part["table"], part["partition"], LockKind(part["kind"])) for part in stored
    )


def _missing(number: int) -> MetastoreLockNotFoundError:
    return MetastoreLockNotFoundError(f"lock {number} does not exist, or has expired; ask for a new one")
