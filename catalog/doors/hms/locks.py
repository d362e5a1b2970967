"""Calls about locks."""

from __future__ import annotations

from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import NoSuchLockException, NoSuchTxnException

from catalog.doors.hms.base import Base
from catalog.errors import MetastoreLockNotFoundError
from catalog.operations.metastore_locks import LockComponent, LockState, LockType, MetastoreLock

# ruff: noqa: D102 - the calls are those of the protocol, and have its names

_TYPES = {
    ttypes.LockType.SHARED_READ: LockType.SHARED_READ,
    ttypes.LockType.SHARED_WRITE: LockType.SHARED_WRITE,
    ttypes.LockType.EXCL_WRITE: LockType.SHARED_WRITE,
    ttypes.LockType.EXCLUSIVE: LockType.EXCLUSIVE,
}
_NUMBERS = {
    LockType.SHARED_READ: ttypes.LockType.SHARED_READ,
    LockType.SHARED_WRITE: ttypes.LockType.SHARED_WRITE,
    LockType.EXCLUSIVE: ttypes.LockType.EXCLUSIVE,
}
_STATES = {LockState.ACQUIRED: ttypes.LockState.ACQUIRED, LockState.WAITING: ttypes.LockState.WAITING}


class LockCalls(Base):
    """Locks of databases, tables and partitions."""

    def lock(self, request: Any) -> Any:
        if request.txnid:
            raise NoSuchTxnException(f"there is no transaction {request.txnid}; lock without one")
        components = [
            LockComponent(
                self._given(_TYPES.get(component.type), "known type of a lock's component"),
                self._database(component.dbname),
                (component.tablename or "").lower() or None,
                component.partitionname or None,
            )
            for component in request.component or ()
        ]
        lock = self.entries.locks.lock(components, holder=request.user or self.user, host=request.hostname or "")
        return _response(lock)

    def check_lock(self, request: Any) -> Any:
        try:
            return _response(self.entries.locks.check(request.lockid))
        except MetastoreLockNotFoundError as error:
            raise NoSuchLockException(str(error)) from None

    def unlock(self, request: Any) -> None:
        try:
            self.entries.locks.unlock(request.lockid)
        except MetastoreLockNotFoundError as error:
            raise NoSuchLockException(str(error)) from None

    def heartbeat(self, request: Any) -> None:
        if request.txnid:
            raise NoSuchTxnException(f"there is no transaction {request.txnid}")
        try:
            if request.lockid:
                self.entries.locks.heartbeat(request.lockid)
        except MetastoreLockNotFoundError as error:
            raise NoSuchLockException(str(error)) from None

    def show_locks(self, request: Any) -> Any:
        wanted = (request.dbname, request.tablename, request.partname) if request is not None else ()
        locks = self.entries.locks.show(*[name.lower() if name else None for name in wanted])
        elements = [_element(lock, component) for lock in locks for component in lock.components]
        return ttypes.ShowLocksResponse(locks=elements)


def _response(lock: MetastoreLock) -> Any:
    return ttypes.LockResponse(lockid=lock.id, state=_STATES[lock.state])


def _element(lock: MetastoreLock, component: LockComponent) -> Any:
    return ttypes.ShowLocksResponseElement(
        lockid=lock.id,
        dbname=component.database,
        tablename=component.table,
        partname=component.partition,
        state=_STATES[lock.state],
        type=_NUMBERS[component.type],
        txnid=0,
        lastheartbeat=lock.heartbeat_at_ms,
        acquiredat=lock.acquired_at_ms,
        user=lock.holder,
        hostname=lock.host,
    )
