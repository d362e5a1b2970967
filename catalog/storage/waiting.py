"""Limits of waiting on PostgreSQL: for locks, for clients that do nothing, and for connections that are lost.

A process that is frozen, or cut off, in the middle of a writing transaction would otherwise hold its locks without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

if TYPE_CHECKING:
    import psycopg

LOCK_MS = 300_000
"""How long a writing transaction waits for a lock."""
IDLE_MS = 900_000
"""How long a writing transaction may do nothing between two statements; it may read and write files meanwhile."""

_IDLE_SECONDS, _INTERVAL_SECONDS, _PROBES, _UNACKNOWLEDGED_MS = 60, 15, 4, 120_000
"""As `catalog.doors.serving.listening` has them for the clients of the doors."""

_OF_SERVER = {
    "tcp_keepalives_idle": _IDLE_SECONDS,
    "tcp_keepalives_interval": _INTERVAL_SECONDS,
    "tcp_keepalives_count": _PROBES,
    "tcp_user_timeout": _UNACKNOWLEDGED_MS,
}
_OF_CLIENT = {
    "keepalives": 1,
    "keepalives_idle": _IDLE_SECONDS,
    "keepalives_interval": _INTERVAL_SECONDS,
    "keepalives_count": _PROBES,
    "tcp_user_timeout": _UNACKNOWLEDGED_MS,
}
_SET = text(
    "SELECT set_config(name, value, true) FROM (VALUES ('lock_timeout', cast(:lock AS text)), "
    "('idle_in_transaction_session_timeout', cast(:idle AS text))) AS limits (name, value) "
    "WHERE :is_forced OR current_setting(name) = '0'"
)
_HOLDER = text(
    "SELECT pid, usename, application_name, client_addr, state, "
    "extract(epoch FROM clock_timestamp() - xact_start) AS seconds FROM pg_stat_activity a "
    "WHERE datname = current_database() AND xact_start IS NOT NULL AND EXISTS (SELECT 1 FROM pg_locks l "
    "WHERE l.pid = a.pid AND l.granted AND (l.locktype = 'advisory' OR "
    "(l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'))) "
    # Those that wait themselves come last.
    "ORDER BY coalesce(wait_event_type = 'Lock', false), xact_start LIMIT 1"
)


def client_options(url: URL) -> Mapping[str, Any]:
    """Return libpq's options with which a client notices that its server is gone, without those that the URL sets."""
    return {name: value for name, value in _OF_CLIENT.items() if name not in url.query}


def keep_alive(connection: psycopg.Connection[Any], _record: Any) -> None:
    """Have the server end a new connection whose client is gone, which ends its transaction."""
    settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _OF_SERVER.items())
    connection.execute(f"SELECT {settings}".encode()).close()
    connection.commit()


def limit_waiting(connection: Connection, lock_ms: int | None) -> None:
    """Limit the waiting of a writing transaction, unless the database's own settings do.

    Args:
        lock_ms: How long to wait for a lock, whatever these settings are; None for the usual time.
    """
    lock = LOCK_MS if lock_ms is None else lock_ms
    connection.execute(_SET, {"lock": lock, "idle": IDLE_MS, "is_forced": lock_ms is not None})


def holder(engine: Engine) -> str:
    """Return a phrase about the session that probably holds the lock: the oldest transaction with locks on the catalog.

    Returns:
        Empty if it cannot be found.
    """
    try:
        with engine.connect() as connection:
            row = connection.execute(_HOLDER).one_or_none()
    except SQLAlchemyError:
        return ""
    if row is None:
        return ""
    place = "" if row.client_addr is None else f" from {row.client_addr}"
    return (
        f"session {row.pid} ({row.application_name or 'unnamed'}, user {row.usename}{place}) has had a transaction "
        f"open for {float(row.seconds):,.0f} s, and is {row.state or 'busy'}; wait for it, or end it with SELECT "
        f"pg_terminate_backend({row.pid})"
    )
