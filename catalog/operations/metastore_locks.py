"""Locks of clients of the Hive Metastore's protocol, as that of a metastore without transactions.

Calve's own operations take no such locks, and do not wait for them: they are what engines agree on among themselves,
for instance for commits of Iceberg's HiveCatalog. A lock is granted when no earlier live lock conflicts with it,
granted or waiting, so that no client waits for ever behind later ones. A lock without a heartbeat for a time is free
again, by the database's clock.

Source: `TxnHandler.checkLock` of Hive 3.1 (`jumpTable`, `ignoreConflict`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from catalog.errors import InvalidRequestError, MetastoreLockNotFoundError
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.locks import hold
from catalog.storage.schema import MetastoreLockRow

TIMEOUT_MS = 300_000
"""The time after the last heartbeat at which a lock is free again. Source: `hive.txn.timeout`."""

_LOCKS = "calve metastore locks"
_LONGEST = 255


class LockState(StrEnum):
    """The states of a lock."""

    ACQUIRED = "ACQUIRED"
    WAITING = "WAITING"


class LockType(StrEnum):
    """The kinds of locks: readers share, one writer writes beside readers, and an exclusive lock is alone."""

    SHARED_READ = "SHARED_READ"
    SHARED_WRITE = "SHARED_WRITE"
    EXCLUSIVE = "EXCLUSIVE"


@dataclass(frozen=True, slots=True)
class LockComponent:
    """One of the objects that a lock locks, all or none: a database, a table, or a partition.

    Attributes:
        table: None for the whole database.
        partition: The name `k=v`; None for the whole table.
        extra: What the protocol says besides, as JSON values.
    """

    type: LockType
    database: str
    table: str | None = None
    partition: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetastoreLock:
    """A lock; times in milliseconds since 1970 UTC.

    Attributes:
        holder: The user that asked for it.
        host: The client's host.
        acquired_at_ms: None while it waits.
    """

    id: int
    state: LockState
    holder: str
    host: str
    components: tuple[LockComponent, ...]
    acquired_at_ms: int | None
    heartbeat_at_ms: int


class MetastoreLocks:
    """The locks in one catalog; all methods may run in several processes at once."""

    def __init__(self, storage: Storage, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """Set the storage.

        Args:
            timeout_ms: As `TIMEOUT_MS`; the same in all processes.
        """
        self._storage = storage
        self._timeout_ms = timeout_ms

    def lock(self, components: Iterable[LockComponent], *, holder: str, host: str) -> MetastoreLock:
        """Request a lock, and return it, granted or waiting; a waiting one is granted by `check`.

        Raises:
            InvalidRequestError: There is no component.
        """
        wanted = list(components)
        if not wanted:
            raise InvalidRequestError("the lock names no database, table or partition; name at least one component")
        with self._storage.write() as connection:
            self._start(connection)
            values = {
                "state": LockState.WAITING,
                "holder": holder[:_LONGEST],
                "host": host[:_LONGEST],
                "components": [_as_json(component) for component in wanted],
                "heartbeat_at_ms": CurrentMs(),
            }
            number = connection.execute(
                insert(MetastoreLockRow).values(**values).returning(MetastoreLockRow.id)
            ).scalar_one()
            return self._try(connection, number)

    def check(self, number: int) -> MetastoreLock:
        """Return a lock after trying to grant it; this is a heartbeat, too.

        Raises:
            MetastoreLockNotFoundError: It does not exist, or its time is over.
        """
        with self._storage.write() as connection:
            self._start(connection)
            self._beat(connection, number)
            return self._try(connection, number)

    def heartbeat(self, number: int) -> None:
        """Keep a lock alive.

        Raises:
            MetastoreLockNotFoundError: It does not exist, or its time is over.
        """
        with self._storage.write() as connection:
            self._start(connection)
            self._beat(connection, number)

    def unlock(self, number: int) -> None:
        """Release a lock, or withdraw the request for it.

        Raises:
            MetastoreLockNotFoundError: It does not exist, or its time is over.
        """
        with self._storage.write() as connection:
            self._start(connection)
            if not connection.execute(delete(MetastoreLockRow).where(MetastoreLockRow.id == number)).rowcount:
                raise _missing(number)

    def show(
        self, database: str | None = None, table: str | None = None, partition: str | None = None
    ) -> list[MetastoreLock]:
        """Return the live locks, in the order in which they were requested, perhaps only those of an object."""
        wanted = (database, table, partition)
        row = MetastoreLockRow
        with self._storage.read() as connection:
            live = row.heartbeat_at_ms >= read_clock_ms(connection) - self._timeout_ms
            rows = connection.execute(select(row.__table__).where(live).order_by(row.id)).all()
        return [lock for lock in map(_lock, rows) if any(_is_of(component, wanted) for component in lock.components)]

    def _start(self, connection: Connection) -> None:
        """Let transactions that change locks take turns, and delete the locks whose time is over."""
        hold(connection, _LOCKS)
        row = MetastoreLockRow
        connection.execute(delete(row).where(row.heartbeat_at_ms < read_clock_ms(connection) - self._timeout_ms))

    @staticmethod
    def _beat(connection: Connection, number: int) -> None:
        row = MetastoreLockRow
        if not connection.execute(update(row).where(row.id == number).values(heartbeat_at_ms=CurrentMs())).rowcount:
            raise _missing(number)

    @staticmethod
    def _try(connection: Connection, number: int) -> MetastoreLock:
        """Grant a lock unless an earlier one conflicts with it, and return it."""
        row = MetastoreLockRow
        rows = connection.execute(select(row.__table__).where(row.id <= number).order_by(row.id)).all()
        *earlier, lock = map(_lock, rows)
        if lock.state is LockState.WAITING and not any(
            _conflict(lock.components, other.components) for other in earlier
        ):
            values = {"state": LockState.ACQUIRED, "acquired_at_ms": CurrentMs()}
            granted = update(row).where(row.id == number).values(**values).returning(row.__table__)
            lock = _lock(connection.execute(granted).one())
        return lock


def _conflict(ones: Sequence[LockComponent], others: Sequence[LockComponent]) -> bool:
    return any(_excludes(one, other) for one in ones for other in others)


def _excludes(one: LockComponent, other: LockComponent) -> bool:
    if one.database != other.database or _differ(one.table, other.table) or _differ(one.partition, other.partition):
        return False
    kinds = {one.type, other.type}
    if kinds == {LockType.SHARED_READ, LockType.EXCLUSIVE}:
        # A read lock on a database, for instance to create a table in it, does not exclude locks of its tables.
        reading = one if one.type is LockType.SHARED_READ else other
        locking = other if reading is one else one
        return not (reading.table is None and locking.table is not None and locking.partition is None)
    return LockType.EXCLUSIVE in kinds or kinds == {LockType.SHARED_WRITE}


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _is_of(component: LockComponent, wanted: tuple[str | None, str | None, str | None]) -> bool:
    own = (component.database, component.table, component.partition)
    return all(name is None or name == own_name for name, own_name in zip(wanted, own, strict=True))


def _as_json(component: LockComponent) -> dict[str, Any]:
    return {
        "type": component.type.value,
        "database": component.database,
        "table": component.table,
        "partition": component.partition,
        "extra": dict(component.extra),
    }


def _lock(row: Row[Any]) -> MetastoreLock:
    components = tuple(LockComponent(**{**stored, "type": LockType(stored["type"])}) for stored in row.components)
    return MetastoreLock(
        row.id, LockState(row.state), row.holder, row.host, components, row.acquired_at_ms, row.heartbeat_at_ms
    )


def _missing(number: int) -> MetastoreLockNotFoundError:
    return MetastoreLockNotFoundError(
        f"there is no lock {number}; it was released, or had no heartbeat for too long: request a new one"
    )
